"""Task files: pulls and reads them in every format, and turns their rows into tasks."""
