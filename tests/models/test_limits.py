"""Rate limits, limits of requests under way, and a queue that loses and starves nobody."""

import asyncio
import gc
import logging
from contextlib import suppress
from random import Random

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.errors import (
    EndpointConnectionError,
    EndpointGoneError,
    EndpointTimeoutError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.models.endpoint import Endpoint, EndpointLimits
from gymcli.models.limits import (
    MIN_FAILURES,
    AdaptiveLimit,
    Bucket,
    CircuitBreaker,
    ConcurrencyLimiter,
    RateLimits,
    Replica,
    RequestState,
    SharedLimiters,
    slot,
)
from gymcli.types import Usage
from tests.models.asking import FakeTime, ShortTime


def passed_at(per_minute: float, amounts: list[float]) -> list[float]:
    """Return when each amount passes if all of them wait from the beginning."""
    time = FakeTime()
    bucket = Bucket(per_minute, time.clock)
    times = []
    for amount in amounts:
        for _ in range(3):  # rounding may require a second, tiny wait
            time.now += bucket.delay(amount)
        assert bucket.delay(amount) == 0
        bucket.take(amount)
        times.append(time.now - 1000.0)
    return times


@given(st.floats(0.5, 10_000), st.integers(1, 300))
def test_bucket_lets_no_minute_have_more(per_minute, num):
    """Any minute has the rate plus, once, a second's worth."""
    times = passed_at(per_minute, [1.0] * num)
    allowed = per_minute + max(1.0, per_minute / 60) + 1e-3
    for number, start in enumerate(times):
        assert sum(start <= time < start + 60 for time in times[number:]) <= allowed


@given(st.floats(60, 10_000), st.lists(st.floats(0, 5000), min_size=1, max_size=50))
def test_bucket_wastes_nothing(per_minute, amounts):
    *before, _ = amounts
    last = passed_at(per_minute, amounts)[-1]
    assert last <= (sum(before) + max(amounts)) / (per_minute / 60) + 1


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
    assert bucket.delay(1) == pytest.approx(1)  # it holds at most a second's worth


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
        EndpointLimits.model_validate(given_limits)


def test_rates_cap_absurd_usage():
    """The value is capped at ten million tokens, so that requests are not held up for years."""
    rates = RateLimits(FakeTime().clock)
    rates.lower(EndpointLimits(tokens_per_minute=10**7))
    rates.take(300)
    rates.correct(300, Usage(prompt_tokens=2**63, completion_tokens=2**63))
    assert rates.delay(rates.estimate(4, {})) == pytest.approx(60, abs=1)


def ask_many(limit: AdaptiveLimit, capacity: int, num_answers: int) -> tuple[int, list[int]]:
    """Ask an endpoint with this capacity; return its refusals and its load over time."""
    accepted, num_refused, busy = 0, 0, []
    for _ in range(num_answers):
        while accepted + 1 <= limit.current:
            if accepted < capacity:
                accepted += 1
            else:
                limit.record_refusal(accepted)
                num_refused += 1
        busy.append(accepted)
        limit.record_answer(accepted)
        accepted -= 1
    return num_refused, busy


@pytest.mark.parametrize("capacity", [1, 2, 3, 8, 20, 63])
def test_limit_finds_an_unknown_capacity(capacity):
    limit = AdaptiveLimit(64)
    num_refused, busy = ask_many(limit, capacity, 100 * capacity)
    assert sum(busy) / len(busy) > 0.95 * capacity
    assert num_refused < 400  # about one in a window after the capacity is found
    assert ask_many(limit, capacity, 50 * capacity)[0] <= 80


def test_limit_starts_at_the_ceiling_and_stays_there():
    limit = AdaptiveLimit(64)
    num_refused, busy = ask_many(limit, 1000, 500)
    assert (num_refused, set(busy)) == (0, {64})


def test_limit_grows_again_when_the_endpoint_can_do_more():
    limit = AdaptiveLimit(64)
    ask_many(limit, 2, 200)
    assert limit.current <= 4
    _, busy = ask_many(limit, 1000, 2000)
    assert busy[-1] == 64
    assert busy.index(64) < 900  # steps of one per window would take 2000


def test_limit_falls_when_the_endpoint_can_do_less():
    limit = AdaptiveLimit(64)
    ask_many(limit, 64, 300)
    ask_many(limit, 4, 100)
    assert limit.current < 6


@pytest.mark.parametrize(("share", "least"), [(0.2, 35), (0.4, 12)])
def test_limit_stays_up_under_random_refusals(share, least):
    """Random refusals do not depend on the load; the limit keeps to what was being served."""
    random = Random(1)
    limit = AdaptiveLimit(64)
    accepted, busy = 0, []
    for _ in range(3000):
        while accepted + 1 <= limit.current:
            if random.random() < share:
                limit.record_refusal(accepted)
            else:
                accepted += 1
        busy.append(accepted)
        limit.record_answer(accepted)
        accepted -= 1
    assert sum(busy) / len(busy) > least


def test_limit_halves_once_per_round():
    """Refusals of requests that were sent before the first refusal carry no information."""
    limit = AdaptiveLimit(64)
    for num_others in range(63, -1, -1):
        limit.record_refusal(num_others)
    assert (limit.current, limit.capacity) == (1, 32)


def test_limit_takes_nothing_below_what_is_being_worked_on():
    limit = AdaptiveLimit(8)
    limit.record_refusal(7)
    assert limit.current == 7
    limit.record_refusal(7)
    assert limit.current == 7
    limit.record_answer(7)
    assert limit.current == limit.capacity == 8


@given(st.integers(1, 100), st.lists(st.booleans(), max_size=500))
def test_limit_keeps_between_one_and_its_ceiling(ceiling, answers):
    limit = AdaptiveLimit(ceiling)
    for is_answer in answers:
        if is_answer:
            limit.record_answer(int(limit.current))
        else:
            limit.record_refusal(int(limit.current) - 1)
        assert 1 <= limit.current <= limit.capacity + 1e-9 <= ceiling + 2e-9


def test_limit_keeps_to_the_lower_ceiling():
    limit = AdaptiveLimit(64)
    limit.lower(8)
    limit.lower(16)
    assert (limit.current, limit.ceiling) == (8, 8)


BUSY = RateLimitError("busy", status=429)


def limiter_at(time: FakeTime, ceiling: int = 4, **options) -> ConcurrencyLimiter:
    endpoint = Endpoint(base_url="http://h", model="m", **options)
    return SharedLimiters(ceiling, clock=time.clock, sleep=time.sleep).of("http://h", endpoint)


def request(since: float = 0.0, **options) -> RequestState:
    return RequestState(since, **options)


def is_admitted(limiter: ConcurrencyLimiter, one: RequestState) -> bool:
    """Return whether a request may be sent immediately."""
    return limiter.admit(one) <= 0


def refused() -> EndpointConnectionError:
    error = EndpointConnectionError("nobody there")
    error.__cause__ = aiohttp.ClientConnectorError(None, OSError())
    return error


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_admit_keeps_to_the_ceiling():
    limiter = limiter_at(FakeTime(), ceiling=3)
    assert [is_admitted(limiter, request()) for _ in range(5)] == [True, True, True, False, False]
    limiter.release(request())
    assert is_admitted(limiter, request())


async def test_acquire_serves_who_came_first():
    limiter = limiter_at(FakeTime(), ceiling=1)
    under_way = request()
    assert is_admitted(limiter, under_way)
    served = []

    async def ask(since: float) -> None:
        one = request(since)
        assert await limiter.acquire(one)
        served.append(since)
        await asyncio.sleep(0)
        limiter.record_answer(one)

    tasks = [asyncio.create_task(ask(since)) for since in (5.0, 3.0, 9.0, 1.0)]
    await settle()
    assert not served
    assert not is_admitted(limiter, request(0.0))  # nobody overtakes those who wait
    limiter.record_answer(under_way)
    await asyncio.gather(*tasks)
    assert served == [1.0, 3.0, 5.0, 9.0]
    assert (limiter.num_under_way, limiter.num_waiting) == (0, 0)


@pytest.mark.parametrize(
    ("error", "num_refused", "limit"),
    [(None, 0, 4), (BUSY, 1, 3), (ServerError("oops", status=500), 0, 4), (ValueError(), 0, 4)],
)
async def test_slot_ends_with_the_outcome_of_its_block(error, num_refused, limit):
    limiter = limiter_at(FakeTime())
    sent = request()
    with suppress(ModelError, ValueError):
        async with slot(sent, lambda _: Replica(None, limiter)) as replica:
            assert (replica.limiter, limiter.num_under_way) == (limiter, 1)
            if error is not None:
                raise error
    assert (limiter.num_under_way, limiter.limit.current) == (0, limit)
    assert sent.num_refused == num_refused
    assert limiter.breaker.was_reached == (not isinstance(error, ValueError))


async def test_slot_chooses_again_when_an_address_changes_its_state():
    busy, idle = limiter_at(FakeTime(), ceiling=1), limiter_at(FakeTime())
    assert is_admitted(busy, request())
    limiters = [busy, idle]

    async def ask() -> ConcurrencyLimiter:
        async with slot(request(), lambda _: Replica(None, limiters.pop(0))) as replica:
            return replica.limiter

    task = asyncio.create_task(ask())
    await settle()
    assert busy.num_waiting == 1
    busy.send_away()
    assert await task is idle
    assert (busy.num_waiting, busy.num_under_way, idle.num_under_way) == (0, 1, 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "answer", "refuse", "break", "cancel"]), st.integers(0, 99)),
    max_size=80,
)


