"""Models beside the policy: who plays each role, asked through the client, cached and counted."""
