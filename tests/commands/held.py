"""An environment whose attempts wait at a chosen place for as long as a file exists."""

import asyncio
import os
import time
from pathlib import Path

from gymcli import Context, Environment, Message, Rollout, Score, Step, Task


class Held(Environment[Task]):
    """Say anything. The existence of a file blocks it at one place.

    `held` blocks the step, `threaded` a thread that the step starts, `blocking` the event loop in
    the step, `stuck` the closing, and `computing` the verifier.
    """

    waits_to_verify = True
    # The watchdog must not end a process whose loop a test blocks.
    blocking_timeout = 600.0

    async def step(self, message: Message) -> Step:
        Path(f"reached-{self.rollout.task_id}").touch()
        while Path("held").exists():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(wait_for_the_end_of, "threaded")
        wait_for_the_end_of("blocking")
        return Step([])

    async def close(self) -> None:
        Path(f"closing-{self.rollout.task_id}").touch()
        while Path("stuck").exists():
            await asyncio.sleep(0.01)
        Path(f"closed-{self.rollout.task_id}").touch()

    async def oracle(self, rollout: Rollout) -> Message:
        return Message(role="assistant", content="anything")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        if Path("computing").exists():
            await context.isolated(compute, rollout.task_id, timeout=600)
        return Score(1.0)


def wait_for_the_end_of(name: str) -> None:
    """Block this thread for as long as a file exists."""
    while Path(name).exists():
        time.sleep(0.01)


def compute(task_id: str) -> None:
    """Write the process id to a file and never return."""
    # The file is renamed when it is complete, so that a test never reads half a number.
    Path(f"writing-{task_id}").write_text(str(os.getpid()))
    Path(f"writing-{task_id}").rename(f"computing-{task_id}")
    while True:
        time.sleep(0.01)