class Crowd:
    """Requests at one limiter, some waiting and some under way; each outcome is checked."""

    def __init__(self, ceiling: int) -> None:
        self.time = FakeTime()
        self.limiter = limiter_at(self.time, ceiling)
        self.limiter.breaker.was_reached = True
        self.waiting: dict[asyncio.Task[bool], RequestState] = {}
        self.under_way: list[RequestState] = []

    def ask(self, one: RequestState) -> None:
        if is_admitted(self.limiter, one):
            self.under_way.append(one)
        else:
            self.waiting[asyncio.create_task(self.limiter.acquire(one))] = one

    def end(self, pick: int, error: ModelError | None = None) -> None:
        if not self.under_way:
            return
        one = self.under_way.pop(pick % len(self.under_way))
        if error is None:
            self.limiter.record_answer(one)
        else:
            self.limiter.record_failure(one, error)

    async def cancel(self, pick: int) -> None:
        """Cancel a waiting request, half of the time in the moment in which one is admitted."""
        if not self.waiting:
            return
        task = list(self.waiting)[pick % len(self.waiting)]
        one = self.waiting.pop(task)
        if pick % 2:
            self.end(pick)
        task.cancel()
        with suppress(asyncio.CancelledError):
            if await task:
                self.under_way.append(one)

    async def look(self, ceiling: int) -> None:
        await settle()
        for task, one in list(self.waiting.items()):
            if task.done():
                del self.waiting[task]
                if task.result():
                    self.under_way.append(one)
                else:
                    self.ask(one)
        assert self.limiter.num_under_way == len(self.under_way) <= ceiling
        assert 1 <= self.limiter.limit.current <= ceiling


