"""The statements of docs/report.md about the page hold."""

from gymcli.reporting.html_comparison import MAX_TASKS as MAX_COMPARED
from gymcli.reporting.html_parts import MAX_DRAWN, MAX_POINTS
from gymcli.reporting.html_run import MAX_ATTEMPTS, MAX_FLAKY, MAX_TASKS
from tests.builders import gym
from tests.docs.pages import page, table_rows

TEXT = page("report.md")


def test_the_limits_of_a_page_are_named():
    limits = " ".join(cell for row in table_rows("of |", TEXT) for cell in row)
    for limit in (MAX_POINTS, MAX_TASKS, MAX_ATTEMPTS):
        assert f"{limit:,} " in limits
    assert f"{MAX_FLAKY} of each" in limits
    assert MAX_FLAKY == MAX_COMPARED
    assert f"{MAX_DRAWN} bars or points" in limits


def test_the_options_that_are_named_exist():
    help_text = gym("report", "--help").stdout
    for option in ("--env", "--by", "--gate", "--gate-on", "-o"):
        assert option in help_text
        assert option in TEXT
