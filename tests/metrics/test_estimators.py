"""Each estimator against its definition, scipy or statsmodels, and against its laws."""

import itertools
import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import statsmodels.api
from hypothesis import assume, given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from gymcli.metrics.estimators import (
    MAX_SUBSETS,
    avg_at_k,
    best_of_k,
    clustered_standard_error,
    majority_at_k,
    mean,
    mean_of_means,
    mean_with_absent,
    pass_at_k,
    pass_hat_k,
    standard_error,
    t_interval,
    variance,
    variance_parts,
    wilson_effective_interval,
    wilson_interval,
)

rewards = st.floats(0.0, 1.0)
any_rewards = st.floats(-1e6, 1e6)
groups = st.lists(st.lists(rewards, min_size=1, max_size=6), min_size=2, max_size=8)
square_groups = st.integers(1, 5).flatmap(
    lambda size: st.lists(st.lists(rewards, min_size=size, max_size=size), min_size=2, max_size=8)
)


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


@given(st.lists(any_rewards, min_size=1, max_size=30))
def test_mean_is_the_mean_and_lies_between_the_extremes(values):
    assert mean(values) == pytest.approx(statistics.mean(values))
    assert min(values) <= mean(values) <= max(values)


def test_mean_of_equal_values_is_exact():
    assert mean([0.1, 0.1, 0.1]) == 0.1
    assert variance([0.1, 0.1, 0.1]) == 0.0


@given(st.lists(any_rewards, min_size=1, max_size=20), st.randoms())
def test_mean_does_not_depend_on_the_order(values, random):
    shuffled = random.sample(values, len(values))

    assert mean(shuffled) == mean(values)


@given(groups)
def test_mean_of_means_weighs_groups_equally(tasks):
    expected = statistics.mean(statistics.mean(task) for task in tasks)

    assert mean_of_means(tasks) == pytest.approx(expected)


@given(st.lists(any_rewards, min_size=2, max_size=20))
def test_variance_agrees_with_numpy(values):
    expected = np.var(values, ddof=1)

    assert variance(values) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(rewards, min_size=2, max_size=20))
def test_standard_error_agrees_with_scipy(means):
    assert standard_error(means) == pytest.approx(scipy.stats.sem(means), abs=1e-12)


def test_standard_errors_need_two_tasks():
    assert standard_error([0.5]) is None
    assert clustered_standard_error([[0.0, 1.0]]) is None


@given(square_groups)
def test_clustered_standard_error_is_that_of_task_means_where_attempts_are_equally_many(tasks):
    over_tasks = standard_error([mean(task) for task in tasks])

    assert clustered_standard_error(tasks) == pytest.approx(over_tasks, abs=1e-12)


def test_clustered_standard_error_agrees_with_statsmodels():
    """Its CR1 has a further factor (N - 1)/(N - p), which is 1 for a mean alone."""
    tasks = [[1.0, 0.0, 1.0], [0.0], [0.25, 0.5], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0]]
    values = [value for task in tasks for value in task]
    labels = [number for number, task in enumerate(tasks) for _ in task]
    fit = statsmodels.api.OLS(values, np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(labels)}
    )

    assert clustered_standard_error(tasks) == pytest.approx(fit.bse[0])


@given(square_groups)
def test_variance_parts_add_up_to_the_variance_of_task_means(tasks):
    parts = variance_parts(tasks)
    assume(parts is not None and parts.between > 0.0)
    size = len(tasks[0])

    assert variance([mean(task) for task in tasks]) == pytest.approx(
        parts.between + parts.within / size
    )
    assert 0.0 <= parts.intraclass_correlation <= 1.0
    assert 1.0 <= parts.design_effect <= size


def test_variance_parts_by_hand():
    """Means 1, 0, 1/2; within 0, 0, 1/2, so 1/6; between 1/4 - 1/12."""
    parts = variance_parts([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])

    assert parts.within == pytest.approx(1 / 6)
    assert parts.between == pytest.approx(1 / 6)
    assert parts.intraclass_correlation == pytest.approx(1 / 2)
    assert parts.design_effect == pytest.approx(3 / 2)


