"""Two runs compared task by task: the difference, its interval and the verdict.

B passes if the interval excludes a loss of the margin or more, and fails only if it is worse. "No
significant difference" is no reason to pass, since too few tasks never show one. Piaggio et al.
2012, "Reporting of noninferiority and equivalence randomized trials", JAMA 308(24). The tasks and
attempts that would decide follow Miller 2024, arXiv 2411.00640, section 5.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import numpy as np

from gymcli.comparison.comparison_results import (
    Comparison,
    Difference,
    RunSide,
    TaskDifference,
    Unmatched,
    Verdict,
)
from gymcli.comparison.paired_differences import (
    Measure,
    PairedAttempts,
    PairedEstimate,
    TaskValues,
    paired_estimate,
    task_differences,
    with_pseudo_tasks,
)
from gymcli.comparison.planning import CHANCE, DecidingSize, fewest
from gymcli.errors import UsageError
from gymcli.metrics.estimators import mean_of, sum_of, variance
from gymcli.metrics.intervals import normal_quantile, student_t_cdf, t_interval
from gymcli.metrics.results import FEW_TASKS, Bounds, Estimate, Interval, NoAnswers
from gymcli.metrics.slicing import check_num_slices, slice_order
from gymcli.store.scored_lines import EnvironmentFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_MARGIN = 0.02
"""The default margin, as a share of the range of rewards."""

MAX_REGRESSIONS = 10
"""The most tasks that are listed because they lost most."""
_MAX_NAMED = 20
"""The most tasks that are named for each kind of change."""
_MAX_TASKS = 1_000_000_000
"""If it takes more tasks than this, the difference counts as being at the margin."""
_MAX_ATTEMPTS = 1_000_000
_GOOD_COVERAGE = 0.95
_ROUNDING = 1e-9
"""The share of the squared range that rounding may add to a product of rewards."""
_MOSTLY = 2.0 / 3.0
"""The share of tasks that do not differ from which differences count as rare."""

NUM_FLIPS = 100_000
"""The number of random flips if all flips are too many to count."""

_NEGLIGIBLE = 1e-18
"""The share of a sum below which further terms do not change it."""
_MAX_LISTED = 16
"""The most differences whose 2^n flips are all listed, whatever their values."""
_MAX_COUNTED_BYTES = 5e8
"""Limits the work of counting all flips of whole numbers to about a tenth of a second."""
_MAX_MULTIPLE = 1 << 20
"""The largest difference, in units of the common divisor of all differences."""
_STEPS = 1 << 12
"""The median of differences without a common divisor, in the steps that they are rounded to."""
_MAX_STEPS = 1 << 53
"""The largest of these differences in steps: a double has no finer ones."""

T = TypeVar("T")


class Rule(NamedTuple):
    """The rule for the verdict."""

    margin: float | None = None
    """How much worse B may be; None: `DEFAULT_MARGIN` of the range, or 0 if that is unknown."""
    level: float = 0.95
    """1 - alpha, of the intervals shown; the verdict follows from the interval of 1 - 2 alpha."""
    is_strict: bool = False
    """Fail only if B is worse by more than the margin."""
    is_same_run: bool = False
    """Whether A and B are one run, so that there is nothing to decide."""


def compare(
    environments: Sequence[PairedAttempts],
    *,
    a: RunSide,
    b: RunSide,
    facts: Mapping[str, EnvironmentFacts],
    measure: Measure,
    rule: Rule,
    fields: Sequence[str] = (),
    with_tasks: bool = False,
) -> Comparison:
    """Compare run B with run A task by task.

    `environments` has the attempts of both runs, `a` and `b` the other facts about them, `fields`
    the names of the columns in `PairedAttempts.slices`. The result lists tasks only `with_tasks`.

    Raises:
        UsageError: The metric needs a threshold of success that an environment lacks, or a field
            has more values than `slicing.MAX_SLICES`.
        RunFileError: An attempt appears twice in one run.
    """
    unmatched = Unmatched()
    pairs = [_pair_tasks(attempts, facts, measure, unmatched) for attempts in environments]
    tasks = pairs[0] if len(pairs) == 1 else _join(pairs)
    # Components whose values all lie between 0 and 1 count as shares, as in `gym metrics`.
    is_share = measure.scale == "share" or (measure.scale == "none" and tasks.lie_within(1.0))

    def judge_part(part: _PairedTasks, name: str) -> Difference:
        best = part.best_rewards(facts)
        if not _is_one_scale(best):
            counts = _count_tasks(part)
            counts.way_out = "the best rewards of environments differ; each is judged separately"
            return counts
        largest = 1.0 if is_share else None
        if measure.scale == "reward" and len(set(best.values())) == 1:
            largest = next(iter(best.values()))
        return _judge_difference(part, rule, largest=largest, is_mean=measure.is_mean, name=name)

    overall = judge_part(tasks, measure.name)
    names = sorted(facts if len(facts) == 1 else set(tasks.env.tolist()))
    if len(names) == 1:
        by_environment = dict.fromkeys(names, overall)
    else:
        parts = {env: tasks.at(np.flatnonzero(tasks.env == env)) for env in names}
        by_environment = {
            env: judge_part(part, f"{measure.name}/{env}") for env, part in parts.items()
        }
    by_environment = adjust_for_multiplicity(by_environment, rule.level)
    # Without a common scale there is no overall difference: the environments decide.
    if not _is_one_scale(tasks.best_rewards(facts)):
        overall.verdict, overall.way_out = _verdict_of_all(by_environment)
    bounds = None
    if a.bounds and b.bounds and not a.coverage == b.coverage == 1.0:
        bounds = Bounds(low=b.bounds.low - a.bounds.high, high=b.bounds.high - a.bounds.low)
    comparison = Comparison(
        **{field: getattr(overall, field) for field in overall.__struct_fields__},
        metric=measure.name,
        level=rule.level,
        is_strict=rule.is_strict,
        a=a,
        b=b,
        bounds=bounds,
        environments=by_environment,
        unmatched=unmatched,
        regressions=_regressions(tasks, facts),
    )
    if with_tasks:
        all_task_differences = _task_differences(tasks)
        comparison.tasks = sorted(all_task_differences, key=lambda task: (task.env, task.task_id))
    slices = {
        (field, value): judge_part(part, f"{measure.name}/{field}/{value}")
        for field, values in zip(fields, tasks.slices, strict=True)
        for value, part in _slices_of(tasks, field, values)
    }
    for (field, value), part in adjust_for_multiplicity(slices, rule.level).items():
        comparison.slices.setdefault(field, {})[value] = part
    if measure.source != "metrics":
        _withhold_verdicts(comparison)
    return comparison


def _withhold_verdicts(comparison: Comparison) -> None:
    """Make verdicts inconclusive where most answers of a run could not be read."""
    sides = {"A": comparison.a, "B": comparison.b}
    no_answers_by_run = {name: side.all_no_answers for name, side in sides.items()}
    slices = [part for parts in comparison.slices.values() for part in parts.values()]
    unread_runs = [name for name, no_answers in no_answers_by_run.items() if no_answers.are_most]
    for part in slices:
        _withhold(part, unread_runs)
    for env, part in comparison.environments.items():
        no_answers_here = {
            name: side.no_answers.get(env, NoAnswers()) for name, side in sides.items()
        }
        unread_here = [name for name, no_answers in no_answers_here.items() if no_answers.are_most]
        _withhold(part, unread_here)
        # What is pooled over environments, or decided by each of them, depends on this one too.
        place = f" to {env}" if len(comparison.environments) > 1 else ""
        _withhold(comparison, [f"{name}{place}" for name in unread_here])
    _withhold(comparison, unread_runs)


def _withhold(part: Difference, unread_runs: Sequence[str]) -> None:
    """Decide nothing about a part if there are runs of which most answers could not be read."""
    if unread_runs:
        part.verdict = "INCONCLUSIVE"
        part.way_out = f"most answers of {' and of '.join(unread_runs)} could not be read"
        part.deciding_interval = part.smallest_margin = None
        part.is_equivalent = part.p_equivalent = None
        part.tasks_needed = part.attempts_needed = None


class _PairedTasks(NamedTuple):
    env: NDArray[np.object_]
    task_id: NDArray[np.object_]
    name: NDArray[np.object_]
    """The id, with the environment before it if there are several."""
    a: TaskValues
    b: TaskValues
    difference: NDArray[np.float64]
    change: NDArray[np.object_]
    """A `Change`; None without a threshold of success."""
    slices: list[NDArray[np.object_]]
    """By field, the value of each task."""

    def at(self, places: NDArray[np.int64]) -> _PairedTasks:
        return _PairedTasks(
            self.env[places],
            self.task_id[places],
            self.name[places],
            self.a.at(places),
            self.b.at(places),
            self.difference[places],
            self.change[places],
            [values[places] for values in self.slices],
        )

    def lie_within(self, largest: float) -> bool:
        sides = (self.a.value, self.b.value)
        return all(bool(((values >= 0.0) & (values <= largest)).all()) for values in sides)

    def best_rewards(self, facts: Mapping[str, EnvironmentFacts]) -> dict[str, float | None]:
        return {env: facts[env].max_reward for env in set(self.env.tolist())}


def _join(pairs: Sequence[_PairedTasks]) -> _PairedTasks:
    columns = list(zip(*pairs, strict=True))
    env, task_id, name, difference, change = (
        np.concatenate(columns[place]) for place in (0, 1, 2, 5, 6)
    )
    a, b = (TaskValues(*map(np.concatenate, zip(*columns[place], strict=True))) for place in (3, 4))
    slices = [np.concatenate(values) for values in zip(*columns[7], strict=True)]
    return _PairedTasks(env, task_id, name, a, b, difference, change, slices)


def _pair_tasks(
    attempts: PairedAttempts,
    facts: Mapping[str, EnvironmentFacts],
    measure: Measure,
    unmatched: Unmatched,
) -> _PairedTasks:
    """Pair the tasks of an environment; count those that are left out in `unmatched`."""
    env = attempts.env
    threshold = facts[env].success_threshold if measure.source == "reward" else None
    a, b = attempts.values(measure, threshold)
    ids = np.array(list(attempts.task_numbers), dtype=np.object_)
    names = ids
    if len(facts) > 1:
        names = np.array([f"{env}/{task_id}" for task_id in ids], dtype=np.object_)
    only_a, only_b, is_in_both = (
        a.is_there > b.is_there,
        a.is_there < b.is_there,
        a.is_there & b.is_there,
    )
    unmatched.num_only_a += int(only_a.sum())
    unmatched.num_only_b += int(only_b.sum())
    unmatched.only_a = heapq.nsmallest(_MAX_NAMED, [*unmatched.only_a, *names[only_a]])
    unmatched.only_b = heapq.nsmallest(_MAX_NAMED, [*unmatched.only_b, *names[only_b]])
    if measure.needs_threshold and threshold is None and is_in_both.any():
        raise UsageError(
            f"--metric {measure.name}: environment {env!r} has no threshold of success; compare "
            "mean_reward"
        )
    has_values = ~np.isnan(a.value) & ~np.isnan(b.value)
    unmatched.num_too_few_attempts += int((is_in_both & ~has_values).sum())
    places = np.flatnonzero(has_values)
    a, b = a.at(places), b.at(places)
    return _PairedTasks(
        np.full(len(places), env, dtype=np.object_),
        ids[places],
        names[places],
        a,
        b,
        task_differences(a.value, b.value),
        np.full(len(places), None) if threshold is None else _changes(a, b),
        [np.array(values, dtype=np.object_)[places] for values in attempts.slices],
    )


def _are_flaky(side: TaskValues) -> NDArray[np.bool_]:
    return (side.num_passes > 0) & (side.num_passes < side.num_attempts)


def _changes(a: TaskValues, b: TaskValues) -> NDArray[np.object_]:
    some_pass_a, some_pass_b = a.num_passes > 0, b.num_passes > 0
    return np.select(  # takes the first condition that holds
        [_are_flaky(a) | _are_flaky(b), some_pass_a & some_pass_b, some_pass_a, some_pass_b],
        ["flaky", "passed", "broken", "fixed"],
        "failed",
    ).astype(np.object_)


def _slices_of(
    tasks: _PairedTasks, field: str, values: NDArray[np.object_]
) -> Iterator[tuple[str, _PairedTasks]]:
    unique_values, slice_numbers = np.unique(values, return_inverse=True)
    names: list[str] = unique_values.tolist()
    check_num_slices(field, len(names))
    for number in sorted(range(len(names)), key=lambda number: slice_order(names[number])):
        yield names[number], tasks.at(np.flatnonzero(slice_numbers == number))


def _regressions(
    tasks: _PairedTasks, facts: Mapping[str, EnvironmentFacts]
) -> list[TaskDifference]:
    """Return the tasks that lost most, as a share of the range where environments have others."""
    max_rewards = {env: environment_facts.max_reward for env, environment_facts in facts.items()}
    losses = zip(tasks.difference.tolist(), tasks.env, tasks.task_id, strict=True)
    largest = heapq.nsmallest(
        MAX_REGRESSIONS,
        (
            (difference / (max_rewards[env] or 1.0), env, task_id, place)
            for place, (difference, env, task_id) in enumerate(losses)
            if difference < 0.0
        ),
    )
    places = [place for *_, place in largest]
    return list(_task_differences(tasks.at(np.array(places, np.intp))))


def _task_differences(tasks: _PairedTasks) -> Iterator[TaskDifference]:
    a, b = tasks.a, tasks.b
    flaky_a, flaky_b = _are_flaky(a), _are_flaky(b)
    columns = {
        "env": tasks.env,
        "task_id": tasks.task_id,
        "num_attempts_a": a.num_attempts,
        "num_attempts_b": b.num_attempts,
        "num_passes_a": a.num_passes,
        "num_passes_b": b.num_passes,
        "value_a": a.value,
        "value_b": b.value,
        "difference": tasks.difference,
        "direction": np.select(
            [tasks.difference < 0.0, tasks.difference > 0.0], ["regressed", "improved"], "unchanged"
        ),
        "flaky_in": np.select([flaky_a & flaky_b, flaky_a, flaky_b], ["both", "A", "B"], ""),
        "change": tasks.change,
    }
    for row in zip(*(column.tolist() for column in columns.values()), strict=True):
        task = TaskDifference(**dict(zip(columns, row, strict=True)))
        if task.change is None:
            task.num_passes_a = task.num_passes_b = None
        yield task


def _is_one_scale(best: Mapping[str, float | None]) -> bool:
    # Whether tasks of all environments can be pooled with equal weights.
    return len(best) < 2 or (len(set(best.values())) == 1 and None not in best.values())


def _judge_difference(
    tasks: _PairedTasks, rule: Rule, *, largest: float | None, is_mean: bool, name: str
) -> Difference:
    difference = _count_tasks(tasks)
    num_tasks = difference.num_tasks
    if not num_tasks:
        difference.way_out = "no task has a value in both runs"
        return difference
    is_bounded = largest is not None and tasks.lie_within(largest)
    bound = largest if is_bounded else None
    pairs = paired_estimate(
        tasks.a.value,
        tasks.b.value,
        num_values=difference.num_attempts_a + difference.num_attempts_b,
    )
    difference.mean_a, difference.mean_b, difference.difference = (
        pairs.mean_a,
        pairs.mean_b,
        pairs.difference,
    )
    difference.margin = rule.margin
    if rule.margin is None:
        difference.margin = DEFAULT_MARGIN * max(largest or 0.0, 0.0)
    if rule.is_same_run:
        difference.way_out = "A and B are the same run, which shows nothing about another one"
        return difference
    _add_test(difference, tasks, pairs, name)
    if num_tasks < 2:
        difference.way_out = "one task is not enough; two or more must be in both runs"
        return difference
    difference.correlation = correlation(tasks.a.value, tasks.b.value)
    unpaired_variance = variance(tasks.a.value) + variance(tasks.b.value)
    if unpaired_variance:
        difference.variance_reduction = 1.0 - pairs.spread / unpaired_variance
    if pairs.spread:
        difference.num_unpaired_tasks = num_tasks * unpaired_variance / pairs.spread
    _add_verdict(difference, tasks, pairs, rule, bound=bound, is_mean=is_mean)
    return difference


def _add_verdict(
    difference: Difference,
    tasks: _PairedTasks,
    pairs: PairedEstimate,
    rule: Rule,
    *,
    bound: float | None,
    is_mean: bool,
) -> None:
    """Add the intervals, and what follows from them and the margin."""
    assert difference.difference is not None
    assert difference.margin is not None
    margin = difference.margin
    min_tasks = math.ceil(-math.log2(1.0 - rule.level))
    if not pairs.spread and pairs.difference.value and difference.num_tasks < min_tasks:
        # Chance alone often makes all of a few tasks differ in the same direction.
        difference.tasks_needed = min_tasks
        difference.way_out = f"{min_tasks} tasks that all differ by the same amount would decide"
        return
    size = _pseudo_task_size(tasks, pairs, bound, is_mean=is_mean)
    if not size:
        difference.way_out = (
            "all rewards are equal and their range is unknown; nothing can be decided"
        )
        return
    deciding_level = round(2.0 * rule.level - 1.0, 12)  # 0.9, not 0.8999999999999999
    difference.difference.interval, deciding = (
        difference_interval(pairs, size=size, largest=bound, level=level)
        for level in (rule.level, deciding_level)
    )
    difference.deciding_interval = deciding
    if bound is None or deciding.low > -bound:
        difference.smallest_margin = max(0.0, -deciding.low)
    difference.verdict = verdict_of(deciding, margin, is_strict=rule.is_strict)
    difference.is_equivalent = -margin < deciding.low and deciding.high < margin
    estimates = pairs.difference, with_pseudo_tasks(pairs.difference, pairs.spread, size)
    p_values = [equivalence_p(estimate, margin) for estimate in estimates]
    difference.p_equivalent = max((p for p in p_values if p is not None), default=None)
    if difference.verdict == "INCONCLUSIVE":
        needs = _deciding_size(tasks, pairs, margin, rule, size=size, is_mean=is_mean)
        difference.tasks_needed, difference.attempts_needed, difference.way_out = needs


def _pseudo_task_size(
    tasks: _PairedTasks, pairs: PairedEstimate, largest: float | None, *, is_mean: bool
) -> float:
    """Return the difference of a pseudo-task: half of what one task may differ by.

    That is the whole range if all rewards are 0 or the best one, and if most tasks do not differ,
    since the few that do say little about the others. Else it is the largest difference seen.
    `bench/coverage.py` simulates both. 0 if all values are equal and their range is unknown.
    """
    sizes = np.abs(pairs.differences)
    is_graded = largest is None or (is_mean and _is_graded(tasks, largest))
    if is_graded and float((sizes == 0.0).mean()) < _MOSTLY:
        return float(sizes.max()) / 2.0
    if largest is None:
        values = np.concatenate([tasks.a.value, tasks.b.value])
        largest = float(values.max() - values.min())
    return largest / 2.0


def _is_graded(tasks: _PairedTasks, largest: float) -> bool:
    """Return whether a reward between 0 and `largest` is behind the mean rewards of tasks."""
    for side in (tasks.a, tasks.b):
        # The mean of r * (largest - r), which is 0 only if each r is 0 or `largest`.
        within = np.where(side.num_attempts > 1, np.nan_to_num(side.variance), 0.0)
        inside = side.value * (largest - side.value)
        inside -= within * (1.0 - 1.0 / side.num_attempts)
        if bool((inside > _ROUNDING * largest**2).any()):
            return True
    return False


def difference_interval(
    pairs: PairedEstimate, *, size: float, largest: float | None, level: float
) -> Interval:
    """Return the interval of the mean difference of at least two tasks.

    It is the union of Student's intervals without and with two pseudo-tasks of plus and minus
    `size`. If values lie between 0 and `largest`, no end lies beyond that.
    """
    low, high = _ends(pairs.difference, pairs.spread, size=size, level=level)
    if largest is not None:
        low, high = max(low, -largest), min(high, largest)
    return Interval(low=low, high=high, level=level, method="t-adjusted")


def _ends(difference: Estimate, spread: float, *, size: float, level: float) -> tuple[float, float]:
    ends: list[float] = []
    for estimate in (difference, with_pseudo_tasks(difference, spread, size)):
        assert estimate.standard_error is not None
        num_tasks = estimate.num_clusters
        ends += t_interval(
            estimate.value, estimate.standard_error, num_clusters=num_tasks, level=level
        )
    return min(ends), max(ends)


def _count_tasks(tasks: _PairedTasks) -> Difference:
    difference = Difference(
        num_tasks=len(tasks.name),
        num_attempts_a=int(tasks.a.num_attempts.sum()),
        num_attempts_b=int(tasks.b.num_attempts.sum()),
        num_regressed=int((tasks.difference < 0.0).sum()),
        num_improved=int((tasks.difference > 0.0).sum()),
        num_unchanged=int((tasks.difference == 0.0).sum()),
    )
    if None not in tasks.change:
        difference.num_flaky_a, difference.num_flaky_b = (
            int(_are_flaky(side).sum()) for side in (tasks.a, tasks.b)
        )
        fixed, broken, flaky = (
            tasks.name[tasks.change == change].tolist() for change in ("fixed", "broken", "flaky")
        )
        difference.num_fixed, difference.num_broken, difference.num_flaky = (
            len(fixed),
            len(broken),
            len(flaky),
        )
        difference.fixed, difference.broken, difference.flaky = (
            heapq.nsmallest(_MAX_NAMED, names) for names in (fixed, broken, flaky)
        )
    return difference


def _add_test(
    difference: Difference, tasks: _PairedTasks, pairs: PairedEstimate, name: str
) -> None:
    """Add the p-value, by McNemar's test if tasks have one attempt and at most two values occur."""
    sides = (tasks.a, tasks.b)
    is_single = all(bool((side.num_attempts == 1).all()) for side in sides)
    if is_single and len(np.unique([side.value for side in sides])) <= 2:
        num_worse = int((pairs.differences < 0.0).sum())
        num_better = int((pairs.differences > 0.0).sum())
        difference.test, difference.p_value = "mcnemar-mid-p", mcnemar_mid_p(num_worse, num_better)
        return
    sign_flip_result = sign_flip(pairs.differences.tolist(), seed=name)
    difference.test = "sign-flip-exact" if sign_flip_result.is_exact else "sign-flip"
    difference.p_value = sign_flip_result.p_value


