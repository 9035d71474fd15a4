"""Coroutines run from code that is not async, and what an interrupt leaves of them."""

import asyncio
import signal
import threading

import pytest

from gymcli.runner.own_loop import OwnLoop


@pytest.fixture(autouse=True)
def raising():
    """Let SIGINT raise at once, as it does in the commands and in a notebook."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


async def interrupted(steps):
    """Wait for ever; the interrupt comes while it waits, and a second one while it tidies up."""

    def interrupt():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    loop = asyncio.get_running_loop()
    loop.call_soon(interrupt)
    try:
        await asyncio.Event().wait()
    finally:
        try:
            loop.call_soon(interrupt)
            await asyncio.Event().wait()
        finally:
            steps.append("tidied up")


async def closed(steps):
    steps.append("closed")


def interrupt_in_the_middle():
    steps = []
    with OwnLoop() as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.run(interrupted(steps))
        loop.run(closed(steps))
    return steps


def test_run_ends_what_an_interrupt_leaves():
    assert interrupt_in_the_middle() == ["tidied up", "closed"]


def test_run_ends_what_an_interrupt_leaves_within_a_running_loop():
    async def notebook():
        return interrupt_in_the_middle()

    assert asyncio.run(notebook()) == ["tidied up", "closed"]
