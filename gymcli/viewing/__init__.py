"""A local page over runs of any size: lists of rollouts, each as a conversation, side by side."""