def verdict_of(interval: Interval | None, margin: float, *, is_strict: bool) -> Verdict:
    """Return the verdict from the 1 - 2 alpha interval of B - A."""
    if interval is None:
        return "INCONCLUSIVE"
    if interval.low > -margin:
        return "PASS"
    return "FAIL" if interval.high < (-margin if is_strict else 0.0) else "INCONCLUSIVE"


def equivalence_p(difference: Estimate, margin: float) -> float | None:
    """Return the p-value of the two one-sided t tests that B - A lies within the margin.

    Schuirmann 1987. None if the error is 0 or unknown.
    """
    error, degrees = difference.standard_error, difference.num_clusters - 1
    if not error:
        return None
    p_above = student_t_cdf((difference.value + margin) / error, degrees)
    p_below = student_t_cdf((difference.value - margin) / error, degrees)
    return max(1.0 - p_above, p_below)  # both tests must reject


def _deciding_size(
    tasks: _PairedTasks,
    pairs: PairedEstimate,
    margin: float,
    rule: Rule,
    *,
    size: float,
    is_mean: bool,
) -> DecidingSize:
    difference, num_tasks = pairs.difference, len(pairs.differences)
    # To the farther of the borders of PASS and FAIL, which takes fewer tasks to decide.
    to_pass, to_fail = (
        difference.value + margin,
        -difference.value - (margin if rule.is_strict else 0.0),
    )
    passes = to_pass >= to_fail
    level = 2.0 * rule.level - 1.0

    def is_decided(tasks: int, spread: float) -> bool:
        # Chance may move the difference of another run of so many tasks towards the border.
        error = math.sqrt(spread / tasks)
        shift = normal_quantile(CHANCE) * error
        other = msgspec.structs.replace(
            difference,
            value=difference.value - (shift if passes else -shift),
            standard_error=error,
            num_clusters=tasks,
        )
        low, high = _ends(other, spread, size=size, level=level)
        return low > -margin if passes else high < (-margin if rule.is_strict else 0.0)

    tasks_needed = None
    if max(to_pass, to_fail) > 0.0:
        tasks_needed = fewest(lambda n: is_decided(n, pairs.spread), num_tasks + 1, _MAX_TASKS)
    if tasks_needed is None:
        text = "the difference is so close to the margin that no number of tasks decides; another "
        return DecidingSize(None, None, f"{text}--margin may")
    text = f"about {tasks_needed:,} tasks such as these"
    if not is_mean:
        return DecidingSize(tasks_needed, None, f"{text} would decide")
    return _with_attempts(
        tasks, pairs.spread, lambda spread: is_decided(num_tasks, spread), tasks_needed
    )


