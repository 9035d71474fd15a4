"""Who may send when: in order, within the limits, and never lost."""

import asyncio
import gc
from contextlib import suppress

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.errors import (
    EndpointConnectionError,
    EndpointTimeoutError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.models.client import Governors
from gymcli.models.endpoint import Endpoint, Limits
from gymcli.models.limits import Governor, Ticket
from gymcli.types import Usage
from tests.models.asking import FakeTime, ShortTime

BUSY = RateLimitError("busy", status=429)


def governor_at(time: FakeTime, ceiling: int = 4, **options) -> Governor:
    endpoint = Endpoint(base_url="http://h", model="m", **options)
    return Governors(ceiling, clock=time.clock, sleep=time.sleep).of("http://h", endpoint)


def ticket(since: float = 0.0, *, num_bytes: int = 0, max_tokens: int | None = None) -> Ticket:
    return Ticket(since, num_bytes, {"max_tokens": max_tokens} if max_tokens else {})


def refused() -> EndpointConnectionError:
    error = EndpointConnectionError("nobody there")
    error.__cause__ = aiohttp.ClientConnectorError(None, OSError())
    return error


async def settle() -> None:
    """Let everybody do what there is to do."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_admit_keeps_to_the_ceiling():
    governor = governor_at(FakeTime(), ceiling=3)
    assert [governor.admit(ticket()) for _ in range(5)] == [True, True, True, False, False]
    governor.cancelled(ticket())
    assert governor.admit(ticket())


def test_wait_serves_who_came_first():
    async def run():
        governor = governor_at(FakeTime(), ceiling=1)
        under_way = ticket()
        assert governor.admit(under_way)
        served = []

        async def ask(since: float) -> None:
            one = ticket(since)
            assert await governor.wait(one)
            served.append(since)
            await asyncio.sleep(0)
            governor.succeeded(one, Usage())

        tasks = [asyncio.create_task(ask(since)) for since in (5.0, 3.0, 9.0, 1.0)]
        await settle()
        assert not served
        assert not governor.admit(ticket(0.0))  # nobody passes those who wait
        governor.succeeded(under_way, Usage())
        await asyncio.gather(*tasks)
        assert served == [1.0, 3.0, 5.0, 9.0]
        assert (governor.num_under_way, governor.num_waiting) == (0, 0)

    asyncio.run(run())


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "answer", "refuse", "break", "cancel"]), st.integers(0, 99)),
    max_size=80,
)


class Crowd:
    """Requests at one governor: some wait, some are under way; every end of one is looked at."""

    def __init__(self, ceiling: int) -> None:
        self.time = FakeTime()
        self.governor = governor_at(self.time, ceiling)
        self.governor.breaker.was_reached = True
        self.waiting: dict[asyncio.Task[bool], Ticket] = {}
        self.under_way: list[Ticket] = []

    def ask(self, one: Ticket) -> None:
        if self.governor.admit(one):
            self.under_way.append(one)
        else:
            self.waiting[asyncio.create_task(self.governor.wait(one))] = one

    def end(self, pick: int, error: ModelError | None = None) -> None:
        if not self.under_way:
            return
        one = self.under_way.pop(pick % len(self.under_way))
        if error is None:
            self.governor.succeeded(one, Usage())
        else:
            self.governor.failed(one, error)

    async def cancel(self, pick: int) -> None:
        """Cancel one that waits; half of the time in the moment in which somebody is served."""
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
        assert self.governor.num_under_way == len(self.under_way) <= ceiling
        assert 1 <= self.governor.window.limit <= ceiling


@settings(deadline=None)
@given(st.integers(1, 4), STEPS)
def test_governor_loses_no_place_and_starves_nobody(ceiling, steps):
    """Whatever ends how: never more under way than the limit, and at the end all are served."""

    async def run():
        crowd = Crowd(ceiling)
        for step, pick in steps:
            if step == "ask":
                crowd.ask(ticket(crowd.time.now))
            elif step == "cancel":
                await crowd.cancel(pick)
            else:
                crowd.end(pick, {"answer": None, "refuse": BUSY, "break": refused()}[step])
            await crowd.look(ceiling)
        while crowd.waiting or crowd.under_way:
            crowd.end(0)
            await crowd.look(ceiling)
        assert (crowd.governor.num_under_way, crowd.governor.num_waiting) == (0, 0)

    asyncio.run(run())


def test_wait_gives_a_place_back_that_came_with_the_cancellation():
    async def run():
        governor = governor_at(FakeTime(), ceiling=1)
        under_way = ticket()
        governor.admit(under_way)
        task = asyncio.create_task(governor.wait(ticket()))
        await settle()
        governor.succeeded(under_way, Usage())  # the place is given to the task,
        task.cancel()  # which is cancelled before it can take it
        with pytest.raises(asyncio.CancelledError):
            await task
        assert governor.num_under_way == 0
        assert governor.admit(ticket())

    asyncio.run(run())


def test_failed_pauses_as_long_as_asked_and_one_answer_lifts_that():
    async def run():
        time = FakeTime()
        governor = governor_at(time)
        first, second = ticket(), ticket()
        assert governor.admit(first)
        assert governor.admit(second)
        governor.failed(first, RateLimitError("busy", status=429, retry_after=3600))
        assert not governor.admit(ticket())
        governor.succeeded(second, Usage())
        assert governor.admit(ticket())

    asyncio.run(run())


@pytest.mark.parametrize(("asked", "low", "high"), [(3600, 60, 66.1), (2, 2, 2.3)])
def test_wait_ends_with_the_pause(asked, low, high):
    async def run():
        time = FakeTime()
        governor = governor_at(time)
        one = ticket()
        governor.admit(one)
        governor.failed(one, RateLimitError("busy", status=429, retry_after=asked))
        started = time.now
        assert await governor.wait(one)
        assert low <= time.now - started <= high
        assert one.waited <= 0.01  # a pause is the endpoint's answer to this very request

    asyncio.run(run())


def test_failed_pauses_nothing_with_the_first_refusal_after_an_answer():
    governor = governor_at(FakeTime())
    for _ in range(3):
        one = ticket()
        assert governor.admit(one)
        governor.failed(one, BUSY)
        assert not governor.is_paused
        one = ticket()
        assert governor.admit(one)
        governor.succeeded(one, Usage())


def test_load_is_more_where_requests_fail_and_most_in_a_pause():
    time = FakeTime()
    failing, busy = governor_at(time), governor_at(time)
    assert busy.admit(ticket())
    for _ in range(9):
        one = ticket()
        assert failing.admit(one)
        failing.failed(one, ServerError("oops", status=500))
    assert failing.load > busy.load
    assert failing.load == (False, 9 / 4)  # and no more than that: it may be well again
    one = ticket()
    assert busy.admit(one)
    busy.failed(one, RateLimitError("busy", status=429, retry_after=9))
    assert busy.load > failing.load


def test_failed_pauses_longer_each_time_that_nothing_was_answered():
    async def run():
        time = FakeTime()
        governor = governor_at(time)
        pauses = []
        for _ in range(60):
            one = ticket()
            assert governor.admit(one) or await governor.wait(one)
            started = time.now
            governor.failed(one, BUSY)
            again = ticket()
            assert await governor.wait(again)
            pauses.append(time.now - started)
            governor.cancelled(again)
        assert max(pauses[:1]) <= 1.01
        assert max(pauses) > 10
        assert max(pauses) <= 30.01

    asyncio.run(run())


def test_failed_takes_500_for_no_overload():
    governor = governor_at(FakeTime())
    for _ in range(100):
        one = ticket()
        assert governor.admit(one)
        governor.failed(one, ServerError("oops", status=500))
    assert (governor.window.limit, governor.breaker.is_open) == (4, False)


def test_failed_takes_a_connect_timeout_under_load_for_overload():
    governor = governor_at(FakeTime())
    error = EndpointConnectionError("late")
    error.__cause__ = aiohttp.ConnectionTimeoutError()
    one, other = ticket(), ticket()
    governor.admit(one)
    governor.admit(other)
    governor.failed(one, error)
    assert governor.window.limit == 3
    governor.failed(other, error)
    assert governor.window.limit == 3  # alone it says nothing of the load


def test_wait_probes_an_address_that_is_gone_one_at_a_time():
    async def run():
        time = ShortTime()
        governor = governor_at(time, ceiling=20)
        governor.breaker.was_reached = True
        sent = [ticket(number) for number in range(8)]
        for one in sent:
            assert governor.admit(one)
        for one in sent:
            governor.failed(one, refused())
        tasks = [asyncio.create_task(governor.wait(one)) for one in sent]
        await settle()
        assert governor.num_under_way == 1  # half a second has passed
        assert await tasks[0]
        assert sent[0].is_probe
        assert not any(task.done() for task in tasks[1:])
        governor.succeeded(sent[0], Usage())
        assert all(await asyncio.gather(*tasks[1:]))
        assert not governor.breaker.is_open
        assert sent[0].waited >= 0.5  # which counts against no deadline

    asyncio.run(run())


def test_wait_sends_everybody_away_when_the_address_is_given_up():
    async def run():
        time = FakeTime()
        governor = governor_at(time, ceiling=20, outage_deadline=30)
        governor.breaker.was_reached = True
        for _ in range(8):
            governor.admit(one := ticket())
            governor.failed(one, refused())
        answers = []
        while not governor.breaker.has_given_up:
            if await governor.wait(one := ticket()):
                governor.failed(one, refused())
            else:
                answers.append(False)
        assert 30 <= governor.breaker.outage_seconds <= 36

    asyncio.run(run())


def gone(time: FakeTime, **options) -> Governor:
    """Give the governor of an address that answered once, and is gone."""
    governor = governor_at(time, ceiling=20, **options)
    governor.breaker.was_reached = True
    for _ in range(8):
        governor.admit(one := ticket())
        governor.failed(one, refused())
    assert governor.breaker.is_open
    return governor


def test_wait_gives_up_nothing_while_a_probe_is_under_way():
    """It was perhaps taken, and is worked on for longer than the deadline."""

    async def run():
        time = FakeTime()
        governor = gone(time, outage_deadline=30)
        probe = ticket(1)
        assert await governor.wait(probe)
        waiting = asyncio.create_task(governor.wait(ticket(2)))
        time.now += 100
        await settle()
        assert not waiting.done()
        governor.succeeded(probe, Usage())
        assert await waiting
        assert not governor.breaker.is_open

    asyncio.run(run())


def test_failed_gives_up_with_a_probe_that_got_no_answer_in_time():
    async def run():
        time = FakeTime()
        governor = gone(time, outage_deadline=30)
        probe = ticket(1)
        assert await governor.wait(probe)
        waiting = asyncio.create_task(governor.wait(ticket(2)))
        await settle()
        time.now += 100
        governor.failed(probe, EndpointTimeoutError("no answer within 600 seconds"))
        assert not await waiting
        assert governor.breaker.has_given_up
        assert probe.met_outage  # and it costs no attempt

    asyncio.run(run())


def test_failed_takes_429_on_a_probe_for_the_end_of_an_outage():
    async def run():
        time = FakeTime()
        governor = gone(time)
        probe = ticket(1)
        assert await governor.wait(probe)
        governor.failed(probe, BUSY)
        assert not governor.breaker.is_open

    asyncio.run(run())


def test_failed_takes_503_beside_others_for_overload_only():
    time = FakeTime()
    governor = governor_at(time, ceiling=200)
    governor.admit(ticket())
    for _ in range(50):
        one = ticket()
        if not governor.admit(one):
            time.now += 60  # no pause is longer
            assert governor.admit(one)
        governor.failed(one, ServerError("overloaded", status=503))
    assert not governor.breaker.is_open


def test_governor_keeps_to_the_requests_of_a_minute():
    async def run():
        time = FakeTime()
        governor = governor_at(time, 64, limits=Limits(requests_per_minute=30))
        times = []
        for _ in range(31):
            one = ticket()
            assert governor.admit(one) or await governor.wait(one)
            times.append(time.now)
            governor.succeeded(one, Usage())
        assert times[-1] - times[0] == pytest.approx(60, abs=0.1)

    asyncio.run(run())


def test_governor_corrects_its_guess_of_tokens():
    """It reserves what the answer may take, and then learns what it took."""

    async def run():
        time = FakeTime()
        governor = governor_at(time, limits=Limits(tokens_per_minute=60))
        one = ticket(num_bytes=40, max_tokens=50)
        assert governor.admit(one)
        assert one.tokens == 60
        governor.succeeded(one, Usage(prompt_tokens=10, completion_tokens=11))
        assert await governor.wait(ticket(num_bytes=4, max_tokens=5))
        assert time.now - 1000 == pytest.approx(21, abs=0.1)

    asyncio.run(run())


@pytest.mark.parametrize("max_tokens", [10**400, 10**18, -(10**400), -(10**18), 0, "many", None])
def test_governor_survives_any_number_of_tokens(max_tokens):
    """Whatever a task row asks for: nothing raises, and the others wait for minutes at most."""

    async def run():
        time = FakeTime()
        governor = governor_at(time, limits=Limits(tokens_per_minute=10**7))
        for end in (governor.cancelled, lambda one: governor.failed(one, no)):
            odd = Ticket(0.0, 100, {"max_tokens": max_tokens})
            assert governor.admit(odd) or await governor.wait(odd)
            end(odd)
            other = ticket()
            assert governor.admit(other)  # nothing is owed
            governor.cancelled(other)
        started = time.now
        odd = Ticket(0.0, 100, {"max_tokens": max_tokens})
        assert governor.admit(odd) or await governor.wait(odd)
        governor.succeeded(odd, Usage())
        other = ticket()
        assert governor.admit(other) or await governor.wait(other)
        assert time.now - started <= 61
        governor.cancelled(other)
        assert (governor.num_under_way, governor.num_waiting) == (0, 0)

    no = RequestRefusedError("max_tokens is out of range", status=400)
    asyncio.run(run())


def test_governor_guesses_answers_by_the_others():
    governor = governor_at(FakeTime(), limits=Limits(tokens_per_minute=10**9))
    for _ in range(200):
        one = ticket(num_bytes=400)
        assert governor.admit(one)
        governor.succeeded(one, Usage(prompt_tokens=100, completion_tokens=1000))
    assert one.tokens == pytest.approx(1100, rel=0.01)


def test_governors_are_one_for_each_address_and_key():
    governors = Governors(8)
    endpoint = Endpoint(base_url="http://h", model="m", api_key="one")
    other_model = Endpoint(base_url="http://h", model="n", api_key="one")
    other_key = Endpoint(base_url="http://h", model="m", api_key="two")
    in_header = Endpoint(base_url="http://h", model="m", headers={"x-key": "two"})
    first = governors.of("http://h", endpoint)
    assert governors.of("http://h", other_model) is first
    others = [governors.of("http://h", one) for one in (other_key, in_header)]
    others.append(governors.of("http://g", endpoint))
    assert len({id(governor) for governor in [first, *others]}) == 4


def test_governors_keep_to_the_lower_limit_of_two_models():
    governors = Governors(8)
    for number in (4, 2, 6):
        limits = Limits(max_concurrency=number)
        governor = governors.of("http://h", Endpoint(base_url="http://h", model="m", limits=limits))
    assert governor.window.ceiling == 2


class NoTime(FakeTime):
    """A time that stands still."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for ever."""
        await asyncio.Event().wait()


def test_wait_leaves_no_timer_behind():
    async def run():
        governor = governor_at(NoTime())
        governor.admit(one := ticket())
        governor.failed(one, RateLimitError("busy", status=429, retry_after=9))
        task = asyncio.create_task(governor.wait(one))
        await settle()
        assert len(asyncio.all_tasks()) == 3  # this one, who waits, and the timer
        task.cancel()
        await settle()
        gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