@settings(deadline=None)
@given(st.integers(1, 4), STEPS)
def test_limiter_loses_no_place_and_starves_nobody(ceiling, steps):
    """Under any outcomes: the limit is never exceeded, and in the end all are served."""

    async def run():
        crowd = Crowd(ceiling)
        for step, pick in steps:
            if step == "ask":
                crowd.ask(request(crowd.time.now))
            elif step == "cancel":
                await crowd.cancel(pick)
            else:
                crowd.end(pick, {"answer": None, "refuse": BUSY, "break": refused()}[step])
            await crowd.look(ceiling)
        while crowd.waiting or crowd.under_way:
            crowd.end(0)
            await crowd.look(ceiling)
        assert (crowd.limiter.num_under_way, crowd.limiter.num_waiting) == (0, 0)

    asyncio.run(run())


async def test_acquire_gives_a_place_back_that_came_with_the_cancellation():
    limiter = limiter_at(FakeTime(), ceiling=1)
    under_way = request()
    is_admitted(limiter, under_way)
    task = asyncio.create_task(limiter.acquire(request()))
    await settle()
    limiter.record_answer(under_way)  # the place is assigned to the task,
    task.cancel()  # which is cancelled before it resumes
    with pytest.raises(asyncio.CancelledError):
        await task
    assert limiter.num_under_way == 0
    assert is_admitted(limiter, request())


