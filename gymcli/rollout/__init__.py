"""One attempt: played by the loop between model and environment, and scored."""
