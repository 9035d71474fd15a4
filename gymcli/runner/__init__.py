"""Many episodes: checked before anything is sent, bounded, resumable, each given as it ends."""
