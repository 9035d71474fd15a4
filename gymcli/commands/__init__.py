"""One module per command: declares its options, calls the library and prints."""
