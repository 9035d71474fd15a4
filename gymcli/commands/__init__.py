"""One module per command: options, wiring, printing."""
