"""How long the mock server waits before an answer."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple, Self

from gymcli.errors import UsageError
from gymcli.mock.draws import draw

__all__ = ["Latency"]


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
