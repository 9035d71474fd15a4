"""Time limits around code that waits, computes, or catches whatever would end it."""

import asyncio
import functools
import gc
import logging
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import uvloop

from gymcli.deadlines import Alarm, Limit, OverrunError, Reminders, close, within

SHORT = 0.02
LONG = 600.0


class LateError(Exception):
    """What a limit of these tests raises."""


def run(function, *, waiting=LONG, computing=LONG, runner=asyncio.run):
    """Call an async function within limits, in a loop of its own."""

    async def limited():
        with Alarm() as alarm:
            return await within(
                alarm, Limit("it", waiting, computing, LateError, "a limit"), function
            )

    return runner(limited())


def spin():
    while True:
        pass


def spin_stubbornly():
    while True:
        try:  # noqa: SIM105  # as such code looks
            spin()
        except BaseException:  # noqa: BLE001  # as such code looks
            pass


def spin_more_stubbornly():
    while True:
        with suppress(BaseException):
            spin_stubbornly()


def spin_stubbornly_in_one_function():
    while True:
        try:
            while True:
                pass
        except BaseException:  # noqa: BLE001  # as such code looks
            pass


def spin_in_two_stubborn_loops():
    while True:
        try:
            while True:
                try:
                    while True:
                        pass
                except BaseException:  # noqa: BLE001  # as such code looks
                    pass
        except BaseException:  # noqa: BLE001  # as such code looks
            pass


STUBBORN = [
    spin_stubbornly,
    spin_more_stubbornly,
    spin_stubbornly_in_one_function,
    spin_in_two_stubborn_loops,
]


async def for_ever():
    await asyncio.get_running_loop().create_future()


async def stubborn():
    while True:
        with suppress(BaseException):
            await for_ever()


async def give():
    return 1


async def give_later():
    await asyncio.sleep(0)
    value = await asyncio.to_thread(lambda: 20)
    await asyncio.sleep(0.001)
    return value + 1


async def fail_later():
    await asyncio.sleep(0)
    raise KeyError("a")


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_within_gives_what_the_coroutine_gives(runner):
    assert run(give, runner=runner) == 1
    assert run(give_later, runner=runner) == 21
    with pytest.raises(KeyError, match="a"):
        run(fail_later, runner=runner)


def test_within_passes_arguments_on_and_takes_any_awaitable():
    async def add(first, second):
        return first + second

    def promised(value):
        future = asyncio.get_running_loop().create_future()
        future.set_result(value)
        return future

    async def main():
        with Alarm() as alarm:
            limit = Limit("it", LONG, LONG, LateError)
            return [await within(alarm, limit, add, 1, 2), await within(alarm, limit, promised, 5)]

    assert asyncio.run(main()) == [3, 5]


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_within_ends_what_waits(runner):
    with pytest.raises(LateError, match=r"^it took longer than 0\.02 seconds \(a limit\)$"):
        run(for_ever, waiting=SHORT, runner=runner)


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("function", [spin, *STUBBORN])
@pytest.mark.parametrize("waits_first", [False, True])
def test_within_ends_what_computes(runner, function, waits_first):
    async def compute():
        if waits_first:
            await asyncio.sleep(0)
        function()

    with pytest.raises(
        LateError, match=r"^it computed for longer than 0\.02 seconds \(blocking_timeout\)$"
    ):
        run(compute, computing=SHORT, runner=runner)


def test_within_ends_what_computes_before_there_is_a_coroutine():
    with pytest.raises(LateError, match="computed"):
        run(spin, computing=SHORT)


def test_within_gives_no_result_that_came_too_late():
    async def swallow():
        try:
            await for_ever()
        except asyncio.CancelledError:
            return "too late"

    async def swallow_alarm():
        with suppress(BaseException):
            spin()
        return "too late"

    with pytest.raises(LateError, match="took longer"):
        run(swallow, waiting=SHORT)
    with pytest.raises(LateError, match="computed"):
        run(swallow_alarm, computing=SHORT)


def test_within_lets_what_was_cancelled_tidy_up():
    done = []

    async def tidy():
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            await asyncio.to_thread(done.append, "tidied")

    with pytest.raises(LateError, match="took longer"):
        run(tidy, waiting=SHORT)
    assert done == ["tidied"]


def test_within_says_what_tidying_up_raised():
    async def fail():
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            raise OSError("no door")

    with pytest.raises(LateError) as caught:
        run(fail, waiting=SHORT)
    assert isinstance(caught.value.__cause__, OSError)


