"""Environments whose verifiers misbehave as the record says."""

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import RoleError
from gymcli.types import Message, Score
from tests.rollout import isolated
from tests.rollout.isolated import tell, write_everywhere, write_to_low_descriptors

TABLE = {}
NUM_BUILT = [0]


def table():
    """Return a table that is built slowly at its first use."""
    if not TABLE:
        NUM_BUILT[0] += 1
        for number, word in enumerate(("alpha", "beta", "gamma"), 1):
            TABLE[word] = float(number)
            time.sleep(0.2)
    return TABLE


def variable(name):
    return os.environ.get(name)


class Failed(BaseException):  # pytest's name for it
    """Stands for what `pytest.fail` raises, which takes long to import in every worker."""


class UnreadableError(Exception):
    """An exception whose `str()` raises."""

    def __str__(self):
        raise ValueError("no text")


async def leave_later():
    sys.exit(3)


class Lazy(Environment[Task]):
    """Looks words up in the table."""

    @classmethod
    async def verify(cls, rollout, context):
        reward = table().get(rollout.task["word"], 0.0)
        return Score(reward, details={"num_built": NUM_BUILT[0]})


DEEDS = {
    "exit": lambda: sys.exit(0),
    "leave": lambda: os._exit(0),
    "crash": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "pattern": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
    "number": lambda: 10**10**8,
    "sleep": lambda: time.sleep(1e6),
    "fork": os.fork,
    "print": lambda: print("told to print"),
    "write_low": lambda: write_to_low_descriptors(b"garbage\n"),
    "write_line": lambda: write_everywhere(b"garbage\n"),
    "write_bytes": lambda: write_everywhere(b"\xff"),
    "write_empty_lines": lambda: write_everywhere(b"\n\n"),
    "write_json": lambda: write_everywhere(b"[[]]\n"),
    "asked_to_cancel": lambda: asyncio.current_task().cancel(),
    "task": lambda: asyncio.ensure_future(asyncio.sleep(0)),
    "task_exit": lambda: asyncio.ensure_future(leave_later()),
}
ERRORS = {
    "base": BaseException("told to"),
    "fail": Failed("told to"),
    "unreadable": UnreadableError(),
    "surrogate": ValueError("\ud800"),
    "cancel": asyncio.CancelledError(),
    "role_error": RoleError("gone"),
}


class Misbehaving(Environment[Task]):
    """Does what the record says."""

    verify_timeout = 0.5
    max_reward = None

    @classmethod
    async def verify(cls, rollout, context):
        task = rollout.task
        does = task.get("does")
        if does in ERRORS:
            raise ERRORS[does]
        if does in DEEDS:
            DEEDS[does]()
        if does == "task_exit":
            await asyncio.sleep(0)
        if does == "wait":
            await asyncio.get_running_loop().create_future()
        if does == "tell":
            with Path(task["file"]).open("a") as file:
                file.write(f"{task['number']} ")
        if does == "clean_up":
            try:
                Path(task["file"]).write_text("begun")
            finally:
                time.sleep(0.3)
                Path(task["file"]).write_text("begun ended")
        if does == "look":
            return await looked(context)
        return None if does == "nothing" else Score(1.0)


async def looked(context):
    """Score a record with details about the process it is scored in."""
    shell = ["sh", "-c", "echo $(ulimit -v) $(ulimit -t)"]
    limits = subprocess.run(shell, check=True, capture_output=True, text=True)
    details = {
        "variable": variable("MY_API_KEY"),
        "isolated_variable": await context.isolated(variable, "MY_API_KEY"),
        "folder": str(Path.cwd()),
        "limits_of_child": limits.stdout.strip(),
    }
    return Score(1.0, details=details)


class Patient(Misbehaving):
    """Does what the record says, with a long time limit."""

    verify_timeout = 60.0


class Growing(Misbehaving):
    """Allocates memory without end if the record says so."""

    verify_memory_mb = 150
    verify_timeout = 60.0

    @classmethod
    async def verify(cls, rollout, context):
        held = []
        while rollout.task["does"] == "grow":
            held.append(bytearray(os.urandom(1) * 5_000_000))
        return Score(1.0)


class Optioned(Environment[Task]):
    """Reports the process it is scored in."""

    num_prepared = 0

    class Options(EnvironmentOptions):
        bonus: float = 0.0

    @classmethod
    def prepare(cls, options):
        Optioned.num_prepared += 1
        raise RuntimeError("told to, which is logged")

    @classmethod
    async def verify(cls, rollout, context):
        return Score(
            1.0 + context.options.bonus,
            details={
                "process": os.getpid(),
                "was_prepared": cls.num_prepared > 0,
                "num_prepared": cls.num_prepared,
            },
        )


class Waiting(Environment[Task]):
    """Writes its process id to a file, and computes until the file is deleted."""

    @classmethod
    async def verify(cls, rollout, context):
        file = rollout.task["file"]
        if file:
            tell(file)
        while not file or Path(file).exists():
            time.sleep(0.01)
        return Score(1.0)


class Sum(Environment[Task]):
    """Adds numbers in an isolated process."""

    @classmethod
    async def verify(cls, rollout, context):
        process = await context.isolated(isolated.process)
        assert await context.isolated(isolated.process, timeout=5, memory_mb=256) == process
        return Score(await context.isolated(isolated.add, 0.25, 0.5), answer=str(process))


class Grouped(Environment[Task]):
    """Is scored in groups."""

    @classmethod
    async def verify(cls, rollout, context):
        return Score(1.0)

    @classmethod
    async def verify_group(cls, rollouts, context):
        return [
            Score(0.5, details={"before": rollout.reward, "process": os.getpid()})
            for rollout in rollouts
        ]


class Asking(Environment[Task]):
    """Asks a role."""

    required_roles = ("judge",)

    @classmethod
    async def verify(cls, rollout, context):
        await context.roles["judge"].complete([Message(role="user", content="Well?")])
        return Score(1.0, details={"process": os.getpid()})


class Impatient(Asking):
    """Has short time limits, and never finishes."""

    scoring_timeout = 0.1
    close_timeout = 0.1

    @classmethod
    async def verify(cls, rollout, context):
        await asyncio.get_running_loop().create_future()
