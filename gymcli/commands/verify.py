"""`gym verify`: score stored rollouts again, without a model."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import message, paced_message, print_json, result, warn
from gymcli.commands.options import (
    JsonOption,
    check_cluster_options,
    judges_of,
    key_values,
)
from gymcli.commands.signals import run_async
from gymcli.errors import RunError, UsageError
from gymcli.runner.run_options import AddressOption, EngineOption, WorkersOption

if TYPE_CHECKING:
    from gymcli.runner.judges import Judges
    from gymcli.runner.rescoring import Rescoring
    from gymcli.runner.rescoring_report import RepeatReport, Repeats, RescoringReport

__all__ = ["verify"]

_FAILED = 3


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
    from gymcli.store.rollout_files import unfinished_line

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
    unfinished = unfinished_line(run)
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

    from gymcli.commands.flips import print_rescoring

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

    from gymcli.commands.flips import print_repeats

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
