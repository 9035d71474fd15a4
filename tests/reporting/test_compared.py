"""A comparison says what is not alike, by how much the runs differ, and which tasks changed."""

from gymcli.metrics import Estimate, Interval
from gymcli.metrics.comparison_results import Comparison, Difference, Drift, RunSide
from gymcli.reporting.markdown import Spans, comparison_blocks

SPANS = Spans(lambda text: text)


def difference(value: float) -> Estimate:
    interval = Interval(low=value - 0.1, high=value + 0.1, level=0.95, method="t")
    return Estimate(value=value, estimator="mean", num_values=4, num_clusters=2, interval=interval)


def test_blocks_of_a_comparison():
    comparison = Comparison(
        metric="pass@1",
        a=RunSide(run="main"),
        b=RunSide(run="new"),
        num_tasks=1200,
        mean_a=0.5,
        mean_b=0.4,
        difference=difference(-0.1),
        p_value=0.0312,
        verdict="FAIL",
        broken=["t1", "t2"],
        num_broken=2,
        num_fixed=0,
        drift=[Drift(kind="prompt", name="prompt", a="x", b="y")],
        environments={"a": Difference(num_tasks=2, p_adjusted=0.5), "b": Difference()},
    )
    drift, table, broken = comparison_blocks(comparison, SPANS)
    assert drift.endswith("not the model alone differs: `prompt x in A, y in B`")
    assert broken == "Broken: `t1`, `t2`"
    assert table.splitlines() == [
        "| `pass@1` | tasks | baseline | run | difference | interval | p | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `all` | 1,200 | 0.500 | 0.400 | -0.100 | -0.200 .. 0.000 | 0.031 | FAIL |",
        "| `a` | 2 | - | - | - | - | 0.500 | INCONCLUSIVE |",
        "| `b` | 0 | - | - | - | - | - | INCONCLUSIVE |",
    ]


def test_what_would_decide_is_said():
    comparison = Comparison(
        a=RunSide(run="a"), b=RunSide(run="b"), way_out="about 30 tasks would decide"
    )
    [table, way_out] = comparison_blocks(comparison, SPANS)
    assert way_out == "about 30 tasks would decide"
    assert "| `all` | 0 |" in table