def test_within_leaves_behind_what_cannot_be_cancelled(caplog):
    """Neither the loop's end nor the collector runs it again."""
    with caplog.at_level(logging.WARNING), pytest.raises(LateError, match="took longer"):
        run(stubborn, waiting=SHORT)
    gc.collect()
    assert "stubborn was ended and goes on; it is left as it stands" in caplog.text


def test_within_leaves_behind_what_computes_and_then_waits(caplog):
    async def both():
        with suppress(BaseException):
            spin()
        await stubborn()

    with pytest.raises(LateError, match="computed"):
        run(both, computing=SHORT)
    gc.collect()
    assert "it is left as it stands" in caplog.text


def test_within_leaves_time_limits_of_the_code_itself_alone():
    """They cancel the same task, and take that back."""

    async def patient():
        num_tries = 0
        for _ in range(3):
            try:
                async with asyncio.timeout(0.001):
                    await for_ever()
            except TimeoutError:
                num_tries += 1
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(for_ever(), 0.001)
        await asyncio.sleep(0)
        return num_tries

    assert run(patient) == 3


async def tidy_slowly():
    try:
        await for_ever()
    finally:
        await asyncio.sleep(0.001)


async def limited():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await tidy_slowly()


async def limited_by_wait_for():
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(tidy_slowly(), 0.001)


async def grouped():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_later())
            await tidy_slowly()
    except* KeyError:
        pass


@pytest.mark.parametrize("limit_itself", [limited, limited_by_wait_for, grouped])
def test_within_lets_code_tidy_up_in_a_time_limit_of_its_own(limit_itself):
    """It goes on afterwards, as if it had never been cancelled."""

    async def both():
        await limit_itself()
        await asyncio.sleep(0.001)
        return asyncio.current_task().cancelling()

    assert run(limit_itself) is None
    assert run(both) == 0


def test_within_ends_what_tidies_up_in_a_time_limit_of_its_own():
    async def go_on():
        async with asyncio.timeout(0.001):
            await stubborn()

    with pytest.raises(asyncio.CancelledError):
        run(go_on)


def test_within_takes_the_cancellation_of_another_task_for_what_it_is():
    async def ask():
        other = asyncio.create_task(for_ever())
        asyncio.get_running_loop().call_soon(other.cancel)
        with pytest.raises(asyncio.CancelledError):
            await other
        await asyncio.sleep(0)
        return "goes on"

    assert run(ask) == "goes on"


@pytest.mark.parametrize("function", [for_ever, stubborn])
def test_within_passes_a_cancellation_on(function):
    async def main():
        with Alarm() as alarm:
            limit = Limit("it", LONG, LONG, LateError)
            task = asyncio.create_task(within(alarm, limit, function))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            return task.cancelled()

    assert asyncio.run(main())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_within_ends_calls_in_calls_that_ignore_it(is_cancelled):
    """The inner one is given its time first; then the outer one ends, or goes on, as it may."""

    async def outer():
        with suppress(KeyError, asyncio.CancelledError):
            await within(alarm, Limit("inner", SHORT, LONG, KeyError), stubborn)
        if is_cancelled:
            await stubborn()
        return "goes on"

    async def main():
        task = asyncio.create_task(within(alarm, Limit("outer", LONG, LONG, LateError), outer))
        await asyncio.sleep(0)
        if is_cancelled:
            task.cancel()
        await asyncio.wait([task])
        return "cancelled" if task.cancelled() else task.result()

    with Alarm() as alarm:
        assert asyncio.run(main()) == ("cancelled" if is_cancelled else "goes on")


def test_within_tells_the_limits_of_nested_calls_apart():
    async def outer():
        with pytest.raises(KeyError):
            await within(alarm, Limit("inner", LONG, SHORT, KeyError), inner_spin)
        with pytest.raises(KeyError):
            await within(alarm, Limit("inner", SHORT, LONG, KeyError), for_ever)
        return "goes on"

    async def inner_spin():
        spin()

    with Alarm() as alarm:
        limit = Limit("outer", LONG, LONG, LateError)
        assert asyncio.run(within(alarm, limit, outer)) == "goes on"


def test_within_limits_the_outer_code_after_an_inner_call():
    async def outer():
        await within(alarm, Limit("inner", LONG, LONG, KeyError), give)
        spin()

    with Alarm() as alarm, pytest.raises(LateError):
        asyncio.run(within(alarm, Limit("outer", LONG, SHORT, LateError), outer))


def test_within_limits_only_waiting_in_another_thread():
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(run, give_later).result() == 21
        with pytest.raises(LateError, match="took longer"):
            thread.submit(functools.partial(run, for_ever, waiting=SHORT)).result()


