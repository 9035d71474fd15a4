"""What of a task is compared."""

import pytest

from gymcli.errors import UsageError
from gymcli.metrics.comparison import parse_measure


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("mean_reward", [1.0, 0.0, 0.5], 0.5),
        ("mean_reward", [], None),
        ("pass@1", [1.0, 0.0, 0.5], 1 / 3),
        ("pass@2", [1.0, 0.0, 0.0], 2 / 3),
        ("pass@4", [1.0, 0.0, 0.0], None),
        ("pass^2", [1.0, 1.0, 0.0], 1 / 3),
        ("avg@2", [1.0, 0.5, 0.0], 0.75),
        ("best@2", [0.0, 1.0], 1.0),
        ("components.format", [1.0, 3.0], 2.0),
        ("metrics.steps", [4.0], 4.0),
    ],
)
def test_value_of_a_task(name, values, expected):
    assert parse_measure(name).value(values, 1.0) == (
        None if expected is None else pytest.approx(expected)
    )


def test_success_needs_a_threshold():
    for name in ("pass@1", "pass^2"):
        assert parse_measure(name).needs_threshold
        assert parse_measure(name).value([1.0, 1.0], None) is None
    assert not parse_measure("best@2").needs_threshold


@pytest.mark.parametrize(
    "name", ["majority@2", "micro_mean_reward", "pass@0", "pass@", "pass@-1", "components.", "cost"]
)
def test_what_has_no_value_of_a_task_is_refused_with_what_has(name):
    with pytest.raises(UsageError, match="mean_reward, pass@K, pass\\^K") as raised:
        parse_measure(name)
    assert f"--metric {name}: " in str(raised.value)