def _with_attempts(
    tasks: _PairedTasks, spread: float, is_enough: Callable[[float], bool], num_tasks: int
) -> DecidingSize:
    # The variance of the tasks' differences is omega^2 + (sigma_A^2 + sigma_B^2) / K, of which only
    # the second part shrinks with K.
    text = f"about {num_tasks:,} tasks such as these"
    mean_variances = [
        mean_of(variances) if len(variances := side.variance[~np.isnan(side.variance)]) else None
        for side in (tasks.a, tasks.b)
    ]
    known_variances = [mean for mean in mean_variances if mean is not None]
    if not known_variances:
        reason = "one attempt a task does not show whether more attempts would"
        return DecidingSize(num_tasks, None, f"{text} would decide; {reason}")
    # A run with one attempt a task is taken to vary as the other run does.
    sigma_a, sigma_b = (known_variances[0] if mean is None else mean for mean in mean_variances)
    inverse_a, inverse_b = (mean_of(1.0 / side.num_attempts) for side in (tasks.a, tasks.b))
    omega = max(0.0, spread - sigma_a * inverse_a - sigma_b * inverse_b)
    attempts = fewest(lambda k: is_enough(omega + (sigma_a + sigma_b) / k), 2, _MAX_ATTEMPTS)
    if attempts is None:
        reason = "no number of attempts of these tasks would"
        return DecidingSize(num_tasks, None, f"{text} would decide; {reason}")
    return DecidingSize(
        num_tasks, attempts, f"{text}, or {attempts:,} attempts a task, would decide"
    )


