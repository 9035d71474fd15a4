"""What `import gymcli` offers and the commands call: one module for each question to a run."""