def test_variance_parts_without_any_variance_have_no_correlation():
    parts = variance_parts([[1.0, 1.0], [1.0, 1.0]])

    assert parts == (0.0, 0.0, None, None)


@pytest.mark.parametrize("tasks", [[[1.0, 0.0]], [[1.0], [0.0]]])
def test_variance_parts_need_two_tasks_and_two_attempts(tasks):
    assert variance_parts(tasks) is None


@given(st.integers(1, 500), st.data(), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_interval_agrees_with_statsmodels(num_trials, data, level):
    num_passes = data.draw(st.integers(0, num_trials))
    expected = proportion_confint(num_passes, num_trials, alpha=1.0 - level, method="wilson")

    found = wilson_interval(num_passes / num_trials, num_trials, level=level)

    assert found == pytest.approx(expected, abs=1e-12)


@given(rewards, st.floats(0.01, 1e6))
def test_wilson_interval_contains_the_rate_within_0_and_1(rate, num_trials):
    low, high = wilson_interval(rate, num_trials)

    assert 0.0 <= low <= rate <= high <= 1.0


def test_wilson_effective_interval_by_the_formula():
    """G = 20, K = 4, mean 0.8, SE 0.05: n_eff = 64, n* = 64 (z/t)^2 with t of 19 degrees."""
    z, t = scipy.stats.norm.ppf(0.975), scipy.stats.t.ppf(0.975, 19)
    size = 0.8 * 0.2 / 0.05**2 * (z / t) ** 2
    centre = (0.8 + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * math.sqrt(0.8 * 0.2 / size + z**2 / (4 * size**2))

    found = wilson_effective_interval(0.8, 0.05, num_clusters=20, num_values=80)

    assert found == pytest.approx((centre - half, centre + half))


def test_wilson_effective_interval_never_has_more_trials_than_attempts():
    found = wilson_effective_interval(0.5, 1e-9, num_clusters=20, num_values=80)

    assert found == wilson_interval(0.5, 80)


@pytest.mark.parametrize(("rate", "error"), [(1.0, 0.0), (0.0, 0.0), (0.5, 0.0)])
def test_wilson_effective_interval_without_a_spread_counts_the_clusters(rate, error):
    adjustment = (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, 19)) ** 2

    found = wilson_effective_interval(rate, error, num_clusters=20, num_values=80)

    assert found == pytest.approx(wilson_interval(rate, 20 * adjustment))


def test_wilson_effective_interval_survives_a_spread_too_small_to_square():
    found = wilson_effective_interval(0.5, 1e-200, num_clusters=3, num_values=6)

    assert found == wilson_interval(0.5, 6)


def test_t_interval_agrees_with_scipy():
    means = [0.2, 1.7, -3.0, 4.5]
    expected = scipy.stats.t.interval(0.9, 3, np.mean(means), scipy.stats.sem(means))

    found = t_interval(mean(means), standard_error(means), num_clusters=4, level=0.9)

    assert found == pytest.approx(expected)


@pytest.mark.parametrize("num_clusters", [0, 1])
def test_intervals_refuse_fewer_than_two_clusters(num_clusters):
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_interval(0.5, 0.1, num_clusters=num_clusters)
    with pytest.raises(ValueError, match="degrees of freedom"):
        wilson_effective_interval(0.5, 0.1, num_clusters=num_clusters, num_values=4)


def test_mean_with_absent_by_hand():
    """(1 + 0)/3 and 1/2: with absent as 0, 5/12; as 1, (2/3 + 1)/2."""
    tasks = [([1.0, 0.0], 1), ([1.0], 1)]

    assert mean_with_absent(tasks, absent_reward=0.0) == pytest.approx(5 / 12)
    assert mean_with_absent(tasks, absent_reward=1.0) == pytest.approx(5 / 6)
    assert mean_with_absent([], absent_reward=0.0) is None


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
