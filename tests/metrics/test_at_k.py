"""Metrics of k attempts against their definitions and laws."""

import itertools
import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gymcli.metrics.at_k import (
    MAX_SUBSETS,
    METRICS,
    TaskRewards,
    majority_at_k,
    pass_at_k,
    pass_hat_k,
    values_of_k,
)
from gymcli.metrics.estimators import mean

rewards = st.floats(0.0, 1.0)
any_rewards = st.floats(-1e6, 1e6)


def group(rewards, *, threshold=None, answers=None, seeds=()):
    """Draw the rewards of tasks with equal numbers of attempts."""
    numbers = None if answers is None else np.array(answers)
    return TaskRewards(np.array(rewards, dtype=float), threshold, numbers, seeds)


def avg_at_k(rewards, k):
    """Return the mean of the first k rewards of a task."""
    return METRICS["avg_at_k"].of_tasks(group([rewards]), k).item()


def best_of_k(rewards, k):
    """Return the expected best of k rewards of a task."""
    return METRICS["best_of_k"].of_tasks(group([rewards]), k).item()


@st.composite
def counts(draw):
    """Draw a number of attempts, a number of passes, and a k up to the former."""
    num_attempts = draw(st.integers(1, 40))
    return num_attempts, draw(st.integers(0, num_attempts)), draw(st.integers(1, num_attempts))


@st.composite
def answered(draw, max_size=8):
    """Draw the rewards and answers of a task, and a k up to their number."""
    pairs = draw(
        st.lists(
            st.tuples(rewards, st.sampled_from(["a", "b", "c", None])),
            min_size=1,
            max_size=max_size,
        )
    )
    return [p[0] for p in pairs], [p[1] for p in pairs], draw(st.integers(1, len(pairs)))


@given(counts())
def test_pass_at_k_and_pass_hat_k_are_binomial_ratios(case):
    num_attempts, num_passes, k = case
    total = math.comb(num_attempts, k)
    none_passes = Fraction(math.comb(num_attempts - num_passes, k), total)
    all_pass = Fraction(math.comb(num_passes, k), total)

    assert pass_at_k(*case) == pytest.approx(float(1 - none_passes), abs=1e-12)
    assert pass_hat_k(*case) == pytest.approx(float(all_pass), abs=1e-12)


@given(counts())
def test_pass_at_k_rises_and_pass_hat_k_falls_with_k(case):
    num_attempts, num_passes, k = case
    assume(k < num_attempts)

    assert pass_at_k(num_attempts, num_passes, k) <= pass_at_k(num_attempts, num_passes, k + 1)
    assert pass_hat_k(num_attempts, num_passes, k) >= pass_hat_k(num_attempts, num_passes, k + 1)


@given(counts())
def test_pass_hat_k_is_at_most_pass_at_1_is_at_most_pass_at_k(case):
    num_attempts, num_passes, _ = case
    rate = num_passes / num_attempts

    assert pass_at_k(num_attempts, num_passes, 1) == pytest.approx(rate)
    assert pass_hat_k(*case) <= rate + 1e-12
    assert rate - 1e-12 <= pass_at_k(*case)


def test_no_estimator_extrapolates_beyond_its_attempts():
    assert pass_at_k(3, 3, 4) is None
    assert pass_hat_k(3, 0, 4) is None
    tasks = group([[1.0, 0.0]], threshold=1.0, answers=[[1, 0]])
    assert all(metric.of_tasks(tasks, 3) is None for metric in METRICS.values())
    assert majority_at_k([1.0], ["a"], 2, seed="") is None


@given(st.lists(rewards, min_size=1, max_size=10))
def test_avg_at_k_of_all_attempts_is_the_mean(values):
    assert avg_at_k(values, len(values)) == mean(values)


def test_avg_at_k_takes_the_first_attempts():
    assert avg_at_k([1.0, 0.0, 0.0, 0.0], 2) == 0.5


@given(st.lists(any_rewards, min_size=1, max_size=9), st.data())
def test_best_of_k_is_the_mean_maximum_of_all_subsets(values, data):
    k = data.draw(st.integers(1, len(values)))
    expected = statistics.mean(max(subset) for subset in itertools.combinations(values, k))

    assert best_of_k(values, k) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(rewards, min_size=1, max_size=30))
def test_best_of_k_begins_at_the_mean_and_ends_at_the_best(values):
    assert best_of_k(values, 1) == pytest.approx(mean(values))
    assert best_of_k(values, len(values)) == pytest.approx(max(values))


@given(counts())
def test_best_of_k_of_passes_and_fails_is_pass_at_k(case):
    num_attempts, num_passes, k = case
    values = [1.0] * num_passes + [0.0] * (num_attempts - num_passes)

    assert best_of_k(values, k) == pytest.approx(pass_at_k(*case), abs=1e-12)