async def test_record_failure_pauses_as_long_as_asked_and_one_answer_lifts_that():
    time = FakeTime()
    limiter = limiter_at(time)
    first, second = request(), request()
    assert is_admitted(limiter, first)
    assert is_admitted(limiter, second)
    limiter.record_failure(first, RateLimitError("busy", status=429, retry_after=3600))
    assert not is_admitted(limiter, request())
    limiter.record_answer(second)
    assert is_admitted(limiter, request())


@pytest.mark.parametrize(("asked", "low", "high"), [(3600, 60, 66.1), (2, 2, 2.3)])
async def test_acquire_ends_with_the_pause(asked, low, high):
    time = FakeTime()
    limiter = limiter_at(time)
    one = request()
    is_admitted(limiter, one)
    limiter.record_failure(one, RateLimitError("busy", status=429, retry_after=asked))
    started = time.now
    assert await limiter.acquire(one)
    assert low <= time.now - started <= high
    assert one.waited <= 0.01  # the endpoint asked this request to pause


def test_record_failure_pauses_nothing_with_the_first_refusal_after_an_answer():
    limiter = limiter_at(FakeTime())
    for _ in range(3):
        one = request()
        assert is_admitted(limiter, one)
        limiter.record_failure(one, BUSY)
        assert not limiter.is_paused
        one = request()
        assert is_admitted(limiter, one)
        limiter.record_answer(one)


@pytest.mark.parametrize("answers_others", [True, False])
def test_record_failure_pauses_nobody_for_a_request_that_alone_is_refused(answers_others):
    time = FakeTime()
    limiter = limiter_at(time)
    one, other = request(), request()
    for number in range(5):
        time.now += 3600  # longer than any pause
        if answers_others:
            assert is_admitted(limiter, other)
            limiter.record_answer(other)
        time.now += 1
        assert is_admitted(limiter, one)
        limiter.record_failure(one, RateLimitError("busy", status=429, retry_after=60))
        is_singled_out = answers_others and number >= 2
        assert one.is_singled_out == is_singled_out
        assert limiter.is_paused != is_singled_out
    time.now += 3600
    assert is_admitted(limiter, one)
    limiter.record_failure(one, ServerError("broken", status=500))
    assert not one.is_singled_out
    assert one.num_refused == 0


def test_no_request_is_singled_out_by_an_address_that_refuses_many():
    time = FakeTime()
    limiter = limiter_at(time)
    one = request()
    for _ in range(9):
        for _ in range(4):
            other = request()
            time.now += 3600
            assert is_admitted(limiter, other)
            limiter.record_failure(other, BUSY)
            time.now += 3600  # longer than any pause
            assert is_admitted(limiter, other)
            limiter.record_answer(other)
        assert is_admitted(limiter, one)
        limiter.record_failure(one, BUSY)
        assert not one.is_singled_out


async def test_acquire_lets_those_who_wait_go_before_a_request_that_alone_is_refused():
    time = FakeTime()
    limiter = limiter_at(time, ceiling=1)
    served = []

    async def ask(name: str, one: RequestState) -> None:
        while not await limiter.acquire(one):
            pass
        served.append(name)
        await asyncio.sleep(0)
        limiter.record_answer(one)

    seldom, often = request(1.0), request(0.0)
    for one, num_refusals in ((seldom, 2), (often, 3)):
        for _ in range(num_refusals):
            other = request()
            time.now += 3600  # longer than any pause
            assert is_admitted(limiter, other)
            limiter.record_answer(other)
            assert is_admitted(limiter, one)
            limiter.record_failure(one, BUSY)
    time.now += 3600
    under_way = request()
    assert is_admitted(limiter, under_way)
    asking = [
        asyncio.create_task(ask(name, one))
        for name, one in (
            ("refused often", often),
            ("younger", request(time.now - 7200)),
            ("refused seldom", seldom),
            ("youngest", request(time.now)),
        )
    ]
    await settle()
    limiter.record_answer(under_way)
    await asyncio.gather(*asking)
    assert served == ["refused seldom", "younger", "refused often", "youngest"]


