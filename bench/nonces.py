"""Tasks whose answers show which task they belong to: each answer must repeat the prompt's nonce.

The mock server echoes the last user text. An answer that reached the wrong task, or was assembled
from two, therefore has another nonce or none.

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
    """Say back a nonce; the tool is not needed."""

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
    """Write tasks `task-0`, `task-1` and so on, whose prompts begin with `about`."""
    with path.open("wb") as file:
        for number in range(num_tasks):
            nonce = nonce_of(seed, number)
            prompt = f"{about}Say back: {nonce}"
            row = {"id": f"task-{number}", "prompt": prompt, "nonce": nonce}
            file.write(msgspec.json.encode(row) + b"\n")


def foreign_nonces(messages: list[Message], *, own: str) -> set[str]:
    """Return the nonces of other tasks that occur anywhere in a conversation."""
    # Encoding finds them in arguments and tool calls as well.
    return set(_NONCE.findall(msgspec.json.encode(messages).decode())) - {own}


def answers_own(rollout: Rollout) -> bool:
    """Return whether the last message has the nonce of its task."""
    return rollout.task["nonce"] in _NONCE.findall(rollout.last_text)
