"""Can the scores of an environment be trusted? `gym check` and `gym init`."""
