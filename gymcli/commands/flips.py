"""What rescoring gave as a person reads it: flips and their effects, or how repeats agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gymcli.commands.console import one_line, print_table, result

if TYPE_CHECKING:
    from gymcli.metrics import Effect
    from gymcli.runner.rescoring_report import (
        EnvironmentAgreement,
        EnvironmentFlips,
        Flips,
        RepeatReport,
        RescoringReport,
    )

__all__ = ["print_repeats", "print_rescoring"]

_MAX_SHOWN = 20
_MAX_NAME = 31
_MAX_ROW_NAME = 24
_LARGE = 1e5
_MAX_REWARDS = 60
"""Characters that the rewards of one rollout may take."""


def print_rescoring(report: RescoringReport, *, is_quiet: bool) -> None:
    """Print what changed, the totals, and what the changes do to the numbers."""
    if not is_quiet:
        _print_changes(report)
    _print_totals(report)
    if is_quiet:
        return
    has_several = len(report.environments) > 1
    for env, flips in sorted(report.environments.items()):
        _print_environment(env, flips, has_several=has_several)


def print_repeats(report: RepeatReport, *, is_quiet: bool) -> None:
    """Print who disagrees, how far, and what that does to the error of the mean reward."""
    if not is_quiet:
        _print_disagreements(report)
    text = (
        f"{report.num_rollouts:,} rollouts scored {report.num_repeats} times, "
        f"{report.num_disagreeing:,} not alike"
    )
    if report.num_failed:
        text += f", {report.num_failed:,} never scored"
    if report.num_not_rescored:
        text += f", {report.num_not_rescored:,} kept as recorded"
    result(text)
    if report.environments:
        result()
        head = ("rollouts", "agreement", "largest spread", "error of mean", "of verifier (share)")
        print_table(("", *head), [_row(env, one) for env, one in report.environments.items()])
        for env, one in report.environments.items():
            if one.num_disagreeing and one.mean_rewards:
                means = one_line(", ".join(map(_number, one.mean_rewards)), _MAX_REWARDS - 2)
                result(f"{one_line(env, _MAX_ROW_NAME)} mean reward {means}")


def _print_changes(report: RescoringReport) -> None:
    for change in report.changes[:_MAX_SHOWN]:
        where = one_line(f"{change.env} {change.task_id}/{change.attempt}")
        rewards = f"{_shown(change.old_reward)} -> {_shown(change.new_reward)}"
        result(f"{where}: {rewards}  {one_line(change.reason)}")
    if report.num_changed > _MAX_SHOWN:
        result(f"and {report.num_changed - _MAX_SHOWN} more (--json lists the first 1,000)")
    ways = {reason: _ways_of(report, reason) for reason in report.reasons}
    _print_counts(report.reasons, "changed", ways)
    _print_counts(report.errors, "not scored")


def _print_counts(
    counts: Mapping[str, int], what: str, ways: Mapping[str, str] | None = None
) -> None:
    """Print the commonest texts with their counts."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    for text, count in ordered[:_MAX_SHOWN]:
        way = f" ({ways[text]})" if ways and ways[text] else ""
        result(f"{count} {what}: {one_line(text)}{way}")
    if len(ordered) > _MAX_SHOWN:
        rest = sum(count for _, count in ordered[_MAX_SHOWN:])
        result(f"{rest} {what} for {len(ordered) - _MAX_SHOWN} other reasons")


def _ways_of(report: RescoringReport, reason: str) -> str:
    """Say where the rewards went that changed for a reason, in whatever environment."""
    found = [
        flips.reasons[reason] for flips in report.environments.values() if reason in flips.reasons
    ]
    return _ways(found)


def _ways(flips: Sequence[Flips]) -> str:
    counts = {
        "up": sum(one.num_up for one in flips),
        "down": sum(one.num_down for one in flips),
        "fail -> pass": sum(one.num_fail_to_pass for one in flips),
        "pass -> fail": sum(one.num_pass_to_fail for one in flips),
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _print_totals(report: RescoringReport) -> None:
    text = (
        f"{report.num_rescored} rescored, {report.num_changed} changed rewards "
        f"({report.num_up} up, {report.num_down} down)"
    )
    if report.num_failed:
        text += f", {report.num_failed} not scored"
    if report.num_not_rescored:
        text += f", {report.num_not_rescored} kept as recorded"
    result(text)
    if report.mean_before is not None and report.mean_after is not None:
        means = [_number(mean, digits=4) for mean in (report.mean_before, report.mean_after)]
        result(f"mean reward {' -> '.join(means)}")


def _print_environment(env: str, flips: EnvironmentFlips, *, has_several: bool) -> None:
    """Print what the changes of an environment do."""
    if has_several:
        result()
        result(f"{one_line(env)}: {flips.num_changed} changed rewards ({_ways([flips]) or '-'})")
    if flips.num_others:
        result(f"{flips.num_others} have the same reward, and another component or number")
    if flips.effects:
        if not has_several:
            result()
        head = (one_line(env, _MAX_NAME), "before", "after", "change", "95 %", "tasks")
        print_table(head, [_effect(name, effect) for name, effect in flips.effects.items()])


def _effect(name: str, effect: Effect) -> list[str]:
    difference = effect.difference
    interval = difference.interval if difference is not None else None
    ends = (interval.low, interval.high) if interval is not None else ()
    return [
        one_line(name, _MAX_NAME),
        _number(effect.before),
        _number(effect.after),
        "-" if difference is None else _number(difference.value, "+"),
        " .. ".join([_number(end, "+") for end in ends]) or "-",
        "-" if difference is None else f"{difference.num_clusters:,}",
    ]


def _print_disagreements(report: RepeatReport) -> None:
    for found in report.disagreements[:_MAX_SHOWN]:
        where = one_line(f"{found.env} {found.task_id}/{found.attempt}", 100 - _MAX_REWARDS)
        rewards = one_line(", ".join(map(_shown, found.rewards)), _MAX_REWARDS - 2)
        result(f"{where}: {rewards}")
    if report.num_disagreeing > _MAX_SHOWN:
        result(f"and {report.num_disagreeing - _MAX_SHOWN:,} more (--json lists the first 1,000)")
    _print_counts(report.errors, "not scored")


def _row(env: str, found: EnvironmentAgreement) -> list[str]:
    share = "" if found.verifier_share is None else f" ({found.verifier_share:.0%})"
    error = found.verifier_error
    return [
        one_line(env, _MAX_ROW_NAME),
        f"{found.num_rollouts:,}",
        "-" if found.agreement is None else f"{found.agreement:.1%}",
        f"{found.largest_spread:g}",
        _number(found.standard_error, digits=4),
        f"{_number(error, digits=4)}{share}",
    ]


def _number(value: float | None, sign: str = "-", *, digits: int = 3) -> str:
    """Give so many decimals; where they would show nothing, or be a long row, so many digits."""
    if value is None:
        return "-"
    value = value or 0.0  # without a sign
    is_usual = not value or 10.0**-digits <= abs(value) < _LARGE
    return f"{value:{sign}.{digits}{'f' if is_usual else 'g'}}"


def _shown(reward: float | None) -> str:
    return "unscored" if reward is None else f"{reward:g}"
