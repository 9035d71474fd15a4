"""What an author of environments touches: the contract, tools, roles, remote ones, the registry."""
