"""Reports for people: the HTML report, the viewer, JUnit, Markdown and CSV."""
