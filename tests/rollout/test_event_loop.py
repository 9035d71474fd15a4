"""Tests of a run's event loop: its end, deadlines, blocking code, and a stopped process."""

import asyncio
import functools
import signal
import subprocess
import sys
import threading
import time

import pytest

from gymcli.environment.contract import Environment
from gymcli.environment.tool import Task
from gymcli.rollout.event_loop import Watchdog, new_event_loop, run


@pytest.fixture(params=[True, False])
def _with_and_without_uvloop(request, monkeypatch):
    if not request.param:
        monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_a_background_task_cannot_end_it():
    async def leave():
        sys.exit(0)

    async def main():
        leaving = asyncio.create_task(leave())
        await asyncio.wait([leaving])
        assert isinstance(leaving.exception(), SystemExit)
        asyncio.get_running_loop().call_soon(sys.exit, 0)
        await asyncio.sleep(0.01)
        return 7

    assert run(main()) == 7


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_the_main_task_may_leave():
    async def main():
        sys.exit(3)

    with pytest.raises(SystemExit) as error:
        run(main())
    assert error.value.code == 3


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_an_interrupt_cancels_what_runs():
    ended = []

    async def main():
        asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append("main")

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert ended == ["main"]


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_threads_are_used_again():
    async def main():
        names = set()
        for _ in range(20):
            names.add(await asyncio.to_thread(threading.get_ident))
        return len(names)

    assert run(main()) < 10


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_calls_run_at_once_in_a_limited_number_of_threads():
    release = threading.Event()
    lock = threading.Lock()
    count = 0

    def hold():
        nonlocal count
        with lock:
            count += 1
        # No call returns before 32 of them run at the same time.
        if count == 32:
            release.set()
        return release.wait(60)

    async def main():
        return await asyncio.gather(*(asyncio.to_thread(hold) for _ in range(40)))

    assert all(run(main()))


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_generators_are_closed():
    closed = []

    async def numbers():
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    # A reference is kept, so that the loop closes the generator and not the garbage collector.
    async def main():
        kept.append(numbers())
        await anext(kept[0])

    kept: list = []
    run(main())
    assert closed == [True]


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_idle_threads_end_with_the_loop():
    loop = new_event_loop()
    thread = loop.run_until_complete(loop.run_in_executor(None, threading.current_thread))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_a_stuck_thread_delays_no_end():
    program = """
import asyncio, threading
from gymcli.rollout.event_loop import run

async def main():
    asyncio.create_task(asyncio.to_thread(threading.Event().wait))
    await asyncio.sleep(0)

run(main())
print("over")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "over\n"


class Late:
    """Has a deadline, and records that it expired."""

    def __init__(self, deadline):
        self.deadline = deadline
        self.is_late = asyncio.Event()

    def on_deadline(self):
        self.deadline = float("inf")
        self.is_late.set()


def block(seconds):
    """Compute for this many seconds."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


async def test_watchdog_tells_what_is_late():
    async with Watchdog() as watchdog:
        one, forgotten = Late(watchdog.now()), Late(watchdog.now())
        watchdog.watched.add(one)
        watchdog.watched.add(forgotten)
        watchdog.watched.discard(forgotten)
        await one.is_late.wait()
        assert forgotten.is_late.is_set() is False


@pytest.mark.slow
async def test_watchdog_counts_no_time_in_which_the_loop_was_blocked():
    async with Watchdog() as watchdog:
        await asyncio.sleep(0.3)
        began = watchdog.now()
        one = Late(began + 0.5)
        watchdog.watched.add(one)
        # Over a second, which is when the watchdog counts the loop as blocked.
        block(1.6)
        await one.is_late.wait()
        counted = watchdog.now() - began
        passed = time.monotonic() - began
    assert counted < 1.6 < passed


class Blocking(Environment[Task]):
    """Marks the code of this module as that of an environment."""

    @staticmethod
    async def compute():
        ends = time.thread_time() + 1.9
        while time.thread_time() < ends:
            pass

    @staticmethod
    async def sleep():
        time.sleep(1.9)

    @staticmethod
    async def sleep_again():
        await asyncio.sleep(0)
        time.sleep(1.9)

    @classmethod
    async def verify(cls, rollout, context):
        raise NotImplementedError


async def watched(*functions):
    async with Watchdog():
        for function in functions:
            await asyncio.create_task(function())


@pytest.mark.slow
@pytest.mark.usefixtures("_with_and_without_uvloop")
def test_watchdog_names_each_function_of_an_environment_that_blocks_once(caplog):
    run(watched(Blocking.compute, Blocking.sleep, Blocking.sleep_again, Blocking.compute))
    # Sorted: on a busy machine the first computation may be taken for a lack of CPU.
    names = sorted(message.partition(" (")[0] for message in caplog.messages)
    assert names == ["Blocking.compute", "Blocking.sleep", "Blocking.sleep_again"]
    assert all("test_event_loop.py:" in message for message in caplog.messages)
    assert "has blocked the event loop for a second" in caplog.messages[0]


