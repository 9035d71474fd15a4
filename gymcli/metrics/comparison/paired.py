"""The difference of two runs over tasks that both have: interval, test, correlation, verdict."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from gymcli.metrics.comparison.holm import holm
from gymcli.metrics.comparison.mcnemar import mcnemar_mid_p
from gymcli.metrics.comparison.results import Difference, TestName
from gymcli.metrics.comparison.sign_flip import sign_flip
from gymcli.metrics.comparison.values import PairedValues
from gymcli.metrics.comparison.verdict import (
    DEFAULT_MARGIN,
    Rule,
    equivalence_p,
    needed,
    verdict_of,
)
from gymcli.metrics.estimators import mean, variance
from gymcli.metrics.intervals import t_interval
from gymcli.metrics.results import Estimate, Interval

__all__ = [
    "PAIRED_DIFFERENCES",
    "among",
    "correlation",
    "counted",
    "difference_interval",
    "difference_of",
    "is_sure",
]

PAIRED_DIFFERENCES = "mean of paired task differences"
_ROUNDING = 1e-12
"""Of the largest value: as much as equal means may differ by, or equal differences."""

T = TypeVar("T")


class _Test(NamedTuple):
    name: TestName
    p_value: float


def difference_of(
    pairs: PairedValues, rule: Rule, *, largest: float | None, is_mean: bool, name: str
) -> Difference:
    """Give everything about the difference B - A of these tasks.

    Args:
        pairs: The values of the tasks in both runs.
        rule: How the verdict is reached.
        largest: What values lie below, from 0 on; None where that is not known.
        is_mean: Whether a task's value is the mean of its attempts.
        name: Of the tasks and the metric, which seeds the flips.

    """
    found = counted(pairs)
    if not pairs:
        found.way_out = "no task has a value in both runs"
        return found
    noise = _ROUNDING * max(map(abs, itertools.chain(pairs.values_a, pairs.values_b)))
    differences = _differences(pairs, noise)
    test = _test(pairs, differences, name)
    centre = mean(differences)
    found.mean_a, found.mean_b = mean(pairs.values_a), mean(pairs.values_b)
    found.test, found.p_value = test.name, test.p_value
    found.margin = _margin(rule, largest)
    found.difference = Estimate(
        value=0.0 if abs(centre) <= noise else centre,
        estimator=PAIRED_DIFFERENCES,
        num_values=pairs.num_attempts_a + pairs.num_attempts_b,
        num_clusters=len(pairs),
    )
    if len(pairs) < 2:
        found.way_out = "one task says nothing of others; two or more have to be in both runs"
        return found
    spread = variance(differences)
    if spread <= noise**2:
        spread = 0.0
    is_bounded = largest is not None and pairs.lie_within(largest)
    _add_errors(found, pairs, spread, rule, largest if is_bounded else None)
    if found.verdict == "INCONCLUSIVE":
        needs = needed(pairs, found.difference.value, spread, found.margin, rule, is_mean=is_mean)
        found.tasks_needed, found.attempts_needed, found.way_out = needs
    return found


def _differences(pairs: PairedValues, noise: float) -> array[float]:
    """Give B - A of each task; what rounding leaves of two equal means is 0."""
    both = zip(pairs.values_a, pairs.values_b, strict=True)
    return array("d", (0.0 if abs(b - a) <= noise else b - a for a, b in both))


def counted(pairs: PairedValues) -> Difference:
    """Count tasks, attempts and changes, which takes no scale that all values are on."""
    changed = pairs.num_changed
    return Difference(
        num_tasks=len(pairs),
        num_attempts_a=pairs.num_attempts_a,
        num_attempts_b=pairs.num_attempts_b,
        num_fixed=changed["fixed"] if changed else None,
        num_broken=changed["broken"] if changed else None,
        num_flaky=changed["flaky"] if changed else None,
        fixed=pairs.named["fixed"] if changed else [],
        broken=pairs.named["broken"] if changed else [],
        flaky=pairs.named["flaky"] if changed else [],
    )


def _margin(rule: Rule, largest: float | None) -> float:
    if rule.margin is not None:
        return rule.margin
    return DEFAULT_MARGIN * max(largest or 0.0, 0.0)


def _test(pairs: PairedValues, differences: array[float], name: str) -> _Test:
    if pairs.is_binary:
        num_worse = sum(difference < 0.0 for difference in differences)
        num_better = sum(difference > 0.0 for difference in differences)
        return _Test("mcnemar-mid-p", mcnemar_mid_p(num_worse, num_better))
    flipped = sign_flip(differences, seed=name)
    return _Test("sign-flip-exact" if flipped.is_exact else "sign-flip", flipped.p_value)


def _add_errors(
    found: Difference,
    pairs: PairedValues,
    spread: float,
    rule: Rule,
    largest: float | None,
) -> None:
    """Add interval, verdict, equivalence and what pairing gained, of two tasks or more."""
    assert found.difference is not None
    assert found.margin is not None
    centre, num_tasks = found.difference.value, len(pairs)
    error = math.sqrt(spread / num_tasks)
    found.difference.standard_error = error

    def interval(level: float) -> Interval | None:
        if not spread and not is_sure(centre, num_tasks, rule.level):
            return None
        return difference_interval(centre, error, num_tasks=num_tasks, largest=largest, level=level)

    found.difference.interval = interval(rule.level)
    deciding = found.deciding_interval = interval(round(2.0 * rule.level - 1.0, 12))
    found.verdict = verdict_of(deciding, found.margin, is_strict=rule.is_strict)
    found.is_equivalent = (
        deciding is not None and -found.margin < deciding.low and deciding.high < found.margin
    )
    found.p_equivalent = equivalence_p(centre, error, found.margin, num_tasks=num_tasks)
    found.correlation = correlation(pairs.values_a, pairs.values_b)
    unpaired = variance(pairs.values_a) + variance(pairs.values_b)
    if unpaired:
        found.variance_reduction = 1.0 - spread / unpaired
    if spread:
        found.num_unpaired_tasks = num_tasks * unpaired / spread


def difference_interval(
    centre: float, error: float, *, num_tasks: int, largest: float | None, level: float
) -> Interval:
    """Give Student's interval of a mean of differences, of at least two tasks.

    No end lies beyond `largest`, where values lie between 0 and that.
    """
    low, high = t_interval(centre, error, num_clusters=num_tasks, level=level)
    if largest is not None:
        low, high = max(low, -largest), min(high, largest)
    return Interval(low=low, high=high, level=level, method="t")


def is_sure(centre: float, num_tasks: int, level: float) -> bool:
    """Say whether an interval without width says something.

    It does where no task differs at all, or where so many differ by the same that chance would
    hardly give all of them the same sign.
    """
    return centre == 0.0 or 0.5**num_tasks <= 1.0 - level


def correlation(first: array[float], second: array[float]) -> float | None:
    """Give the correlation of two rows of values (Pearson 1895); None where one does not vary."""
    centre_first, centre_second = mean(first), mean(second)
    product = math.fsum(
        (one - centre_first) * (other - centre_second)
        for one, other in zip(first, second, strict=True)
    )
    squares = [
        math.sqrt(math.fsum((value - centre) ** 2 for value in values))
        for values, centre in ((first, centre_first), (second, centre_second))
    ]
    if not all(squares):
        return None
    return min(1.0, max(-1.0, product / squares[0] / squares[1]))


def among(differences: Mapping[T, Difference], level: float) -> dict[T, Difference]:
    """Give parts of a comparison with their p-values adjusted for how many parts there are.

    A part fails only where its adjusted p-value bears it out: of many parts that did not change
    some look worse by chance. The 1 - 2 alpha interval is below 0 where p < 2 alpha.
    """
    tested = {part: d.p_value for part, d in differences.items() if d.p_value is not None}
    adjusted = dict(zip(tested, holm([*tested.values()]), strict=True))
    found = {}
    for part, difference in differences.items():
        p_adjusted = adjusted.get(part)
        replaced = msgspec.structs.replace(difference, p_adjusted=p_adjusted)
        is_doubtful = p_adjusted is None or p_adjusted >= 2.0 * (1.0 - level)
        if len(differences) > 1 and difference.verdict == "FAIL" and is_doubtful:
            replaced.verdict = "INCONCLUSIVE"
            replaced.way_out = "worse, but among so many parts chance alone may do that"
        found[part] = replaced
    return found
