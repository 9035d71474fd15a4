"""Task files: validated, rendered, described, written again, and pulled from elsewhere."""
