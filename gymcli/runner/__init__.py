"""Many attempts: plans, collects, resumes and merges runs, within budgets, and stops them."""
