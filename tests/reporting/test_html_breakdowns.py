"""The numbers of a run broken down."""

from gymcli.metrics import Estimate, Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.html_charts import (
    MAX_DRAWN,
    MAX_FLAKY,
    component_chart,
    counts_tables,
    distinct_labels,
    environments_table,
    failure_chart,
    flaky_table,
    slice_charts,
)


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
