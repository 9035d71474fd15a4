"""`gym verify`: score stored rollouts again, without the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, ConfigDict

from gymcli.command_line import CommandOption, Heading
from gymcli.commands.console import (
    LOGGER,
    harmless,
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
    check_cluster_options,
    complete_run,
    judges_of,
)
from gymcli.commands.signals import run_async
from gymcli.errors import RunError, UsageError
from gymcli.reporting.formatting import legible, share
from gymcli.rescoring.verify_options import VerifyOptions

if TYPE_CHECKING:
    from gymcli.rescoring.run_rescoring import (
        EnvironmentFlips,
        Flips,
        RepeatReport,
        Rescoring,
        RescoringReport,
    )
    from gymcli.runner.engine import Engine
    from gymcli.runner.judges import Judges

_FAILED = 3
_NONE_SCORED = "the verifier scored none of the rollouts"
_MAX_SHOWN = 20
_MAX_NAME = 31
_MAX_ROW_NAME = 24
_MAX_REWARDS = 60
"""Maximum characters for the rewards of one rollout."""


class AnswerOptions(BaseModel):
    """The benchmark whose tasks a file answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: Annotated[
        str | None,
        CommandOption(
            "Score the answers of a file as this benchmark does, and compare with published "
            "scores. Each row has a task's id or question, and the answer as response, "
            "completion, output or the like.",
            Heading.WHAT,
            metavar="NAME",
            completion="benchmark",
        ),
    ] = None
    model: Annotated[
        str | None,
        CommandOption(
            "With --benchmark: the model that gave the answers.",
            Heading.MODEL,
            metavar="NAME",
            show_default="the one that the rows name",
        ),
    ] = None


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
    check_cluster_options(options.engine, options.address, options.num_workers)
    _check_combinations(options, answers, cache)
    if answers.benchmark is None:
        _score_again(run, options, role or (), is_quiet=quiet, is_json=json)
        return
    _score_answers(
        run,
        answers.benchmark,
        options,
        model=answers.model,
        role=role or (),
        cache=cache,
        is_quiet=quiet,
        is_json=json,
    )


def _score_again(
    run: Path, options: VerifyOptions, role: Sequence[str], *, is_quiet: bool, is_json: bool
) -> None:
    from gymcli.library.run_collection import make_engine
    from gymcli.rescoring.run_rescoring import Rescoring, RescoringReport
    from gymcli.store.manifest import read_manifest
    from gymcli.store.rollout_files import torn_line_warning

    manifest = read_manifest(run) if run.is_dir() else None
    judges = judges_of(role, options.role_params, options.concurrency, manifest=manifest)
    with ExitStack() as stack:
        cluster = make_engine(
            options.engine,
            address=options.address,
            num_workers=options.num_workers,
            env=options.env,
        )
        if cluster is not None:
            stack.callback(cluster.close)
        if run.is_dir() and options.repeat is None:
            _score_waiting(run, options.env, judges, cluster, is_pending=options.pending)
        if options.pending:
            return
        rescoring = Rescoring(
            run,
            env=options.env,
            env_args=options.env_args,
            task_files=options.tasks,
            judges=judges,
            out=options.out,
            engine=cluster,
        )
        report = _rescored(rescoring, options.repeat, is_quiet=is_quiet)
    unfinished = torn_line_warning(run)
    if unfinished and not is_quiet:
        warn(unfinished)
    if isinstance(report, RescoringReport):
        _end(run, report, options.out, is_quiet=is_quiet, is_json=is_json)
    else:
        _end_repeats(run, report, is_quiet=is_quiet, is_json=is_json)


def _check_combinations(options: VerifyOptions, answers: AnswerOptions, cache: Path | None) -> None:
    """Refuse options that do not go together."""
    if options.repeat is not None:
        _refuse(
            {"--out": options.out is not None, "--pending": options.pending},
            "--repeat writes nothing: leave out {} or --repeat",
        )
    if answers.benchmark is None:
        _refuse(
            {"--model": answers.model is not None, "--cache": cache is not None},
            "{} needs --benchmark",
        )
        return
    settings = {
        "--env": options.env is not None,
        "--tasks": bool(options.tasks),
        "--pending": options.pending,
        "--repeat": options.repeat is not None,
        "--engine": options.engine != "local",
    }
    _refuse(settings, "--benchmark has tasks and settings of its own: leave out {}")


def _rescored(
    rescoring: Rescoring, repeat: int | None, *, is_quiet: bool
) -> RescoringReport | RepeatReport:
    """Score all rollouts again, `repeat` times or once, and print the progress and warnings."""
    tell = paced_message(math.inf if is_quiet else 5.0)
    try:
        if repeat is None:
            return rescoring.run(
                watch=lambda found: tell(
                    f"{found.num_rescored:,} rescored, {found.num_changed:,} changed"
                )
            )
        if models := rescoring.models_asked():
            message(
                f"every rollout is scored {repeat} times, asking {', '.join(models)} each "
                "time and ignoring recorded answers; no answer is saved, so an interrupted "
                "command starts over"
            )
        return rescoring.repeat(repeat, watch=lambda found: tell(f"{found.num_scores:,} scores"))
    finally:
        for text in rescoring.warnings:
            warn(text)


def _refuse(options: Mapping[str, bool], text: str) -> None:
    """Raise UsageError if one of the options is given."""
    for option, is_given in options.items():
        if is_given:
            raise UsageError(text.format(option))


