"""`gym verify`: score stored rollouts again, without a model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.cluster import AddressOption, Cluster, EngineOption, WorkersOption
from gymcli.commands.console import message, one_line, print_json, result, run_async, warn
from gymcli.commands.options import (
    JsonOption,
    check_role_parameters,
    key_values,
    resolved_roles,
    role_params,
    roles,
    settings_secrets,
)
from gymcli.errors import RunError
from gymcli.secrets import NOTHING_SECRET

if TYPE_CHECKING:
    from gymcli.runner import Judges, RescoringReport

__all__ = ["verify"]

_MAX_SHOWN = 20


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
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only the totals.")] = False,
    json: JsonOption = False,
) -> None:
    """Score stored rollouts again and say what changed.

    Conversations that wait for their score get it, as the run was made to score them, and what
    judges newly answer is added to the run's verdicts; no score is altered. Rescored lines go to
    --out.
    """
    import msgspec

    from gymcli.runner import Rescoring, score_pending
    from gymcli.store.rollouts import unfinished_line

    cluster = Cluster(engine, address, workers)
    cluster.check()
    judges = _judges(run, role or (), role_param or (), concurrency)
    if run.is_dir():
        leave = None if pending else warn
        with cluster.pending_engine(env, judges) as on_cluster:
            waited = run_async(
                score_pending(run, env=env, judges=judges, leave=leave, engine=on_cluster)
            )
        if pending or any(waited):
            message(f"{waited.num_scored} waiting conversations scored, {waited.num_failed} failed")
    if pending:
        return
    with cluster.scorers(env, judges) as elsewhere:
        rescoring = Rescoring(
            run,
            env=env,
            env_args=key_values("--env-arg", env_arg or ()),
            task_files=tasks or [],
            judges=judges,
            out=out,
            elsewhere=elsewhere,
        )
        try:
            report = rescoring.run(watch=None if quiet else _Watch())
        finally:
            for text in rescoring.warnings:
                warn(text)
    unfinished = unfinished_line(run)
    if unfinished and not quiet:
        warn(unfinished)
    if json:
        print_json(msgspec.json.encode(report))
    else:
        if not quiet:
            _print_changes(report)
        _print_totals(report)
        if out is not None:
            result(f"files         {out}")
    if report.num_failed and not report.num_rescored:
        raise RunError(f"{run}: the verifier could score none of the rollouts")


def _judges(run: Path, role: Iterable[str], role_param: Iterable[str], concurrency: int) -> Judges:
    """Find who plays the roles: those of the options, else those that the run was made with."""
    from gymcli.runner import Judges
    from gymcli.store.manifest import read_manifest

    manifest = read_manifest(run) if run.is_dir() else None
    sources = roles(role)
    params = role_params(role_param)
    given = (*sources, *params)
    recorded = None
    if manifest is not None:
        recorded = {name: spec for name, spec in manifest.roles.items() if name not in sources}
        params = {**manifest.role_params, **params}
    defaults = resolved_roles(recorded)
    sources = {**defaults.sources, **sources}
    missing = {role: text for role, text in defaults.missing.items() if role not in sources}
    check_role_parameters(params, sources)
    others = NOTHING_SECRET.also(settings_secrets())
    return Judges(sources, params, concurrency, given, missing, others)


class _Watch:
    """Prints how far the rescoring is, a plain line every few seconds."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self, report: RescoringReport) -> None:
        now = time.monotonic()
        if now - self._last >= self._seconds:
            self._last = now
            message(f"{report.num_rescored:,} rescored, {report.num_changed:,} changed")


def _print_changes(report: RescoringReport) -> None:
    for change in report.changes[:_MAX_SHOWN]:
        where = one_line(f"{change.env} {change.task_id}/{change.attempt}")
        rewards = f"{_shown(change.old_reward)} -> {_shown(change.new_reward)}"
        result(f"{where}: {rewards}  {one_line(change.reason)}")
    if report.num_changed > _MAX_SHOWN:
        result(f"and {report.num_changed - _MAX_SHOWN} more (--json lists the first 1,000)")
    _print_counts(report.reasons, "changed")
    _print_counts(report.errors, "not scored")


def _print_counts(counts: Mapping[str, int], what: str) -> None:
    """Print the commonest texts with their counts."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    for text, count in ordered[:_MAX_SHOWN]:
        result(f"{count} {what}: {one_line(text)}")
    if len(ordered) > _MAX_SHOWN:
        rest = sum(count for _, count in ordered[_MAX_SHOWN:])
        result(f"{rest} {what} for {len(ordered) - _MAX_SHOWN} other reasons")


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
        result(f"mean reward {report.mean_before:.4f} -> {report.mean_after:.4f}")


def _shown(reward: float | None) -> str:
    return "unscored" if reward is None else f"{reward:g}"
