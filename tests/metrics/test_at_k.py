"""What k attempts are worth, against its definition and its laws."""

import itertools
import math
import statistics
from fractions import Fraction

import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from gymcli.metrics.at_k import (
    MAX_SUBSETS,
    avg_at_k,
    best_of_k,
    majority_at_k,
    pass_at_k,
    pass_hat_k,
)
from gymcli.metrics.estimators import mean

rewards = st.floats(0.0, 1.0)
any_rewards = st.floats(-1e6, 1e6)


@st.composite
def counts(draw):
    """Attempts, passes and a k that there are enough attempts for."""
    num_attempts = draw(st.integers(1, 40))
    return num_attempts, draw(st.integers(0, num_attempts)), draw(st.integers(1, num_attempts))


@st.composite
def answered(draw, max_size=8):
    """Rewards and answers of a task, and a k that there are enough attempts for."""
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
    assert avg_at_k([1.0, 0.0], 3) is None
    assert best_of_k([1.0, 0.0], 3) is None
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
    """Majority of one subset, written out: answers counted, ties averaged, None left out."""
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
    """Counting an answer's worth in the subset or over all attempts has the same expectation."""
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
    """14 of 24 attempts right, 10 wrong alike: the majority of 9 is right in 75.2 % of subsets."""
    values = [1.0] * 14 + [0.0] * 10
    answers = ["right"] * 14 + ["wrong"] * 10
    truth = scipy.stats.hypergeom(24, 14, 9).sf(4)
    assert math.comb(24, 9) > MAX_SUBSETS

    found = [majority_at_k(values, answers, 9, seed=f"task {i}") for i in range(20)]

    assert found == [majority_at_k(values, answers, 9, seed=f"task {i}") for i in range(20)]
    assert len(set(found)) > 1
    assert mean(found) == pytest.approx(truth, abs=0.03)
