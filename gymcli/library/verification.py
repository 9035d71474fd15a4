"""Scores stored rollouts again, and the answers of a file as a benchmark does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Literal, NamedTuple, overload

import msgspec

from gymcli.comparison.reproduction import BenchmarkScore
from gymcli.errors import UsageError
from gymcli.library import role_models
from gymcli.library.call_options import AnswerOptions
from gymcli.library.calls import CoroutineRunner, call_blocking, run_blocking, run_path
from gymcli.library.measurement import MetricsReport, recorded_score
from gymcli.library.result import Result
from gymcli.library.run_collection import check_cluster_options, make_engine
from gymcli.metrics.measure import measure
from gymcli.models.endpoint import Endpoint
from gymcli.models.settings import load_settings
from gymcli.rescoring.run_rescoring import (
    Pending,
    RepeatReport,
    Rescoring,
    RescoringReport,
    score_pending,
)
from gymcli.rescoring.verify_options import VerifyOptions
from gymcli.runner.judges import Judges
from gymcli.store.manifest import read_manifest
from gymcli.store.rollout_files import rollouts_file, torn_line_warning
from gymcli.store.run_directory import RunDirectory, check_unused
from gymcli.suggestions import options_from

_LOGGER = logging.getLogger(__name__)


class VerifyReport(RescoringReport, Result, kw_only=True):
    """What scoring a run again changed, as `gym verify --json` prints it."""

    table: ClassVar[str] = "changes"


class RepeatedVerifyReport(RepeatReport, Result, kw_only=True):
    """How far scores of the same rollouts agree, as `gym verify --repeat --json` prints it."""

    table: ClassVar[str] = "disagreements"


class PendingReport(Pending, Result):
    """How many conversations that waited for a score got one."""

    def rows(self) -> list[dict[str, object]]:
        """Return a row with the counts."""
        return [msgspec.structs.asdict(self)]


class ScoredAnswers(NamedTuple):
    """The numbers of the answers of a file."""

    report: MetricsReport
    score: BenchmarkScore | None


class VerifyArguments(VerifyOptions, AnswerOptions):
    """The options of `gymcli.verify`."""

    roles: dict[str, Endpoint | str] = {}
    """Models of roles, as in `gymcli.collect`; by default those that the run records."""
    cache: Path | None = None
    """The folder of fetched tasks of a benchmark, if not the usual one."""


# The first that fits counts.
@overload
def verify(run: str | Path, *, repeat: int, **options: object) -> RepeatedVerifyReport: ...  # type: ignore[overload-overlap]  # as said
@overload
def verify(run: str | Path, *, benchmark: str, **options: object) -> MetricsReport: ...  # type: ignore[overload-overlap]
@overload
def verify(run: str | Path, *, pending: Literal[True], **options: object) -> PendingReport: ...  # type: ignore[overload-overlap]
@overload
def verify(run: str | Path, **options: object) -> VerifyReport: ...
def verify(
    run: str | Path, **options: object
) -> VerifyReport | RepeatedVerifyReport | MetricsReport | PendingReport:
    """Score stored rollouts again, and return what changed.

    Conversations that wait for a score get one. Existing scores stay as they are: rescored lines go
    to `out`. `gymcli.rescore` yields the result of each rollout.

    Args:
        run: The run directory or rollout file, gymcli's or NeMo Gym's.
        options: The fields of `gymcli.library.verification.VerifyArguments`, as those of
            `gym verify`: `env`, `env_args`, `roles`, `out`, `repeat` to score every rollout
            several times, `pending` to score only what waits, `benchmark` for the answers of a
            file, and so on.

    Raises:
        UsageError: A file, a line, an environment or an option is wrong, or a role has no model.
    """
    arguments = options_from(VerifyArguments, "verify", options)
    check_combinations(arguments)
    path = run_path("verify", run)
    if arguments.benchmark is not None:
        return score_as_benchmark(path, arguments).report
    report = score_again(path, arguments)
    if unfinished := torn_line_warning(path):
        _LOGGER.warning(unfinished)
    return report


def check_combinations(arguments: VerifyArguments) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: Two options do not.
    """
    check_cluster_options(arguments)
    if arguments.repeat is not None:
        _refuse(
            {"--out": arguments.out is not None, "--pending": arguments.pending},
            "--repeat writes nothing: leave out {} or --repeat",
        )
    if arguments.benchmark is None:
        _refuse(
            {"--model": arguments.model is not None, "--cache": arguments.cache is not None},
            "{} needs --benchmark",
        )
        return
    settings = {
        "--env": arguments.env is not None,
        "--tasks": bool(arguments.tasks),
        "--pending": arguments.pending,
        "--repeat": arguments.repeat is not None,
        "--engine": arguments.engine != "local",
    }
    _refuse(settings, "--benchmark has tasks and settings of its own: leave out {}")


def _refuse(settings: Mapping[str, bool], text: str) -> None:
    for option, is_set in settings.items():
        if is_set:
            raise UsageError(text.format(option))


