"""One self-contained page that shows what runs did."""

from gymcli.reporting.html.comparison import read_comparison
from gymcli.reporting.html.page import MARK, html_report
from gymcli.reporting.html.reading import RunReading, read_run

__all__ = ["MARK", "RunReading", "html_report", "read_comparison", "read_run"]
