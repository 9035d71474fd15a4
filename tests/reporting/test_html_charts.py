"""Charts of a run's numbers: no value is lost, and every row and bar is told apart."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.results import Estimate, Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.html_charts import (
    MAX_DRAWN,
    MAX_FLAKY,
    MAX_POINTS,
    Bin,
    bins_of,
    component_chart,
    counts_tables,
    curve_chart,
    environments_table,
    failure_chart,
    flaky_table,
    groups_of,
    reward_chart,
    sample_of,
    slice_charts,
)
from gymcli.reporting.html_parts import distinct_labels


@pytest.mark.parametrize(
    "rewards",
    [
        [0.12341, 0.123411, 0.123412, 0.5],
        [1e6 + number / 100 for number in range(40)],
        [-1e-9, 1e-9, 1e300],
    ],
)
def test_every_bin_has_a_bar_and_a_row_of_its_own(rewards):
    """Bars of one label would lie on each other."""
    chart = reward_chart("name", rewards, best=None)
    (bars,) = chart.figure["data"]
    assert len(set(bars["x"])) == len(bars["x"]) == len(chart.table.rows)
    assert sum(bars["y"]) == len(rewards)


def test_labels_are_as_short_as_they_can_be():
    (bars,) = reward_chart("name", [0.0, 1 / 3, 1.0, 12345.5], best=None).figure["data"]
    assert bars["x"] == ["0", "0.3333", "1", "1.235e+04"]


def test_lines_that_cannot_be_told_apart_are_one():
    """The sums behind two curves may be rounded apart."""
    curves = {"pass_at_k": {"1": 0.3, "2": 0.6}, "best_of_k": {"1": 0.1 + 0.2, "2": 0.6}}
    numbers = {"pass@1": 0.3, "pass@2": 0.6, "best@1": 0.1 + 0.2, "best@2": 0.6}
    estimates = {
        name: Estimate(value=value, estimator="mean", num_values=2, num_clusters=1)
        for name, value in numbers.items()
    }
    chart = curve_chart("name", Metrics(**curves, estimates=estimates), best=1.0)
    assert [line["name"] for line in chart.figure["data"]] == ["pass@k = best@k"]
    assert len(chart.table.rows) == 4


def test_environments_of_different_best_rewards_have_no_mean_together():
    parts = {name: Metrics(num_scored=1, mean_reward=1.0) for name in ("a", "b")}
    table = environments_table(RunMetrics(num_scored=2, environments=parts))
    assert [row[0] for row in table.rows] == ["a", "b", "all"]
    assert "no mean is taken over all of them" in table.note
    assert environments_table(RunMetrics(environments={"a": parts["a"]})).note == ""


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
    assert table.caption == "Requests that were tried again"


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


def test_labels_are_short_and_distinct():
    labels = distinct_labels(["x" * 50, "x" * 60, "y"])
    assert labels == [f"{'x' * 39}…", f"{'x' * 39}… (2)", "y"]


REWARDS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)
PAIRS = st.lists(st.tuples(st.integers(0, 60), st.floats(-10, 10)), min_size=1, max_size=200)


def test_few_values_have_a_bin_each():
    assert bins_of([1.0, 0.0, 1.0]) == [Bin(0.0, 0.0, 1), Bin(1.0, 1.0, 2)]
    assert bins_of([]) == []


def test_bins_end_where_rewards_do():
    values = [number / 40 for number in range(40)]
    bins = bins_of(values, most=1.0)
    assert (bins[0].low, bins[-1].high) == (0.0, 1.0)
    assert [one.num_values for one in bins] == [2] * 20
    assert bins_of([*values, 2.0], most=1.0)[-1].high == 2.0


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


def test_a_sample_is_the_same_every_time():
    values = range(MAX_POINTS + 500)
    sample = sample_of(values, seed="a")
    assert len(sample) == len(set(sample)) == MAX_POINTS
    assert list(sample) == sorted(sample)
    assert sample_of(values, seed="a") == sample != sample_of(values, seed="b")
    assert sample_of(values[:MAX_POINTS], seed="a") == values[:MAX_POINTS]
