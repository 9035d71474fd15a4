"""`gym verify`: scores stored rollouts again."""
