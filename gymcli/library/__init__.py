"""What `import gymcli` offers: a module for each question to a run, its options and results."""
