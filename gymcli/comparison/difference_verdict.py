"""The verdict on one difference of two runs: its interval, its tests, and what would decide it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import numpy as np

from gymcli.comparison.comparison_results import Difference, Verdict
from gymcli.comparison.exact_tests import mcnemar_mid_p, sign_flip
from gymcli.comparison.paired_differences import (
    PairedEstimate,
    paired_estimate,
    with_pseudo_tasks,
)
from gymcli.comparison.planning import CHANCE, DecidingSize, fewest
from gymcli.comparison.task_pairs import PairedTasks, count_tasks
from gymcli.metrics.estimators import mean_of, sum_of, variance
from gymcli.metrics.intervals import normal_quantile, student_t_cdf, t_interval
from gymcli.metrics.results import Estimate, Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray


DEFAULT_MARGIN = 0.02
"""The default margin, as a share of the range of rewards."""
_MAX_TASKS = 1_000_000_000
"""If it takes more tasks than this, the difference counts as being at the margin."""
_MAX_ATTEMPTS = 1_000_000
_ROUNDING = 1e-9
"""The share of the squared range that rounding may add to a product of rewards."""
_MOSTLY = 2.0 / 3.0
"""The share of tasks that do not differ from which differences count as rare."""
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


def judge_difference(
    tasks: PairedTasks, rule: Rule, *, largest: float | None, is_mean: bool, name: str
) -> Difference:
    """Return the difference of some tasks with its verdict; the values of each reach `largest`.

    `is_mean` is that of the `Measure`, and `name` seeds the random changes of sign.
    """
    difference = count_tasks(tasks)
    num_tasks = difference.num_tasks
    if not num_tasks:
        difference.way_out = "no task has a value in both runs"
        return difference
    bound = largest if largest is not None and tasks.lie_within(largest) else None
    num_values = difference.num_attempts_a + difference.num_attempts_b
    pairs = paired_estimate(tasks.a.value, tasks.b.value, num_values=num_values)
    difference.mean_a, difference.mean_b = pairs.mean_a, pairs.mean_b
    difference.difference = pairs.difference
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
    tasks: PairedTasks,
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
        reason = "all rewards are equal and their range is unknown; nothing can be decided"
        difference.way_out = reason
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
    tasks: PairedTasks, pairs: PairedEstimate, largest: float | None, *, is_mean: bool
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


def _is_graded(tasks: PairedTasks, largest: float) -> bool:
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


def _add_test(difference: Difference, tasks: PairedTasks, pairs: PairedEstimate, name: str) -> None:
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
    tasks: PairedTasks,
    pairs: PairedEstimate,
    margin: float,
    rule: Rule,
    *,
    size: float,
    is_mean: bool,
) -> DecidingSize:
    difference, num_tasks = pairs.difference, len(pairs.differences)
    # To the farther of the borders of PASS and FAIL, which takes fewer tasks to decide.
    to_pass = difference.value + margin
    to_fail = -difference.value - (margin if rule.is_strict else 0.0)
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
    tasks: PairedTasks, spread: float, is_enough: Callable[[float], bool], num_tasks: int
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
