"""One episode: the loop between model and environment, recorded as it goes."""
