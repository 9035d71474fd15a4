"""A loop that no background task ends, and whose threads delay no end."""

import asyncio
import subprocess
import sys
import threading

import pytest

from gymcli.rollout.event_loop import new_event_loop, run


@pytest.fixture(params=[True, False], autouse=True)
def _with_and_without_uvloop(request, monkeypatch):
    if not request.param:
        monkeypatch.setitem(sys.modules, "uvloop", None)


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


def test_the_main_task_may_leave():
    async def main():
        sys.exit(3)

    with pytest.raises(SystemExit) as error:
        run(main())
    assert error.value.code == 3


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


def test_threads_are_used_again():
    async def main():
        names = set()
        for _ in range(20):
            names.add(await asyncio.to_thread(threading.get_ident))
        return len(names)

    assert run(main()) < 10


def test_calls_run_at_once_in_a_limited_number_of_threads():
    release = threading.Event()
    lock = threading.Lock()
    count = 0

    def hold():
        nonlocal count
        with lock:
            count += 1
        if count == 32:
            release.set()
        return release.wait(60)

    async def main():
        return await asyncio.gather(*(asyncio.to_thread(hold) for _ in range(40)))

    assert all(run(main()))


def test_generators_are_closed():
    closed = []

    async def numbers():
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    async def main():
        kept.append(numbers())
        await anext(kept[0])

    kept: list = []
    run(main())
    assert closed == [True]


def test_idle_threads_end_with_the_loop():
    loop = new_event_loop()
    thread = loop.run_until_complete(loop.run_in_executor(None, threading.current_thread))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    thread.join(60)
    assert not thread.is_alive()


def test_a_stuck_thread_delays_no_end():
    program = """
import asyncio, threading
from gymcli.event_loop import run

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
