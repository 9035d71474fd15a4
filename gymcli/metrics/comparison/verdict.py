"""Whether run B is worse than run A, and what it would take to tell: non-inferiority.

A run passes unless it may be worse by the margin, and fails only where it is worse: that no
difference was found says nothing, since too few tasks find none. Piaggio et al. 2012, "Reporting
of noninferiority and equivalence randomized trials", JAMA 308(24); numbers of tasks and attempts
by Miller 2024, arXiv 2411.00640, section 5.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gymcli.metrics.comparison.results import Verdict
from gymcli.metrics.comparison.values import PairedValues
from gymcli.metrics.deciding import CHANCE, Needed
from gymcli.metrics.distributions import normal_quantile, student_t_cdf, student_t_quantile
from gymcli.metrics.results import Interval

__all__ = ["DEFAULT_MARGIN", "Rule", "equivalence_p", "needed", "verdict_of"]

DEFAULT_MARGIN = 0.02
"""Share of the range of rewards that B may be worse by, where no margin is given."""
_MAX_TASKS = 1e9
"""Beyond so many no difference is told from none."""


class Rule(NamedTuple):
    """How the verdict is reached."""

    margin: float | None = None
    """How much worse B may be; None: `DEFAULT_MARGIN` of the range, 0 where that is not known."""
    level: float = 0.95
    """1 - alpha: of the intervals shown; the verdict is by the interval of level 1 - 2 alpha."""
    is_strict: bool = False
    """Fail only what is worse than the margin."""


def verdict_of(interval: Interval | None, margin: float, *, is_strict: bool) -> Verdict:
    """Give the verdict from the 1 - 2 alpha interval of B - A."""
    if interval is None:
        return "INCONCLUSIVE"
    if interval.low > -margin:
        return "PASS"
    return "FAIL" if interval.high < (-margin if is_strict else 0.0) else "INCONCLUSIVE"


def equivalence_p(
    difference: float, error: float, margin: float, *, num_tasks: int
) -> float | None:
    """Give the p-value of the two one-sided t tests that B - A lies within the margin.

    Schuirmann 1987. None without an error.
    """
    if not error:
        return None
    above = student_t_cdf((difference + margin) / error, num_tasks - 1)
    below = student_t_cdf((difference - margin) / error, num_tasks - 1)
    return max(1.0 - above, below)


def needed(
    pairs: PairedValues,
    difference: float,
    variance: float,
    margin: float,
    rule: Rule,
    *,
    is_mean: bool,
) -> Needed:
    """Give what would decide, for at least two tasks that do not.

    Args:
        pairs: The values.
        difference: The mean of B - A.
        variance: Of the tasks' differences.
        margin: The one in force.
        rule: How the verdict is reached.
        is_mean: Whether a task's value is the mean of its attempts.

    """
    to_pass = difference + margin
    to_fail = -difference - (margin if rule.is_strict else 0.0)
    distance = max(to_pass, to_fail)
    if distance <= 0.0 or variance / distance > _MAX_TASKS * distance:
        return Needed(None, None, _UNDECIDABLE)
    if not variance:
        num = max(len(pairs) + 1, math.ceil(-math.log2(1.0 - rule.level)))
        return Needed(num, None, f"{num} tasks that all differ by the same would decide")
    num_tasks = len(pairs)
    first = (normal_quantile(rule.level) + normal_quantile(CHANCE)) ** 2
    # Student's t for so many tasks as the normal distribution asks for, or for those there are.
    degrees = max(math.ceil(first * variance / distance**2), num_tasks) - 1
    factor = (student_t_quantile(rule.level, degrees) + normal_quantile(CHANCE)) ** 2
    tasks = max(num_tasks + 1, math.ceil(factor * variance / distance**2))
    said = f"about {tasks:,} tasks such as these would decide"
    if not is_mean:
        return Needed(tasks, None, said)
    degrees = num_tasks - 1
    factor = (student_t_quantile(rule.level, degrees) + normal_quantile(CHANCE)) ** 2
    return _with_attempts(pairs, variance, num_tasks * distance**2 / factor, tasks)


_UNDECIDABLE = (
    "the difference is just at the margin, where no number of tasks decides; another --margin may"
)


def _with_attempts(
    pairs: PairedValues, variance: float, largest_variance: float, tasks: int
) -> Needed:
    """Add the attempts a task that make the variance of the tasks' differences small enough.

    It is omega^2 + (sigma_A^2 + sigma_B^2) / K, and only the second part shrinks with K.
    """
    said = f"about {tasks:,} tasks such as these would decide"
    within_a, within_b = pairs.within_a.variance, pairs.within_b.variance
    if within_a is None and within_b is None:
        text = f"{said}; whether more attempts would cannot be told from one attempt a task"
        return Needed(tasks, None, text)
    sigma_a = within_b if within_a is None else within_a
    sigma_b = within_a if within_b is None else within_b
    assert sigma_a is not None
    assert sigma_b is not None
    share = sigma_a * pairs.within_a.mean_inverse + sigma_b * pairs.within_b.mean_inverse
    rest = largest_variance - max(0.0, variance - share)
    if rest <= 0.0:
        text = f"{said}; on these tasks alone no number of attempts does"
        return Needed(tasks, None, text)
    attempts = max(2, math.ceil((sigma_a + sigma_b) / rest))
    text = f"about {tasks:,} tasks such as these, or {attempts:,} attempts a task, would decide"
    return Needed(tasks, attempts, text)
