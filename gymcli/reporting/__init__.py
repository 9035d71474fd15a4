"""What people look at: the HTML report, the viewer, JUnit, Markdown and CSV."""
