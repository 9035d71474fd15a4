"""When the whole endpoint dies, and when it returns."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Callable, Iterable
from statistics import NormalDist
from typing import Literal, NamedTuple, Self, TypeGuard, get_args

from gymcli.errors import UsageError

__all__ = [
    "BURST_LENGTH",
    "Bursts",
    "Cut",
    "FaultKind",
    "FaultRule",
    "Faults",
    "Latency",
    "Outage",
    "Refusal",
    "Spoil",
    "body_hash",
    "draw",
    "is_cut",
    "is_refusal",
    "is_spoil",
]


_BITS = 52  # half a step above them still fits a float, so that no draw is 0 or 1


def body_hash(body: bytes) -> str:
    """Give 16 hex digits that stand for a request's body."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def draw(seed: int, purpose: str, body: str, occurrence: int) -> float:
    """Give a number above 0 and below 1, the same for the same arguments.

    Args:
        seed: Of the server.
        purpose: What is decided; draws for different purposes know nothing of each other.
        body: The hash of the request's body.
        occurrence: How many requests of this body came before.

    """
    text = f"{seed} {purpose} {body} {occurrence}"
    found = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return ((found >> (64 - _BITS)) + 0.5) / (1 << _BITS)


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


def _uniform(number: float, low: float, high: float) -> float:
    return low + (high - low) * number


def _lognormal(number: float, middle: float, sigma: float) -> float:
    return middle * math.exp(sigma * NormalDist().inv_cdf(number))


def _exponential(number: float, mean: float) -> float:
    return -mean * math.log1p(-number)


_MAX_SIGMA = 10.0
"""Beyond it a wait is hardly ever one between a microsecond and a year."""


class _Shape(NamedTuple):
    """A distribution: how a number from 0 to 1 becomes seconds."""

    quantile: Callable[..., float]
    names: tuple[str, ...]
    """Of its parameters."""


_SHAPES = {
    "uniform": _Shape(_uniform, ("LOW", "HIGH")),
    "lognormal": _Shape(_lognormal, ("MEDIAN", "SIGMA")),
    "exponential": _Shape(_exponential, ("MEAN",)),
}
_FORMS = "SECONDS, " + ", ".join(":".join((name, *s.names)) for name, s in _SHAPES.items())


class Latency(NamedTuple):
    """A distribution of waits; without a shape they are all the same."""

    parameters: tuple[float, ...] = (0.0,)
    shape: str = ""
    """The name of the distribution."""

    @classmethod
    def parse(cls, spec: str) -> Self:
        """Read `0.2`, `uniform:LOW:HIGH`, `lognormal:MEDIAN:SIGMA` or `exponential:MEAN`.

        Raises:
            UsageError: It is none of these, or its numbers are no seconds.

        """
        name, colon, rest = spec.partition(":")
        if not colon:
            return cls((_number(spec, name),))
        if name not in _SHAPES:
            close = difflib.get_close_matches(name, _SHAPES, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"use {_FORMS}"
            raise UsageError(f'--latency {spec}: no distribution "{name}"; {hint}')
        numbers = tuple(_number(spec, text) for text in rest.split(":"))
        names = _SHAPES[name].names
        if len(numbers) != len(names):
            raise UsageError(f"--latency {spec}: expected {':'.join((name, *names))}")
        if name == "uniform" and numbers[0] > numbers[1]:
            raise UsageError(f"--latency {spec}: LOW is above HIGH")
        if name == "lognormal" and numbers[1] > _MAX_SIGMA:
            raise UsageError(f"--latency {spec}: SIGMA is above {_MAX_SIGMA:g}")
        return cls(numbers, name)

    def seconds(self, *, seed: int, body: str, occurrence: int) -> float:
        """Give the wait before the answer to a request, which is that of `Faults.draw`."""
        if not self.shape:
            return self.parameters[0]
        number = draw(seed, "latency", body, occurrence)
        return _SHAPES[self.shape].quantile(number, *self.parameters)


def _number(spec: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f'--latency {spec}: "{text}" is no number; use {_FORMS}') from None
    if not (math.isfinite(number) and number >= 0):
        raise UsageError(f"--latency {spec}: a number of seconds cannot be {text}")
    return number


_FOR_EVER = "for-ever"


class Outage(NamedTuple):
    """One death of the endpoint."""

    after_seconds: float | None = None
    """Since it first listened."""
    after_requests: int | None = None
    """The request after these finds it dying."""
    seconds: float | None = None
    """How long it stays away; None: until it is brought back."""

    @classmethod
    def parse(cls, after: str | None, lasts: str | None = None) -> Self:
        """Read `5s` or `100r`, and `20s` or `for-ever`; without the first, there is no death.

        Raises:
            UsageError: One of them is neither, or the second comes alone.

        """
        if after is None:
            if lasts is not None:
                raise UsageError(f"--down-for {lasts}: needs --down-after")
            return cls()
        seconds = None
        if lasts not in (None, _FOR_EVER):
            seconds = _seconds("--down-for", lasts, f"20s or {_FOR_EVER}")
        if after.endswith("r") and after[:-1].isascii() and after[:-1].isdigit():
            return cls(None, int(after[:-1]), seconds)
        return cls(_seconds("--down-after", after, "5s or 100r"), None, seconds)


def _seconds(option: str, text: str, forms: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        raise UsageError(f"{option} {text}: expected {forms}") from None
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{option} {text}: expected {forms}")
    return seconds
