"""The output in docs/compare.md is that of the commands, and its lists are complete."""

import random
import re
from typing import get_args

import pytest
from scipy.stats import binom

from gymcli.commands.compare import EXIT_CODES
from gymcli.comparison.comparison_results import (
    Change,
    Comparison,
    DriftKind,
    TaskDifference,
    TestName,
)
from gymcli.comparison.difference_verdict import DEFAULT_MARGIN
from gymcli.comparison.exact_tests import NUM_FLIPS
from gymcli.comparison.paired_runs import compare_runs
from gymcli.comparison.run_comparison import compare, doubts
from gymcli.metrics.slicing import MAX_SLICES
from tests.builders import gym, gym_line
from tests.comparison.compared import line, write_run
from tests.comparison.paired_tasks import compared, paired
from tests.docs.pages import page, shown_commands, table_names, table_rows

TEXT = page("compare.md")


def rollouts(name, gain, **more):
    """Return 120 tasks of all difficulties with four attempts each, some of which pass."""
    draw = random.Random(name)
    rates = random.Random(0)
    found = []
    for task in range(120):
        rate = rates.betavariate(0.6, 0.4) + gain
        found += [
            line(
                f"sum-{task:03}",
                attempt,
                float(draw.random() < rate),
                fields={"difficulty": "hard" if task % 3 == 0 else "easy"},
                **more,
            )
            for attempt in range(4)
        ]
    return found


def test_command_prints_what_is_shown(tmp_path, working_folder):
    write_run(tmp_path / "base", rollouts("base", 0.0, model="gpt-a"))
    asked = {"model": "gpt-b", "sampling": {"temperature": 0.7}}
    write_run(tmp_path / "new", rollouts("new", -0.03, **asked))
    [(command, shown)] = shown_commands(TEXT)
    assert gym_line(command.removeprefix("gym "), exit_code=5).stdout.splitlines() == shown


def test_exit_codes_are_those_of_the_verdicts():
    codes = {row[1].split("`")[1]: int(row[0]) for row in table_rows("exit code", TEXT)[:3]}
    assert codes == EXIT_CODES


@pytest.mark.parametrize(
    ("head", "names"),
    [("drift", get_args(DriftKind)), ("`test`", get_args(TestName)), ("change", get_args(Change))],
)
def test_tables_name_what_there_is(head, names):
    assert set(table_names(head, TEXT)) == set(names)


def test_options_are_all_described():
    options = set(re.findall(r"--[a-z-]+", gym("compare", "--help").stdout))
    assert options >= {"--help", "--margin"}
    for option in options - {"--help", "--env"}:
        assert option in TEXT


def test_keys_and_functions_are_there():
    named = set(re.findall(r"`([a-z]+_[a-z_]+|bounds|drift|compared|unknown|warnings)`", TEXT))
    others = {"task_hash", "mean_reward", "prompt"}
    fields = {*Comparison.__struct_fields__, *TaskDifference.__struct_fields__}
    assert named - others <= fields
    for function in (compare_runs, compare, doubts):
        assert callable(function)
    assert "`gymcli.runner.compare_runs(" in TEXT


def test_a_pass_is_wrong_as_often_as_is_said():
    """If one task in twenty is broken, at most 2 of 100 are in an eighth of the cases."""
    assert binom.cdf(2, 100, 0.05) == pytest.approx(1 / 8, abs=0.03)
    for broken, verdict in ((2, True), (3, False)):
        pairs = [([1.0], [float(task >= broken)]) for task in range(100)]
        assert (compared(paired(pairs), margin=0.05).verdict == "PASS") == verdict


def test_numbers_are_those_of_the_code():
    assert f"{NUM_FLIPS:,} of these ways" in TEXT
    assert f"it is {DEFAULT_MARGIN:.0%} of the range".replace("%", " %") in TEXT
    assert f"A field may have {MAX_SLICES:,} values" in TEXT
