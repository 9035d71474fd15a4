"""Many attempts: collect, resume, budgets, stop, verify and merge."""
