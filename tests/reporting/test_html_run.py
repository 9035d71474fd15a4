"""The page about one run: no value is lost, and omissions are stated."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.results import Estimate, Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.html_parts import MAX_DRAWN
from gymcli.reporting.html_run import (
    MAX_ATTEMPTS,
    MAX_FLAKY,
    MAX_TASKS,
    AttemptColumns,
    Bin,
    ReportedRun,
    bins_of,
    component_chart,
    counts_tables,
    curve_chart,
    effort_charts,
    environments_table,
    failure_chart,
    flaky_table,
    groups_of,
    reward_chart,
    run_section,
    runs_table,
    slice_charts,
    task_data,
)
from gymcli.store.manifest import Manifest


def run_of(*tasks, attempts=None, **fields):
    given = {"manifest": None, "models": ["m"], "warnings": (), "best_rewards": {}, **fields}
    metrics = RunMetrics(environments={"quiz": Metrics()})
    return ReportedRun(name="run", metrics=metrics, tasks=tasks, attempts=attempts or {}, **given)


def numbered_task(number):
    mean = number / (2 * MAX_TASKS)
    return TaskMetrics(
        env="quiz", task_id=str(number), num_scored=1, num_unscored=0, mean_reward=mean
    )


def test_what_a_page_does_not_hold_is_said():
    section = run_section(run_of(*map(numbered_task, range(MAX_TASKS + 5))), "run-1")
    assert "holds the 20,000 tasks with the lowest mean rewards of 20,005" in section.tasks.note
    assert section.tasks.note in section.tasks.attempts_note
    assert run_section(run_of(numbered_task(0)), "run-1").tasks.note == ""


def test_attempts_that_are_not_shown_are_counted():
    attempts = AttemptColumns({"0": dict.fromkeys(range(MAX_ATTEMPTS + 6), 1.0)})
    section = run_section(run_of(numbered_task(0), attempts={"quiz": attempts}), "run-1")
    assert "Shown: the first 64 of up to 70 attempts." in section.tasks.attempts_note


def test_facts_are_those_of_the_manifest():
    manifest = Manifest(
        model="m",
        identity={"params": {"temperature": 0.5}},
        shard="1/4",
        started_at=0.5,
        seconds=1234.5,
        git_commit="0123456789abcdef",
    )
    assert run_section(run_of(manifest=manifest), "run-1").facts == [
        ("Model", "m"),
        ("Environments", "quiz"),
        ("Sampling", "temperature 0.5"),
        ("Started", "1970-01-01 00:00 UTC"),
        ("Took", "1,234 s"),
        ("Shard", "1/4"),
        ("Commit", "0123456789ab"),
    ]
    assert run_section(run_of(manifest=Manifest(started_at=1e30)), "run-1").facts == [
        ("Model", "m"),
        ("Environments", "quiz"),
    ]


def test_warnings_are_doubts():
    doubts = run_section(run_of(warnings=["its metrics failed"]), "run-1").doubts
    assert doubts[0] == "its metrics failed."


def test_many_environments_share_a_line():
    def effort(seconds):
        attempts = AttemptColumns()
        attempts.seconds.append(seconds)
        attempts.completion_tokens.append(5.0)
        return attempts

    efforts = {f"e{number}": effort(number + 1.0) for number in range(6)}
    (tokens,) = effort_charts("run-1", Metrics(), efforts)
    assert tokens.name == "run-1-tokens"
    assert [line["name"] for line in tokens.figure["data"]] == ["all environments"]
    (tokens,) = effort_charts("run-1", Metrics(), {"e0": effort(0.0), "e1": effort(0.0)})
    assert [line["name"] for line in tokens.figure["data"]] == ["e0", "e1"]
    assert effort_charts("run-1", Metrics(), {}) == []


def task(task_id, mean, **fields):
    given = {"num_scored": 0 if mean is None else 1, "num_unscored": 0, **fields}
    ends = {"min_reward": mean, "max_reward": mean}
    return TaskMetrics(env="quiz", task_id=task_id, mean_reward=mean, **ends, **given)


def test_the_worst_tasks_come_first():
    held = task_data([task("b", 1.0), task("c", 0.0), task("a", 1.0), task("d", None)], {}, {})
    assert held.data["id"] == ["d", "c", "a", "b"]


def test_of_many_tasks_the_worst_are_held():
    tasks = [task(f"t{number}", number / MAX_TASKS) for number in range(MAX_TASKS + 5)]
    held = task_data(tasks, {}, {})
    assert len(held.data["mean"]) == MAX_TASKS
    assert max(held.data["mean"]) < 1.0


def test_attempts_stand_in_order_with_gaps():
    attempts = AttemptColumns({"a": {3: 0.5, 0: None}, "b": dict.fromkeys(range(99), 1.0)})
    held = task_data([task("a", 0.5), task("b", 1.0)], {"quiz": attempts}, {})
    assert held.data["attempts"][0] == ["x", None, None, 0.5]
    assert len(held.data["attempts"][1]) == MAX_ATTEMPTS
    assert "of up to 99 attempts" in held.attempts_note


def test_long_texts_are_cut():
    held = task_data([task("t" * 500, 0.0, majority_answer="two\nlines " + "x" * 500)], {}, {})
    assert len(held.data["id"][0]) == 200
    assert held.data["answer"][0].startswith("two lines x")
    assert held.data["answer"][0].endswith("…")


@pytest.mark.parametrize(
    ("means", "best", "ends"),
    [
        ([0.0, 0.0], 1.0, [0.0, 1.0]),
        ([0.0, 0.5], 1.0, [0.0, 1.0]),
        ([0.5, 1.0], None, [0.0, 1.0]),
        ([0.0, 0.0], None, [0.0, 0.0]),
        ([-2.0, 3.0], None, [-2.0, 3.0]),
        ([None], 1.0, [0.0, 1.0]),
    ],
)
def test_colours_reach_from_nothing_to_the_best(means, best, ends):
    """A run that failed everything must not look like one that passed everything."""
    held = task_data([task(str(mean), mean) for mean in means], {}, {"quiz": best})
    assert held.data["ranges"] == [ends]


def test_environments_have_colours_of_their_own():
    other = TaskMetrics(
        env="sums", task_id="a", num_scored=1, num_unscored=0, min_reward=5.0, max_reward=5.0
    )
    held = task_data([task("a", 0.5), other], {}, {"quiz": 1.0, "sums": None})
    assert held.data["environments"] == ["quiz", "sums"]
    assert held.data["ranges"] == [[0.0, 1.0], [0.0, 5.0]]


@pytest.mark.parametrize(
    "rewards",
    [
        [0.12341, 0.123411, 0.123412, 0.5],
        [1e6 + number / 100 for number in range(40)],
        [-1e-9, 1e-9, 1e300],
    ],
)
def test_every_bin_has_a_bar_and_a_row_of_its_own(rewards):
    """Bars with the same label would overlap."""
    chart = reward_chart("name", rewards, best=None)
    (bars,) = chart.figure["data"]
    assert len(set(bars["x"])) == len(bars["x"]) == len(chart.table.rows)
    assert sum(bars["y"]) == len(rewards)


def test_labels_are_as_short_as_they_can_be():
    (bars,) = reward_chart("name", [0.0, 1 / 3, 1.0, 12345.5], best=None).figure["data"]
    assert bars["x"] == ["0", "0.3333", "1", "1.235e+04"]


def test_lines_that_cannot_be_told_apart_are_one():
    """The sums of two curves may be rounded differently."""
    curves = {"pass_at_k": {"1": 0.3, "2": 0.6}, "best_of_k": {"1": 0.1 + 0.2, "2": 0.6}}
    numbers = {"pass@1": 0.3, "pass@2": 0.6, "best@1": 0.1 + 0.2, "best@2": 0.6}
    known = {"num_tasks_at_k": {"1": 1, "2": 1}, "is_graded": True}
    estimates = {
        name: Estimate(value=value, estimator="mean", num_values=2, num_clusters=1)
        for name, value in numbers.items()
    }
    chart = curve_chart("name", Metrics(**curves, **known, estimates=estimates), best=1.0)
    assert [line["name"] for line in chart.figure["data"]] == ["pass@k = best@k"]
    assert len(chart.table.rows) == 4


def test_environments_of_different_best_rewards_have_no_mean_together():
    parts = {name: Metrics(num_scored=1, mean_reward=1.0) for name in ("a", "b")}
    table = environments_table(RunMetrics(num_scored=2, environments=parts))
    assert [row[0] for row in table.rows] == ["a", "b", "all"]
    assert "there is no mean over all of them" in table.note
    assert environments_table(RunMetrics(environments={"a": parts["a"]})).note == ""


def test_coverage_of_runs_is_shown_if_an_attempt_is_missing():
    whole, part = (
        dataclasses.replace(run_of(), metrics=RunMetrics(coverage=share)) for share in (1.0, 0.5)
    )
    head = runs_table([whole, whole]).head
    assert not {"coverage", "unscored", "strict mean", "flaky tasks", "cost"} & set(head)
    table = runs_table([whole, part])
    assert [row[table.head.index("coverage")].text for row in table.rows] == ["100.0 %", "50.0 %"]


def test_numbers_of_the_environment_itself_stand_with_the_components():
    estimate = Estimate(value=0.5, estimator="mean", num_values=2, num_clusters=2)
    metrics = Metrics(
        components={"style": 0.5},
        estimates={"components.style": estimate},
        environment_metrics={"elo": 1234.5},
    )
    chart = component_chart("run-1", metrics)
    assert [row[0] for row in chart.table.rows] == ["style", "elo"]
    assert chart.table.rows[1][1].value == 1234.5
    assert chart.table.rows[1][-1] == "the environment's own"
    assert chart.figure is None
    alone = component_chart("run-1", Metrics(environment_metrics={"elo": 1.0}))
    assert alone.words == "Numbers that the environment computes itself."
    assert component_chart("run-1", Metrics()) is None


def test_the_commonest_failures_are_drawn_and_all_are_in_the_table():
    failures = {f"Error{number}": number + 1 for number in range(MAX_DRAWN + 5)}
    chart = failure_chart("run-1", Metrics(failures=failures))
    assert len(chart.table.rows) == MAX_DRAWN + 5
    (bars,) = chart.figure["data"]
    assert len(bars["y"]) == MAX_DRAWN
    assert bars["y"][0] == f"Error{MAX_DRAWN + 4}"
    assert failure_chart("run-1", Metrics()) is None


def test_counts_are_shown_where_there_are_any():
    assert counts_tables(Metrics()) == []
    (table,) = counts_tables(Metrics(retries={"RateLimitError": 3}))
    assert table.caption == "Retried requests"


def test_slices_without_a_score_are_in_the_table_alone():
    slices = {"kind": {"a": Metrics(mean_reward=0.5, num_scored=1), "b": Metrics(num_unscored=1)}}
    (chart,) = slice_charts("run-1", Metrics(slices=slices))
    assert [row[0] for row in chart.table.rows] == ["b", "a"]
    assert chart.words == "a: 0.500."
    assert chart.figure["data"][0]["y"] == ["a"]
    (chart,) = slice_charts("run-1", Metrics(slices={"kind": {"b": Metrics(num_unscored=1)}}))
    assert (chart.figure, chart.words) == (None, "Nothing is scored.")
    assert slice_charts("run-1", Metrics(slices={"kind": {}})) == []


def test_of_many_slices_the_lowest_are_drawn():
    found = {f"{n:03}": Metrics(mean_reward=n / 100, num_scored=1) for n in range(MAX_DRAWN + 1)}
    (chart,) = slice_charts("run-1", Metrics(slices={"kind": found}))
    assert chart.words.endswith(f"Drawn: the {MAX_DRAWN} lowest.")
    assert len(chart.figure["data"][0]["y"]) == MAX_DRAWN


def test_flaky_tasks_nearest_to_one_half_come_first():
    def task(name, passed):
        return TaskMetrics(env="e", task_id=name, num_scored=4, num_unscored=0, num_passes=passed)

    table = flaky_table([task("a", 1), task("b", 2), task("c", 4), task("d", 0), task("e", None)])
    assert [row[0] for row in table.rows] == ["b", "a"]
    many = flaky_table([task(str(number), 2) for number in range(MAX_FLAKY + 1)])
    assert len(many.rows) == MAX_FLAKY
    assert many.note.startswith(f"{MAX_FLAKY} of {MAX_FLAKY + 1};")
    assert flaky_table([task("c", 4)]) is None


REWARDS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)
PAIRS = st.lists(st.tuples(st.integers(0, 60), st.floats(-10, 10)), min_size=1, max_size=200)


def test_few_values_have_a_bin_each():
    assert bins_of([1.0, 0.0, 1.0]) == [Bin(0.0, 0.0, 1), Bin(1.0, 1.0, 2)]
    assert bins_of([]) == []


def test_bins_end_where_rewards_do():
    values = [number / 40 for number in range(40)]
    bins = bins_of(values, largest=1.0)
    assert (bins[0].low, bins[-1].high) == (0.0, 1.0)
    assert [one.num_values for one in bins] == [2] * 20
    assert bins_of([*values, 2.0], largest=1.0)[-1].high == 2.0


@given(REWARDS)
def test_every_value_is_in_one_bin(values):
    bins = bins_of(values)
    assert sum(one.num_values for one in bins) == len(values)
    assert bins[0].low == min(values)
    assert bins[-1].high == max(values)
    for one in bins[:-1]:
        if one.low < one.high:
            assert sum(one.low <= value < one.high for value in values) == one.num_values


@given(PAIRS)
def test_every_pair_is_in_one_group(pairs):
    groups = groups_of(pairs)
    assert sum(one.num_values for one in groups) == len(pairs)
    for one, following in itertools.pairwise(groups):
        assert one.high < following.low
    for one in groups:
        inside = [pair for pair in pairs if one.low <= pair[0] <= one.high]
        assert len(inside) == one.num_values
        assert math.isclose(one.mean_y, math.fsum(y for _, y in inside) / len(inside), abs_tol=1e-9)
        assert one.low <= one.mean_x <= one.high


def test_many_values_are_grouped_in_tenths():
    groups = groups_of([(number, 0.0) for number in range(1000)])
    assert [one.num_values for one in groups] == [100] * 10
    assert groups_of([]) == []
