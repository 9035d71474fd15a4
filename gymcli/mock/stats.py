"""What the mock server counts, and the line that it logs of each request."""

from __future__ import annotations

import msgspec

from gymcli.types import Usage

__all__ = ["Exchange", "Stats"]


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
