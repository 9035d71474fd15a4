"""One attempt: the loop that plays it between model and environment, and its scoring."""
