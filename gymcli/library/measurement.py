"""Measures runs: their numbers, what options ask for, and the verdicts of their gates."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, overload

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Field

from gymcli.comparison.comparison_results import Verdict, worst_verdict
from gymcli.comparison.gates import GateOn, GateVerdict
from gymcli.comparison.planning import Plan, plans
from gymcli.comparison.reproduction import BenchmarkScore, Reproduction
from gymcli.errors import RunDirectoryError, UsageError
from gymcli.library.call_options import MetricsOptions
from gymcli.library.calls import CoroutineRunner, call_blocking, run_blocking, run_path
from gymcli.library.result import Result
from gymcli.library.run_gates import RunGates
from gymcli.metrics import measure as run_measure
from gymcli.metrics.agreement import Agreement, Labels, agreement, labels_of_rows
from gymcli.metrics.results import Metrics, RunMetrics, TaskMetrics, TokenDrift
from gymcli.reporting.run_report import RunReport
from gymcli.secrets import scrubber_of
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.rollout_files import torn_line_warning
from gymcli.store.run_directory import RunDirectory
from gymcli.suggestions import options_from
from gymcli.tasks.table_files import local_rows, table_notes

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark import Benchmark
    from gymcli.metrics.aggregate import Aggregator

_LOGGER = logging.getLogger(__name__)


class MetricsReport(RunMetrics, Result, kw_only=True):
    """One run, as `gym metrics --json` prints it, and as its metrics.json holds it."""

    run: str = ""
    """Its path, as given; metrics.json lacks it."""
    environments: dict[str, Metrics]
    """By name."""
    benchmark: str | UnsetType = UNSET
    """Of several runs of one `gym collect`, if it is one of a benchmark."""
    model: str | UnsetType = UNSET
    """Of several runs of one `gym collect`."""
    error: str | UnsetType = UNSET
    """Of several runs of one `gym collect`: what ended this one, or that too little is scored."""
    tasks: list[TaskMetrics] | UnsetType = UNSET
    """Every task, if requested."""
    gates: list[GateVerdict] | UnsetType = UNSET
    """The requested gates that could be judged."""
    agreement: dict[str, Agreement] | UnsetType = UNSET
    """With the labels of `--labels`, by environment, if requested."""
    power: dict[str, Plan] | UnsetType = UNSET
    """The tasks that a comparison takes to pass, by environment, if requested."""
    references: list[Reproduction] | UnsetType = UNSET
    """The published scores of the benchmark and the model, if the run is one of a benchmark."""

    table: ClassVar[str] = "environments"

    @classmethod
    def of(cls, run: Path | str, metrics: RunMetrics) -> MetricsReport:
        """Return the report of a run with these numbers."""
        return cls(**{**msgspec.structs.asdict(metrics), "run": str(run)})


class MetricsReports(msgspec.Struct, Result, kw_only=True):
    """Several runs, as `gym metrics --json` prints them."""

    runs: list[MetricsReport]
    power: dict[str, Plan] | UnsetType = UNSET

    table: ClassVar[str] = "runs"


class GateReport(msgspec.Struct, Result, kw_only=True):
    """The verdicts of the gates of a run."""

    run: str
    gates: list[GateVerdict]

    table: ClassVar[str] = "gates"

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return worst_verdict(gate.verdict for gate in self.gates)


class MeasureArguments(MetricsOptions):
    """The options of `gymcli.measure`."""

    gates: tuple[str, ...] = ()
    """Conditions, as `gym metrics --gate` takes them."""
    ks: tuple[Annotated[int, Field(ge=1, le=999_999)], ...] = ()
    """The k of more metrics of k attempts."""
    gate_on: GateOn = "bound"
    """Whether a gate is judged by the whole interval, or by the number."""
    baseline: Path | None = None
    """The run that gates on the difference compare with."""


class MeasuredRun(NamedTuple):
    """The numbers of a run, and what they were computed from."""

    report: MetricsReport
    pilot: Aggregator | None
    """What `--power` plans from; None without it, since it may be large."""
    manifest: Manifest | None
    score: BenchmarkScore | None
    judged: RunReport | None
    """None without gates."""


@overload
def measure(run: str | Path, /, **options: object) -> MetricsReport: ...


@overload
def measure(
    run: str | Path, second: str | Path, /, *more: str | Path, **options: object
) -> MetricsReports: ...


def measure(*runs: str | Path, **options: object) -> MetricsReport | MetricsReports:
    """Return the numbers of a run, or of several: run directories or rollout files.

    Errors and intervals are computed over tasks. The numbers of a run directory are also written to
    its metrics.json.

    Args:
        runs: The runs.
        options: The fields of `gymcli.library.measurement.MeasureArguments`, as those of
            `gym metrics`: `env`, `by`, `by_task`, `ks`, `labels`, `power`, `gates` and so on.

    Raises:
        UsageError: A path, a line or an option is wrong, or a gate cannot be judged.
    """
    if not runs:
        raise UsageError("measure: name a run")
    paths = [run_path("measure", run) for run in runs]
    settings = options_from(MeasureArguments, "measure", options)
    gates = None
    if settings.gates or settings.ks or settings.baseline:
        gates = RunGates(
            settings.gates,
            requested_ks=settings.ks,
            gate_on=settings.gate_on,
            baseline=settings.baseline,
            way_out="baseline=RUN",
        )
    measured = list(measured_runs(paths, settings, gates))
    for run in measured:
        for problem in () if run.judged is None else run.judged.problems:
            raise UsageError(f"{run.report.run}: {problem.what}: {problem.reason}")
    return report_of(measured, settings)


def report_of(
    measured: Sequence[MeasuredRun], options: MetricsOptions
) -> MetricsReport | MetricsReports:
    """Return the report of a run or of several, with the plans that the options ask for."""
    reports = [run.report for run in measured]
    power: dict[str, Plan] | UnsetType = UNSET
    if options.power:
        pilots = [run.pilot for run in measured if run.pilot is not None]
        power = plans(pilots, margin=options.margin)
    if len(reports) > 1:
        return MetricsReports(runs=reports, power=power)
    reports[0].power = power
    return reports[0]


def gate(run: str | Path, *gates: str, **options: object) -> GateReport:
    """Judge a run by conditions such as `pass@1 >= 0.8`, as `gym metrics --gate` does.

    Args:
        run: The run directory or rollout file.
        gates: The conditions.
        options: Those of `gymcli.measure`, such as `baseline` and `gate_on`.

    Raises:
        UsageError: A path, a line or an option is wrong, or a gate cannot be judged.
    """
    if not gates:
        raise UsageError("gate: name a condition, such as 'mean_reward >= 0.8'")
    report = measure(run, gates=gates, **options)
    assert report.gates is not UNSET
    return GateReport(run=report.run, gates=report.gates)


def measured_runs(
    runs: Sequence[Path],
    options: MetricsOptions,
    gates: RunGates | None = None,
    *,
    has_tasks: bool = False,
    warn: Callable[[str], None] = _LOGGER.warning,
    notify: Callable[[str], None] = _LOGGER.info,
    run_loop: CoroutineRunner = run_blocking,
) -> Iterator[MeasuredRun]:
    """Measure runs one after the other; with `has_tasks`, what gates judged lists every task.

    `warn` is called with what is wrong with a run, `notify` with what is done meanwhile.
    """
    if options.margin is not None and not options.power:
        raise UsageError("--margin needs --power")
    if options.model is not None and options.benchmark is None:
        raise UsageError("--model needs --benchmark")
    benchmark = None if options.benchmark is None else _benchmark(options.benchmark, runs)
    labels = None if options.labels is None else _labels(options.labels, notify)
    fields = list(options.by) if gates is None else gates.fields(options.by)
    for run in runs:
        aggregator = run_measure.measure(
            run, env=options.env, by=fields, fields=[labels] if isinstance(labels, str) else []
        )
        if options.tokenizer is not None:
            drifts = run_loop(_drift(run, options.env, options.tokenizer))
            for name, tokens in aggregator.tokens.items():
                tokens.drift = drifts.get(name)
        metrics = _checked_metrics(run, aggregator, gates, warn)
        manifest = read_manifest(run) if run.is_dir() else None
        report = MetricsReport.of(run, metrics)
        if options.by_task:
            report.tasks = aggregator.task_rows()
        if labels is not None:
            source = str(options.labels)
            report.agreement = dict(agreement(aggregator, labels, source=source, warn=warn))
        if benchmark is None:
            score = recorded_score(manifest, aggregator, metrics, warn=warn)
        else:
            score = _score_as(benchmark, run, aggregator, metrics, options, warn, notify)
        if score is not None:
            report.references = score.references
        judged = None
        if gates is not None:
            judged = gates.report(
                run,
                aggregator,
                metrics,
                env=options.env,
                by=fields,
                score=score,
                has_tasks=has_tasks,
            )
            if gates.gates:
                report.gates = list(judged.gates)
        pilot = aggregator if options.power else None
        yield MeasuredRun(report, pilot, manifest, score, judged)
        del aggregator  # before the next run is measured


def recorded_score(
    manifest: Manifest | None,
    aggregator: Aggregator,
    metrics: RunMetrics,
    *,
    benchmark: Benchmark | None = None,
    warn: Callable[[str], None] = _LOGGER.warning,
) -> BenchmarkScore | None:
    """Return the score of a run of a benchmark; None for other runs.

    `benchmark` replaces the recorded one.
    """
    if manifest is None or manifest.benchmark is None:
        return None
    from gymcli.benchmarks.benchmark_runs import benchmark_score  # late: other runs need none of it

    score = benchmark_score(manifest, aggregator, metrics, benchmark=benchmark)
    if score.problem and metrics.num_scored:
        warn(score.problem)
    return score


def _checked_metrics(
    run: Path, aggregator: Aggregator, gates: RunGates | None, warn: Callable[[str], None]
) -> RunMetrics:
    """Return the numbers of a run and write them into it."""
    metrics = aggregator.metrics(ks=() if gates is None else gates.ks)
    environments = metrics.environments.values()
    attempts = [int(k) for numbers in environments for k in numbers.num_tasks_at_k or ()]
    if attempts and gates is not None:
        gates.check_ks(max(attempts))
    if run.is_dir():
        directory = RunDirectory(run, scrubber_of((), os.environ))
        try:
            directory.write_metrics(msgspec.json.encode(metrics))
        except RunDirectoryError as error:  # a run that is read-only can still be measured
            warn(str(error))
    for text in filter(None, [torn_line_warning(run), *aggregator.warnings]):
        warn(text)
    if not metrics.num_scored:
        warn(f"{run}: nothing is scored")
    return metrics


def _score_as(
    benchmark: Benchmark,
    run: Path,
    aggregator: Aggregator,
    metrics: RunMetrics,
    options: MetricsOptions,
    warn: Callable[[str], None],
    notify: Callable[[str], None],
) -> BenchmarkScore | None:
    """Return the score of a run as one of the benchmark that `--benchmark` names."""
    model = options.model
    manifest = read_manifest(run if run.is_dir() else run.parent)
    if manifest is not None and manifest.benchmark is not None:
        if model not in (None, manifest.model):
            raise UsageError(f"{run}: is a run of {manifest.model}; leave out --model")
        return recorded_score(manifest, aggregator, metrics, benchmark=benchmark, warn=warn)
    from gymcli.benchmarks.benchmark_files import pulled_tasks  # late: heavy
    from gymcli.benchmarks.benchmark_runs import model_of_file, score_as

    model = model or (manifest and manifest.model) or model_of_file(run, options.env)
    tasks = call_blocking(lambda: pulled_tasks(benchmark, notify=notify))
    return score_as(benchmark, aggregator, metrics, model=model, tasks=tasks)


def _benchmark(name: str, runs: Sequence[Path]) -> Benchmark:
    """Return the benchmark that `--benchmark` names, for runs of none or of the same name."""
    from gymcli.benchmarks.benchmark import find_benchmark  # late: heavy

    benchmark = find_benchmark(name)
    for run in runs:
        manifest = read_manifest(run if run.is_dir() else run.parent)
        recorded = None if manifest is None else manifest.benchmark
        if recorded is not None and recorded.name != benchmark.name:
            raise UsageError(
                f"{run}: is a run of benchmark {recorded.name}, not of {benchmark.name}"
            )
    return benchmark


def _labels(text: str, notify: Callable[[str], None]) -> Labels | str:
    """Return the labels of a file, or the field of the task rows that has them."""
    path = Path(text)
    field = text.removeprefix("task.")
    if not path.exists():
        if field and field != text:
            return field
        raise UsageError(
            f"--labels {text}: no such file; name a table such as labels.csv, or a field of the "
            "task rows such as task.human"
        )
    for note in table_notes(path):
        notify(note)
    return labels_of_rows((f"{text}:{number}", row) for number, row in local_rows(path))


async def _drift(run: Path, env: str | None, tokenizer: str) -> dict[str, TokenDrift]:
    from gymcli.training.drift import measure_drift, open_renderer  # late: heavy

    async with open_renderer(tokenizer) as renderer:
        return await measure_drift(run, renderer, env=env)
