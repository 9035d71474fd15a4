"""The beat of an event loop: what is late, what blocks, and what was stopped."""

import asyncio
import logging
import signal
import subprocess
import sys
import time

from gymcli.rollout.event_loop import Watchdog


class Late:
    """Something with a deadline, which says when that is over."""

    def __init__(self, deadline):
        self.deadline = deadline
        self.is_late = asyncio.Event()

    def expire(self, now):
        self.deadline = float("inf")
        self.is_late.set()


def block(seconds):
    """Compute."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


def test_watchdog_tells_what_is_late():
    async def run():
        async with Watchdog() as watchdog:
            one, forgotten = Late(watchdog.now()), Late(watchdog.now())
            watchdog.watch(one)
            watchdog.watch(forgotten)
            watchdog.forget(forgotten)
            await one.is_late.wait()
            return forgotten.is_late.is_set()

    assert asyncio.run(run()) is False


def test_watchdog_counts_no_time_in_which_the_loop_was_blocked():
    async def run():
        async with Watchdog() as watchdog:
            await asyncio.sleep(0.3)
            began = watchdog.now()
            one = Late(began + 0.5)
            watchdog.watch(one)
            block(1.6)
            await one.is_late.wait()
            return watchdog.now() - began, time.monotonic() - began

    counted, passed = asyncio.run(run())
    assert counted < 1.6 < passed


def test_watchdog_names_the_function_that_blocks(caplog):
    async def run():
        async with Watchdog():
            await asyncio.sleep(0)
            block(2.0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    [text] = [record.getMessage() for record in caplog.records]
    assert "test_watchdog.py:" in text
    assert "has computed for a second without awaiting anything" in text


BLOCKED = """
import asyncio, re, sys
from gymcli.rollout import Watchdog
async def main():
    with open(sys.argv[1], "w") as stack:
        async with Watchdog(blocking_timeout=1.0, stack_file=stack):
            await asyncio.sleep(0)
            print("begun", flush=True)
            re.match(r"(a+)+$", "a" * 40 + "!")
asyncio.run(main())
"""


def test_watchdog_ends_a_process_whose_pattern_explodes_and_writes_the_stack(tmp_path):
    """No thread of Python gets its turn while `re` searches."""
    stack = tmp_path / "stack"
    child = subprocess.run([sys.executable, "-c", BLOCKED, stack], timeout=30, check=False)
    assert child.returncode == 1
    assert "in main" in stack.read_text()


STOPPED = """
import asyncio, sys
from gymcli.rollout import Watchdog
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


def test_watchdog_counts_no_time_in_which_the_process_was_stopped():
    child = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGSTOP)
    time.sleep(3.0)  # it is what the test is about
    child.send_signal(signal.SIGCONT)
    output, _ = child.communicate("go on\n", timeout=30)
    assert float(output) < 2.0


def test_nothing_is_named_where_nobody_computes(caplog):
    """A process that gets no processor stands between two calls of its loop."""

    async def main():
        async with Watchdog():
            asyncio.get_running_loop().call_soon(time.sleep, 2.2)
            await asyncio.sleep(0.1)

    asyncio.run(main())
    assert not caplog.messages