def adjust_for_multiplicity(
    differences: Mapping[T, Difference], level: float
) -> dict[T, Difference]:
    """Return parts of a comparison with p-values adjusted for the number of parts.

    A part fails only if its adjusted p-value is below 2 alpha, since some of many unchanged parts
    look worse by chance. Without adjustment, p is below 2 alpha where the 1 - 2 alpha interval lies
    below 0.
    """
    p_values = {
        part: difference.p_value
        for part, difference in differences.items()
        if difference.p_value is not None
    }
    adjusted_p_values = dict(zip(p_values, holm([*p_values.values()]), strict=True))
    adjusted_parts = {}
    for part, difference in differences.items():
        p_adjusted = adjusted_p_values.get(part)
        adjusted_part = msgspec.structs.replace(difference, p_adjusted=p_adjusted)
        is_doubtful = p_adjusted is None or p_adjusted >= 2.0 * (1.0 - level)
        if len(differences) > 1 and difference.verdict == "FAIL" and is_doubtful:
            adjusted_part.verdict = "INCONCLUSIVE"
            adjusted_part.way_out = (
                f"worse, but chance alone may cause that in {len(differences)} parts"
            )
        adjusted_parts[part] = adjusted_part
    return adjusted_parts


def _verdict_of_all(environments: Mapping[str, Difference]) -> tuple[Verdict, str]:
    # All must pass, which needs no adjustment (Berger 1982, intersection-union tests); a failure
    # was confirmed by its adjusted p-value in `adjust_for_multiplicity`.
    verdicts = [difference.verdict for difference in environments.values()]
    if "FAIL" in verdicts:
        return "FAIL", ""
    reasons = [
        f"{env}: {difference.way_out}"
        for env, difference in environments.items()
        if difference.way_out
    ]
    return ("INCONCLUSIVE", "; ".join(reasons)) if reasons else ("PASS", "")


