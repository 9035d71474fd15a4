"""What follows from the numbers, sentence by sentence."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics import Interval, Metrics
from gymcli.metrics.advice import advice_of, best_num_attempts
from gymcli.metrics.results import Bounds, Variance


def numbers(*, num_tasks=50, between=0.1, within=0.1, **fields):
    """Give the numbers of a run that nothing is to be said of but where to spend."""
    total = between + within
    parts = Variance(
        between=between,
        within=within,
        intraclass_correlation=between / total if total else None,
        design_effect=None,
    )
    given = {"variance": parts, "num_clusters": num_tasks, "num_tasks": num_tasks, **fields}
    return Metrics(**given)


def told(metrics, *, num_attempts=1.0):
    """Give the advice as one text."""
    return "\n".join(advice_of(metrics, num_attempts=num_attempts))


def test_advice_of_nothing_is_nothing():
    assert advice_of(Metrics(), num_attempts=0.0) == []


@pytest.mark.parametrize(
    ("between", "within", "num_attempts", "expected"),
    [
        (0.2, 0.0, 4, "100% of the variance lies between tasks: take more tasks rather than"),
        (0.18, 0.02, 4, "90% of the variance lies between tasks: take more tasks rather than"),
        (0.1, 0.1, 1, "50% of the variance lies between tasks: more tasks narrow the interval"),
        (0.01, 0.25, 2, "(about 5 where a task costs as much as an attempt)"),
        (0.01, 0.25, 2, "4% of the variance lies between tasks: more attempts of each task pay"),
        (0.0, 0.25, 8, "(no number is too many where a task costs as much as an attempt)"),
    ],
)
def test_advice_says_where_to_spend(between, within, num_attempts, expected):
    metrics = numbers(between=between, within=within)
    assert expected in told(metrics, num_attempts=num_attempts)


def test_advice_says_nothing_of_a_variance_that_is_0():
    assert told(numbers(between=0.0, within=0.0)) == ""


def test_advice_asks_for_a_second_attempt():
    assert "--repeats 2 would tell" in told(numbers(variance=None))


@given(st.floats(0.001, 1.0), st.floats(0.0, 1.0), st.integers(1, 30))
def test_best_num_attempts_makes_the_most_of_a_budget(between, within, other):
    """The variance at a given cost, (1 + K) * (between + within/K), is smallest there."""
    best = best_num_attempts(between, within)

    def variance_at(num_attempts):
        return (1 + num_attempts) * (between + within / num_attempts)

    if best >= 1e-6:
        assert variance_at(best) <= variance_at(other) * (1 + 1e-9)


def test_best_num_attempts_of_tasks_that_agree_is_infinite():
    assert math.isinf(best_num_attempts(0.0, 0.1))


def test_advice_on_few_tasks():
    interval = Interval(low=0.1, high=0.9, level=0.95, method="wilson-neff")
    rough = "fewer than 10 tasks: the interval is rough"
    assert rough in told(numbers(num_tasks=9, interval=interval))
    assert rough not in told(numbers(num_tasks=10, interval=interval))
    assert "one task says nothing about others" in told(numbers(num_tasks=1, variance=None))


def test_advice_on_unscored_attempts_gives_their_bounds():
    metrics = numbers(num_expected=1000, num_scored=900, bounds=Bounds(low=0.45, high=0.55))
    assert (
        "100 of 1,000 attempts are not scored: whatever they would have got, the mean lies in "
        "0.450 .. 0.550"
    ) in told(metrics)
    unbounded = told(numbers(num_present=10, num_scored=9))
    assert unbounded.startswith("1 of 10 attempts are not scored\n")


@pytest.mark.parametrize(
    ("rate", "num_tasks", "expected"),
    [
        (1.0, 100, "all 100 tasks passed at every attempt: up to 3.0% failures would still fit"),
        (0.0, 10, "all 10 tasks failed at every attempt: up to 25.9% passes would still fit"),
        (1.0, 1, "the only task passed at every attempt: up to 95.0% failures would still fit"),
    ],
)
def test_advice_gives_the_rule_of_three(rate, num_tasks, expected):
    """1 - 0.05^(1/n): of 100 tasks 2.95 %, where the rule says 3/100."""
    metrics = numbers(num_tasks=num_tasks, between=0.0, within=0.0, pass_at_k={"1": rate})
    assert expected in told(metrics)


def test_advice_on_the_largest_k():
    metrics = numbers(num_tasks_at_k={"1": 50, "8": 50}, pass_at_k={"1": 0.5, "8": 0.9})
    assert "pass@8 takes all attempts" in told(metrics)
    assert "trust k up to 4, or make 16 attempts" in told(metrics)


@pytest.mark.parametrize(
    ("num_flaky", "expected"),
    [(1, "1 of 50 tasks passes at some"), (7, "7 of 50 tasks pass at some"), (None, "")],
)
def test_advice_on_flaky_tasks(num_flaky, expected):
    assert expected in told(numbers(num_flaky_tasks=num_flaky))
