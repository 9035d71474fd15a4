"""`gym verify`: score stored rollouts again, without the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.command_line import Heading
from gymcli.commands.console import (
    LOGGER,
    message,
    one_line,
    paced_message,
    print_json,
    print_table,
    result,
    warn,
)
from gymcli.commands.model_options import with_model_options
from gymcli.commands.options import (
    CacheOption,
    JsonOption,
    complete_run,
    judges_of,
    role_specs,
)
from gymcli.commands.signals import run_async
from gymcli.commands.summary import (
    metrics_object,
    print_advice,
    print_references,
    print_summary,
)
from gymcli.errors import RunError
from gymcli.library.call_options import AnswerOptions
from gymcli.reporting.formatting import legible, share
from gymcli.rescoring.verify_options import VerifyOptions

if TYPE_CHECKING:
    from gymcli.library.verification import ScoredAnswers
    from gymcli.rescoring.run_rescoring import (
        EnvironmentFlips,
        Flips,
        RepeatReport,
        RescoringReport,
    )

_FAILED = 3
_NONE_SCORED = "the verifier scored none of the rollouts"
_MAX_SHOWN = 20
_MAX_NAME = 31
_MAX_ROW_NAME = 24
_MAX_REWARDS = 60
"""Maximum characters for the rewards of one rollout."""


@with_model_options
def verify(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_FILE",
            help="Run directory or rollout file, gymcli's or NeMo Gym's; with --benchmark also a "
            "table of answers.",
            autocompletion=complete_run,
            rich_help_panel=Heading.WHAT,
        ),
    ],
    *,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=MODEL",
            help="Model of a role.",
            show_default="the run's",
            rich_help_panel=Heading.MODEL,
        ),
    ] = None,
    options: VerifyOptions,
    answers: AnswerOptions,
    cache: CacheOption = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            help="Print only the totals, no progress.",
            rich_help_panel=Heading.RESULTS,
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Score stored rollouts again and report what changed.

    Conversations that wait for a score get one, with the settings of the run, and new answers of
    judges are added to its verdicts. Existing scores stay as they are: rescored lines go to --out.

    With --repeat nothing is written: every rollout is scored N times, ignoring the verdicts on
    record, to find verifiers that disagree with themselves. The exit code is 3 if one of
    these asks no model.

    With --benchmark the answers become a run of that benchmark, whatever scored them before, and
    its numbers are printed as `gym metrics` does.
    """
    from gymcli.library.verification import (
        RepeatedVerifyReport,
        VerifyArguments,
        VerifyReport,
        check_combinations,
        score_again,
        score_as_benchmark,
    )
    from gymcli.store.rollout_files import torn_line_warning

    arguments = VerifyArguments(
        **vars(options), **vars(answers), roles=role_specs(role or ()), cache=cache
    )
    check_combinations(arguments)
    if arguments.benchmark is not None:
        scored = score_as_benchmark(
            run,
            arguments,
            find_judges=judges_of,
            notify=LOGGER.info if quiet else message,
            warn=warn,
            run_loop=run_async,
        )
        _end_answers(run, scored, arguments.out, is_json=json)
        return
    report = score_again(
        run,
        arguments,
        find_judges=judges_of,
        watch=paced_message(math.inf if quiet else 5.0),
        notify=message,
        warn=warn,
        run_loop=run_async,
    )
    if not isinstance(report, VerifyReport | RepeatedVerifyReport):
        return
    unfinished = torn_line_warning(run)
    if unfinished and not quiet:
        warn(unfinished)
    if isinstance(report, VerifyReport):
        _end(run, report, arguments.out, is_quiet=quiet, is_json=json)
    else:
        _end_repeats(run, report, is_quiet=quiet, is_json=json)


def _end_answers(run: Path, scored: ScoredAnswers, out: Path | None, *, is_json: bool) -> None:
    report, score = scored
    if is_json:
        print_json(metrics_object(report))
    else:
        print_summary(report, run, with_doubts=False)
        if score is not None:
            print_references(score)
        print_advice(report, run)
        if out is not None:
            result(f"files         {out}")
    if not report.num_scored:
        raise RunError(f"{run}: {_NONE_SCORED}")


def _end(
    run: Path, report: RescoringReport, out: Path | None, *, is_quiet: bool, is_json: bool
) -> None:

    if is_json:
        print_json(report)
    else:
        print_rescoring(report, is_quiet=is_quiet)
        if out is not None:
            result(f"files         {out}")
    if report.num_failed and not report.num_rescored:
        raise RunError(f"{run}: {_NONE_SCORED}")


def _end_repeats(run: Path, report: RepeatReport, *, is_quiet: bool, is_json: bool) -> None:

    if is_json:
        print_json(report)
    else:
        print_repeats(report, is_quiet=is_quiet)
    if report.num_failed and report.num_failed == report.num_rollouts:
        raise RunError(f"{run}: {_NONE_SCORED}")
    if report.num_faulty:
        message(
            f"{report.num_faulty:,} rollouts have a verifier that asks no model and disagrees with "
            "itself: it depends on a clock, an unseeded random number, the order of a set or "
            "earlier calls; `gym docs environments` says what it may use"
        )
        raise typer.Exit(_FAILED)


