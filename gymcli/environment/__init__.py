"""The Environment contract and @tool: everything that an environment is written against."""
