"""An environment that misbehaves where its row says; named as `tests.runner.misbehaving:...`."""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress

from gymcli import Environment, RoleError, Score, Task, UsageError, tool
from gymcli.errors import ContextOverflowError, EndpointGoneError, FatalEndpointError


async def hang():
    """Wait forever."""
    await asyncio.get_running_loop().create_future()


async def swallow():
    """Ignore the first cancellation and wait on."""
    for _ in range(2):
        with suppress(BaseException):
            await hang()


async def spin():
    """Compute forever."""
    while True:
        pass


async def spin_on():
    """Compute forever and swallow every exception."""
    while True:
        with suppress(BaseException):
            await spin()


async def crash():
    """End the process."""
    os.kill(os.getpid(), signal.SIGSEGV)


async def grow():
    """Allocate memory without end."""
    taken = []
    while True:
        taken.append(os.urandom(1) * 5_000_000)


async def sleep():
    """Compute for a while, then return."""
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        pass


async def group():
    """Fail in one member of a task group while another is slow to clean up."""

    async def tidy():
        try:
            await hang()
        finally:
            await asyncio.sleep(0.05)

    async def fail():
        raise ValueError("a member failed")

    async with asyncio.TaskGroup() as members:
        members.create_task(tidy())
        await asyncio.sleep(0)
        members.create_task(fail())


async def old_timeout():
    """Time out as libraries did before `Task.uncancel`, and swallow the cancellation."""
    asyncio.current_task().cancel()
    with suppress(asyncio.CancelledError):
        await hang()


async def late_timeout():
    """Time out as libraries did before `Task.uncancel`, and raise TimeoutError."""
    await old_timeout()
    raise TimeoutError("late")


async def cancel():
    """Cancel the current task."""
    asyncio.current_task().cancel()
    await hang()


async def leave():
    """Try to exit the program."""
    sys.exit(0)


class Failed(BaseException):  # pytest's name for it
    """Stands for what `pytest.fail` raises, which takes long to import in every worker."""


async def fail():
    """Fail as a test does, which raises a BaseException."""
    raise Failed("told to")


class PanicException(BaseException):  # PyO3's name for it
    """Stands for what a Rust extension raises when it panics."""


async def panic():
    """Fail as a Rust extension does."""
    raise PanicException("index out of bounds")


class UnreadableError(Exception):
    """An exception whose `str()` raises."""

    def __str__(self):
        raise ValueError("no text")


async def unreadable():
    """Raise an exception that has no readable text."""
    raise UnreadableError


async def misuse():
    """Raise what gymcli raises for a mistake of its user."""
    raise UsageError("this row is odd")


async def overflow():
    """Raise what the client raises for a conversation that is too long."""
    raise ContextOverflowError("too long")


async def give_up():
    """Raise what the client raises when its endpoint is gone."""
    raise EndpointGoneError("gone")


async def refuse():
    """Raise what the runner raises when no request can succeed."""
    raise FatalEndpointError("no request can succeed")


async def blame_role():
    """Blame a role that was never asked, and whose endpoint is gone."""
    raise RoleError("judge: gone") from EndpointGoneError("gone")


WAYS = (
    *(hang, swallow, spin, spin_on, crash, grow, sleep),
    *(group, old_timeout, late_timeout, cancel, leave, fail, panic, unreadable),
    *(misuse, overflow, give_up, refuse, blame_role),
)
DOES = {function.__name__: function for function in WAYS}


class Misbehaving(Environment[Task]):
    """Say anything."""

    setup_timeout = step_timeout = close_timeout = tool_timeout = verify_timeout = 0.3

    async def _misbehave(self, place):
        await misbehave(self.task.model_extra, place)

    async def setup(self):
        await self._misbehave("setup")
        return []

    @tool
    async def wait(self) -> str:
        """Wait."""
        await self._misbehave("tool")
        return "waited"

    async def reply(self, rollout):
        await self._misbehave("step")

    async def final_state(self):
        await self._misbehave("final_state")

    async def close(self):
        await self._misbehave("close")

    async def oracle(self, rollout):
        await self._misbehave("oracle")

    @classmethod
    async def verify(cls, rollout, context):
        await misbehave(rollout.task, "verify")
        return Score(1.0, details={"process": os.getpid()})


class Patient(Misbehaving):
    """Say anything; only tools have a short time limit."""

    tool_timeout = 0.1
    step_timeout = verify_timeout = 60.0
    verify_memory_mb = 300


class Raising(Misbehaving):
    """Say anything; no time limit is short."""

    setup_timeout = step_timeout = close_timeout = tool_timeout = verify_timeout = 60.0


async def misbehave(fields, place):
    """Misbehave in the way and at the place that the row names."""
    if fields.get("place") == place:
        await DOES[fields["does"]]()
