"""An environment whose attempts wait, in a place of their own, while a file is there."""

import asyncio
import os
import time
from pathlib import Path

from gymcli import Context, Environment, Message, Rollout, Score, Step, Task


class Held(Environment[Task]):
    """Say anything. A file that is there holds it.

    `held` the step, `threaded` a thread of it, `blocking` the loop in it, `stuck` the closing,
    `computing` the verifier.
    """

    waits_to_verify = True
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
    """Let nothing else run in this thread while a file is there."""
    while Path(name).exists():
        time.sleep(0.01)


def compute(task_id: str) -> None:
    """Write the process's id down and never end."""
    Path(f"writing-{task_id}").write_text(str(os.getpid()))
    Path(f"writing-{task_id}").rename(f"computing-{task_id}")
    while True:
        time.sleep(0.01)
