"""Time limits for one coroutine or many."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest

from gymcli.environment.time_limit import (
    LateError,
    LoopClock,
    UnaskedCancellationError,
    cpu_waits,
    gather_all,
    time_limit,
    within,
)


def limited(coroutine, *, seconds=0.02, close_timeout=5.0, **options):
    return asyncio.run(_limited(coroutine, seconds, close_timeout, options))


async def _limited(coroutine, seconds, close_timeout, options):
    return await within(seconds, coroutine, close_timeout=close_timeout, **options)


async def wait():
    await asyncio.Event().wait()


def test_within_returns_what_the_coroutine_returns():
    async def answer():
        await asyncio.sleep(0)
        return 7

    assert limited(answer()) == 7


def test_within_is_late_where_the_coroutine_waits():
    with pytest.raises(LateError):
        limited(wait())


def test_within_is_never_late_for_a_call_that_has_returned():
    async def compute():
        ends = time.monotonic() + 0.1
        while time.monotonic() < ends:
            pass
        return "done"

    assert limited(compute()) == "done"


def test_within_lets_clean_up_run_to_its_end():
    tidied = []

    async def slow_to_end():
        try:
            await wait()
        finally:
            await asyncio.sleep(0.2)
            tidied.append("all")

    with pytest.raises(LateError):
        limited(slow_to_end())
    assert tidied == ["all"]


async def test_within_leaves_behind_what_does_not_end(caplog):
    async def swallow():
        while not is_over:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    is_over = False
    with pytest.raises(LateError):
        await within(0.01, swallow(), close_timeout=0.01)
    is_over = True
    assert "is still running 0.01 seconds after it was cancelled; abandoning it" in caplog.text


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(0), pytest.fail.Exception("no")])
async def test_within_raises_what_the_coroutine_raised(raised):
    """A SystemExit raised within a task would end the event loop."""

    async def fail():
        raise raised

    with pytest.raises(type(raised)) as caught:
        await within(1.0, fail(), close_timeout=1.0)
    assert caught.value is raised


def test_within_reports_an_unrequested_cancellation():
    async def cancel_itself():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    with pytest.raises(UnaskedCancellationError):
        limited(cancel_itself())


async def test_within_passes_on_a_cancellation_of_its_caller_once_the_call_has_tidied_up():
    tidied = []

    async def tidy():
        try:
            await wait()
        finally:
            await asyncio.sleep(0.01)
            tidied.append("all")

    task = asyncio.create_task(within(60.0, tidy(), close_timeout=5.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert tidied == ["all"]


async def test_within_counts_by_its_clock():
    """Time in which the event loop was blocked does not count."""
    moments = iter([0.0, 0.0, 0.0, 5.0])
    with pytest.raises(LateError):
        await within(0.01, wait(), close_timeout=1.0, now=lambda: next(moments))
    assert next(moments, "none left") == "none left"


def test_within_ends_a_forked_copy_that_comes_back():
    async def fork():
        copy = os.fork()
        if copy:
            return os.waitpid(copy, 0)[1]
        return "a copy"

    assert limited(fork()) == 0


async def _said(text, *, after=0, ended=None):
    """Return a text after some turns of the loop, and record that it ended."""
    for _ in range(after):
        await asyncio.sleep(0)
    if ended is not None:
        ended.append(text)
    return text


async def _failing(text, *, after=0):
    await _said(text, after=after)
    raise ValueError(text)


def test_gather_all_gives_results_in_order():
    calls = (_said(str(n), after=5 - n) for n in range(5))
    assert asyncio.run(gather_all(calls)) == ["0", "1", "2", "3", "4"]


def test_gather_all_raises_the_first_error_when_all_have_ended():
    """The first in order, even if a later one failed earlier."""
    ended = []
    calls = [_failing("a", after=3), _failing("b"), _said("c", after=9, ended=ended)]
    with pytest.raises(ValueError, match="a"):
        asyncio.run(gather_all(calls))
    assert ended == ["c"]


async def test_gather_all_that_is_cancelled_cancels_its_calls():
    ended = []
    task = asyncio.create_task(gather_all([_said("a", after=1_000, ended=ended)]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == []


@pytest.mark.parametrize("uses_uvloop", [True, False])
def test_loop_clock_and_time_limit_count_no_time_in_which_the_loop_was_blocked(uses_uvloop):
    """Some loops call a timer that is due before the clock has noticed the pause."""

    async def run():
        async with LoopClock() as clock:
            began, started = clock.now(), time.monotonic()
            async with time_limit(0.6, clock.now) as scope:
                asyncio.get_running_loop().call_soon(time.sleep, 0.9)
                await asyncio.sleep(0.2)
            counted, passed = clock.now() - began, time.monotonic() - started
            with pytest.raises(TimeoutError):
                async with time_limit(0.05, clock.now) as late:
                    await wait()
            return counted, passed, scope.expired(), late.expired()

    factory = pytest.importorskip("uvloop").new_event_loop if uses_uvloop else None
    with asyncio.Runner(loop_factory=factory) as runner:
        counted, passed, *expired = runner.run(run())
    assert counted < 0.6 < 0.9 < passed
    assert expired == [False, True]


async def test_time_limit_passes_on_what_the_block_raises_and_limits_nothing_without_seconds():
    async with time_limit(None):
        await asyncio.sleep(0)
    with pytest.raises(KeyError):
        async with time_limit(60.0):
            raise KeyError
    async with time_limit(0.01) as outer:
        with pytest.raises(TimeoutError, match="its own"):
            async with time_limit(60.0) as inner:
                raise TimeoutError("its own")
    assert (outer.expired(), inner.expired()) == (False, False)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how long a thread had no CPU")
def test_cpu_waits_knows_every_thread_and_child():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        waits = cpu_waits(os.getpid())
        child.stdin.close()
    assert {threading.get_native_id(), child.pid} <= waits.keys()
    assert all(seconds >= 0.0 for seconds in waits.values())
    assert cpu_waits(child.pid) == {}