def test_load_is_more_where_requests_fail_and_most_in_a_pause():
    time = FakeTime()
    failing, busy = limiter_at(time), limiter_at(time)
    assert is_admitted(busy, request())
    for _ in range(9):
        one = request()
        assert is_admitted(failing, one)
        failing.record_failure(one, ServerError("oops", status=500))
    assert failing.load > busy.load
    assert failing.load == (False, 9 / 4)  # and no more than that, since it may have recovered
    one = request()
    assert is_admitted(busy, one)
    busy.record_failure(one, RateLimitError("busy", status=429, retry_after=9))
    assert busy.load > failing.load


async def test_record_failure_pauses_longer_each_time_that_nothing_was_answered():
    time = FakeTime()
    limiter = limiter_at(time)
    pauses = []
    for _ in range(60):
        one = request()
        assert is_admitted(limiter, one) or await limiter.acquire(one)
        started = time.now
        limiter.record_failure(one, BUSY)
        again = request()
        assert await limiter.acquire(again)
        pauses.append(time.now - started)
        limiter.release(again)
    assert max(pauses[:1]) <= 1.01
    assert max(pauses) > 10
    assert max(pauses) <= 30.01


def test_record_failure_does_not_take_500_for_overload():
    limiter = limiter_at(FakeTime())
    for _ in range(100):
        one = request()
        assert is_admitted(limiter, one)
        limiter.record_failure(one, ServerError("oops", status=500))
    assert (limiter.limit.current, limiter.breaker.is_open) == (4, False)


def test_record_failure_takes_a_connect_timeout_under_load_for_overload():
    limiter = limiter_at(FakeTime())
    error = EndpointConnectionError("late")
    error.__cause__ = aiohttp.ConnectionTimeoutError()
    one, other = request(), request()
    is_admitted(limiter, one)
    is_admitted(limiter, other)
    limiter.record_failure(one, error)
    assert limiter.limit.current == 3
    limiter.record_failure(other, error)
    assert limiter.limit.current == 3  # without other requests, it says nothing about the load


async def test_acquire_probes_an_address_that_is_gone_one_at_a_time():
    time = ShortTime()
    limiter = limiter_at(time, ceiling=20)
    limiter.breaker.was_reached = True
    sent = [request(number) for number in range(8)]
    for one in sent:
        assert is_admitted(limiter, one)
    for one in sent:
        limiter.record_failure(one, refused())
    tasks = [asyncio.create_task(limiter.acquire(one)) for one in sent]
    await settle()
    assert limiter.num_under_way == 1  # half a second has passed
    assert await tasks[0]
    assert limiter.breaker.probe is sent[0]
    assert not any(task.done() for task in tasks[1:])
    limiter.record_answer(sent[0])
    assert all(await asyncio.gather(*tasks[1:]))
    assert not limiter.breaker.is_open
    assert sent[0].waited >= 0.5  # which counts towards no deadline


async def test_acquire_sends_everybody_away_when_the_address_is_given_up():
    time = FakeTime()
    limiter = limiter_at(time, ceiling=20, outage_deadline=30)
    limiter.breaker.was_reached = True
    for _ in range(8):
        is_admitted(limiter, one := request())
        limiter.record_failure(one, refused())
    answers = []
    while not limiter.breaker.has_given_up:
        if await limiter.acquire(one := request()):
            limiter.record_failure(one, refused())
        else:
            answers.append(False)
    assert 30 <= limiter.breaker.outage_seconds <= 36


def gone(time: FakeTime, **options) -> ConcurrencyLimiter:
    """Return the limiter of an address that answered once and then became unreachable."""
    limiter = limiter_at(time, ceiling=20, **options)
    limiter.breaker.was_reached = True
    for _ in range(8):
        is_admitted(limiter, one := request())
        limiter.record_failure(one, refused())
    assert limiter.breaker.is_open
    return limiter


async def test_acquire_gives_up_nothing_while_a_probe_is_under_way():
    """The server may have accepted it, and may work on it for longer than the deadline."""
    time = FakeTime()
    limiter = gone(time, outage_deadline=30)
    probe = request(1)
    assert await limiter.acquire(probe)
    waiting = asyncio.create_task(limiter.acquire(request(2)))
    time.now += 100
    await settle()
    assert not waiting.done()
    limiter.record_answer(probe)
    assert await waiting
    assert not limiter.breaker.is_open


