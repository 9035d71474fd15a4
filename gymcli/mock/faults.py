"""Which request gets a fault, how long it waits, and when the endpoint dies.

Everything but deaths and the length of a burst is drawn from the seed, the body of the request and
the number of earlier requests with that body, so neither order nor concurrency changes it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable
from statistics import NormalDist
from typing import Literal, NamedTuple, Self, get_args

from gymcli.errors import UsageError
from gymcli.suggestions import did_you_mean

_BITS = 52  # one less than a float has, so that adding half a step is exact and no draw is 0 or 1


def body_hash(body: bytes) -> str:
    """Return 16 hex digits that identify a request's body."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def draw(seed: int, purpose: str, body: str, occurrence: int) -> float:
    """Return a number above 0 and below 1, always the same for the same arguments.

    Draws for different purposes are independent. `body` is the hash of a request's body,
    `occurrence` the number of earlier requests with that body.
    """
    # A hash, not `hash` or a generator with state: the same in every process, in any order.
    text = f"{seed} {purpose} {body} {occurrence}"
    bits = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return ((bits >> (64 - _BITS)) + 0.5) / (1 << _BITS)


StatusFault = Literal[
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
    "500-page",
    "401",
    "403",
    "403-rate",
    "403-always",
    "404",
    "405",
    "307",
    "422-echo",
]
"""An error status instead of the answer."""

