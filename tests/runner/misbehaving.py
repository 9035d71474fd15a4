"""An environment that misbehaves where its row says so; given by `tests.runner.misbehaving:...`."""

import asyncio
import os
import signal
import time
from contextlib import suppress

from gymcli import Environment, Score, Task, tool


async def hang():
    """Wait for what never comes."""
    await asyncio.get_running_loop().create_future()


async def swallow():
    """Wait, whatever anybody says, for longer than anybody waits for it."""
    for _ in range(2):
        with suppress(BaseException):
            await hang()


async def spin():
    """Compute, without an end."""
    while True:
        pass


async def spin_on():
    """Compute, whatever anybody says."""
    while True:
        with suppress(BaseException):
            await spin()


async def crash():
    """End the process."""
    os.kill(os.getpid(), signal.SIGSEGV)


async def grow():
    """Take all memory."""
    taken = []
    while True:
        taken.append(b"x" * (16 << 20))


async def sleep():
    """Compute for a while, and come to an end."""
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        pass


DOES = {
    function.__name__: function for function in (hang, swallow, spin, spin_on, crash, grow, sleep)
}


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
    """Say anything; tools alone have little time."""

    tool_timeout = 0.1
    step_timeout = verify_timeout = 60.0
    verify_memory_mb = 300


async def misbehave(fields, place):
    """Do what a row says, where it says so."""
    if fields.get("place") == place:
        await DOES[fields["does"]]()