def score_again(
    run: Path,
    arguments: VerifyArguments,
    *,
    find_judges: Callable[..., Judges] = role_models.judges_of,
    watch: Callable[[str], None] = lambda _: None,
    notify: Callable[[str], None] = _LOGGER.info,
    warn: Callable[[str], None] = _LOGGER.warning,
    run_loop: CoroutineRunner = run_blocking,
) -> VerifyReport | RepeatedVerifyReport | PendingReport:
    """Score the conversations of a run that wait, then all others again.

    `find_judges` resolves the models of roles, as `judges_of` does. `watch` is called often, with
    the progress in words, `notify` with what was done, `warn` with what is wrong.
    """
    judges = find_judges(
        arguments.roles,
        arguments.role_params,
        arguments.concurrency,
        manifest=read_manifest(run) if run.is_dir() else None,
    )
    with ExitStack() as stack:
        engine = make_engine(arguments, env=arguments.env)
        if engine is not None:
            stack.callback(engine.close)
        pending = Pending()
        if run.is_dir() and arguments.repeat is None:
            # If they cannot be scored, that is an error with `pending` and a warning without it.
            leave = None if arguments.pending else warn
            waiting = score_pending(
                run, env=arguments.env, judges=judges, leave=leave, engine=engine
            )
            pending = run_loop(waiting)
            if arguments.pending or pending.num_scored or pending.num_failed:
                notify(
                    f"{pending.num_scored} waiting conversations scored, "
                    f"{pending.num_failed} failed"
                )
            if pending.num_crashed:
                notify(
                    f"{pending.num_crashed} waiting conversations of crashed attempts are not "
                    "scored; gym collect --retry-crashed retries them"
                )
        if arguments.pending:
            return PendingReport(**msgspec.structs.asdict(pending))
        rescoring = Rescoring(
            run,
            env=arguments.env,
            env_args=arguments.env_args,
            task_files=arguments.tasks,
            judges=judges,
            out=arguments.out,
            engine=engine,
        )
        try:
            if arguments.repeat is None:
                report = rescoring.run(
                    watch=lambda counts: watch(
                        f"{counts.num_rescored:,} rescored, {counts.num_changed:,} changed"
                    )
                )
                return VerifyReport(**msgspec.structs.asdict(report))
            if models := rescoring.models_asked():
                notify(
                    f"every rollout is scored {arguments.repeat} times, asking "
                    f"{', '.join(models)} each time and ignoring recorded answers; no answer is "
                    "saved, so an interrupted command starts over"
                )
            repeats = rescoring.repeat(
                arguments.repeat, watch=lambda counts: watch(f"{counts.num_scores:,} scores")
            )
            return RepeatedVerifyReport(**msgspec.structs.asdict(repeats))
        finally:
            for text in rescoring.warnings:
                warn(text)


def score_as_benchmark(
    run: Path,
    arguments: VerifyArguments,
    *,
    find_judges: Callable[..., Judges] = role_models.judges_of,
    notify: Callable[[str], None] = _LOGGER.info,
    warn: Callable[[str], None] = _LOGGER.warning,
    run_loop: CoroutineRunner = run_blocking,
) -> ScoredAnswers:
    """Score the answers of a file as a benchmark does; the parameters are those of `score_again`.

    The answers become a run, which is in `out` if that is set.
    """
    from gymcli.benchmarks.benchmark import Benchmark, find_benchmark  # late: heavy
    from gymcli.benchmarks.benchmark_files import pulled_tasks
    from gymcli.benchmarks.benchmark_runs import missing_roles
    from gymcli.benchmarks.published_answers import PublishedAnswers, score_answers

    benchmark: Benchmark = find_benchmark(arguments.benchmark or "")
    file = rollouts_file(run)
    manifest = read_manifest(file.parent)
    if manifest is not None and manifest.benchmark is not None:
        raise UsageError(
            f"{run}: is a run of benchmark {manifest.benchmark.name}, whose settings are known: "
            "leave out --benchmark to score it again"
        )
    if arguments.out is not None:
        check_unused(arguments.out)
    tasks = call_blocking(lambda: pulled_tasks(benchmark, cache=arguments.cache, notify=notify))
    answers = PublishedAnswers(file, benchmark, tasks)
    for text in answers.notes:
        notify(text)
    notify(
        "the settings behind these answers are unknown: they are compared as if made with the "
        f"prompt and parameters of {benchmark.name}"
    )
    if arguments.model is None and len(answers.models) > 1:
        raise UsageError(
            f"{run}: its rows name {len(answers.models)} models; keep the rows of one, or give all "
            "of them one name with --model"
        )
    model = arguments.model or next(iter(answers.models), "")
    if not model:
        notify(
            "no row names the model that answered; --model NAME compares with its published scores"
        )
    roles = {**arguments.roles, **missing_roles(benchmark, load_settings(), arguments.roles)}
    judges = find_judges(roles, arguments.role_params, arguments.concurrency)
    with TemporaryDirectory(prefix="gymcli-") as folder:
        path = arguments.out or Path(folder, "run")
        run_loop(
            score_answers(
                answers,
                benchmark,
                path,
                tasks=tasks,
                model=model,
                judges=judges,
                env_args=arguments.env_args,
            )
        )
        aggregator = measure(path)
        metrics = aggregator.metrics()
        # Without a name, no published score can be meant.
        scored = read_manifest(path) if model else None
        score = recorded_score(scored, aggregator, metrics, warn=warn)
        RunDirectory(path).write_metrics(msgspec.json.encode(metrics))
    for text in aggregator.warnings:
        warn(text)
    report = MetricsReport.of(run, metrics)
    report.references = [] if score is None else score.references
    return ScoredAnswers(report, score)
