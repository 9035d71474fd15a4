"""`gym check`, which tests whether an environment's scores can be trusted, and `gym init`."""
