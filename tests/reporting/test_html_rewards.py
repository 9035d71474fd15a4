"""Charts of rewards."""

import pytest

from gymcli.metrics import Estimate, Metrics
from gymcli.reporting.html_charts import curve_chart, reward_chart


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