def print_rescoring(report: RescoringReport, *, is_quiet: bool) -> None:
    """Print the changes, the totals and the effect on the numbers."""
    if not is_quiet:
        _print_changes(report)
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
        means = [legible(mean, digits=4) for mean in (report.mean_before, report.mean_after)]
        result(f"mean reward {' -> '.join(means)}")
    if is_quiet:
        return
    has_several = len(report.environments) > 1
    for env, flips in sorted(report.environments.items()):
        _print_environment(env, flips, has_several=has_several)


def print_repeats(report: RepeatReport, *, is_quiet: bool) -> None:
    """Print the disagreements and their effect on the error of the mean reward."""
    if not is_quiet:
        for item in report.disagreements[:_MAX_SHOWN]:
            where = one_line(f"{item.env} {item.task_id}/{item.attempt}", 100 - _MAX_REWARDS)
            rewards = one_line(", ".join(map(_shown, item.rewards)), _MAX_REWARDS - 2)
            result(f"{where}: {rewards}")
        if report.num_disagreeing > _MAX_SHOWN:
            num_more = report.num_disagreeing - _MAX_SHOWN
            result(f"and {num_more:,} more (--json lists the first 1,000)")
        _print_reasons(report.errors, "not scored")
    text = (
        f"{report.num_rollouts:,} rollouts scored {report.num_repeats} times, "
        f"{report.num_disagreeing:,} with different rewards"
    )
    if report.num_failed:
        text += f", {report.num_failed:,} never scored"
    if report.num_not_rescored:
        text += f", {report.num_not_rescored:,} kept as recorded"
    result(text)
    if report.environments:
        result()
        head = ("rollouts", "agreement", "largest spread", "error of mean", "of verifier (share)")
        rows = []
        for env, part in report.environments.items():
            share_text = "" if part.verifier_share is None else f" ({part.verifier_share:.0%})"
            rows.append(
                (
                    one_line(env, _MAX_ROW_NAME),
                    f"{part.num_rollouts:,}",
                    share(part.agreement),
                    f"{part.largest_spread:g}",
                    legible(part.standard_error, digits=4),
                    f"{legible(part.verifier_error, digits=4)}{share_text}",
                )
            )
        print_table(("", *head), rows)
        for env, part in report.environments.items():
            if part.num_disagreeing and part.mean_rewards:
                means = one_line(", ".join(map(legible, part.mean_rewards)), _MAX_REWARDS - 2)
                result(f"{one_line(env, _MAX_ROW_NAME)} mean reward {means}")


def _print_changes(report: RescoringReport) -> None:
    for change in report.changes[:_MAX_SHOWN]:
        where = one_line(f"{change.env} {change.task_id}/{change.attempt}")
        rewards = f"{_shown(change.old_reward)} -> {_shown(change.new_reward)}"
        result(f"{where}: {rewards}  {one_line(change.reason)}")
    if report.num_changed > _MAX_SHOWN:
        result(f"and {report.num_changed - _MAX_SHOWN} more (--json lists the first 1,000)")
    environments = report.environments.values()
    ways = {
        reason: _ways([flips.reasons[reason] for flips in environments if reason in flips.reasons])
        for reason in report.reasons
    }
    _print_reasons(report.reasons, "changed", ways)
    _print_reasons(report.errors, "not scored")


def _print_reasons(
    counts: Mapping[str, int], title: str, ways: Mapping[str, str] | None = None
) -> None:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    for text, count in ordered[:_MAX_SHOWN]:
        way = f" ({ways[text]})" if ways and ways[text] else ""
        result(f"{count} {title}: {one_line(text)}{way}")
    if len(ordered) > _MAX_SHOWN:
        num_others = sum(count for _, count in ordered[_MAX_SHOWN:])
        result(f"{num_others} {title} for {len(ordered) - _MAX_SHOWN} other reasons")


def _ways(flips: Sequence[Flips]) -> str:
    counts = {
        "up": sum(part.num_up for part in flips),
        "down": sum(part.num_down for part in flips),
        "fail -> pass": sum(part.num_fail_to_pass for part in flips),
        "pass -> fail": sum(part.num_pass_to_fail for part in flips),
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _print_environment(env: str, flips: EnvironmentFlips, *, has_several: bool) -> None:
    if has_several:
        result()
        result(f"{one_line(env)}: {flips.num_changed} changed rewards ({_ways([flips]) or '-'})")
    if flips.num_others:
        result(f"{flips.num_others} have the same reward but another component or number")
    if flips.effects:
        if not has_several:
            result()
        head = (one_line(env, _MAX_NAME), "before", "after", "change", "95 %", "tasks")
        rows = []
        for name, effect in flips.effects.items():
            cells = [one_line(name, _MAX_NAME), legible(effect.before), legible(effect.after)]
            if effect.difference is None:
                rows.append([*cells, "-", "-", "-"])
                continue
            interval = effect.difference.interval
            ends = () if interval is None else (interval.low, interval.high)
            between = " .. ".join([legible(end, "+") for end in ends]) or "-"
            num_tasks = f"{effect.difference.num_clusters:,}"
            rows.append([*cells, legible(effect.difference.value, "+"), between, num_tasks])
        print_table(head, rows)


def _shown(reward: float | None) -> str:
    return "unscored" if reward is None else f"{reward:g}"
