"""A local page over runs of any size: lists of rollouts, each as a conversation, side by side."""

from gymcli.viewing.run import ViewedRun, open_run
from gymcli.viewing.site import Site, new_token, serve

__all__ = ["Site", "ViewedRun", "new_token", "open_run", "serve"]
