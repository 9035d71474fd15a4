"""Plans the size of a run from a pilot: the smallest difference that each size detects.

Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640, section 5: with n tasks, K attempts of
each by both models and standard errors over tasks, the smallest difference that a two-sided test
detects is (z_{alpha/2} + z_beta) * sqrt(v/n), where v is the variance of one task's difference:

- unpaired, each model on different tasks: v = 2 * (between + within/K);
- paired, both on the same tasks: v = omega^2 + 2 * within/K, with
  omega^2 = 2 * between * (1 - correlation) of the tasks' true means.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from gymcli.errors import UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.estimators import variance
from gymcli.metrics.intervals import normal_quantile
from gymcli.metrics.results import Metrics

__all__ = [
    "ASSUMED_CORRELATION",
    "CHANCE",
    "Needed",
    "Pilot",
    "Plan",
    "Planned",
    "fewest",
    "pilot_of",
    "pilot_of_pair",
    "plan",
    "plans",
]

Design = Literal["unpaired", "paired"]

ASSUMED_CORRELATION = 0.5
"""The correlation of two models' rewards without a second run: Miller found 0.3 to 0.7."""
CHANCE = 0.8
"""The power of a plan: the chance that the planned tasks or attempts decide."""
_SIGNIFICANCE = 0.05
"""Of the two-sided test."""
_SMALLEST_MARGIN = 1e-9
_NUM_TASKS = (25, 50, 100, 200, 500, 1000, 2000, 5000)
_NUM_ATTEMPTS = (1, 2, 4, 8, 16)


class Needed(NamedTuple):
    """The tasks or attempts that would decide with a chance of 80 %."""

    num_tasks: int | None
    num_attempts: int | None
    """Of each task."""
    way_out: str


class Pilot(msgspec.Struct, frozen=True, kw_only=True):
    """The variances that a plan is based on."""

    num_tasks: int
    between: float
    """Variance of the tasks' true means; the mean of both runs if there are two."""
    within: float | None
    """Variance of attempts around it; None if no task has two attempts: `between` includes it."""
    correlation: float = ASSUMED_CORRELATION
    """Correlation of the tasks' true means of both models."""
    is_assumed: bool = True
    """Whether the correlation is an assumption, as with one run."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The power of one way to compare two models."""

    design: Design
    num_attempts: int
    """Of each task by each model."""
    differences: dict[str, float]
    """The smallest difference of mean rewards that is detected, by number of tasks."""
    tasks_needed: int | None = None
    """Tasks needed to detect the margin; None without a margin."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The differences that runs of several sizes can detect."""

    pilot: Pilot
    significance: float
    power: float
    margin: float | None
    designs: list[Planned]


def pilot_of(metrics: Metrics) -> Pilot | None:
    """Return the variances of one environment; None if it has one scored task or no variance."""
    error, num_tasks, parts = metrics.standard_error, metrics.num_clusters, metrics.variance
    if error is None or not (error or (parts and parts.within)):
        return None
    if parts is None:
        return Pilot(num_tasks=num_tasks, between=num_tasks * error**2, within=None)
    return Pilot(num_tasks=num_tasks, between=parts.between, within=parts.within)


def pilot_of_pair(
    first: Mapping[str, float], second: Mapping[str, float], *, runs: tuple[Pilot, Pilot]
) -> Pilot:
    """Return the variances of two runs and their correlation, over the tasks that both have.

    Attempts of different runs are independent, so the covariance of the observed task means is that
    of the true means. The correlation stays assumed if fewer than three tasks are shared or the
    tasks do not differ. `first` and `second` are the mean rewards by task.
    """
    one, other = runs
    within = None if one.within is None or other.within is None else one.within + other.within
    shared = sorted(first.keys() & second.keys())
    both = Pilot(
        num_tasks=len(shared),
        between=(one.between + other.between) / 2.0,
        within=None if within is None else within / 2.0,
    )
    if len(shared) < 3 or both.between == 0.0:
        return both
    ours, theirs = [first[task] for task in shared], [second[task] for task in shared]
    # Cov(a, b) = (Var(a) + Var(b) - Var(a - b)) / 2, so `variance` is enough.
    apart = variance([a - b for a, b in zip(ours, theirs, strict=True)])
    covariance = (variance(ours) + variance(theirs) - apart) / 2.0
    correlation = min(1.0, max(-1.0, covariance / both.between))
    return msgspec.structs.replace(both, correlation=correlation, is_assumed=False)


