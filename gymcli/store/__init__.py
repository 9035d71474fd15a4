"""Reads, appends to, resumes and merges the files of tasks and runs."""
