"""`gym verify`: score stored rollouts again, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import (
    message,
    one_line,
    paced_message,
    print_json,
    print_table,
    result,
    warn,
)
from gymcli.commands.options import (
    JsonOption,
    check_cluster_options,
    judges_of,
    key_values,
)
from gymcli.commands.signals import run_async
from gymcli.errors import RunError, UsageError
from gymcli.reporting.formatting import legible, share
from gymcli.runner.run_options import AddressOption, EngineOption, WorkersOption

if TYPE_CHECKING:
    from gymcli.metrics.results import Effect
    from gymcli.runner.judges import Judges
    from gymcli.runner.rescoring import (
        EnvironmentAgreement,
        EnvironmentFlips,
        Flips,
        RepeatReport,
        Repeats,
        Rescoring,
        RescoringReport,
    )

__all__ = ["print_repeats", "print_rescoring", "verify"]

_FAILED = 3
_MAX_SHOWN = 20
_MAX_NAME = 31
_MAX_ROW_NAME = 24
_MAX_REWARDS = 60
"""Characters that the rewards of one rollout may take."""


def verify(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN_OR_FILE", help="A run, or rollouts, ours or NeMo Gym's."),
    ],
    env: Annotated[
        str | None, typer.Option(help="Environment of lines that name none, or FILE.py:CLASS.")
    ] = None,
    env_arg: Annotated[
        list[str] | None, typer.Option(metavar="[ENV.]KEY=VALUE", help="An environment's option.")
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=MODEL", help="A model beside the policy; else the run's own."),
    ] = None,
    role_param: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE.KEY=VALUE", help="A request parameter of a role."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Rollouts that wait for models at once.")
    ] = 64,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    tasks: Annotated[
        list[Path] | None,
        typer.Option(help="The task rows, where a rollout file of others lacks their fields."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the rescored rollouts as a run of their own.")
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only score the conversations that wait for it.")
    ] = False,
    repeat: Annotated[
        int | None,
        typer.Option(min=2, help="Score so often, and say whether verifiers say the same."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only the totals.")] = False,
    json: JsonOption = False,
) -> None:
    """Score stored rollouts again and say what changed, and what that does to the numbers.

    Conversations that wait for their score get it, as the run was made to score them, and what
    judges newly answer is added to the run's verdicts; no score is altered. Rescored lines go to
    --out.

    With --repeat nothing is written: every rollout is scored so often, past the verdicts on record,
    to find verifiers that disagree with themselves. Exit code 3: one does that asks no model.
    """
    from gymcli.runner.rescoring import Rescoring, score_pending
    from gymcli.store.rollout_files import torn_line_warning

    check_cluster_options(engine, address, workers)
    _check_repeat(repeat, out=out, is_pending=pending)
    judges = _judges(run, role or (), role_param or (), concurrency)
    with ExitStack() as stack:
        on_ray = None
        if engine == "ray":
            from gymcli.runner.ray_driver import RayEngine  # late: few commands need it

            on_ray = stack.enter_context(RayEngine(address, workers, env=env))
        if run.is_dir() and repeat is None:
            leave = None if pending else warn
            waited = run_async(
                score_pending(run, env=env, judges=judges, leave=leave, engine=on_ray)
            )
            if pending or waited.num_scored or waited.num_failed:
                message(
                    f"{waited.num_scored} waiting conversations scored, {waited.num_failed} failed"
                )
            if waited.num_crashed:
                message(
                    f"{waited.num_crashed} waiting conversations of crashed attempts are left as "
                    "they are; gym collect --retry-crashed tries them again"
                )
        if pending:
            return
        rescoring = Rescoring(
            run,
            env=env,
            env_args=key_values("--env-arg", env_arg or ()),
            task_files=tasks or [],
            judges=judges,
            out=out,
            engine=on_ray,
        )
        tell = paced_message()

        def tell_rescored(found: RescoringReport) -> None:
            tell(f"{found.num_rescored:,} rescored, {found.num_changed:,} changed")

        def tell_repeats(found: Repeats) -> None:
            tell(f"{found.num_scores:,} scores")

        try:
            if repeat is None:
                report = rescoring.run(watch=None if quiet else tell_rescored)
            else:
                _announce(rescoring, repeat)
                repeats = rescoring.repeat(repeat, watch=None if quiet else tell_repeats)
        finally:
            for text in rescoring.warnings:
                warn(text)
    unfinished = torn_line_warning(run)
    if unfinished and not quiet:
        warn(unfinished)
    if repeat is None:
        _end(run, report, out, is_quiet=quiet, is_json=json)
    else:
        _end_repeats(run, repeats, is_quiet=quiet, is_json=json)


def _check_repeat(repeat: int | None, *, out: Path | None, is_pending: bool) -> None:
    """Refuse options that write files, since --repeat writes none.

    Raises:
        UsageError: One of them is given.

    """
    for option, is_given in (("--out", out is not None), ("--pending", is_pending)):
        if repeat is not None and is_given:
            raise UsageError(f"--repeat writes nothing: leave out {option}, or --repeat")


def _announce(rescoring: Rescoring, num_repeats: int) -> None:
    """Print what repeats cost, before the first one."""
    roles = rescoring.models_asked()
    if roles:
        message(
            f"every rollout is scored {num_repeats} times: {', '.join(roles)} is asked each time, "
            "past what is on record; no answer is kept, and what is stopped starts anew"
        )


def _end(
    run: Path, report: RescoringReport, out: Path | None, *, is_quiet: bool, is_json: bool
) -> None:
    """Print what changed.

    Raises:
        RunError: Nothing could be scored.

    """
    import msgspec

    if is_json:
        print_json(msgspec.json.encode(report))
    else:
        print_rescoring(report, is_quiet=is_quiet)
        if out is not None:
            result(f"files         {out}")
    if report.num_failed and not report.num_rescored:
        raise RunError(f"{run}: the verifier could score none of the rollouts")


def _end_repeats(run: Path, report: RepeatReport, *, is_quiet: bool, is_json: bool) -> None:
    """Print how far verifiers agree with themselves.

    Raises:
        RunError: Nothing could be scored.
        typer.Exit: A verifier that asks no model disagrees with itself; exit code 3.

    """
    import msgspec

    if is_json:
        print_json(msgspec.json.encode(report))
    else:
        print_repeats(report, is_quiet=is_quiet)
    if report.num_failed and report.num_failed == report.num_rollouts:
        raise RunError(f"{run}: the verifier could score none of the rollouts")
    if report.num_faulty:
        message(
            f"{report.num_faulty:,} rollouts have a verifier that asks no model and disagrees with "
            "itself: a clock, an unseeded random number, the order of a set or what it remembers "
            "decides; docs/environments.md says what it may use"
        )
        raise typer.Exit(_FAILED)


def _judges(run: Path, role: Iterable[str], role_param: Iterable[str], concurrency: int) -> Judges:
    """Return who plays the roles: the models of the options, else those of the run."""
    from gymcli.store.manifest import read_manifest

    manifest = read_manifest(run) if run.is_dir() else None
    return judges_of(role, role_param, concurrency, manifest=manifest)


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
        print_table(
            ("", *head), [_agreement_row(env, one) for env, one in report.environments.items()]
        )
        for env, one in report.environments.items():
            if one.num_disagreeing and one.mean_rewards:
                means = one_line(", ".join(map(legible, one.mean_rewards)), _MAX_REWARDS - 2)
                result(f"{one_line(env, _MAX_ROW_NAME)} mean reward {means}")


def _print_changes(report: RescoringReport) -> None:
    for change in report.changes[:_MAX_SHOWN]:
        where = one_line(f"{change.env} {change.task_id}/{change.attempt}")
        rewards = f"{_shown(change.old_reward)} -> {_shown(change.new_reward)}"
        result(f"{where}: {rewards}  {one_line(change.reason)}")
    if report.num_changed > _MAX_SHOWN:
        result(f"and {report.num_changed - _MAX_SHOWN} more (--json lists the first 1,000)")
    ways = {reason: _ways_of(report, reason) for reason in report.reasons}
    _print_reasons(report.reasons, "changed", ways)
    _print_reasons(report.errors, "not scored")


def _print_reasons(
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
    """Return where the rewards went that changed for a reason, in all environments."""
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
        means = [legible(mean, digits=4) for mean in (report.mean_before, report.mean_after)]
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
        print_table(head, [_effect_row(name, effect) for name, effect in flips.effects.items()])


def _effect_row(name: str, effect: Effect) -> list[str]:
    difference = effect.difference
    interval = None if difference is None else difference.interval
    ends = () if interval is None else (interval.low, interval.high)
    return [
        one_line(name, _MAX_NAME),
        legible(effect.before),
        legible(effect.after),
        "-" if difference is None else legible(difference.value, "+"),
        " .. ".join([legible(end, "+") for end in ends]) or "-",
        "-" if difference is None else f"{difference.num_clusters:,}",
    ]


def _print_disagreements(report: RepeatReport) -> None:
    for found in report.disagreements[:_MAX_SHOWN]:
        where = one_line(f"{found.env} {found.task_id}/{found.attempt}", 100 - _MAX_REWARDS)
        rewards = one_line(", ".join(map(_shown, found.rewards)), _MAX_REWARDS - 2)
        result(f"{where}: {rewards}")
    if report.num_disagreeing > _MAX_SHOWN:
        result(f"and {report.num_disagreeing - _MAX_SHOWN:,} more (--json lists the first 1,000)")
    _print_reasons(report.errors, "not scored")


def _agreement_row(env: str, found: EnvironmentAgreement) -> list[str]:
    of_all = "" if found.verifier_share is None else f" ({found.verifier_share:.0%})"
    error = found.verifier_error
    return [
        one_line(env, _MAX_ROW_NAME),
        f"{found.num_rollouts:,}",
        share(found.agreement),
        f"{found.largest_spread:g}",
        legible(found.standard_error, digits=4),
        f"{legible(error, digits=4)}{of_all}",
    ]


def _shown(reward: float | None) -> str:
    return "unscored" if reward is None else f"{reward:g}"