def plans(pilots: Sequence[Aggregator], *, margin: float | None = None) -> dict[str, Plan]:
    """Return a plan for each environment of one pilot, or of two paired pilots.

    Raise UsageError for more pilots, too small a margin, or pilots without enough data.
    """
    if len(pilots) > 2:
        raise UsageError(f"--power: {len(pilots)} runs; name one pilot, or two to pair")
    if margin is not None and not _SMALLEST_MARGIN <= margin < math.inf:
        raise UsageError(f"--margin {margin:g}: must be {_SMALLEST_MARGIN:g} or more")
    found = []
    for aggregator in pilots:
        environments = aggregator.metrics().environments
        of_each = {name: pilot_of(numbers) for name, numbers in environments.items()}
        found.append({name: pilot for name, pilot in of_each.items() if pilot is not None})
    shared = [name for name in found[0] if all(name in others for others in found)]
    if not shared:
        raise UsageError(
            "--power: a pilot needs two scored tasks of one environment, and rewards that differ"
        )
    if len(pilots) == 1:
        return {name: plan(found[0][name], margin=margin) for name in shared}
    means: list[dict[str, dict[str, float]]] = [{}, {}]
    for own, aggregator in zip(means, pilots, strict=True):
        for row in aggregator.task_rows():
            if row.mean_reward is not None:
                own.setdefault(row.env, {})[row.task_id] = row.mean_reward
    first, second = means
    return {
        name: plan(
            pilot_of_pair(first[name], second[name], runs=(found[0][name], found[1][name])),
            margin=margin,
        )
        for name in shared
    }


def plan(pilot: Pilot, *, margin: float | None = None) -> Plan:
    """Return the differences that runs of several sizes detect, and the tasks a margin takes."""
    quantiles = normal_quantile(1.0 - _SIGNIFICANCE / 2.0) + normal_quantile(CHANCE)
    sizes = sorted({*_NUM_TASKS, pilot.num_tasks})
    # From one attempt a task, the effect of more attempts cannot be predicted.
    attempts = _NUM_ATTEMPTS if pilot.within is not None else (1,)
    designs: list[Planned] = []
    for design in get_args(Design):
        for num_attempts in attempts:
            # The variance of the difference between two models on one task.
            shared = pilot.correlation if design == "paired" else 0.0
            noise = (pilot.within or 0.0) / num_attempts
            spread = 2.0 * (pilot.between * (1.0 - shared) + noise)
            needed = None if margin is None else spread * (quantiles / margin) ** 2
            designs.append(
                Planned(
                    design=design,
                    num_attempts=num_attempts,
                    differences={str(n): quantiles * math.sqrt(spread / n) for n in sizes},
                    # The variance between tasks takes two of them, however large the margin is.
                    tasks_needed=None if needed is None else max(2, math.ceil(needed)),
                )
            )
    return Plan(
        pilot=pilot, significance=_SIGNIFICANCE, power=CHANCE, margin=margin, designs=designs
    )


def fewest(is_enough: Callable[[int], bool], least: int, most: int) -> int | None:
    """Return the smallest number that is enough; None if even the largest is not."""
    # Doubling, then bisection: each try computes intervals, and `most` may be ten million.
    high = least
    while not is_enough(high):
        if high >= most:
            return None
        least, high = high + 1, min(2 * high, most)
    return bisect_left(range(high), True, lo=least, key=is_enough)
