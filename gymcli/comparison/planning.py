"""Plans the tasks of a comparison from a pilot: as many as `gym compare` takes to pass.

`gym compare` passes if the lower end of the one-sided interval of B - A lies above -margin. If B is
truly as good as A, the mean difference of n tasks falls short by z_beta standard errors or more
with a chance of 1 - power, so n tasks suffice if

    (t_{level, n-1} + z_power) * sqrt(v/n) <= margin

and if the same holds with the two pseudo-tasks of `gym compare`, which matter where v is small.
Here v is the variance of one task's difference with K attempts of each task by both models (Miller
2024, "Adding Error Bars to Evals", arXiv 2411.00640, section 5, with the margin as the difference).
If nothing changed, the tasks' true means are equal and v = 2 * within/K. If B is another model,
v = 2 * (between * (1 - correlation) + within/K), with the correlation of the tasks' true means.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from gymcli.errors import UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.estimators import variance
from gymcli.metrics.intervals import normal_quantile, student_t_quantile
from gymcli.metrics.results import Metrics

Scenario = Literal["unchanged", "other-model"]
"""B is A again, or another model that is as good on average."""

ASSUMED_CORRELATION = 0.5
"""The correlation of two models' rewards without a second run: Miller found 0.3 to 0.7."""
CHANCE = 0.8
"""The power of a plan: the chance that the planned tasks or attempts decide."""
_LEVEL = 0.95
"""Of the one-sided interval: the default of `gym compare`."""
_SMALLEST_MARGIN = 1e-9
_MARGINS = (0.01, 0.02, 0.05, 0.1)
"""Shares of the range of rewards; 0.02 is the default of `gym compare`."""
_NUM_ATTEMPTS = (1, 2, 4, 8, 16)
_NORMAL_REACH = 3.0
"""Standard deviations to the largest of some hundred normal values."""
_MANY = 1_000_000
"""With more degrees of freedom, Student's t is as good as normal."""


class DecidingSize(NamedTuple):
    """The tasks or attempts that would decide with a chance of 80 %."""

    num_tasks: int | None
    num_attempts: int | None
    """Of each task."""
    advice: str


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
    best_reward: float | None = None
    """The best reward if every reward is 0 or that one; None for graded rewards."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of a comparison with one number of attempts."""

    scenario: Scenario
    num_attempts: int
    """Of each task by each model."""
    num_tasks: dict[str, int]
    """Tasks so that the comparison passes with the planned power, by margin."""
    smallest_margin: float
    """The smallest margin with which as many tasks as the pilot's pass with the planned power."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that `gym compare` takes to pass if B is as good as A."""

    pilot: Pilot
    level: float
    """Of the one-sided interval that decides."""
    power: float
    """The chance of a pass."""
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
    run_a, run_b = runs
    within = None if run_a.within is None or run_b.within is None else run_a.within + run_b.within
    shared_tasks = sorted(first.keys() & second.keys())
    pair = Pilot(
        num_tasks=len(shared_tasks),
        between=(run_a.between + run_b.between) / 2.0,
        within=None if within is None else within / 2.0,
    )
    if len(shared_tasks) < 3 or pair.between == 0.0:
        return pair
    means_a, means_b = (
        [first[task] for task in shared_tasks],
        [second[task] for task in shared_tasks],
    )
    # Cov(a, b) = (Var(a) + Var(b) - Var(a - b)) / 2, so `variance` is enough.
    difference_variance = variance([a - b for a, b in zip(means_a, means_b, strict=True)])
    covariance = (variance(means_a) + variance(means_b) - difference_variance) / 2.0
    correlation = min(1.0, max(-1.0, covariance / pair.between))
    return msgspec.structs.replace(pair, correlation=correlation, is_assumed=False)


