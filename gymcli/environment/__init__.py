"""What an author touches: the contract, tools, judges, simulated users, and the registry."""
