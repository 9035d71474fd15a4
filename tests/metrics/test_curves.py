"""The values of k, and what a task without enough attempts does to a curve."""

import pytest

from gymcli.metrics.curves import METRICS, curve, num_tasks_at_k, values_of_k
from gymcli.metrics.tally import TaskScores


def task(rewards, *, num_passes=None, answers=None):
    return TaskScores("quiz", "t", rewards, answers, num_passes, {}, {}, [])


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 10])],
)
def test_values_of_k_are_powers_of_two_and_the_most(most, expected):
    assert values_of_k([task([0.0] * most), task([])]) == expected


def test_num_tasks_at_k_counts_the_tasks_with_enough_attempts():
    assert num_tasks_at_k([task([1.0] * 3), task([1.0])]) == {"1": 2, "2": 1, "3": 1}


@pytest.mark.parametrize("name", METRICS)
def test_curve_without_tasks_is_none(name):
    assert curve(name, []) is None


def test_curve_leaves_out_tasks_with_too_few_attempts():
    assert curve("best_of_k", [task([1.0, 0.0]), task([0.5])]) == {"1": 0.5, "2": 1.0}
