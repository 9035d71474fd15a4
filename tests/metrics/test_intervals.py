"""Intervals of a mean, against scipy or statsmodels, and against their laws."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from gymcli.metrics.estimators import mean, standard_error
from gymcli.metrics.intervals import t_interval, wilson_effective_interval, wilson_interval

rewards = st.floats(0.0, 1.0)


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