async def test_record_failure_gives_up_with_a_probe_that_got_no_answer_in_time():
    time = FakeTime()
    limiter = gone(time, outage_deadline=30)
    probe = request(1)
    assert await limiter.acquire(probe)
    waiting = asyncio.create_task(limiter.acquire(request(2)))
    await settle()
    time.now += 100
    limiter.record_failure(probe, EndpointTimeoutError("no answer within 600 seconds"))
    assert not await waiting
    assert limiter.breaker.has_given_up
    assert probe.met_outage  # and it costs no attempt


async def test_record_failure_takes_429_on_a_probe_for_the_end_of_an_outage():
    time = FakeTime()
    limiter = gone(time)
    probe = request(1)
    assert await limiter.acquire(probe)
    limiter.record_failure(probe, BUSY)
    assert not limiter.breaker.is_open


def test_record_failure_takes_503_beside_others_for_overload_only():
    time = FakeTime()
    limiter = limiter_at(time, ceiling=200)
    is_admitted(limiter, request())
    for _ in range(50):
        one = request()
        if not is_admitted(limiter, one):
            time.now += 60  # no pause is longer
            assert is_admitted(limiter, one)
        limiter.record_failure(one, ServerError("overloaded", status=503))
    assert not limiter.breaker.is_open


async def test_limiter_keeps_to_the_requests_of_a_minute():
    time = FakeTime()
    limiter = limiter_at(time, 64, limits=EndpointLimits(requests_per_minute=30))
    times = []
    for _ in range(31):
        one = request()
        assert is_admitted(limiter, one) or await limiter.acquire(one)
        times.append(time.now)
        limiter.record_answer(one)
    assert times[-1] - times[0] == pytest.approx(60, abs=0.1)


async def test_limiter_corrects_its_guess_of_tokens():
    """It reserves as many tokens as the answer may take, and corrects that by its usage."""
    time = FakeTime()
    limiter = limiter_at(time, limits=EndpointLimits(tokens_per_minute=60))
    one = request(num_bytes=40, params={"max_tokens": 50})
    assert is_admitted(limiter, one)
    assert one.tokens == 60
    one.usage = Usage(prompt_tokens=10, completion_tokens=11)
    limiter.record_answer(one)
    assert await limiter.acquire(request(num_bytes=4, params={"max_tokens": 5}))
    assert time.now - 1000 == pytest.approx(21, abs=0.1)


@pytest.mark.parametrize("max_tokens", [10**400, 10**18, -(10**400), -(10**18), 0, "many", None])
async def test_limiter_survives_any_number_of_tokens(max_tokens):
    """Nothing raises whatever a row asks for, and other requests wait for minutes at most."""
    no = RequestRefusedError("max_tokens is out of range", status=400)
    time = FakeTime()
    limiter = limiter_at(time, limits=EndpointLimits(tokens_per_minute=10**7))
    for end in (limiter.release, lambda one: limiter.record_failure(one, no)):
        odd = request(num_bytes=100, params={"max_tokens": max_tokens})
        assert is_admitted(limiter, odd) or await limiter.acquire(odd)
        end(odd)
        other = request()
        assert is_admitted(limiter, other)  # no tokens are owed
        limiter.release(other)
    started = time.now
    odd = request(num_bytes=100, params={"max_tokens": max_tokens})
    assert is_admitted(limiter, odd) or await limiter.acquire(odd)
    limiter.record_answer(odd)
    other = request()
    assert is_admitted(limiter, other) or await limiter.acquire(other)
    assert time.now - started <= 61
    limiter.release(other)
    assert (limiter.num_under_way, limiter.num_waiting) == (0, 0)


def test_limiter_guesses_answers_by_the_others():
    limiter = limiter_at(FakeTime(), limits=EndpointLimits(tokens_per_minute=10**9))
    for _ in range(200):
        one = request(num_bytes=400)
        assert is_admitted(limiter, one)
        one.usage = Usage(prompt_tokens=100, completion_tokens=1000)
        limiter.record_answer(one)
    assert one.tokens == pytest.approx(1100, rel=0.01)


def test_limiters_are_one_for_each_address_and_key():
    limiters = SharedLimiters(8)
    endpoint = Endpoint(base_url="http://h", model="m", api_key="one")
    other_model = Endpoint(base_url="http://h", model="n", api_key="one")
    other_key = Endpoint(base_url="http://h", model="m", api_key="two")
    in_header = Endpoint(base_url="http://h", model="m", headers={"x-key": "two"})
    first = limiters.of("http://h", endpoint)
    assert limiters.of("http://h", other_model) is first
    others = [limiters.of("http://h", one) for one in (other_key, in_header)]
    others.append(limiters.of("http://g", endpoint))
    assert len({id(limiter) for limiter in [first, *others]}) == 4