def vote(values, answers):
    """Return the majority reward of one subset: ties are averaged, answers of None do not vote."""
    voted = [answer for answer in answers if answer is not None]
    if not voted:
        return 0.0
    most = max(voted.count(answer) for answer in voted)
    winners = sorted({answer for answer in voted if voted.count(answer) == most})
    return statistics.mean(
        statistics.mean(v for v, a in zip(values, answers, strict=True) if a == winner)
        for winner in winners
    )


@given(answered())
def test_majority_at_k_is_the_mean_vote_of_all_subsets(case):
    """An answer's reward averaged in the subset or over all attempts has the same expectation."""
    values, answers, k = case
    places = itertools.combinations(range(len(values)), k)
    expected = statistics.mean(
        vote([values[p] for p in subset], [answers[p] for p in subset]) for subset in places
    )

    assert majority_at_k(values, answers, k, seed="any") == pytest.approx(expected)


def test_majority_at_k_averages_ties_and_leaves_out_missing_answers():
    assert majority_at_k([1.0, 0.0, 1.0, 0.0], ["x", "y", "x", None], 4, seed="") == 1.0
    assert majority_at_k([0.0, 0.0, 1.0, 1.0], ["z", "z", "w", "w"], 4, seed="") == 0.5


def test_majority_at_k_without_any_answer_is_zero():
    assert majority_at_k([1.0, 1.0], [None, None], 2, seed="") == 0.0


def test_majority_at_k_by_random_subsets_is_repeatable_and_near_the_truth():
    """14 of 24 attempts are right, 10 equally wrong: 75.2 % of 9-subsets have a right majority."""
    values = [1.0] * 14 + [0.0] * 10
    answers = ["right"] * 14 + ["wrong"] * 10
    truth = scipy.stats.hypergeom(24, 14, 9).sf(4)
    assert math.comb(24, 9) > MAX_SUBSETS

    found = [majority_at_k(values, answers, 9, seed=f"task {i}") for i in range(20)]

    assert found == [majority_at_k(values, answers, 9, seed=f"task {i}") for i in range(20)]
    assert len(set(found)) > 1
    assert mean(found) == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 10])],
)
def test_values_of_k_are_powers_of_two_and_the_most(most, expected):
    assert values_of_k(most) == expected


@given(
    st.integers(1, 5).flatmap(
        lambda size: st.lists(
            st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0]), min_size=size, max_size=size),
            min_size=1,
            max_size=8,
        )
    ),
    st.integers(1, 5),
)
def test_metrics_of_tasks_are_those_of_each_task_alone(tasks, k):
    for metric in METRICS.values():
        found = metric.of_tasks(group(tasks, threshold=0.3), k)
        alone = [metric.of_tasks(group([task], threshold=0.3), k) for task in tasks]
        assert (found is None) == (alone[0] is None)
        assert found is None or found.tolist() == [value.item() for value in alone]


def test_pass_metrics_count_the_attempts_that_reach_the_threshold():
    tasks = group([[0.3, 0.0, 1.0], [0.0, 0.1, 0.2]], threshold=0.3)
    assert METRICS["pass_at_k"].of_tasks(tasks, 2).tolist() == [pass_at_k(3, 2, 2), 0.0]
    assert METRICS["pass_hat_k"].of_tasks(tasks, 2).tolist() == [pass_hat_k(3, 2, 2), 0.0]


answer_numbers = st.sampled_from([0, 1, 2, 7])


@given(
    st.sampled_from([2, 3, 5, 12]).flatmap(
        lambda size: st.lists(
            st.lists(
                st.tuples(st.sampled_from([0.0, 0.5, 1.0]), answer_numbers),
                min_size=size,
                max_size=size,
            ),
            min_size=1,
            max_size=6,
        )
    ),
    st.integers(1, 12),
)
@settings(max_examples=50, deadline=None)
def test_majority_of_tasks_is_that_of_each_task(tasks, k):
    """Also when subsets are drawn: each task seeds its own draws."""
    assume(k <= len(tasks[0]))
    values = [[reward for reward, _ in task] for task in tasks]
    answers = [[answer for _, answer in task] for task in tasks]
    seeds = [f"quiz/{number}" for number in range(len(tasks))]

    found = METRICS["majority_at_k"].of_tasks(group(values, answers=answers, seeds=seeds), k)

    assert found.tolist() == [
        majority_at_k(own, [answer or None for answer in given], k, seed=seed)
        for own, given, seed in zip(values, answers, seeds, strict=True)
    ]


def test_metrics_have_no_value_without_a_threshold_or_answers():
    tasks = group([[1.0, 0.0]])
    for metric in METRICS.values():
        has_value = not metric.needs_threshold and metric.key != "majority_at_k"
        assert (metric.of_tasks(tasks, 1) is not None) == has_value


def test_every_metric_has_its_key():
    assert all(key == metric.key for key, metric in METRICS.items())