DeliveryFault = Literal[
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
"""An answer whose delivery breaks."""

ContentFault = Literal[
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
"""An answer that arrives with wrong content."""

FaultKind = Literal[StatusFault, DeliveryFault, ContentFault]

BURST_LENGTH = 20
"""Number of requests that a burst of 429 refuses, including the first."""
STATUS_FAULTS: tuple[str, ...] = get_args(StatusFault)
DELIVERY_FAULTS: tuple[str, ...] = get_args(DeliveryFault)
CONTENT_FAULTS: tuple[str, ...] = get_args(ContentFault)
_KINDS: tuple[str, ...] = get_args(FaultKind)


class FaultRule(NamedTuple):
    """A fault, how often it happens, and to which requests."""

    kind: str
    """A `FaultKind`."""
    rate: float = 1.0
    match: str = ""
    """Text that the last user text must contain."""

    @classmethod
    def parse(cls, spec: str) -> Self:
        """Read `KIND[=RATE][@MATCH]`."""
        head, at, match = spec.partition("@")
        kind, equals, text = head.partition("=")
        if kind not in _KINDS:
            hint = did_you_mean(kind, _KINDS) or f"use one of {', '.join(_KINDS)}"
            raise UsageError(f'--fault {spec}: no fault "{kind}"; {hint}')
        if at and not match:
            raise UsageError(f"--fault {spec}: the text after @ is missing")
        error_message = f"--fault {spec}: the rate must be a number from 0 to 1"
        rate = _number(text, error_message) if equals else 1.0
        if rate > 1:
            raise UsageError(error_message)
        return cls(kind, rate, match)

    @property
    def is_of_body(self) -> bool:
        """Whether it is drawn once per body, not again for each request with that body."""
        return self.kind in ("500-once", "500-always", "403-always")


def _number(text: str, error_message: str) -> float:
    """Read a finite number of at least 0; `error_message` is raised for any other text."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (math.isfinite(number) and number >= 0):
        raise UsageError(error_message)
    return number


@dataclasses.dataclass(frozen=True, slots=True)
class Faults:
    """Decides which request gets which fault.

    Rules that match a text come first, then rules drawn per body, then the rest. The rate of each
    is a share of all requests that it matches; what earlier rules take does not lower it.
    """

    rules: tuple[FaultRule, ...] = ()

    @classmethod
    def parse(cls, specs: Iterable[str]) -> Self:
        """Read texts like `500=0.2`, `stall` and `500-always@task 17`."""
        rules = [FaultRule.parse(spec) for spec in specs]
        # A rate with a match is a share of the matching requests only.
        total = sum(rule.rate for rule in rules if not rule.match)
        if total > 1 + 1e-9:
            raise UsageError(f"--fault: the rates add up to {total:g}, which is more than 1")
        return cls(tuple(sorted(rules, key=lambda rule: (not rule.match, not rule.is_of_body))))

    def draw(self, *, seed: int, body: str, occurrence: int, text: str) -> str | None:
        """Return the fault of a request with this last user text; see `draw` for the rest."""
        # Rules drawn per body divide the range of one draw, the others that of a second one.
        # `body_share` is the share that the first draw took; the others divide the rest.
        body_low = low = body_share = 0.0
        for rule in self.rules:
            if rule.match not in text:
                continue
            remaining_share = 1 - (low if rule.is_of_body else body_share)
            if remaining_share <= 0:
                return None
            width = rule.rate / remaining_share
            if not rule.is_of_body:
                if low <= draw(seed, "fault", body, occurrence) < low + width:
                    return rule.kind
                low += width
                continue
            if rule.kind != "500-once" or occurrence == 0:
                if body_low <= draw(seed, "fault of a body", body, 0) < body_low + width:
                    return rule.kind
                body_share += width
            body_low += width
        return None


_SHAPES: dict[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    "uniform": (lambda number, low, high: low + (high - low) * number, ("LOW", "HIGH")),
    "lognormal": (
        lambda number, median, sigma: median * math.exp(sigma * NormalDist().inv_cdf(number)),
        ("MEDIAN", "SIGMA"),
    ),
    "exponential": (lambda number, mean: -mean * math.log1p(-number), ("MEAN",)),
}
"""The quantile function of each distribution and the names of its parameters."""
_FORMS = "SECONDS, " + ", ".join(":".join((name, *names)) for name, (_, names) in _SHAPES.items())

_MAX_SIGMA = 10.0
"""Above it, hardly any wait is between a microsecond and a year."""


class Latency(NamedTuple):
    """A distribution of waits before answers."""

    parameters: tuple[float, ...] = (0.0,)
    shape: str = ""
    """The name of the distribution; empty means that every wait is the one parameter."""

    @classmethod
    def parse(cls, spec: str) -> Self:
        """Read `0.2`, `uniform:LOW:HIGH`, `lognormal:MEDIAN:SIGMA` or `exponential:MEAN`."""
        name, colon, parameters = spec.partition(":")
        if colon and name not in _SHAPES:
            hint = did_you_mean(name, _SHAPES) or f"use {_FORMS}"
            raise UsageError(f'--latency {spec}: no distribution "{name}"; {hint}')
        numbers = [
            _number(text, f'--latency {spec}: "{text}" is not a number of seconds; use {_FORMS}')
            for text in (parameters.split(":") if colon else [name])
        ]
        if not colon:
            return cls((numbers[0],))
        _, names = _SHAPES[name]
        if len(numbers) != len(names):
            raise UsageError(f"--latency {spec}: expected {':'.join((name, *names))}")
        if name == "uniform" and numbers[0] > numbers[1]:
            raise UsageError(f"--latency {spec}: LOW is above HIGH")
        if name == "lognormal" and numbers[1] > _MAX_SIGMA:
            raise UsageError(f"--latency {spec}: SIGMA is above {_MAX_SIGMA:g}")
        return cls(tuple(numbers), name)

    def seconds(self, *, seed: int, body: str, occurrence: int) -> float:
        """Return the wait before the answer to a request; the arguments are those of `draw`."""
        if not self.shape:
            return self.parameters[0]
        # Inverse transform sampling: the quantile of a uniform number has the distribution.
        quantile, _ = _SHAPES[self.shape]
        return quantile(draw(seed, "latency", body, occurrence), *self.parameters)


class Outage(NamedTuple):
    """One death of the endpoint."""

    after_seconds: float | None = None
    """Seconds since it first listened."""
    after_requests: int | None = None
    """The endpoint dies at the request after this many."""
    seconds: float | None = None
    """Seconds that it stays down; None means until it is brought back."""

    @classmethod
    def parse(cls, down_after: str | None, down_for: str | None = None) -> Self:
        """Read `5s` or `100r`, and `20s` or `for-ever`; without the first there is no outage."""
        if down_after is None:
            if down_for is not None:
                raise UsageError(f"--down-for {down_for}: needs --down-after")
            return cls()
        seconds = None
        if down_for not in (None, "for-ever"):
            error_message = f"--down-for {down_for}: expected 20s or for-ever"
            seconds = _number(down_for.removesuffix("s"), error_message)
        if down_after.endswith("r") and down_after[:-1].isascii() and down_after[:-1].isdigit():
            return cls(None, int(down_after[:-1]), seconds)
        error_message = f"--down-after {down_after}: expected 5s or 100r"
        return cls(_number(down_after.removesuffix("s"), error_message), None, seconds)
