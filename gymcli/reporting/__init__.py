"""What is handed on about runs: a page, and the files of pipelines."""
