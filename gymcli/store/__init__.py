"""The files of a run: reads, appends, resumes, merges, indexes and filters them."""