def test_call_ends_a_function():
    with Alarm() as alarm:
        assert alarm.is_set
        assert alarm.call(LONG, max, 1, 2) == 2
        for function in (spin, *STUBBORN, lambda: time.sleep(LONG)):
            with pytest.raises(OverrunError):
                alarm.call(SHORT, function)
        with pytest.raises(OverrunError):
            alarm.call(SHORT, time.sleep, LONG)
        with pytest.raises(KeyError):
            alarm.call(LONG, {}.__getitem__, "a")
    assert not alarm.is_set
    with alarm, pytest.raises(OverrunError):  # once more
        alarm.call(SHORT, spin)


def test_call_has_no_limit_in_another_thread():
    with Alarm() as alarm, ThreadPoolExecutor(1) as thread:
        assert thread.submit(alarm.call, 0.001, threading.Event().wait, 0.01).result() is False


def test_call_counts_no_time_of_calls_within_it():
    def wait_inside():
        with pytest.raises(OverrunError):
            alarm.call(0.2, spin)
        return "in time"

    with Alarm() as alarm:
        assert alarm.call(0.1, wait_inside) == "in time"


def test_call_ends_what_is_called_on_an_alarm_that_is_not_open():
    """As a tool is in a replay, whose time is that of the verifier."""
    with Alarm() as alarm, pytest.raises(OverrunError):
        alarm.call(SHORT, Alarm().call, LONG, spin)


def test_call_ends_code_that_used_the_timer_itself():
    def use():
        signal.setitimer(signal.ITIMER_REAL, LONG)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        spin()

    with Alarm() as alarm, pytest.raises(OverrunError):
        alarm.call(SHORT, use)


def test_alarm_leaves_code_alone_that_takes_the_signal():
    heard = []

    def take():
        signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
        time.sleep(5 * SHORT)
        return "done"

    with Alarm() as alarm:
        assert alarm.call(SHORT, take) == "done"
    assert heard == []


def test_alarm_in_an_alarm_ends_its_own_calls_and_gives_the_signal_back():
    with Alarm() as outer:
        with Alarm() as inner, pytest.raises(OverrunError):
            inner.call(SHORT, spin)
        with pytest.raises(OverrunError):
            outer.call(SHORT, spin)
        with Alarm() as inner:
            assert outer.call(SHORT, time.sleep, 5 * SHORT) is None
            with pytest.raises(OverrunError):
                outer.call(LONG, inner.call, SHORT, spin)


def test_alarm_that_was_left_rings_no_more():
    """A signal that nobody takes would end the process."""
    source = """
import signal
import time
from gymcli.deadlines import Alarm, OverrunError
alarm = Alarm()
for _ in range(20):
    with alarm:
        try:
            alarm.call(0.0, time.sleep, 0.06)
        except OverrunError:
            pass
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    time.sleep(0.01)
print("alive")
"""
    command = [sys.executable, "-c", source]
    ended = subprocess.run(command, capture_output=True, check=False, timeout=LONG)
    assert (ended.returncode, ended.stdout) == (0, b"alive\n")


def test_alarm_can_be_left_in_a_process_that_was_forked():
    """It has no thread that looks at the time, and that one may just have been at it."""
    source = """
import os
from gymcli.deadlines import Alarm
with Alarm() as alarm:
    alarm._looking.acquire()  # as its thread does for a moment
    child = os.fork()
    if child:
        alarm._looking.release()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("both ended")
"""
    command = [sys.executable, "-W", "ignore", "-c", source]
    ended = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"both ended\n")


