"""The values of k, and what a task without enough attempts does to a curve."""

import pytest

from gymcli.metrics.curves import METRICS, Curves, num_tasks_at_k, values_of_k
from gymcli.metrics.task_scores import TaskScores


def curves_of(*tasks):
    """The curves of tasks that have these rewards."""
    curves = Curves(max(map(len, tasks), default=0))
    for rewards in tasks:
        curves.add(TaskScores("quiz", "t", rewards, answers=None, num_passes=None))
    return curves


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 10])],
)
def test_values_of_k_are_powers_of_two_and_the_most(most, expected):
    assert values_of_k(most) == expected


def test_num_tasks_at_k_counts_the_tasks_with_enough_attempts():
    assert num_tasks_at_k({0: 4, 1: 1, 3: 1}) == {"1": 2, "2": 1, "3": 1}


@pytest.mark.parametrize("name", METRICS)
def test_curve_without_tasks_is_none(name):
    assert curves_of().curve(name) is None


def test_curve_leaves_out_tasks_with_too_few_attempts():
    assert curves_of([1.0, 0.0], [0.5]).curve("best_of_k") == {"1": 0.5, "2": 1.0}


def test_curve_of_a_metric_that_no_task_has_is_none():
    curves = curves_of([1.0, 0.0])
    assert curves.curve("pass_at_k") is None
    assert curves.curve("majority_at_k") is None
