"""An environment with a task that runs away in one of eleven ways, for bench/runaways.py."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import ClassVar

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    FunctionCall,
    Message,
    Rollout,
    Score,
    Task,
    ToolCall,
    tool,
)


def loop() -> None:
    while True:
        pass


def pattern() -> None:
    # Nested repeats backtrack exponentially: about 2**40 steps.
    re.match(r"(a+)+$", "a" * 40 + "!")


def power() -> None:
    10**10**8


def forks() -> None:
    for _ in range(3):
        os.fork()


def leave() -> None:
    os._exit(0)


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def memory() -> None:
    taken = []
    while True:
        taken.append(b"x" * (16 << 20))
        time.sleep(0.05)


def sleep() -> None:
    time.sleep(1e6)


def alarm() -> None:
    """Limit a loop by SIGALRM, as user code may."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(1)
    try:
        while True:
            pass
    except TimeoutError:
        return


def patches() -> None:
    """Patch asyncio so that it never waits, as some libraries for notebooks do."""

    async def at_once(*arguments: object, **keywords: object) -> None:
        """Return."""

    asyncio.sleep = at_once  # type: ignore[assignment]
    asyncio.wait_for = at_once  # type: ignore[assignment]


def stdout() -> None:
    sys.stdout.close()
    os.close(1)


WAYS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        *(loop, pattern, power, forks, leave, segfault, memory, sleep, alarm, patches, stdout),
    )
}


class RunawayTask(Task):
    """A task with the way in which it runs away; empty if it is sound."""

    way: str = ""


class Runaway(Environment[RunawayTask]):
    """Call a tool, which may run away, and be verified, which may, too."""

    blocking_timeout = verify_timeout = 3.0
    close_timeout: ClassVar[float] = 2.0
    verify_memory_mb = 500

    class Options(EnvironmentOptions):
        """Where the bad task runs away: in the `tool` or in the `verifier`."""

        place: str = "tool"

    @tool
    def work(self) -> str:
        """Do the work."""
        if self.options.place == "tool" and self.task.way:  # type: ignore[attr-defined]
            WAYS[self.task.way]()
        return "done"

    async def oracle(self, rollout: Rollout) -> Message:
        """Call the tool, then say so."""
        if len(rollout.responses) == 0:
            call = ToolCall(id="a", function=FunctionCall(name="work", arguments="{}"))
            return Message(role="assistant", tool_calls=[call])
        return Message(role="assistant", content="done")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the tool was called."""
        way = str(rollout.task.get("way", ""))
        if context.options.place == "verifier" and way:  # type: ignore[attr-defined]
            WAYS[way]()
        return Score(float(rollout.messages[-2].text == "done"))