def test_call_lets_an_import_end(tmp_path, monkeypatch):
    """An exception in the middle of one would leave half a module."""
    source = "import time\nends = time.monotonic() + 0.2\nwhile time.monotonic() < ends: pass\n"
    (tmp_path / "slow_to_import.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with Alarm() as alarm:
        module = alarm.call(0.1, __import__, "slow_to_import")
    assert module.ends


def test_alarm_gives_signal_and_timer_back():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    try:
        with Alarm() as alarm:
            signal.setitimer(signal.ITIMER_REAL, 1000.0)
            assert alarm.call(LONG, max, 1, 2) == 2
            left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
            assert 0.0 < left <= 1000.0
            signal.raise_signal(signal.SIGALRM)  # of somebody else, outside of any call
            assert heard == [signal.SIGALRM]
        signal.raise_signal(signal.SIGALRM)
        assert len(heard) == 2
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_alarm_that_comes_after_the_call_does_nothing():
    with Alarm() as alarm:
        signal.raise_signal(signal.SIGALRM)
        assert alarm.call(LONG, max, 1, 2) == 2


def test_alarm_of_somebody_else_ends_nothing():
    with Alarm() as alarm:
        assert alarm.call(LONG, signal.raise_signal, signal.SIGALRM) is None


def test_close_leaves_what_does_not_end(caplog):
    """What ends by itself has ended then; a generator that hangs is left as a task is."""
    ended = []

    async def end():
        try:
            await for_ever()
        finally:
            ended.append(True)

    async def hang():
        try:
            yield 1
        finally:
            await for_ever()

    async def main():
        kept = [asyncio.create_task(stubborn()), asyncio.create_task(end()), hang()]
        await anext(kept[2])
        return kept

    runner = asyncio.Runner()
    kept = runner.run(main())
    with caplog.at_level(logging.WARNING):
        close(runner)
    assert len(kept) == 3
    assert ended == [True]
    assert "are left: BaseEventLoop.shutdown_asyncgens, stubborn" in caplog.text


def test_close_says_nothing_of_generators_that_a_task_is_in(caplog):
    """They cannot be closed, and it is the task that is left."""

    async def hang():
        try:
            yield await for_ever()
        finally:
            await for_ever()

    async def go_through():
        async for _ in hang():
            pass

    async def main():
        task = asyncio.create_task(go_through())
        await asyncio.sleep(0)
        return task

    runner = asyncio.Runner()
    task = runner.run(main())
    with caplog.at_level(logging.WARNING):
        close(runner)
    assert not task.done()
    (record,) = caplog.records
    assert "go_through" in record.getMessage()


def test_leave_threads_ends_a_process_in_spite_of_them():
    source = """
import threading
from gymcli.deadlines import leave_threads
threading.Thread(target=threading.Event().wait).start()
print("said")
leave_threads(4)
"""
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (4, b"said\n")


class SteppedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock goes on where the test says so."""

    now = 1000.25

    def time(self):
        return self.now


class Reminded:
    """Counts how often it is reminded."""

    def __init__(self):
        self.num = 0

    def remind(self):
        self.num += 1


def test_reminders_come_in_the_second_of_their_moment_unless_forgotten():
    async def main():
        loop = asyncio.get_running_loop()
        reminders = Reminders()
        first, second, forgotten = Reminded(), Reminded(), Reminded()
        places = [reminders.add(one, 4.5) for one in (first, forgotten)]
        later = reminders.add(second, 5.0)
        reminders.forget(forgotten, places[1])
        counts = []
        for _ in range(3):
            loop.now += 1.9
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            counts.append((first.num, second.num, forgotten.num))
        reminders.forget(first, places[0])  # it was reminded already
        reminders.forget(second, later)
        return counts

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        assert runner.run(main()) == [(0, 0, 0), (1, 0, 0), (1, 1, 0)]


def test_reminders_leave_no_timer_where_all_were_forgotten():
    async def main():
        reminders, one = Reminders(), Reminded()
        reminders.forget(one, reminders.add(one, 4.5))
        asyncio.get_running_loop().now += 10.0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return one.num

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        assert runner.run(main()) == 0


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_alarm_leaves_the_signals_of_a_loop_alone(runner):
    """A handler of the loop hears its signal, also of one that comes while code computes."""

    async def main():
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)

        async def signalled():
            signal.raise_signal(signal.SIGTERM)
            spin()

        with Alarm() as alarm:
            with pytest.raises(LateError):
                await within(alarm, Limit("it", LONG, SHORT, LateError), signalled)
            await heard.wait()

    runner(main())


def test_alarm_lets_weak_references_end():
    """An exception in what they call is lost, and Python tells of it."""
    names = {"__name__": "_weakrefset", "monotonic": time.monotonic}
    exec(
        "def remove(reference):\n"
        "    ends = monotonic() + 0.2\n"
        "    while monotonic() < ends: pass\n",
        names,
    )

    class Thing:
        pass

    def compute():
        thing = Thing()
        reference = weakref.ref(thing, names["remove"])
        del thing
        while reference() is None:
            pass

    with Alarm() as alarm, pytest.raises(OverrunError):
        alarm.call(0.05, compute)


def test_alarm_lets_coverage_give_its_lock_back():
    """The tracer calls it on any line; a ring in the middle would stop everything for ever."""
    lock = threading.Lock()
    names = {"__name__": "coverage.collector", "lock": lock, "monotonic": time.monotonic}
    exec(
        "def measure():\n"
        "    lock.acquire()\n"
        "    ends = monotonic() + 0.2\n"
        "    while monotonic() < ends: pass\n"
        "    lock.release()\n",
        names,
    )

    def compute():
        names["measure"]()
        while True:
            pass

    with Alarm() as alarm, pytest.raises(OverrunError):
        alarm.call(0.05, compute)
    assert not lock.locked()
