"""For authors of environments: the contract, tools, roles, remote servers and the registry."""
