"""The simulation of coverage: a small one reaches the nominal level, and the page has its table."""

import numpy as np
import pytest

from bench.coverage import (
    GRADED_REWARDS,
    SCENARIOS,
    TWO_RUNS,
    Observed,
    Passing,
    Scenario,
    TwoRuns,
    lower_ends,
    main,
    observe,
    passing_table,
    share_passing,
    table,
)
from tests.metrics.paired_tasks import compared, paired


@pytest.mark.parametrize(
    "scenario",
    [Scenario(0.7, 30, 4, 0.1), Scenario(0.97, 30, 1, 0.1), Scenario(0.9, 100, 8, 0.5)],
)
def test_observe_covers_about_as_often_as_it_says(scenario):
    """The simulation is seeded, so the numbers never change."""
    found = observe(scenario, num_replications=400)
    assert 0.92 <= found.wilson <= 0.99
    assert found.student <= found.wilson + 0.02


def test_observe_finds_student_wanting_near_1():
    """With 10 tasks of which nearly all pass, Student's interval is far too narrow."""
    found = observe(Scenario(0.97, 10, 1, 0.1), num_replications=400)
    assert found.wilson > 0.9
    assert found.student < 0.5


def test_observe_is_repeatable():
    scenario = Scenario(0.5, 10, 2, 0.5)
    assert observe(scenario, num_replications=50) == observe(scenario, num_replications=50)
    assert observe(scenario, num_replications=50, seed=1) != observe(
        scenario, num_replications=50, seed=2
    )


def test_table_has_a_row_for_each_rate_and_size():
    text = table({scenario: Observed(0.95, 0.5) for scenario in SCENARIOS})
    lines = text.splitlines()
    assert len(lines) == 2 + 4 * 3
    assert lines[2].startswith("| 0.5 | 10 | 95.0 (50.0) |")
    assert len({line.count("|") for line in lines}) == 1


def test_main_writes_the_table_between_its_marks(tmp_path, capsys):
    page = tmp_path / "statistics.md"
    page.write_text("before\n<!-- coverage -->\nold\n<!-- end -->\nafter\n")
    main(["--replications", "1", "--write", "--page", str(page)])
    text = page.read_text()
    assert text.startswith("before\n<!-- coverage -->\n\n| p | tasks | K = 1 |")
    assert text.endswith("\n<!-- end -->\nafter\n")
    assert "old" not in text
    assert "1 replications a cell, seed 0" in capsys.readouterr().out


def test_main_refuses_a_page_without_marks(tmp_path):
    page = tmp_path / "statistics.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="has no <!-- coverage -->"):
        main(["--replications", "1", "--write", "--page", str(page)])


@pytest.mark.parametrize("rewards", ["0.5", "0.97", *GRADED_REWARDS])
@pytest.mark.parametrize("num_attempts", [1, 4])
def test_simulated_verdicts_are_those_of_compare(rewards, num_attempts):
    """The simulation computes many comparisons at once, `gym compare` one."""
    random = np.random.default_rng(1)
    for num_tasks in (3, 15):  # of more tasks, `compare` would draw sign flips
        a, b = TwoRuns(rewards, num_tasks, num_attempts).draw(random, 8, 0.02)
        _, lows = lower_ends(a, b)
        for one, other, low in zip(a.tolist(), b.tolist(), lows, strict=True):
            deciding = compared(paired(list(zip(one, other, strict=True)))).deciding_interval
            assert low == pytest.approx(-1.0 if deciding is None else deciding.low)


@pytest.mark.parametrize("rewards", ["0.7", *GRADED_REWARDS])
def test_simulated_runs_differ_by_the_loss(rewards):
    a, b = TwoRuns(rewards, 100, 2).draw(np.random.default_rng(0), 400, 0.02)
    assert a.mean() - b.mean() == pytest.approx(0.02, abs=0.006)


def test_passes_are_rarely_wrong_where_nearly_all_tasks_pass():
    """Student's interval alone passes most of these comparisons."""
    found = share_passing(TwoRuns("0.97", 10, 1), loss=0.02, num_replications=400)
    assert found.before > 0.5
    assert found.now < 0.06


def test_main_prints_the_verdicts(capsys):
    main(["--verdicts", "--replications", "1"])
    text = capsys.readouterr().out
    assert text.startswith("| rewards | tasks | false, K = 1 | true, K = 1 |")
    assert "1 replications a cell, seed 0" in text


def test_table_of_verdicts_has_a_row_for_each_kind_and_size():
    both = (Passing(0.5, 0.05), Passing(0.6, 0.3))
    lines = passing_table(dict.fromkeys(TWO_RUNS, both)).splitlines()
    assert len(lines) == 2 + 9 * 4
    assert lines[2] == "| 0 or 1, p = 0.5 | 10 |" + " 50.0 → 5.0 | 60.0 → 30.0 |" * 2
