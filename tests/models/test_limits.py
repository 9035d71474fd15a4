"""So many requests or tokens a minute, and not more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.models.endpoint import Limits
from gymcli.models.limits import Bucket, Rates
from gymcli.types import Usage
from tests.models.asking import FakeTime


def passed_at(per_minute: float, amounts: list[float]) -> list[float]:
    """Give when each amount passes, all of them being there from the start."""
    time = FakeTime()
    bucket = Bucket(per_minute, time.clock)
    times = []
    for amount in amounts:
        for _ in range(3):  # sums of floats may want a second, tiny wait
            time.now += bucket.delay(amount)
        assert bucket.delay(amount) == 0
        bucket.take(amount)
        times.append(time.now - 1000.0)
    return times


@given(st.floats(0.5, 10_000), st.integers(1, 300))
def test_bucket_lets_no_minute_have_more(per_minute, num):
    """Any minute has the rate and, once, what comes within a second."""
    times = passed_at(per_minute, [1.0] * num)
    allowed = per_minute + max(1.0, per_minute / 60) + 1e-3
    for number, start in enumerate(times):
        assert sum(start <= time < start + 60 for time in times[number:]) <= allowed


@given(st.floats(60, 10_000), st.lists(st.floats(0, 5000), min_size=1, max_size=50))
def test_bucket_wastes_nothing(per_minute, amounts):
    *before, _ = amounts
    last = passed_at(per_minute, amounts)[-1]
    largest = max(amounts)
    assert last <= (sum(before) + largest) / (per_minute / 60) + 1


def test_bucket_lets_more_than_it_holds_pass_when_nothing_is_owed():
    assert passed_at(60, [100, 1]) == [0, pytest.approx(100)]


def test_bucket_takes_back_what_was_not_needed():
    time = FakeTime()
    bucket = Bucket(60, time.clock)
    bucket.take(31)
    assert bucket.delay(1) == pytest.approx(31)
    bucket.give_back(30)
    assert bucket.delay(1) == pytest.approx(1)
    bucket.give_back(1000)
    bucket.take(1)
    assert bucket.delay(1) == pytest.approx(1)  # it holds no more than a second's worth


@pytest.mark.parametrize(
    "given_limits",
    [
        {"requests_per_minute": 0},
        {"tokens_per_minute": -1},
        {"tokens_per_minute": float("inf")},
        {"max_concurrency": 0},
        {"requests_per_hour": 1},
    ],
)
def test_limits_refuse_what_cannot_be_meant(given_limits):
    with pytest.raises(ValidationError):
        Limits.model_validate(given_limits)


def test_rates_believe_no_answer_of_absurd_length():
    """Ten million tokens at most, so that requests are not held up for years."""
    rates = Rates(FakeTime().clock)
    rates.lower(Limits(tokens_per_minute=10**7))
    rates.take(300)
    rates.correct(300, Usage(prompt_tokens=2**63, completion_tokens=2**63))
    assert rates.delay(rates.estimate(4, {})) == pytest.approx(60, abs=1)