def _score_answers(
    run: Path,
    name: str,
    options: VerifyOptions,
    *,
    model: str | None,
    role: Sequence[str],
    cache: Path | None,
    is_quiet: bool,
    is_json: bool,
) -> None:
    """Score the answers of a file as a benchmark does, and print the numbers of that run."""
    import msgspec

    from gymcli.benchmarks.benchmark import find_benchmark
    from gymcli.benchmarks.benchmark_files import pulled_tasks
    from gymcli.benchmarks.benchmark_runs import missing_roles
    from gymcli.benchmarks.published_answers import PublishedAnswers, score_answers
    from gymcli.commands.summary import (
        print_advice,
        print_references,
        print_summary,
    )
    from gymcli.library.measurement import recorded_score
    from gymcli.metrics.measure import measure
    from gymcli.models.settings import load_settings
    from gymcli.store.manifest import read_manifest
    from gymcli.store.rollout_files import rollouts_file
    from gymcli.store.run_directory import RunDirectory, check_unused

    found, file = find_benchmark(name), rollouts_file(run)
    manifest = read_manifest(file.parent)
    if manifest is not None and manifest.benchmark is not None:
        raise UsageError(
            f"{run}: is a run of benchmark {manifest.benchmark.name}, whose settings are known: "
            "leave out --benchmark to score it again"
        )
    if options.out is not None:
        check_unused(options.out)
    notify = LOGGER.info if is_quiet else message
    tasks = pulled_tasks(found, cache=cache, notify=notify)
    answers = PublishedAnswers(file, found, tasks)
    for text in answers.notes:
        notify(text)
    notify(
        "the settings behind these answers are unknown: they are compared as if made with the "
        f"prompt and parameters of {found.name}"
    )
    if model is None and len(answers.models) > 1:
        raise UsageError(
            f"{run}: its rows name {len(answers.models)} models; keep the rows of one, or give all "
            "of them one name with --model"
        )
    model = model or next(iter(answers.models), "")
    if not model:
        notify(
            "no row names the model that answered; --model NAME compares with its published scores"
        )
    roles = {spec.partition("=")[0] for spec in role}
    names = missing_roles(found, load_settings(), roles)
    specs = (f"{role_name}={name}" for role_name, name in names.items())
    judges = judges_of((*role, *specs), options.role_params, options.concurrency)
    with TemporaryDirectory(prefix="gymcli-") as folder:
        path = options.out or Path(folder, "run")
        run_async(
            score_answers(
                answers,
                found,
                path,
                tasks=tasks,
                model=model,
                judges=judges,
                env_args=options.env_args,
            )
        )
        aggregator = measure(path)
        numbers = aggregator.metrics()
        # Without a name, no published score can be meant.
        score = (
            recorded_score(read_manifest(path), aggregator, numbers, warn=warn) if model else None
        )
        RunDirectory(path).write_metrics(msgspec.json.encode(numbers))
    for text in aggregator.warnings:
        warn(text)
    if is_json:
        references = [] if score is None else score.references
        print_json(
            {"run": harmless(str(run)), **msgspec.structs.asdict(numbers), "references": references}
        )
    else:
        print_summary(numbers, run, with_doubts=False)
        if score is not None:
            print_references(score)
        print_advice(numbers, run)
        if options.out is not None:
            result(f"files         {options.out}")
    if not numbers.num_scored:
        raise RunError(f"{run}: {_NONE_SCORED}")


def _score_waiting(
    run: Path, env: str | None, judges: Judges, engine: Engine | None, *, is_pending: bool
) -> None:
    from gymcli.rescoring.run_rescoring import score_pending

    # If they cannot be scored, that is an error with --pending and a warning without it.
    leave = None if is_pending else warn
    waited = run_async(score_pending(run, env=env, judges=judges, leave=leave, engine=engine))
    if is_pending or waited.num_scored or waited.num_failed:
        message(f"{waited.num_scored} waiting conversations scored, {waited.num_failed} failed")
    if waited.num_crashed:
        message(
            f"{waited.num_crashed} waiting conversations of crashed attempts are not scored; "
            "gym collect --retry-crashed retries them"
        )


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
        for found in report.disagreements[:_MAX_SHOWN]:
            where = one_line(f"{found.env} {found.task_id}/{found.attempt}", 100 - _MAX_REWARDS)
            rewards = one_line(", ".join(map(_shown, found.rewards)), _MAX_REWARDS - 2)
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
        for env, one in report.environments.items():
            of_all = "" if one.verifier_share is None else f" ({one.verifier_share:.0%})"
            rows.append(
                (
                    one_line(env, _MAX_ROW_NAME),
                    f"{one.num_rollouts:,}",
                    share(one.agreement),
                    f"{one.largest_spread:g}",
                    legible(one.standard_error, digits=4),
                    f"{legible(one.verifier_error, digits=4)}{of_all}",
                )
            )
        print_table(("", *head), rows)
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
    environments = report.environments.values()
    ways = {
        reason: _ways([one.reasons[reason] for one in environments if reason in one.reasons])
        for reason in report.reasons
    }
    _print_reasons(report.reasons, "changed", ways)
    _print_reasons(report.errors, "not scored")


def _print_reasons(
    counts: Mapping[str, int], what: str, ways: Mapping[str, str] | None = None
) -> None:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    for text, count in ordered[:_MAX_SHOWN]:
        way = f" ({ways[text]})" if ways and ways[text] else ""
        result(f"{count} {what}: {one_line(text)}{way}")
    if len(ordered) > _MAX_SHOWN:
        rest = sum(count for _, count in ordered[_MAX_SHOWN:])
        result(f"{rest} {what} for {len(ordered) - _MAX_SHOWN} other reasons")


def _ways(flips: Sequence[Flips]) -> str:
    counts = {
        "up": sum(one.num_up for one in flips),
        "down": sum(one.num_down for one in flips),
        "fail -> pass": sum(one.num_fail_to_pass for one in flips),
        "pass -> fail": sum(one.num_pass_to_fail for one in flips),
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
