"""Tasks whose answer proves whose it is: each prompt has a nonce, and the answer must hold it.

The mock server says back what it was told last, so that an answer which went to another task, or
was put together from two, has another nonce or none.

{"id": "task-0", "prompt": "Say back: nonce-9a271f2a916b0b6e", "nonce": "nonce-9a271f2a916b0b6e"}
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from gymcli import Context, Environment, Message, Rollout, Score, Task, tool

__all__ = [
    "Nonces",
    "NoncesWithTool",
    "answers_own",
    "foreign_nonces",
    "nonce_of",
    "write_tasks",
]

_NONCE = re.compile(r"nonce-[0-9a-f]{16}")


class NonceTask(Task):
    """The text that the answer must contain."""

    nonce: str


class Nonces(Environment[NonceTask]):
    """Say back a nonce."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the last message contains the nonce of the task."""
        return Score(float(cls.parse_task(rollout.task).nonce in rollout.last_text))


class NoncesWithTool(Environment[NonceTask]):
    """Say back a nonce; there is a tool that nobody needs."""

    @tool
    def note(self, text: str) -> str:
        """Write a text down."""
        return "It is written down."

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the last message contains the nonce of the task."""
        return Score(float(cls.parse_task(rollout.task).nonce in rollout.last_text))


def nonce_of(seed: int, number: int) -> str:
    """Return the nonce of one task."""
    return "nonce-" + hashlib.sha256(f"{seed}/{number}".encode()).hexdigest()[:16]


def write_tasks(path: Path, num_tasks: int, *, seed: int = 0, about: str = "") -> None:
    """Write tasks `task-0`, `task-1` and so on, whose prompts begin with a text."""
    with path.open("wb") as file:
        for number in range(num_tasks):
            nonce = nonce_of(seed, number)
            prompt = f"{about}Say back: {nonce}"
            row = {"id": f"task-{number}", "prompt": prompt, "nonce": nonce}
            file.write(msgspec.json.encode(row) + b"\n")


def foreign_nonces(messages: list[Message], *, own: str) -> set[str]:
    """Return the nonces of other tasks that occur anywhere in a conversation."""
    return set(_NONCE.findall(msgspec.json.encode(messages).decode())) - {own}


def answers_own(rollout: Rollout) -> bool:
    """Say whether the last message holds the nonce of its task."""
    return rollout.task["nonce"] in _NONCE.findall(rollout.last_text)
