"""The remains of a killed `gym collect`: its files, and the mock server's log of its requests."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.runs import Server
from gymcli.store.tokens import TokenPlay
from gymcli.types import Rollout

__all__ = ["Exchange", "Log", "OnDisk", "essence"]

FILES = (
    *("rollouts.jsonl", "failures.jsonl", "generations.jsonl", "verdicts.jsonl"),
    "tokens.jsonl",
)
MAX_SECONDS = 60.0


class OnDisk(NamedTuple):
    """The files of a killed process."""

    lines: dict[str, list[bytes]]
    """The complete lines of every appended file."""
    num_torn: int
    """Files that end in the middle of a line."""

    @classmethod
    def read(cls, run: Path) -> OnDisk:
        """Read the files of a run; a missing file has no lines."""
        lines, num_torn = {}, 0
        for name in FILES:
            path = run / name
            parts = path.read_bytes().split(b"\n") if path.is_file() else [b""]
            num_torn += bool(parts.pop())
            lines[name] = parts
        return cls(lines, num_torn)

    def rollouts(self, name: str) -> list[Rollout]:
        """Decode the lines of rollouts.jsonl or generations.jsonl."""
        return [msgspec.json.decode(line, type=Rollout) for line in self.lines[name]]

    @property
    def num_without_ids(self) -> int:
        """The number of conversations without the token ids of each of their calls."""
        plays = Counter(
            msgspec.json.decode(line, type=TokenPlay).play for line in self.lines["tokens.jsonl"]
        )
        names = ("rollouts.jsonl", "generations.jsonl")
        conversations = (rollout for name in names for rollout in self.rollouts(name))
        return sum(plays[one.play] != len(one.calls) for one in conversations)

    @property
    def num_lines(self) -> int:
        """The number of lines in all files."""
        return sum(map(len, self.lines.values()))

    def num_lost_by(self, later: OnDisk) -> int:
        """Return the number of lines that a later state lacks or has changed."""
        # Files are only appended to, so each line must be at the same place later. The padding
        # makes a line count that is missing at the end.
        return sum(
            line != there
            for name, lines in self.lines.items()
            for line, there in zip(lines, [*later.lines[name], *[b""] * len(lines)], strict=False)
        )


class Exchange(msgspec.Struct):
    """The fields read from a line of the mock's log."""

    model: str | None = None
    text: str = ""


class Log:
    """The mock's log; each read continues where the last one ended."""

    def __init__(self, path: Path, server: Server) -> None:
        self._path = path
        self._server = server
        self._num_read = 0

    def read_on(self) -> list[Exchange]:
        """Wait until the server has finished every request; return those since the last call."""
        # Requests of the killed command are still being answered, and are logged at their end.
        until = time.monotonic() + MAX_SECONDS
        while time.monotonic() < until:
            stats = self._server.stats()
            lines = self._path.read_bytes().splitlines() if self._path.is_file() else []
            if not stats.in_flight and len(lines) == stats.num_requests:
                new = lines[self._num_read :]
                self._num_read = len(lines)
                return [msgspec.json.decode(line, type=Exchange) for line in new]
            time.sleep(0.01)
        raise SystemExit("the log of gym mock lacks some requests")


def essence(rollout: Rollout) -> tuple[object, ...]:
    """Return what must be the same however often the run was killed."""
    return (rollout.key, rollout.task_hash, rollout.seed, rollout.messages, rollout.reward)
