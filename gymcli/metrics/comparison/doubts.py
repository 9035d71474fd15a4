"""What makes the difference of two runs doubtful."""

from __future__ import annotations

from gymcli.metrics.comparison.results import Comparison
from gymcli.metrics.comparison.verdict import Rule

__all__ = ["doubts"]

_FEW_TASKS = 10
_GOOD_COVERAGE = 0.95


def doubts(comparison: Comparison, rule: Rule) -> list[str]:
    """Say what may make the difference another one than it looks, one sentence each."""
    found = []
    if text := _coverage(comparison):
        found.append(text)
    unmatched = comparison.unmatched
    if left_out := unmatched.num_only_a + unmatched.num_only_b:
        found.append(
            f"{left_out:,} tasks are in one run only and left out; those that are in both may be "
            "easier or harder than all"
        )
    if comparison.num_tasks < _FEW_TASKS:
        found.append(f"fewer than {_FEW_TASKS} tasks: interval and verdict are rough")
    difference = comparison.difference
    if difference is not None and difference.standard_error == 0.0:
        # 0 of n that differ otherwise: the exact upper bound, Clopper and Pearson 1934.
        share = 1.0 - (1.0 - comparison.level) ** (1.0 / comparison.num_tasks)
        found.append(
            f"all tasks differ by {difference.value:g}, so that the interval has no width; of "
            f"other tasks up to {share:.0%} may differ by something else"
        )
    if comparison.margin == 0.0 and rule.margin is None:
        found.append(
            f"the range of {comparison.metric} is not known, so that the margin is 0, which only a "
            "better run passes; give --margin"
        )
    return found


def _coverage(comparison: Comparison) -> str:
    """Say that attempts are missing, which may fake a difference; empty where hardly any are."""
    both = comparison.a.coverage, comparison.b.coverage
    known = [one for one in both if one is not None]
    if min(known, default=1.0) >= _GOOD_COVERAGE and (len(known) < 2 or both[0] == both[1]):
        return ""
    one, other = ("unknown" if share is None else f"{share:.1%}" for share in both)
    text = f"coverage is {one} in A and {other} in B: what is missing may fake a difference"
    if comparison.bounds is None:
        return text
    low, high = comparison.bounds.low, comparison.bounds.high
    return (
        f"{text}; whatever it would have got, the difference of all mean rewards lies in "
        f"{low:+.3f} .. {high:+.3f}"
    )
