"""`gym metrics`: report the numbers of one or several runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict

from gymcli.command_line import CommandOption, Heading
from gymcli.commands.ci import CiOptions, CiRequest
from gymcli.commands.console import harmless, message, print_json, result, warn
from gymcli.commands.model_options import with_model_options
from gymcli.commands.options import JsonOption, RunsArgument
from gymcli.commands.runs import print_runs
from gymcli.commands.signals import run_async
from gymcli.commands.summary import (
    print_advice,
    print_agreement,
    print_all_numbers,
    print_at_k,
    print_plans,
    print_references,
    print_slices,
    print_summary,
    print_tasks,
    recorded_score,
)
from gymcli.errors import RunDirectoryError, UsageError
from gymcli.secrets import scrubber_of

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark import Benchmark
    from gymcli.comparison.reproduction import BenchmarkScore
    from gymcli.library.run_list import ListedRun
    from gymcli.metrics.aggregate import Aggregator
    from gymcli.metrics.agreement import Agreement, Labels
    from gymcli.metrics.results import RunMetrics, TaskMetrics, TokenDrift


class MetricsOptions(BaseModel):
    """Which numbers are computed, and of which environment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: Annotated[
        str | None,
        CommandOption(
            "Environment of lines that name none, such as NeMo Gym's, or the code of one that "
            "defines its own metrics, FILE.py:CLASS.",
            Heading.WHAT,
            metavar="ENV",
            completion="env",
        ),
    ] = None
    show_all: Annotated[
        bool,
        CommandOption(
            "Print every number; of several runs, not only the table.", Heading.NUMBERS, name="all"
        ),
    ] = False
    by_task: Annotated[bool, CommandOption("Print a line for every task.", Heading.NUMBERS)] = False
    by: Annotated[
        tuple[str, ...],
        CommandOption(
            "Report each value of a task field separately, such as task.category.",
            Heading.NUMBERS,
            metavar="FIELD",
        ),
    ] = ()
    power: Annotated[
        bool,
        CommandOption(
            "Print how many tasks gym compare takes to pass if B is as good as A, planned from "
            "RUN or from two runs of the same tasks.",
            Heading.NUMBERS,
        ),
    ] = False
    margin: Annotated[
        float | None,
        CommandOption(
            "With --power: plan for this --margin of gym compare.",
            Heading.NUMBERS,
            metavar="DIFFERENCE",
        ),
    ] = None
    labels: Annotated[
        str | None,
        CommandOption(
            "Report how far rewards agree with labels (pass or fail, true or false, 1 or 0): a "
            "file with the columns task_id and label, and attempt or env if they differ, or a "
            "field of the task rows.",
            Heading.NUMBERS,
            metavar="FILE|task.FIELD",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        CommandOption(
            "Render the conversations of recorded token ids again, and report how many ids, calls "
            "and sequences that changes: a model's folder (for transformers), a server of "
            "llama.cpp or vLLM, or local, the embedded model.",
            Heading.NUMBERS,
            metavar="FOLDER|URL|local",
        ),
    ] = None
    benchmark: Annotated[
        str | None,
        CommandOption(
            "Compare with the published scores of this benchmark; for runs and files that record "
            "none.",
            Heading.NUMBERS,
            metavar="NAME",
        ),
    ] = None
    model: Annotated[
        str | None,
        CommandOption(
            "With --benchmark: the model of rollouts that name none.",
            Heading.NUMBERS,
            metavar="NAME",
        ),
    ] = None


@with_model_options
def metrics(
    runs: RunsArgument,
    *,
    options: MetricsOptions,
    ci_options: CiOptions,
    json: JsonOption = False,
) -> None:
    """Report rewards with intervals, pass@k, tokens and failures; several runs in one table.

    Also reports coverage and latency. Errors and intervals are computed over tasks, never over
    attempts, which are not independent; --json has the estimator, size, error, interval and method
    of every number. The numbers of a run directory are also written to its metrics.json.
    """
    from gymcli.library.run_list import list_run
    from gymcli.store.manifest import read_manifest

    if options.margin is not None and not options.power:
        raise UsageError("--margin needs --power")
    ci = CiRequest(ci_options, inputs=runs, is_json=json)
    if options.model is not None and options.benchmark is None:
        raise UsageError("--model needs --benchmark")
    benchmark = None if options.benchmark is None else _benchmark(options.benchmark, runs)
    labels = None if options.labels is None else _labels(options.labels)
    fields = ci.fields(options.by)
    reports: list[dict[str, object]] = []
    listed: list[ListedRun] = []
    benchmark_names = set[str]()
    pilots, judged = [], []
    for run in runs:
        numbers = _measured(run, options, ci, fields, labels, benchmark)
        if options.power:
            pilots.append(numbers.aggregator)
        if ci.gates is not None:
            judged.append(
                ci.gates.report(
                    run,
                    numbers.aggregator,
                    numbers.metrics,
                    env=options.env,
                    by=fields,
                    score=numbers.score,
                    has_tasks=ci.has_tasks,
                )
            )
        if json:
            reports.append({**_as_json(numbers), **ci.as_json(judged)})
        elif not options.power and not ci.prints_file:
            _print_run(numbers, options, ks=ci.requested_ks, num_runs=len(runs))
            manifest = read_manifest(run) if run.is_dir() else None
            record = None if manifest is None else manifest.benchmark
            benchmark_names.add("" if record is None else record.name)
            listed.append(list_run(run, manifest, numbers.metrics))
    if len(listed) > 1:
        print_runs(listed, with_differences=len(benchmark_names) == 1)
    report: dict[str, object] = reports[0] if len(reports) == 1 else {"runs": reports}
    if options.power:
        from gymcli.comparison.planning import plans

        report["power"] = power_plans = plans(pilots, margin=options.margin)
        if not json:
            print_plans(power_plans)
    if json:
        print_json(report)
    ci.show(judged, is_json=json)
    ci.write(judged, env=options.env, by_task=options.by_task)
    ci.end(judged)


class _RunNumbers(NamedTuple):
    """The numbers of a run, with those that only an option asks for."""

    run: Path
    aggregator: Aggregator
    metrics: RunMetrics
    tasks: list[TaskMetrics] | None
    agreement: Mapping[str, Agreement] | None
    score: BenchmarkScore | None


def _measured(
    run: Path,
    options: MetricsOptions,
    ci: CiRequest,
    fields: Sequence[str],
    labels: Labels | str | None,
    benchmark: Benchmark | None,
) -> _RunNumbers:
    """Measure a run, and print what is wrong with it; `labels` may be a field of its task rows."""
    from gymcli.metrics.agreement import agreement

    field = labels if isinstance(labels, str) else None
    aggregator, metrics = _count(run, options.env, fields, ci, field, options.tokenizer)
    label_agreement = None
    if labels is not None:
        label_agreement = agreement(aggregator, labels, source=str(options.labels), warn=warn)
    score = _score(run, aggregator, metrics, benchmark, options.model, options.env)
    tasks = aggregator.task_rows() if options.by_task else None
    return _RunNumbers(run, aggregator, metrics, tasks, label_agreement, score)


def _as_json(numbers: _RunNumbers) -> dict[str, object]:
    import msgspec

    extras = {
        "tasks": numbers.tasks,
        "agreement": numbers.agreement,
        "references": None if numbers.score is None else numbers.score.references,
    }
    return {
        "run": harmless(str(numbers.run)),
        **msgspec.structs.asdict(numbers.metrics),
        **{name: value for name, value in extras.items() if value is not None},
    }


def _print_run(
    numbers: _RunNumbers, options: MetricsOptions, *, ks: Sequence[int], num_runs: int
) -> None:
    """Print the numbers of a run; of one of several, only those that an option asks for."""
    run, metrics, score = numbers.run, numbers.metrics, numbers.score
    show_all = options.show_all
    is_whole = show_all or num_runs == 1
    is_sliced = any(environment.slices for environment in metrics.environments.values())
    has_benchmark = score is not None and (score.references or score.other_settings)
    if not (is_whole or is_sliced or numbers.tasks or numbers.agreement or ks or has_benchmark):
        return
    result(f"{run}")
    if is_whole:
        print_summary(metrics, run, with_doubts=False)
    if show_all:
        print_all_numbers(metrics)
    elif num_runs == 1:
        result(f"{'more':14}--all prints every number with its interval")
    if not show_all:
        print_at_k(metrics, ks)
    if score is not None:
        print_references(score)
    print_slices(metrics)
    if numbers.tasks is not None:
        result()
        print_tasks(numbers.tasks)
    if numbers.agreement is not None:
        print_agreement(numbers.agreement, source=str(options.labels))
    if is_whole:
        print_advice(metrics, run)
    if num_runs > 1:
        result()


def _score(
    run: Path,
    aggregator: Aggregator,
    numbers: RunMetrics,
    benchmark: Benchmark | None,
    model: str | None,
    env: str | None,
) -> BenchmarkScore | None:
    """Return the score of a run of a benchmark, or of one that `--benchmark` names."""
    from gymcli.store.manifest import read_manifest

    manifest = read_manifest(run) if run.is_dir() else None
    if benchmark is None:
        return recorded_score(manifest, aggregator, numbers)
    manifest = read_manifest(run if run.is_dir() else run.parent)
    if manifest is not None and manifest.benchmark is not None:
        if model not in (None, manifest.model):
            raise UsageError(f"{run}: is a run of {manifest.model}; leave out --model")
        return recorded_score(manifest, aggregator, numbers, found=benchmark)
    from gymcli.benchmarks.benchmark_files import pulled_tasks
    from gymcli.benchmarks.benchmark_runs import model_of_file, score_as

    model = model or (manifest and manifest.model) or model_of_file(run, env)
    tasks = pulled_tasks(benchmark, notify=message)
    return score_as(benchmark, aggregator, numbers, model=model, tasks=tasks)


def _benchmark(name: str, runs: Sequence[Path]) -> Benchmark:
    """Return the benchmark that `--benchmark` names, for runs of none or of the same name."""
    from gymcli.benchmarks.benchmark import find_benchmark
    from gymcli.store.manifest import read_manifest

    found = find_benchmark(name)
    for run in runs:
        manifest = read_manifest(run if run.is_dir() else run.parent)
        recorded = None if manifest is None else manifest.benchmark
        if recorded is not None and recorded.name != found.name:
            raise UsageError(f"{run}: is a run of benchmark {recorded.name}, not of {found.name}")
    return found


def _labels(given: str) -> Labels | str:
    """Return the labels of a file, or the field of the task rows that has them."""
    from gymcli.metrics.agreement import labels_of_rows
    from gymcli.tasks.table_files import local_rows, table_notes

    path = Path(given)
    field = given.removeprefix("task.")
    if not path.exists():
        if field and field != given:
            return field
        raise UsageError(
            f"--labels {given}: no such file; name a table such as labels.csv, or a field of the "
            "task rows such as task.human"
        )
    for note in table_notes(path):
        message(note)
    rows = local_rows(path)
    return labels_of_rows((f"{harmless(given)}:{number}", row) for number, row in rows)


def _count(
    run: Path,
    env: str | None,
    by: Sequence[str],
    ci: CiRequest,
    field: str | None,
    tokenizer: str | None,
) -> tuple[Aggregator, RunMetrics]:
    import msgspec

    from gymcli.metrics.measure import measure
    from gymcli.store.rollout_files import torn_line_warning
    from gymcli.store.run_directory import RunDirectory

    aggregator = measure(run, env=env, by=by, fields=[field] if field else [])
    if tokenizer is not None:
        drifts = run_async(_drift(run, env, tokenizer))
        for name, tokens in aggregator.tokens.items():
            tokens.drift = drifts.get(name)
    numbers = aggregator.metrics(ks=ci.ks)
    attempts = [int(k) for own in numbers.environments.values() for k in own.num_tasks_at_k or ()]
    if attempts and ci.gates is not None:
        ci.gates.check_ks(max(attempts))
    if run.is_dir():
        directory = RunDirectory(run, scrubber_of((), os.environ))
        try:
            directory.write_metrics(msgspec.json.encode(numbers))
        except RunDirectoryError as error:  # a run that is read-only can still be measured
            warn(str(error))
    for text in filter(None, [torn_line_warning(run), *aggregator.warnings]):
        warn(text)
    if not numbers.num_scored:
        warn(f"{run}: nothing is scored")
    return aggregator, numbers


async def _drift(run: Path, env: str | None, tokenizer: str) -> dict[str, TokenDrift]:
    from gymcli.training.drift import measure_drift, open_renderer

    async with open_renderer(tokenizer) as renderer:
        return await measure_drift(run, renderer, env=env)