def test_limiters_keep_to_the_lower_limit_of_two_models():
    limiters = SharedLimiters(8)
    for number in (4, 2, 6):
        limits = EndpointLimits(max_concurrency=number)
        limiter = limiters.of("http://h", Endpoint(base_url="http://h", model="m", limits=limits))
    assert limiter.limit.ceiling == 2


class NoTime(FakeTime):
    """A clock that stands still."""

    async def sleep(self, seconds: float) -> None:
        """Sleep forever."""
        await asyncio.Event().wait()


async def test_acquire_leaves_no_timer_behind():
    limiter = limiter_at(NoTime())
    is_admitted(limiter, one := request())
    limiter.record_failure(one, RateLimitError("busy", status=429, retry_after=9))
    task = asyncio.create_task(limiter.acquire(one))
    await settle()
    assert len(asyncio.all_tasks()) == 3  # the test, the waiting task and the timer
    task.cancel()
    await settle()
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}


REFUSED = EndpointConnectionError("POST http://h: connection refused")
REFUSED.__cause__ = aiohttp.ClientConnectorError(None, OSError())
BAD_GATEWAY = ServerError("answered 502", status=502)
ANSWERED_429 = RateLimitError("answered 429", status=429)


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


def test_breaker_starts_over_after_any_sign_of_life():
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
    assert not breaker.record_overload(ANSWERED_429, num_others=0)
    time.now += 1199
    assert not breaker.record_overload(ANSWERED_429, num_others=0)
    time.now += 1
    assert breaker.record_overload(ANSWERED_429, num_others=0)
    assert str(breaker.error()) == "answered 429 (no success for 1200 seconds)"
    assert breaker.error().status == 429


def test_breaker_forgives_a_storm_for_one_answer():
    time = FakeTime()
    breaker = breaker_at(time)
    for _ in range(10):
        breaker.record_overload(ANSWERED_429, num_others=0)
        time.now += 1000
        assert not breaker.record_overload(ANSWERED_429, num_others=0)
        breaker.record_answer()
    assert breaker.num_outages == 0


def test_breaker_knows_a_gateway_as_reached():
    breaker = breaker_at(FakeTime(), was_reached=False)
    fail(breaker, BAD_GATEWAY)
    assert breaker.was_reached


def test_breaker_waits_for_those_under_way_before_it_opens():
    """Failures are fast: eight prove nothing while many other requests may still be answered."""
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
    assert breaker.record_overload(ANSWERED_429, num_others=0)
    assert not breaker.is_open
    assert not any(fail(breaker) for _ in range(MIN_FAILURES - 1))


def test_breaker_counts_a_storm_on_through_outages():
    """With refusals and failures only, neither restarts the time of the other."""
    time = FakeTime()
    breaker = breaker_at(time)
    for _ in range(12):
        breaker.record_overload(ANSWERED_429, num_others=0)
        for _ in range(MIN_FAILURES):
            fail(breaker)
        time.now += 100
    assert breaker.record_overload(ANSWERED_429, num_others=0)
    assert breaker.has_given_up


def test_breaker_gives_up_nothing_while_others_are_under_way():
    time = FakeTime()
    breaker = opened(time)
    time.now += 400
    assert not fail(breaker, num_others=1, is_probe=True)
    assert fail(breaker, is_probe=True)
    storm = breaker_at(time)
    storm.record_overload(ANSWERED_429, num_others=0)
    time.now += 2000
    assert not storm.record_overload(ANSWERED_429, num_others=1)
    assert storm.record_overload(ANSWERED_429, num_others=0)


def test_breaker_counts_an_accepted_connection_as_reached():
    """A server that resets its first requests and restarts gets an endpoint's full patience."""
    breaker = breaker_at(FakeTime(), was_reached=False)
    reset = EndpointConnectionError("the connection broke")
    reset.__cause__ = aiohttp.ServerDisconnectedError()
    fail(breaker, reset)
    assert breaker.was_reached