def doubts(comparison: Comparison, rule: Rule) -> list[str]:
    """Return the warnings about a comparison, one sentence each."""
    texts = _coverage(comparison)
    unmatched = comparison.unmatched
    if left_out := unmatched.num_only_a + unmatched.num_only_b:
        texts.append(
            f"{left_out:,} tasks are in one run only and are left out; the shared tasks may be "
            "easier or harder"
        )
    sides = {"A": comparison.a} if rule.is_same_run else {"A": comparison.a, "B": comparison.b}
    for name, side in sides.items():
        if any(part.are_many for part in (side.all_no_answers, *side.no_answers.values())):
            texts.append(f"{name}: {side.all_no_answers.sentence_with_command(side.run)}")
    if rule.is_same_run:
        return texts
    if comparison.num_tasks < FEW_TASKS:
        texts.append(f"fewer than {FEW_TASKS} tasks: the interval and the verdict are rough")
    difference = comparison.difference
    if difference is not None and difference.standard_error == 0.0:
        # The exact upper bound if 0 of n tasks differ otherwise: Clopper and Pearson 1934.
        share = 1.0 - (1.0 - comparison.level) ** (1.0 / comparison.num_tasks)
        same, other = "no task differs", "may differ"
        if difference.value:
            same = f"every task differs by {difference.value:+g}"
            other = "may differ by another amount"
        texts.append(
            f"{same}; up to {share:.0%} of other tasks {other} (one-sided "
            f"{100 * comparison.level:g}% bound)"
        )
    if comparison.margin == 0.0 and rule.margin is None:
        texts.append(
            f"the range of {comparison.metric} is unknown, so the margin is 0 and only a better "
            "run passes; set --margin"
        )
    return texts