@pytest.mark.slow
def test_watchdog_names_no_code_but_that_of_environments(caplog):
    """A library's function, the loop's own call, and a library below code that only waits."""
    library = {"__name__": "library", "sleep": time.sleep}
    exec("def wait():\n    sleep(1.9)", library)

    async def main():
        async with Watchdog():
            waiting = asyncio.create_task(asyncio.sleep(2.5))
            for call in (library["wait"], functools.partial(time.sleep, 1.9)):
                asyncio.get_running_loop().call_soon(call)
                await asyncio.sleep(0.1)
            await waiting

    run(main())
    assert caplog.messages == []


STARVED = r"""
import asyncio, os, subprocess, sys, time
from gymcli import Environment, Task
from gymcli.rollout.event_loop import Watchdog, run

class Innocent(Environment[Task]):
    "Does not block."
    @staticmethod
    async def compute():
        ends = time.thread_time() + 0.3
        while time.thread_time() < ends:
            pass
    @classmethod
    async def verify(cls, rollout, context):
        raise NotImplementedError

async def main():
    async with Watchdog():
        await asyncio.sleep(0.6)
        began = time.monotonic()
        await asyncio.create_task(Innocent.compute())
        print(time.monotonic() - began)

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
program = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
busy = subprocess.Popen([sys.executable, "-c", program])
os.nice(10)
try:
    run(main())
finally:
    busy.kill()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how long a thread had no CPU")
def test_watchdog_names_no_code_that_only_had_no_cpu():
    starved = subprocess.run(
        [sys.executable, "-c", STARVED], capture_output=True, text=True, timeout=120, check=True
    )
    assert float(starved.stdout) > 1.5
    assert starved.stderr == ""


BLOCKED = """
import asyncio, re, sys
from gymcli.rollout.event_loop import Watchdog
async def main():
    with open(sys.argv[1], "w") as stack:
        async with Watchdog(blocking_timeout=1.0, stack_file=stack):
            await asyncio.sleep(0)
            print("begun", flush=True)
            re.match(r"(a+)+$", "a" * 40 + "!")
asyncio.run(main())
"""


def test_watchdog_ends_a_process_whose_pattern_explodes_and_writes_the_stack(tmp_path):
    """Python runs no other thread while `re` searches."""
    stack = tmp_path / "stack"
    child = subprocess.run([sys.executable, "-c", BLOCKED, stack], timeout=30, check=False)
    assert child.returncode == 1
    assert "in main" in stack.read_text()


SHARING = r"""
import asyncio, os, subprocess, sys, time
from gymcli.rollout.event_loop import Watchdog

async def main():
    with open(sys.argv[1], "w") as stack:
        async with Watchdog(blocking_timeout=2.0, stack_file=stack):
            await asyncio.sleep(0.7)
            ends = time.thread_time() + float(sys.argv[2])
            while time.thread_time() < ends:
                pass

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
program = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
busy = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
started = time.monotonic()
try:
    asyncio.run(main())
    print(time.monotonic() - started)
finally:
    for process in busy:
        process.kill()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how long a thread had no CPU")
def test_watchdog_ends_no_process_that_only_had_no_cpu(tmp_path):
    """It has two others on its CPU."""
    command = [sys.executable, "-c", SHARING, tmp_path / "stack", "0.9"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert float(child.stdout) > 2.0
    assert (tmp_path / "stack").read_text() == ""


STOPPED = """
import asyncio, sys
from gymcli.rollout.event_loop import Watchdog
async def main():
    async with Watchdog() as watchdog:
        await asyncio.sleep(0.3)
        began = watchdog.now()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.sleep(0.3)
        print(watchdog.now() - began, flush=True)
asyncio.run(main())
"""


@pytest.mark.slow
def test_watchdog_counts_no_time_in_which_the_process_was_stopped():
    child = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGSTOP)
    time.sleep(3.0)  # the time that must not count
    child.send_signal(signal.SIGCONT)
    output, _ = child.communicate("go on\n", timeout=30)
    assert float(output) < 2.0


@pytest.mark.slow
async def test_nothing_is_named_where_nobody_computes(caplog):
    """A process without a processor waits between two calls; a sleep in a call does the same."""
    async with Watchdog():
        asyncio.get_running_loop().call_soon(time.sleep, 2.2)
        await asyncio.sleep(0.1)
    assert not caplog.messages
