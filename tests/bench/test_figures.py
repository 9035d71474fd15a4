"""Figures against their goals, and the pages that show them."""

import pytest

from bench.__main__ import PAGE, PAGE_RESULTS, TABLE_PAGE
from bench.figures import Figure, cells, print_figures
from bench.report import (
    USER_FIGURES,
    Machine,
    Measured,
    read_report,
    summary,
    table,
    write_page,
    write_report,
)


@pytest.mark.parametrize(
    ("value", "is_at_least", "is_met"),
    [(2.0, False, True), (2.1, False, False), (2.0, True, True), (1.9, True, False)],
)
def test_figure_is_met(value, is_at_least, is_met):
    figure = Figure(what="it", goal="2", limit=2.0, is_at_least=is_at_least, value=value)
    assert figure.is_met is is_met
    assert cells(figure)[-1] == ("yes" if is_met else "NO")


def test_figure_without_a_goal_is_met_and_says_nothing():
    figure = Figure(what="it", value=12_345.6, unit="/s", lowest=1.0, highest=20_000.0)
    assert figure.is_met
    assert cells(figure) == ("it", "12,346 /s", "1 to 20,000", "", "")


def test_print_figures_shows_what_stands_behind_them(capsys):
    print_figures([Figure(what="it", value=1.234, details={"gym µs": [1.0, 2.5], "by": "hand"})])
    said = capsys.readouterr().out
    assert "1.23\N{MULTIPLICATION SIGN}" in said
    assert "it: gym µs 1 2.5, by hand" in said


MACHINE = Machine(
    num_cores=2, load_average=1.5, system="Linux x", python="3.11", libraries={"orjson": "3"}
)
REPORT = {
    "first": Measured(machine=MACHINE, seconds=1.0, figures=[Figure(what="it", value=3.0)]),
    "second": Measured(machine=MACHINE, seconds=1.0, problem="ray is missing"),
}


def test_report_is_read_as_it_was_written(tmp_path):
    assert read_report(tmp_path / "none.json") == {}
    write_report(tmp_path / "report.json", REPORT)
    assert read_report(tmp_path / "report.json") == REPORT


def test_table_says_what_could_not_be_measured():
    lines = table(REPORT).splitlines()
    assert lines[2:4] == [
        "| it | 3\N{MULTIPLICATION SIGN} |  |  |  |",
        "| second: not measured | ray is missing |  |  | NO |",
    ]
    assert lines[-2:] == [
        "Measured on: 2 cores, Linux x, Python 3.11, orjson 3.",
        "Load average before each: first 1.5, second 1.5.",
    ]


def test_summary_shows_what_users_care_about_and_what_is_missed():
    [(what, shown), *_] = USER_FIGURES.items()
    slow = Figure(what="it", goal="≤ 1", limit=1.0, value=2.0)
    figures = [Figure(what=what, value=3.0), slow]
    report = {"one": Measured(machine=MACHINE, seconds=1.0, figures=figures), **REPORT}
    assert summary(report).splitlines()[2:] == [
        f"| {shown} | 3\N{MULTIPLICATION SIGN} |  |  |",
        "",
        "Missed goals: it: 2\N{MULTIPLICATION SIGN} (goal ≤ 1); second: not measured.",
    ]


def test_pages_show_the_stored_figures():
    """Editing a page by hand or renaming a figure fails here."""
    report = read_report(PAGE_RESULTS)
    assert {*USER_FIGURES} <= {one.what for part in report.values() for one in part.figures}
    assert summary(report) in PAGE.read_text(encoding="utf-8")
    assert table(report) in TABLE_PAGE.read_text(encoding="utf-8")


def test_page_takes_the_table_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end -->\nafter\n")
    for _ in range(2):
        write_page(page, table(REPORT))
    assert page.read_text() == f"before\n<!-- figures -->\n\n{table(REPORT)}\n<!-- end -->\nafter\n"


def test_page_without_marks_is_named(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="has no lines <!-- figures -->"):
        write_page(page, table(REPORT))


def test_machine_names_no_host():
    here = Machine.here()
    assert here.num_cores > 0
    assert set(here.libraries) >= {"aiohttp", "orjson"}
