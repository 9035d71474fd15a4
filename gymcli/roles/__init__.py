"""Models beside the policy: a judge, a simulated user, a reward model, a judge of pairs."""
