"""The simulation of coverage: a small one reaches the nominal level, and the page has tables."""

import numpy as np
import pytest

from bench.coverage import (
    GRADED,
    GRADED_REWARDS,
    PASSES,
    PLANNED,
    RATES,
    TWO_RUNS,
    Graded,
    Passes,
    Passing,
    PlannedRuns,
    Seen,
    TwoRuns,
    graded_table,
    lower_ends,
    main,
    num_planned,
    observe,
    passes_table,
    passing_table,
    planned_table,
    rates_table,
    share_of_passes,
    share_passing,
)
from gymcli.metrics.intervals import NO_SCALE, Scale
from tests.comparison.paired_tasks import compared, paired

SHARES = (Scale(1.0, is_graded=False), NO_SCALE)
GRADES = (Scale(1.0, is_graded=True), *SHARES)


@pytest.mark.parametrize(
    "scenario",
    [
        Passes(0.7, 30, 4, 0.1),
        Passes(0.97, 30, 1, 0.1),
        Passes(0.9, 100, 8, 0.5),
        Passes(0.5, 30, 4, 0.5, "pass_at_k", 2),
        Passes(0.5, 30, 4, 0.2, "pass_hat_k", 4),
    ],
)
def test_observe_covers_about_as_often_as_it_says(scenario):
    """The simulation is seeded, so the numbers never change."""
    wilson, student = observe(scenario, SHARES, num_replications=400)
    assert 0.92 <= wilson.share <= 0.99
    assert student.share <= wilson.share + 0.02


def test_observe_finds_student_wanting_near_1():
    """With 10 tasks of which nearly all pass, Student's interval is far too narrow."""
    wilson, student = observe(Passes(0.97, 10, 1, 0.1), SHARES, num_replications=400)
    assert wilson.share > 0.9
    assert student.share < 0.5


def test_observe_finds_graded_rewards_as_narrow_as_student():
    now, capped, student = observe(Graded("0.8 ± 0.05", 100, 1), GRADES, num_replications=400)
    assert 0.92 <= now.share <= 0.98
    assert now.width == pytest.approx(student.width, rel=0.01)
    assert capped.width > 7 * now.width


def test_observe_is_repeatable():
    scenario = Passes(0.5, 10, 2, 0.5)
    once = observe(scenario, SHARES, num_replications=50)
    assert observe(scenario, SHARES, num_replications=50) == once
    assert observe(scenario, SHARES, num_replications=50, seed=1) != once


@pytest.mark.parametrize(
    "scenario",
    [PlannedRuns("p = 0.5", 4, False, 0.05), PlannedRuns("0, ¼, ½, ¾, 1", 1, True, 0.05)],
)
def test_planned_runs_pass_in_four_of_five_cases(scenario):
    share = share_of_passes(scenario, num_planned(scenario), num_replications=400)
    assert share == pytest.approx(0.8, abs=0.05)


def test_tables_have_a_row_for_each_kind_and_size():
    seen = Seen(0.95, 0.1)
    for text, num_rows, start in (
        (rates_table({one: [seen, seen] for one in RATES}), 16, "| 0.5 | 10 | 95.0 (95.0) |"),
        (passes_table({one: [seen, seen] for one in PASSES}), 16, "| 0.1 | 10 | 95.0 (95.0) |"),
        (graded_table({one: [seen] * 3 for one in GRADED}), 24, "| 0.8 ± 0.05 | 10 | 95.0 (0.100)"),
        (planned_table(dict.fromkeys(PLANNED, (50, 0.8))), 8, "| p = 0.5 | 0.02 | 50: 80.0 |"),
    ):
        lines = text.splitlines()
        assert len(lines) == 2 + num_rows
        assert lines[2].startswith(start)
        assert len({line.count("|") for line in lines}) == 1


def test_main_writes_the_tables_between_their_marks(tmp_path, capsys):
    page = tmp_path / "statistics.md"
    names = ("coverage", "coverage of pass@k", "coverage of graded rewards", "planned runs")
    page.write_text("".join(f"before\n<!-- {name} -->\nold\n<!-- end -->\n" for name in names))
    main(["--replications", "1", "--write", "--page", str(page)])
    text = page.read_text()
    assert text.startswith("before\n<!-- coverage -->\n\n| p | tasks | K = 1 |")
    assert text.count("before\n") == text.count("\n<!-- end -->\n") == 4
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


def test_larger_margins_pass_more_often_near_the_ceiling():
    """The shares that docs/compare.md names."""
    for num_tasks, num_attempts, margin, share in (
        (30, 1, 0.05, 0.14),
        (10, 1, 0.12, 0.24),
        (30, 4, 0.05, 0.01),
        (10, 4, 0.12, 0.01),
    ):
        runs = TwoRuns("0.97", num_tasks, num_attempts)
        found = share_passing(runs, loss=margin, margin=margin, num_replications=4000)
        assert found.now == pytest.approx(share, abs=0.02)


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
