"""Which faults there are, and which request meets one."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Literal, NamedTuple, Self, TypeGuard, get_args

from gymcli.errors import UsageError
from gymcli.mock.draws import draw

__all__ = [
    "BURST_LENGTH",
    "Bursts",
    "Cut",
    "FaultKind",
    "FaultRule",
    "Faults",
    "Refusal",
    "Spoil",
    "is_cut",
    "is_refusal",
    "is_spoil",
]

Refusal = Literal[
    "429",
    "429-after",
    "429-date",
    "429-burst",
    "500",
    "500-once",
    "500-always",
    "502",
    "503",
    "529",
    "500-echo",
    "401",
    "403",
    "403-always",
    "404",
    "405",
    "307",
    "422-echo",
]
"""An error status in place of the answer."""

Cut = Literal[
    "reset",
    "reset-body",
    "stall",
    "stall-body",
    "half-json",
    "wrong-length",
    "open-stream",
    "interim-100",
    "interim-103",
]
"""An answer that does not arrive whole, or not by itself."""

Spoil = Literal[
    "empty-choices",
    "null-content",
    "unknown-finish",
    "finish-abort",
    "finish-error",
    "finish-cancelled",
    "finish-insufficient",
    "null-finish",
    "empty-message",
    "bad-arguments",
    "double-arguments",
    "array-arguments",
    "unknown-tool",
    "duplicate-ids",
    "huge",
]
"""An answer that arrives, and says what it should not."""

FaultKind = Literal[Refusal, Cut, Spoil]

BURST_LENGTH = 20
"""Requests that a burst of 429 refuses, the one that it starts with included."""

_REFUSALS: tuple[str, ...] = get_args(Refusal)
_CUTS: tuple[str, ...] = get_args(Cut)
_SPOILS: tuple[str, ...] = get_args(Spoil)
_KINDS = (*_REFUSALS, *_CUTS, *_SPOILS)
_OF_BODIES = ("500-once", "500-always", "403-always")
"""Kinds that are drawn once for a body, not anew for every request of it."""


def is_refusal(kind: FaultKind) -> TypeGuard[Refusal]:
    """Say whether a fault is an error status."""
    return kind in _REFUSALS


def is_cut(kind: FaultKind) -> TypeGuard[Cut]:
    """Say whether a fault is in how the answer arrives."""
    return kind in _CUTS


def is_spoil(kind: FaultKind) -> TypeGuard[Spoil]:
    """Say whether a fault is in what the answer says."""
    return kind in _SPOILS


class FaultRule(NamedTuple):
    """How often a fault happens, and to whom."""

    kind: FaultKind
    rate: float = 1.0
    match: str = ""
    """What the last user text has to contain."""

    @classmethod
    def parse(cls, spec: str) -> Self:
        """Read `KIND[=RATE][@MATCH]`.

        Raises:
            UsageError: There is no such fault, the rate is none, or nothing follows the `@`.

        """
        head, at, match = spec.partition("@")
        kind, equals, rate = head.partition("=")
        if not _is_kind(kind):
            close = difflib.get_close_matches(kind, _KINDS, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(_KINDS)}"
            raise UsageError(f'--fault {spec}: no fault "{kind}"; {hint}')
        if at and not match:
            raise UsageError(f"--fault {spec}: the text after @ is missing")
        return cls(kind, _rate(spec, rate) if equals else 1.0, match)


@dataclasses.dataclass(frozen=True, slots=True)
class Faults:
    """Decides which request meets which fault.

    Each rule that fits a request has its share of all of them: those that name a text first, then
    those of bodies, then the rest, which share what is left.
    """

    rules: tuple[FaultRule, ...] = ()

    @classmethod
    def parse(cls, specs: Iterable[str]) -> Self:
        """Read texts like `500=0.2`, `stall` and `500-always@task 17`.

        Raises:
            UsageError: One of them cannot be read, or the rates add up to more than 1.

        """
        rules = [FaultRule.parse(spec) for spec in specs]
        total = sum(rule.rate for rule in rules if not rule.match)
        if total > 1 + 1e-9:
            raise UsageError(f"--fault: the rates add up to {total:g}, which is more than 1")
        return cls(tuple(sorted(rules, key=_place)))

    def draw(self, *, seed: int, body: str, occurrence: int, text: str) -> FaultKind | None:
        """Give the fault of a request.

        Args:
            seed: Of the server.
            body: The hash of the request's body.
            occurrence: How many requests of this body came before; a retry draws anew.
            text: The last user text.

        """
        body_low = low = taken = 0.0
        for rule in self.rules:
            if rule.match not in text:
                continue
            is_of_body = rule.kind in _OF_BODIES
            # What the other draw left; so every share is one of all the requests.
            left = 1 - (low if is_of_body else taken)
            if left <= 0:
                return None
            width = rule.rate / left
            if not is_of_body:
                if low <= draw(seed, "fault", body, occurrence) < low + width:
                    return rule.kind
                low += width
                continue
            is_over = rule.kind == "500-once" and occurrence > 0
            if not is_over:
                if body_low <= draw(seed, "fault of a body", body, 0) < body_low + width:
                    return rule.kind
                taken += width
            body_low += width
        return None


def _place(rule: FaultRule) -> int:
    if rule.match:
        return 0
    return 1 if rule.kind in _OF_BODIES else 2


class Bursts:
    """Makes a burst of refusals out of the draw that starts it."""

    def __init__(self) -> None:
        self._num_left = 0

    def over(self, fault: FaultKind | None) -> FaultKind | None:
        """Give the fault that a request meets, which is the burst's while one lasts."""
        if self._num_left:
            self._num_left -= 1
            return "429-burst"
        if fault == "429-burst":
            self._num_left = BURST_LENGTH - 1
        return fault


def _is_kind(text: str) -> TypeGuard[FaultKind]:
    return text in _KINDS


def _rate(spec: str, text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise UsageError(f"--fault {spec}: the rate must be a number from 0 to 1")
    return rate