def _coverage(comparison: Comparison) -> list[str]:
    coverages = comparison.a.coverage, comparison.b.coverage
    known_coverages = [coverage for coverage in coverages if coverage is not None]
    if min(known_coverages, default=1.0) >= _GOOD_COVERAGE and (
        len(known_coverages) < 2 or coverages[0] == coverages[1]
    ):
        return []
    text_a, text_b = ("unknown" if share is None else f"{share:.1%}" for share in coverages)
    text = f"coverage is {text_a} in A and {text_b} in B: missing attempts may fake a difference"
    if comparison.bounds is not None:
        low, high = comparison.bounds.low, comparison.bounds.high
        text += "; whatever their rewards, the difference of all mean rewards lies in "
        text += f"{low:+.3f} .. {high:+.3f}"
    return [text]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return each p-value adjusted for the number of tests.

    Holm 1979, "A simple sequentially rejective multiple test procedure": the chance of one false
    alarm or more stays below alpha, however the tests depend on each other.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    by_size = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, place in enumerate(by_size):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Return the correlation of two rows of values (Pearson 1895); None if one does not vary."""
    deviations_a, deviations_b = first - mean_of(first), second - mean_of(second)
    lengths = (
        math.sqrt(sum_of(deviations_a * deviations_a)),
        math.sqrt(sum_of(deviations_b * deviations_b)),
    )
    if not all(lengths):
        return None
    return min(1.0, max(-1.0, sum_of(deviations_a * deviations_b) / lengths[0] / lengths[1]))


def mcnemar_mid_p(num_worse: int, num_better: int) -> float:
    """Return the two-sided mid-p value for the numbers of tasks that got worse and better.

    McNemar 1947, by the binomial distribution of the discordant pairs. As the exact test is too
    conservative, the probability of the observed numbers is subtracted: Fagerland, Lydersen and
    Laake 2013, "The McNemar test for binary matched-pairs data", BMC Medical Research Methodology
    13:91. 1 if both numbers are equal.
    """
    if num_worse == num_better:
        return 1.0
    at_most, exact_chance = coin_tail(num_worse + num_better, min(num_worse, num_better))
    return min(1.0, 2.0 * at_most - exact_chance)


def coin_tail(num_tosses: int, most_heads: int) -> tuple[float, float]:
    """Return the chances of at most and of exactly `most_heads` heads of a fair coin."""
    if 2 * most_heads > num_tosses:
        # As many tails, and more.
        more_heads, _ = coin_tail(num_tosses, num_tosses - most_heads - 1)
        _, exact_chance = coin_tail(num_tosses, num_tosses - most_heads)
        return 1.0 - more_heads, exact_chance
    if most_heads < 0:
        return 0.0, 0.0
    # By logarithms: 2^-n is 0 as a float for more than 1,074 tosses.
    log_chance = (
        math.lgamma(num_tosses + 1)
        - math.lgamma(most_heads + 1)
        - math.lgamma(num_tosses - most_heads + 1)
        - num_tosses * math.log(2.0)
    )
    term = total = 1.0
    for heads in range(most_heads, 0, -1):
        term *= heads / (num_tosses - heads + 1)
        total += term
        if term < _NEGLIGIBLE * total:
            break
    exact_chance = math.exp(log_chance)
    return exact_chance * total, exact_chance


class SignFlip(NamedTuple):
    """The result of a sign-flip test."""

    p_value: float
    is_exact: bool
    """Whether all flips were counted."""


def sign_flip(differences: Sequence[float], *, seed: str) -> SignFlip:
    """Return the two-sided p-value of the sum of differences: the share of flips as extreme.

    If neither run is better, each task's difference may as well have the other sign (Fisher 1935,
    "The Design of Experiments", section 21). All 2^n flips are counted if n is small or the
    differences are whole multiples of a common number; else `NUM_FLIPS` are drawn with `seed`, and
    the observed one is counted among them (Phipson and Smyth 2010). Neither the order of the
    differences matters, nor which run is A.
    """
    sizes = sorted(abs(difference) for difference in differences if difference)
    if len(sizes) <= _MAX_LISTED:
        return SignFlip(_share_of_extreme_flips(sizes, abs(math.fsum(differences))), is_exact=True)
    multiples = _multiples(sizes)
    whole_sizes = multiples or _in_steps(sizes)
    # `whole_sizes` follows the order of sizes; in the observed sum, each rounded size has its sign.
    whole_by_size = dict(zip(sizes, whole_sizes, strict=True))
    observed = sum(
        whole_by_size[abs(difference)] * (1 if difference > 0.0 else -1)
        for difference in differences
        if difference
    )
    total = sum(whole_sizes)
    # A flip is as extreme if the differences of one sign add up to this or less.
    max_sum = (total - abs(observed)) // 2
    # Equal sizes are tosses of a coin.
    if multiples is not None and whole_sizes[0] == whole_sizes[-1]:
        at_most, _ = coin_tail(len(whole_sizes), max_sum // whole_sizes[0])
        return SignFlip(min(1.0, 2.0 * at_most), is_exact=True)
    if multiples is not None and len(whole_sizes) ** 2 * total / 8.0 <= _MAX_COUNTED_BYTES:
        share = 2 * _count_at_most(whole_sizes, max_sum) / (1 << len(whole_sizes))
        return SignFlip(min(1.0, share), is_exact=True)
    num_as_large = _count_extreme_flips(whole_sizes, max_sum, total - max_sum, seed)
    return SignFlip((1 + num_as_large) / (1 + NUM_FLIPS), is_exact=False)


def _share_of_extreme_flips(sizes: Sequence[float], observed: float) -> float:
    sums = [0.0]
    for size in sizes:
        sums = [total for sum_ in sums for total in (sum_ + size, sum_ - size)]
    # Rounding may move equal sums slightly apart.
    smallest_extreme = observed - 1e-12 * math.fsum(sizes)
    return sum(abs(total) >= smallest_extreme for total in sums) / len(sums)


def _multiples(sizes: Sequence[float]) -> list[int] | None:
    """Return the smallest whole numbers in the proportions of the sizes; None if there are none.

    There are some if tasks have few attempts and few different rewards. Euclid's algorithm finds
    the common divisor; a remainder that rounding can cause counts as 0.
    """
    largest, divisor = sizes[-1], 0.0
    for size in dict.fromkeys(reversed(sizes)):
        if 1e-12 * largest < size < 1e-9 * largest:  # too small to divide, too large for rounding
            return None
        remainder = size
        while remainder > 1e-9 * largest:
            divisor, remainder = remainder, math.fmod(divisor, remainder)
            if divisor - remainder <= 1e-9 * largest:  # rounded to just below a multiple
                remainder = 0.0
        if divisor * _MAX_MULTIPLE < largest:
            return None
    return [round(size / divisor) for size in sizes]


def _in_steps(sizes: Sequence[float]) -> list[int]:
    largest = min(_STEPS * (sizes[-1] / sizes[len(sizes) // 2]), _MAX_STEPS)
    return [round(size / sizes[-1] * largest) for size in sizes]


def _count_at_most(sizes: Sequence[int], max_sum: int) -> int:
    """Count the subsets of whole numbers whose sum is `max_sum` or less.

    The product of all 1 + x^size has the numbers of subsets by their sum as coefficients. One
    integer holds them all, each in a field of n + 1 bits: multiplying by a factor is a shift and an
    addition, and the remainder by a field full of ones is the sum of the fields.
    """
    width = len(sizes) + 1
    counts = 1
    for size in sizes:
        counts += counts << (width * size)
    low = counts & ((1 << (width * (max_sum + 1))) - 1)
    return low % ((1 << width) - 1)


def _count_extreme_flips(sizes: Sequence[int], low: int, high: int, seed: str) -> int:
    """Draw flips; count those whose sizes of one sign sum to at most `low` or at least `high`.

    A flip is one random integer with a bit for each size.
    """
    # The plane of a bit marks the sizes that have it: a sum of sizes is a few counts of bits.
    planes = [
        (bit, int("".join("01"[size >> bit & 1] for size in sizes), 2))
        for bit in range(max(sizes).bit_length())
    ]
    draw = Random(f"sign_flip:{seed}").getrandbits
    num_extreme = 0
    for flip in map(draw, itertools.repeat(len(sizes), NUM_FLIPS)):
        sum_ = 0
        for bit, plane in planes:
            sum_ += (flip & plane).bit_count() << bit
        num_extreme += sum_ <= low or sum_ >= high
    return num_extreme
