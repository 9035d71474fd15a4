"""The author's workbench: begin an environment, and find out whether its scores can be trusted."""
