"""Task files in (validate, pull, render, generate), training and table files out (export)."""