def plans(pilots: Sequence[Aggregator], *, margin: float | None = None) -> dict[str, Plan]:
    """Return a plan for each environment of one pilot, or of two paired pilots.

    Without a margin, there is a plan for several shares of the range of rewards. Raise UsageError
    for more pilots, too small a margin, an unknown range, or pilots without enough data.
    """
    if len(pilots) > 2:
        raise UsageError(f"--power: {len(pilots)} runs; name one pilot, or two to pair")
    if margin is not None and not _SMALLEST_MARGIN <= margin < math.inf:
        raise UsageError(f"--margin {margin:g}: must be {_SMALLEST_MARGIN:g} or more")
    pilots_by_env = []
    for aggregator in pilots:
        environments = aggregator.metrics().environments
        env_pilots = {name: pilot_of(numbers) for name, numbers in environments.items()}
        pilots_by_env.append(
            {name: pilot for name, pilot in env_pilots.items() if pilot is not None}
        )
    shared_names = [
        name for name in pilots_by_env[0] if all(name in env_pilots for env_pilots in pilots_by_env)
    ]
    if not shared_names:
        raise UsageError(
            "--power: a pilot needs two scored tasks of one environment, and rewards that differ"
        )
    means: list[dict[str, dict[str, float]]] = [{} for _ in pilots]
    for means_by_env, aggregator in zip(means, pilots, strict=True) if len(pilots) > 1 else ():
        for row in aggregator.task_rows():
            if row.mean_reward is not None:
                means_by_env.setdefault(row.env, {})[row.task_id] = row.mean_reward
    plan_by_env = {}
    for name in shared_names:
        pilot = pilots_by_env[0][name]
        if len(pilots) > 1:
            first, second = (means_by_env[name] for means_by_env in means)
            pilot = pilot_of_pair(first, second, runs=(pilot, pilots_by_env[1][name]))
        facts = pilots[0].facts.get(name)
        best = facts.max_reward if facts else None
        if margin is None and not best:
            raise UsageError(f"--power: the range of rewards of {name} is unknown; set --margin")
        if best and not any(_has_grades(aggregator, name, best) for aggregator in pilots):
            pilot = msgspec.structs.replace(pilot, best_reward=best)
        margins = [(best or 0.0) * share for share in _MARGINS] if margin is None else [margin]
        plan_by_env[name] = plan(pilot, margins=margins)
    return plan_by_env


def _has_grades(aggregator: Aggregator, name: str, best: float) -> bool:
    return any(
        score.reward not in (0.0, best)
        for env, group in aggregator.groups()
        if env == name
        for score in group.scores
    )


def plan(pilot: Pilot, *, margins: Sequence[float]) -> Plan:
    """Return the tasks that comparisons with each margin take."""
    # From one attempt a task, neither the effect of more attempts can be predicted nor that of
    # asking the same model again.
    scenarios: list[Scenario] = ["other-model"] if pilot.within is None else [*get_args(Scenario)]
    attempts = (1,) if pilot.within is None else _NUM_ATTEMPTS
    designs = []
    for scenario, num_attempts in itertools.product(scenarios, attempts):
        between_models = (
            pilot.between * (1.0 - pilot.correlation) if scenario == "other-model" else 0.0
        )
        spread = 2.0 * (between_models + (pilot.within or 0.0) / num_attempts)
        # The largest difference that `gym compare` will see, if it is not the whole range.
        largest = pilot.best_reward or _NORMAL_REACH * math.sqrt(spread)
        size = largest / 2.0
        designs.append(
            Planned(
                scenario=scenario,
                num_attempts=num_attempts,
                num_tasks={
                    f"{margin:g}": tasks_to_pass(spread, margin, size=size) for margin in margins
                },
                smallest_margin=smallest_margin(pilot.num_tasks, spread, size=size),
            )
        )
    return Plan(pilot=pilot, level=_LEVEL, power=CHANCE, designs=designs)


def smallest_margin(num_tasks: int, spread: float, *, size: float = 0.0) -> float:
    """Return the margin with which two or more tasks pass with a chance of `CHANCE`.

    `spread` is the variance of one task's difference, whose mean is 0. `gym compare` passes if both
    of its intervals allow it: over these tasks, and over two more that differ by plus and minus
    `size`.
    """
    error, shift = math.sqrt(spread / num_tasks), normal_quantile(CHANCE)
    squares = (num_tasks - 1) * spread + 2.0 * size * size
    error_of_more = math.sqrt(squares / (num_tasks + 1) / (num_tasks + 2))
    return max(
        _quantile(num_tasks) * error + shift * error,
        _quantile(num_tasks + 2) * error_of_more + shift * error * num_tasks / (num_tasks + 2),
    )


def _quantile(num_tasks: int) -> float:
    return student_t_quantile(_LEVEL, min(_MANY, num_tasks - 1))


def tasks_to_pass(spread: float, margin: float, *, size: float = 0.0) -> int:
    """Return the number of tasks that pass with a chance of `CHANCE`, to within 1 %."""
    # Student's t depends on the number itself, so the normal distribution's answer comes first.
    quantile = normal_quantile(_LEVEL)
    tasks_for_spread = spread * ((quantile + normal_quantile(CHANCE)) / margin) ** 2
    tasks_for_size = quantile * math.sqrt(2.0) * size / margin - 2.0
    num_tasks = max(2, math.ceil(tasks_for_spread), math.floor(tasks_for_size))
    while smallest_margin(num_tasks, spread, size=size) > margin:
        num_tasks += max(1, num_tasks // 100)
    return num_tasks


def fewest(is_enough: Callable[[int], bool], low: int, limit: int) -> int | None:
    """Return the smallest number that is enough; None if even the largest is not."""
    # Doubling, then bisection: each try computes intervals, and `limit` may be ten million.
    high = low
    while not is_enough(high):
        if high >= limit:
            return None
        low, high = high + 1, min(2 * high, limit)
    return bisect_left(range(high), True, lo=low, key=is_enough)
