"""The files of tasks and runs: read, append, resume, merge."""
