"""McNemar's test, against scipy and statsmodels."""

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar

from gymcli.metrics.comparison.mcnemar import coin_tail, mcnemar_mid_p

counts = st.integers(0, 400)


@given(counts, counts)
def test_mid_p_is_the_exact_p_of_statsmodels_less_the_observed_outcome(worse, better):
    exact = mcnemar([[5, worse], [better, 5]], exact=True).pvalue
    just = scipy.stats.binom.pmf(worse, worse + better, 0.5)

    found = mcnemar_mid_p(worse, better)

    assert found == pytest.approx(1.0 if worse == better else exact - just, abs=1e-12)


@given(counts, counts)
def test_mid_p_is_the_same_the_other_way_round(worse, better):
    assert mcnemar_mid_p(worse, better) == mcnemar_mid_p(better, worse)
    assert 0.0 < mcnemar_mid_p(worse, better) <= 1.0


def test_mid_p_of_very_many_pairs():
    """Against scipy again; the terms are far too small and too many to be added one by one."""
    tail = scipy.stats.binom.cdf(99_500, 200_000, 0.5)
    just = scipy.stats.binom.pmf(99_500, 200_000, 0.5)
    assert mcnemar_mid_p(99_500, 100_500) == pytest.approx(2 * tail - just, rel=1e-9)


@given(st.integers(1, 2000), st.data())
def test_coin_tail_agrees_with_scipy(tosses, data):
    heads = data.draw(st.integers(0, tosses))
    at_most, just = coin_tail(tosses, heads)
    assert at_most == pytest.approx(scipy.stats.binom.cdf(heads, tosses, 0.5), rel=1e-9)
    assert just == pytest.approx(scipy.stats.binom.pmf(heads, tosses, 0.5), rel=1e-9)
