"""What of a task is compared: its mean reward, pass@k and the like, or a component."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from gymcli.errors import UsageError
from gymcli.metrics.at_k import avg_at_k, best_of_k, pass_at_k, pass_hat_k
from gymcli.metrics.estimators import mean

__all__ = ["Measure", "parse_measure"]

_Value: TypeAlias = Callable[[Sequence[float], float | None], float | None]
"""Gives the value of a task from its values in order of attempt and the threshold of success."""


class Measure(NamedTuple):
    """What is compared, and how a task's value of it comes from those of its attempts."""

    name: str
    """By the names that gates use."""
    source: Literal["reward", "components", "metrics"]
    """Where an attempt's value is from."""
    key: str
    """The name of the component or number; empty for the reward."""
    value: _Value
    scale: Literal["reward", "share", "none"]
    """What the value lies within: 0 and the best reward, 0 and 1, or nothing that is known."""
    is_mean: bool
    """Whether it is the mean of all attempts, so that more of them make it surer."""

    @property
    def needs_threshold(self) -> bool:
        """Whether it counts successes."""
        return self.scale == "share"


def _mean(values: Sequence[float], threshold: float | None) -> float | None:
    return mean(values) if values else None


def _num_passes(values: Sequence[float], threshold: float) -> int:
    return sum(value >= threshold for value in values)


def _pass_at(k: int) -> _Value:
    def value(values: Sequence[float], threshold: float | None) -> float | None:
        if threshold is None:
            return None
        return pass_at_k(len(values), _num_passes(values, threshold), k)

    return value


def _pass_hat(k: int) -> _Value:
    def value(values: Sequence[float], threshold: float | None) -> float | None:
        if threshold is None:
            return None
        return pass_hat_k(len(values), _num_passes(values, threshold), k)

    return value


def _avg_at(k: int) -> _Value:
    return lambda values, _: avg_at_k(values, k)


def _best_at(k: int) -> _Value:
    return lambda values, _: best_of_k(values, k)


_AT_K: dict[str, tuple[Callable[[int], _Value], Literal["reward", "share"]]] = {
    "pass@": (_pass_at, "share"),
    "pass^": (_pass_hat, "share"),
    "avg@": (_avg_at, "reward"),
    "best@": (_best_at, "reward"),
}
_WITH_K = re.compile(r"([a-z]+[@^])([1-9][0-9]{0,5})")
_KNOWN = "mean_reward, pass@K, pass^K, avg@K, best@K, components.NAME and metrics.NAME"


def parse_measure(name: str) -> Measure:
    """Find what is compared by its name.

    Raises:
        UsageError: There is no such thing, or it has no value of a task by itself.

    """
    if name == "mean_reward":
        return Measure(name, "reward", "", _mean, "reward", is_mean=True)
    found = _WITH_K.fullmatch(name)
    if found is not None and found[1] in _AT_K:
        make, scale = _AT_K[found[1]]
        is_mean = name in ("pass@1", "pass^1")
        return Measure(name, "reward", "", make(int(found[2])), scale, is_mean=is_mean)
    source, _, key = name.partition(".")
    if key and source == "components":
        return Measure(name, "components", key, _mean, "none", is_mean=True)
    if key and source == "metrics":
        return Measure(name, "metrics", key, _mean, "none", is_mean=True)
    raise UsageError(f"--metric {name}: cannot be compared task by task; what can: {_KNOWN}")
