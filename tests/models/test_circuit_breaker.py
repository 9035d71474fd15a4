"""When an address seems to be gone, is probed, is back, and is given up."""

import logging

import aiohttp
import pytest

from gymcli.errors import EndpointConnectionError, EndpointGoneError, RateLimitError, ServerError
from gymcli.models.limits import MIN_FAILURES, CircuitBreaker
from tests.models.asking import FakeTime

REFUSED = EndpointConnectionError("POST http://h: connection refused")
REFUSED.__cause__ = aiohttp.ClientConnectorError(None, OSError())
BAD_GATEWAY = ServerError("answered 502", status=502)
BUSY = RateLimitError("answered 429", status=429)


def breaker_at(time: FakeTime, *, was_reached: bool = True) -> CircuitBreaker:
    breaker = CircuitBreaker("http://h", deadline=300, overload_deadline=1200, clock=time.clock)
    breaker.was_reached = was_reached
    return breaker


def fail(
    breaker: CircuitBreaker, error=REFUSED, *, request="one", num_others=0, is_probe=False
) -> bool:
    if is_probe:
        breaker.probe = request
    changes = breaker.record_failure(error, request=request, num_others=num_others)
    breaker.probe = None
    return changes


def opened(time: FakeTime, *, was_reached: bool = True) -> CircuitBreaker:
    breaker = breaker_at(time, was_reached=was_reached)
    for _ in range(MIN_FAILURES):
        fail(breaker)
    return breaker


def test_breaker_opens_after_failures_in_a_row():
    breaker = breaker_at(FakeTime())
    opens = [fail(breaker) for _ in range(MIN_FAILURES + 3)]
    assert opens == [False] * (MIN_FAILURES - 1) + [True, False, False, False]
    assert breaker.is_open
    assert breaker.num_outages == 1


def test_breaker_counts_anew_after_any_sign_of_life():
    breaker = breaker_at(FakeTime())
    for _ in range(20):
        for _ in range(MIN_FAILURES - 1):
            fail(breaker)
        assert not breaker.record_answer()
    assert not breaker.is_open


def test_breaker_lets_one_probe_through_at_growing_intervals():
    time = FakeTime()
    breaker = opened(time)
    waits = []
    for _ in range(7):
        waits.append(breaker.delay)
        time.now += breaker.delay
        assert breaker.delay == 0
        breaker.probe = "one"
        assert breaker.delay == float("inf")
        breaker.probe = None
        fail(breaker, is_probe=True)
    assert waits == pytest.approx([0.5, 1, 2, 4, 5, 5, 5])


def test_breaker_is_not_slowed_down_by_what_was_sent_before():
    breaker = opened(FakeTime())
    for _ in range(50):
        fail(breaker)
    assert breaker.delay == 0.5


def test_breaker_closes_with_the_first_sign_of_life(caplog):
    time = FakeTime()
    with caplog.at_level(logging.INFO, logger="gymcli.models.limits"):
        breaker = opened(time)
        time.now += 20
        assert breaker.outage_seconds == 20
        assert breaker.record_answer()
    assert (breaker.is_open, breaker.delay) == (False, 0)
    time.now += 100
    assert (breaker.num_outages, breaker.outage_seconds) == (1, 20)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("http://h: appears to be down (8 failures in a row)")
    assert second == "http://h: is back after 20.0 seconds"


def test_breaker_gives_up_with_a_probe_past_the_deadline():
    time = FakeTime()
    breaker = opened(time)
    time.now += 299
    assert not fail(breaker, is_probe=True)
    time.now += 1
    assert not fail(breaker)
    assert fail(breaker, is_probe=True)
    assert breaker.has_given_up
    error = breaker.error()
    assert type(error) is EndpointGoneError
    assert str(error) == f"{REFUSED} (no success for 300 seconds)"


def test_breaker_soon_gives_up_an_address_that_never_answered():
    time = FakeTime()
    breaker = opened(time, was_reached=False)
    assert breaker.seconds_left == 10
    time.now += 10
    assert fail(breaker, is_probe=True)


def test_breaker_gives_up_an_endpoint_that_has_too_much_to_do_for_ever():
    time = FakeTime()
    breaker = breaker_at(time)
    assert not breaker.record_overload(BUSY, num_others=0)
    time.now += 1199
    assert not breaker.record_overload(BUSY, num_others=0)
    time.now += 1
    assert breaker.record_overload(BUSY, num_others=0)
    assert str(breaker.error()) == "answered 429 (no success for 1200 seconds)"
    assert breaker.error().status == 429


def test_breaker_forgives_a_storm_for_one_answer():
    time = FakeTime()
    breaker = breaker_at(time)
    for _ in range(10):
        breaker.record_overload(BUSY, num_others=0)
        time.now += 1000
        assert not breaker.record_overload(BUSY, num_others=0)
        breaker.record_answer()
    assert breaker.num_outages == 0


def test_breaker_knows_a_gateway_as_reached():
    breaker = breaker_at(FakeTime(), was_reached=False)
    fail(breaker, BAD_GATEWAY)
    assert breaker.was_reached


def test_breaker_waits_for_those_under_way_before_it_opens():
    """Failures are fast: eight of them prove nothing while many others may be answered."""
    breaker = breaker_at(FakeTime())
    for num_others in range(63, 32, -1):
        assert not fail(breaker, num_others=num_others)
    assert fail(breaker, num_others=32)


def test_breaker_takes_what_one_request_meets_at_a_gateway_for_its_own():
    breaker = breaker_at(FakeTime())
    assert not any(fail(breaker, BAD_GATEWAY, request="one") for _ in range(50))
    assert fail(breaker, BAD_GATEWAY, request="two")


def test_breaker_needs_two_requests_since_the_last_answer():
    breaker = breaker_at(FakeTime())
    fail(breaker, BAD_GATEWAY, request="one")
    breaker.record_answer()
    assert not any(fail(breaker, BAD_GATEWAY, request="two") for _ in range(50))


def test_breaker_takes_too_much_for_a_sign_of_life():
    breaker = opened(FakeTime())
    assert breaker.record_overload(BUSY, num_others=0)
    assert not breaker.is_open
    assert not any(fail(breaker) for _ in range(MIN_FAILURES - 1))


def test_breaker_counts_a_storm_on_through_outages():
    """Nothing but refusals and absences: neither begins the other's time anew."""
    time = FakeTime()
    breaker = breaker_at(time)
    for _ in range(12):
        breaker.record_overload(BUSY, num_others=0)
        for _ in range(MIN_FAILURES):
            fail(breaker)
        time.now += 100
    assert breaker.record_overload(BUSY, num_others=0)
    assert breaker.has_given_up


def test_breaker_gives_up_nothing_while_others_are_under_way():
    time = FakeTime()
    breaker = opened(time)
    time.now += 400
    assert not fail(breaker, num_others=1, is_probe=True)
    assert fail(breaker, is_probe=True)
    storm = breaker_at(time)
    storm.record_overload(BUSY, num_others=0)
    time.now += 2000
    assert not storm.record_overload(BUSY, num_others=1)
    assert storm.record_overload(BUSY, num_others=0)


def test_breaker_knows_one_that_took_a_connection_as_reached():
    """A server that resets its first requests and restarts has the endpoint's patience."""
    breaker = breaker_at(FakeTime(), was_reached=False)
    reset = EndpointConnectionError("the connection broke")
    reset.__cause__ = aiohttp.ServerDisconnectedError()
    fail(breaker, reset)
    assert breaker.was_reached
