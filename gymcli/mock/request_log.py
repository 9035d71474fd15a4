"""Appends lines of JSON to a file, without the secrets in them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gymcli.errors import UsageError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import Usage

__all__ = ["Exchange", "LineFile", "Stats"]


class Exchange(msgspec.Struct, kw_only=True):
    """One request and what became of it; no header of it, since those hold keys."""

    started: float
    """Seconds since the server started, on a clock that never jumps."""
    ended: float | None = None
    path: str
    model: str | None = None
    turn: int | None = None
    """Assistant messages of the conversation so far; None: it could not be read."""
    status: int | None = None
    """None: the connection ended before a status was sent."""
    fault: str | None = None
    text: str = ""
    """The beginning of the last user text."""
    body: str = ""
    """The hash of the body."""


class Stats(msgspec.Struct, kw_only=True):
    """What was asked and answered so far; `/stats` gives it as JSON."""

    num_requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    """The most requests that were under way at once; those refused at the limit do not count."""
    first_at: float | None = None
    """Seconds from the server's start to the first request; None: there was none yet."""
    last_at: float | None = None
    """To the latest one."""
    num_unanswered: int = 0
    """Requests that ended without a status: reset, or given up by the client."""
    by_status: dict[int, int] = {}
    faults: dict[str, int] = {}
    """Requests by the kind of fault that they met."""
    num_prompt_tokens: int = 0
    """Of the answers that were written, cut ones included."""
    num_completion_tokens: int = 0

    def arrive(self, now: float) -> None:
        """Count a request that arrived so many seconds after the server's start."""
        self.num_requests += 1
        self.last_at = now
        if self.first_at is None:
            self.first_at = now

    def begin(self) -> None:
        """Count a request that is taken on."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def spend(self, usage: Usage) -> None:
        """Count the tokens of an answer."""
        self.num_prompt_tokens += usage.prompt_tokens
        self.num_completion_tokens += usage.completion_tokens

    def end(self, exchange: Exchange) -> None:
        """Count how a request ended."""
        if exchange.status is None:
            self.num_unanswered += 1
        else:
            self.by_status[exchange.status] = self.by_status.get(exchange.status, 0) + 1
        if exchange.fault is not None:
            self.faults[exchange.fault] = self.faults.get(exchange.fault, 0) + 1


class LineFile:
    """An open file, to which lines are appended.

    What cannot be written ends no request: nothing more is written then, and `close` says so.

    Args:
        path: The file.
        option: What named it, for messages.
        secrets: Taken out of what is written, wherever they come from.
        is_new: Whether it must not hold anything yet.

    Raises:
        UsageError: It cannot be opened, or holds something.

    """

    def __init__(
        self, path: Path, *, option: str, secrets: Scrubber = NOTHING_SECRET, is_new: bool = False
    ) -> None:
        self._name = f"{option} {path}"
        self._secrets = secrets
        self.failure: UsageError | None = None
        """Why nothing more is written."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise UsageError(f"{self._name}: {error.strerror}") from error
        if is_new and os.fstat(self._file).st_size:
            os.close(self._file)
            raise UsageError(f"{self._name}: is there already; name a new file")

    def append(self, value: object) -> None:
        """Append one line."""
        if self.failure is not None:
            return
        line = self._secrets.line(msgspec.json.encode(value)) + b"\n"
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            self.failure = UsageError(f"{self._name}: cannot be written: {error.strerror}")

    def close(self) -> None:
        """Close the file.

        Raises:
            UsageError: A line could not be written.

        """
        os.close(self._file)
        if self.failure is not None:
            raise self.failure
