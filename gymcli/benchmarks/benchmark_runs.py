"""Runs of benchmarks: their options, how these deviate from the benchmark's, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.benchmarks.benchmark import Benchmark, find_benchmark, siblings
from gymcli.benchmarks.benchmark_files import map_file, pulled_from, pulled_tasks, unpinned_hub
from gymcli.comparison.reproduction import (
    BenchmarkScore,
    mean_of_metrics,
    same_model,
    score_of_run,
    weights_of_metrics,
)
from gymcli.environment.contract import Environment
from gymcli.environment.registry import (
    EnvironmentClass,
    Registration,
    Registry,
    environment_options,
    has_option,
    own_options,
)
from gymcli.errors import TasksError, UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.measure import index_run
from gymcli.metrics.results import RunMetrics
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import TOKEN_LIMITS, Endpoint, merged_params
from gymcli.models.roles import declared_roles, role_name, role_sources
from gymcli.models.settings import Settings
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.identity import command_params, emulates_tools
from gymcli.store.lines import file_sha256
from gymcli.store.manifest import BenchmarkRecord, Manifest
from gymcli.store.tokens import neutral_params
from gymcli.suggestions import did_you_mean, options_from
from gymcli.tasks.task_files import RowProblem, read_tasks
from gymcli.tasks.task_row import PromptTemplate, TaskReading
from gymcli.tasks.task_source import TaskFile, TaskInput
from gymcli.types import JSONObject, TaskRow, digest

_UNSET = (
    *("max_turns", "max_episode_tokens", "max_episode_cost", "max_episode_time"),
    *("map_file", "id_field", "id_by_file"),
)
"""Options that a benchmark leaves at their defaults, and that may move scores."""


def benchmark(
    name: str | Path, *, cache: Path | None = None, **options: object
) -> dict[str, object]:
    """Return the arguments of `gymcli.collect` that run a benchmark; fetch its tasks if needed.

    `async for rollout in gymcli.collect(**gymcli.benchmark("gsm8k", endpoint=endpoint)): ...`

    Args:
        name: Its name, or the path of a benchmark.toml or of its folder, with @VARIANT for one of
            its variants.
        cache: The folder of fetched tasks, if not the usual one.
        options: More options of `gymcli.collect`. They win over those of the benchmark, and a run
            records what differs.

    Raises:
        GymError: There is no such benchmark, its tasks cannot be fetched, or a role has no model.
    """
    collect_options = options_from(CollectOptions, "benchmark", options)
    # In a thread, since the caller may run an event loop.
    with ThreadPoolExecutor(1) as pool:
        planning = pool.submit(
            plan_benchmarks, [find_benchmark(str(name))], [collect_options], cache=cache
        )
        [run] = planning.result()
    [tasks] = run.inputs
    return {**dict(run.options), "tasks": tasks.path}


class BenchmarkRun(NamedTuple):
    """One run of a benchmark."""

    inputs: list[TaskInput]
    options: CollectOptions


def plan_benchmarks(
    benchmarks: Sequence[Benchmark],
    options: Sequence[CollectOptions],
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
    cache: Path | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> list[BenchmarkRun]:
    """Return the runs of benchmarks, whose tasks are fetched if needed.

    Args:
        benchmarks: The benchmarks.
        options: The options of each run, one benchmark after the other; equally many for each.
            What they set wins.
        settings: The content of gym.toml, which may have the models of roles.
        environ: The environment variables with the keys of these models.
        cache: The folder of fetched tasks, if not the usual one.
        notify: Called with messages for the user.

    Raises:
        UsageError: An option is for none of several benchmarks, a role has no model, or the tasks
            cannot be fetched.
        RunError: A server cannot be reached.
    """
    num_models = len(options) // len(benchmarks)
    benchmark_by_run = [benchmark for benchmark in benchmarks for _ in range(num_models)]
    if len(benchmarks) > 1:
        all_options = options[0]
        options = list(map(without_foreign_options, options, benchmark_by_run))
        _check_used(all_options, options)
    settings = settings or Settings()
    merged_options = []
    for benchmark, run_options in zip(benchmark_by_run, options, strict=True):
        names = missing_roles(benchmark, settings, run_options.roles)
        roles = {**role_sources(names, settings, environ or {}), **run_options.roles}
        run_options = run_options.model_copy(update={"roles": roles})
        merged_options.append(with_benchmark(run_options, benchmark))
    # All are pulled before anything is sent.
    path_by_name = {
        benchmark.name: pulled_tasks(benchmark, cache=cache, notify=notify)
        for benchmark in benchmarks
    }
    return [
        BenchmarkRun([TaskFile(path)], with_pulled_tasks(run_options, benchmark, path))
        for benchmark, run_options in zip(benchmark_by_run, merged_options, strict=True)
        for path in [path_by_name[benchmark.name]]
    ]


def _check_used(all_options: CollectOptions, options: Sequence[CollectOptions]) -> None:
    """Refuse what is set for a role or an environment that none of the benchmarks has."""
    for option, field in (
        ("--role", "roles"),
        ("--role-param", "role_params"),
        ("--env-arg", "env_args"),
    ):
        for name in getattr(all_options, field):
            if not any(name in getattr(run_options, field) for run_options in options):
                raise UsageError(
                    f"{option} {name}: none of these benchmarks has it; collect a benchmark "
                    "in a separate command to change its setting"
                )


def missing_roles(
    benchmark: Benchmark, settings: Settings, roles: Container[str]
) -> dict[str, str]:
    """Return the name in gym.toml of the model of each role of a benchmark.

    Roles in `roles`, which have a model, are left out, and those whose model gym.toml lacks.
    """
    name_by_role = {}
    for role, setting in benchmark.roles.items():
        names = (
            name
            for name, model in settings.models.items()
            if same_model(setting.model, name) or same_model(setting.model, model.model or name)
        )
        if role not in roles and (name := next(names, None)):
            name_by_role[role] = name
    return name_by_role


def without_foreign_options(options: CollectOptions, benchmark: Benchmark) -> CollectOptions:
    """Return the options without those of roles and environments that the benchmark lacks.

    Other benchmarks of the same command may have them. A judge that is optional in the environment
    is not meant for a benchmark without one.
    """
    registration = _environment(options, benchmark)
    benchmark_roles = {*benchmark.roles, *registration.environment.required_roles}
    update = {
        "roles": {
            role: source for role, source in options.roles.items() if role in benchmark_roles
        },
        "role_params": {
            role: params for role, params in options.role_params.items() if role in benchmark_roles
        },
        "env_args": {
            k: text for k, text in options.env_args.items() if has_option(registration, k)
        },
    }
    return options.model_copy(update=update)


def with_benchmark(options: CollectOptions, benchmark: Benchmark) -> CollectOptions:
    """Return the options of a run of a benchmark; what is set in `options` wins.

    Raises:
        UsageError: A role of the benchmark has no model.
        UnknownNameError: Its environment is unknown.
    """
    for role, setting in benchmark.roles.items():
        if role not in options.roles:
            raise UsageError(
                f"{benchmark.name}: the role {role} needs {setting.model}, the model behind its "
                "published scores: add it to gym.toml as [models.NAME], or name another one, which "
                f"is another setting, with --role {role}=NAME_OR_URL (roles= from Python)"
            )
    registration = _environment(options, benchmark)
    if _uses_benchmark_env(options, benchmark):
        check_with_environment(benchmark, registration)
    given_args = {
        name.removeprefix(f"{registration.name}."): text for name, text in options.env_args.items()
    }
    role_params = {role: setting.params for role, setting in benchmark.roles.items()}
    for role, params in options.role_params.items():
        role_params[role] = merged_params(role_params.get(role, {}), params)
    update: dict[str, object] = {
        "env": options.env or benchmark.env,
        "env_args": {**benchmark.env_arg_texts, **given_args}
        if _uses_benchmark_env(options, benchmark)
        else given_args,
        "prompt": options.prompt or benchmark.prompt_path,
        "params": merged_params(_as_spelt(benchmark.params, options), options.params),
        # A judge that the benchmark lacks would move its scores.
        "default_roles": {
            role: source
            for role, source in options.default_roles.items()
            if role in registration.environment.required_roles
        },
        "role_params": role_params,
    }
    if "repeats" not in options.model_fields_set:
        update["repeats"] = benchmark.repeats
    merged = options.model_copy(update=update)
    record = BenchmarkRecord(
        name=benchmark.name,
        version=benchmark.version,
        spec=benchmark.lasting_spec,
        settings_hash=_settings_hash(benchmark),
        deviations=tuple(_deviations(merged, benchmark, registration)),
        remarks=tuple(_remarks(merged, benchmark)),
    )
    return merged.model_copy(update={"benchmark": record})


def with_pulled_tasks(options: CollectOptions, benchmark: Benchmark, tasks: Path) -> CollectOptions:
    """Return the options of a run whose record says which Hub served the benchmark's tasks."""
    record = options.benchmark
    assert record is not None, "the options are those of `with_benchmark`"
    record = msgspec.structs.replace(
        record,
        hub=pulled_from(tasks) or "",
        deviations=(*record.deviations, *_hub_deviations(benchmark, tasks)),
    )
    return options.model_copy(update={"benchmark": record})


def _hub_deviations(benchmark: Benchmark, tasks: Path) -> list[str]:
    hub = unpinned_hub(benchmark, tasks)
    return [f"rows of {hub}, which no hash pins"] if hub else []


def check_with_environment(benchmark: Benchmark, registration: Registration) -> None:
    """Refuse options, roles and references of a benchmark that its environment cannot have."""
    try:
        environment_options(
            registration.environment, registration.name, benchmark.env_arg_texts, {}
        )
    except UsageError as error:
        reason = str(error).replace("--env-arg ", "env_args.", 1)
        raise UsageError(f"{benchmark.path}: {reason}") from error
    roles = declared_roles(registration.environment)
    if role := next((role for role in benchmark.roles if role not in roles), None):
        hint = did_you_mean(role, roles) or f"it has {', '.join(roles) or 'none'}"
        raise UsageError(
            f"{benchmark.path}: roles.{role}: is no role of {registration.name}; {hint}"
        )
    best = registration.environment.max_reward
    if benchmark.metrics == ("mean_reward",) and best is not None:
        for reference in benchmark.reference:
            if reference.score > best:
                raise UsageError(
                    f"{benchmark.path}: reference: {reference.model} has {reference.score:g}, but "
                    f"the best reward is {best:g}; write 0.95, not 95"
                )


def _settings_hash(benchmark: Benchmark) -> str:
    fields = {"env", "env_args", "examples", "params", "roles", "source"}
    settings = benchmark.model_dump(mode="json", include=fields, exclude_defaults=True)
    # Hashes of the Hub's rows are compared when they are pulled; the commit names them.
    for name in ("gated", "licence", *(["sha256"] if benchmark.source.hf else [])):
        settings["source"].pop(name, None)
    settings.get("examples", {}).pop("sha256", None)
    files = [benchmark.template_path, map_file(benchmark), benchmark.examples_path]
    return digest([settings, *(file_sha256(file) for file in files if file is not None)])


def _as_spelt(params: JSONObject, options: CollectOptions) -> JSONObject:
    """Return parameters with the name of the token limit that the endpoint's settings have.

    Some models refuse `max_tokens`.
    """
    defaults = options.endpoint.params if options.endpoint is not None else {}
    spelt = next((name for name in defaults if name in TOKEN_LIMITS), "max_tokens")
    return {spelt if name in TOKEN_LIMITS else name: value for name, value in params.items()}


def _environment(options: CollectOptions, benchmark: Benchmark) -> Registration:
    # Code is named on the command line only: never by a benchmark.toml.
    env = options.env
    return Registry().find(benchmark.env) if env is None else Registry((env,)).find(env)


def _uses_benchmark_env(options: CollectOptions, benchmark: Benchmark) -> bool:
    return options.env in (None, benchmark.env)


def _deviations(
    options: CollectOptions, benchmark: Benchmark, registration: Registration
) -> Iterator[str]:
    """Yield in words each setting of a run that is not the benchmark's and may move its score."""
    if not _uses_benchmark_env(options, benchmark):
        yield f"environment {options.env}, not {benchmark.env}"
    else:
        run_options, benchmark_options = (
            own_options(args, registration) for args in (options.env_args, benchmark.env_arg_texts)
        )
        benchmark_settings = benchmark_options.model_dump(mode="json", exclude_defaults=True)
        names = run_options.model_dump(exclude_defaults=True).keys() | benchmark_settings.keys()
        yield from _differing(
            run_options.model_dump(mode="json", include={*names}), benchmark_settings
        )
        unknown_args = {
            k: v for k, v in options.env_args.items() if not has_option(registration, k)
        }
        yield from _differing(unknown_args, {})
    if not _are_equal(options.prompt, benchmark.prompt_path):
        prompts = "its own" if benchmark.prompt else "those of its rows"
        yield f"prompt {options.prompt}, not {prompts}"
    yield from _differing(_policy_params(options), _named_once(benchmark.params))
    dialect = DIALECTS[options.endpoint.dialect if options.endpoint else "chat"]
    for name in dialect.unsent(benchmark.params):
        yield f"{name} is not sent"
    yield from _differing(_prompting(options, registration.environment), {})
    yield from _role_deviations(options, benchmark)
    defaults = {name: CollectOptions.model_fields[name].default for name in _UNSET}
    run_settings = {name: getattr(options, name) for name in _UNSET}
    yield from _differing({k: v for k, v in run_settings.items() if v != defaults[k]}, {})


def _are_equal(prompt: Path | None, benchmark_prompt: Path | None) -> bool:
    """Return whether two prompt files are the same, or say the same."""
    if prompt is None or benchmark_prompt is None or prompt == benchmark_prompt:
        return prompt == benchmark_prompt
    return file_sha256(prompt) == file_sha256(benchmark_prompt)


def _remarks(options: CollectOptions, benchmark: Benchmark) -> Iterator[str]:
    """Yield in words how many tasks and attempts are not the benchmark's.

    The verdicts count the attempts, and the tasks that have a score.
    """
    if options.repeats != benchmark.repeats:
        yield f"repeats {options.repeats}, not {benchmark.repeats}"
    if options.task_ids:
        yield f"{len(options.task_ids)} selected of {benchmark.source.rows:,} tasks"
    elif options.limit is not None and options.limit < benchmark.source.rows:
        selection = f"{options.limit} random" if options.shuffle else f"the first {options.limit}"
        yield f"{selection} of {benchmark.source.rows:,} tasks"


def _prompting(options: CollectOptions, environment: EnvironmentClass) -> JSONObject:
    """Return what gym.toml says about the messages of the policy, where it makes a difference."""
    prompting: JSONObject = {}
    endpoint = options.endpoint
    has_tools = not environment.executes_tools or environment.tools is not Environment.tools
    if (has_tools or environment.method_tools()) and emulates_tools(options):
        prompting["emulate_tools"] = True
    if endpoint is not None and environment.properties.structure != "single-step":
        settings = {"send_reasoning": endpoint.send_reasoning, "send_fields": endpoint.send_fields}
        prompting |= {name: value for name, value in settings.items() if value}
    return prompting


def _policy_params(options: CollectOptions) -> JSONObject:
    """Return the parameters of the policy's requests by one name for each."""
    neutral = neutral_params("model") if options.records_tokens else {}
    return _named_once(merged_params(neutral, command_params(options)))


def _named_once(params: JSONObject) -> JSONObject:
    return {"max_tokens" if name in TOKEN_LIMITS else name: v for name, v in params.items()}


def _role_deviations(options: CollectOptions, benchmark: Benchmark) -> Iterator[str]:
    for role, source in {**options.default_roles, **options.roles}.items():
        setting = benchmark.roles.get(role)
        model = "none" if setting is None else setting.model
        names = [role_name(source)]
        if isinstance(source, Endpoint) and source.name is not None:
            names.append(source.name)
        if setting is None or not any(same_model(model, name) for name in names):
            yield f"{role} {names[0]}, not {model}"
        if setting is not None:
            defaults = source.params if isinstance(source, Endpoint) else {}
            params = merged_params(defaults, options.role_params.get(role, {}))
            differences = _differing(_named_once(params), _named_once(setting.params))
            yield from (f"{role}.{text}" for text in differences)


def _differing(
    values: Mapping[str, object], benchmark_values: Mapping[str, object]
) -> Iterator[str]:
    """Yield how values differ from the benchmark's."""
    for name in sorted({*values, *benchmark_values}):
        if name not in benchmark_values:
            yield f"{name} {_value_text(values[name])}, not the default"
        elif name not in values:
            yield f"{name} unset, not {_value_text(benchmark_values[name])}"
        elif values[name] != benchmark_values[name]:
            yield f"{name} {_value_text(values[name])}, not {_value_text(benchmark_values[name])}"


def _value_text(value: object) -> str:
    return str(value) if isinstance(value, str | Path) else msgspec.json.encode(value).decode()


def check_references(manifest: Manifest) -> None:
    """Refuse `--gate reference` for a run that no published score can be compared with."""
    if manifest.benchmark is None:
        raise UsageError(
            "--gate reference: this is not a run of a benchmark; name one instead of the tasks, "
            "as in gym collect gsm8k"
        )
    benchmark = find_benchmark(manifest.benchmark.spec)
    other_benchmarks = _testable_elsewhere(benchmark, manifest.model)
    advice = (
        f"; {', '.join(other_benchmarks)} has one that can be tested" if other_benchmarks else ""
    )
    if not any(same_model(reference.model, manifest.model) for reference in benchmark.reference):
        models = ", ".join(dict.fromkeys(reference.model for reference in benchmark.reference))
        raise UsageError(
            f"--gate reference: {benchmark.name} has no published score of {manifest.model}"
            + (advice or (f", but of {models}" if models else ", nor of any other model"))
        )
    settings = [*manifest.benchmark.deviations]
    references = [
        reference
        for reference in benchmark.reference
        if same_model(reference.model, manifest.model)
    ]
    if settings or not {*references} & {*benchmark.testable}:
        settings_texts = (
            reference.settings or f"it is a score of {reference.tasks:,} tasks"
            for reference in references
        )
        texts = "; ".join(settings or dict.fromkeys(settings_texts))
        raise UsageError(
            f"--gate reference: no published score of {manifest.model} can be tested: {texts}"
            + advice
        )


def _testable_elsewhere(benchmark: Benchmark, model: str) -> list[str]:
    """Return the other variants of a benchmark with a score of the model that can be tested."""
    return [
        sibling.spec
        for sibling in siblings(benchmark)
        if any(same_model(reference.model, model) for reference in sibling.testable)
    ]


def benchmark_score(
    manifest: Manifest,
    aggregator: Aggregator,
    metrics: RunMetrics,
    *,
    benchmark: Benchmark | None = None,
) -> BenchmarkScore:
    """Return the score of a run of a benchmark, compared with those that were published.

    `benchmark` replaces the recorded one, which may be elsewhere now.
    """
    record = manifest.benchmark
    assert record is not None, "the run is one of a benchmark"
    settings = [*record.deviations]
    try:
        benchmark = benchmark or find_benchmark(record.spec)
        if record.version != benchmark.version:
            settings.append(f"version {record.version} of the benchmark, not {benchmark.version}")
        elif record.settings_hash != _settings_hash(benchmark):
            settings.append(f"the benchmark changed, but is still version {benchmark.version}")
    except UsageError as error:
        return BenchmarkScore(
            benchmark=record.name,
            model=manifest.model,
            metric="",
            value=None,
            other_settings=settings,
            problem=f"the published scores of benchmark {record.name} cannot be read: {error}",
        )
    return _score(benchmark, aggregator, metrics, model=manifest.model, other_settings=settings)


def score_as(
    benchmark: Benchmark, aggregator: Aggregator, metrics: RunMetrics, *, model: str, tasks: Path
) -> BenchmarkScore:
    """Return the score of attempts of `model` with unknown settings, taken as a benchmark's.

    `tasks` are those of the benchmark; attempts of others are not compared.
    """
    benchmark_tasks = {(task.env, task.id) for task in read_benchmark_tasks(benchmark, tasks)}
    run_tasks = {(row.env, row.task_id) for row in aggregator.task_rows()}
    settings = _hub_deviations(benchmark, tasks)
    if foreign_tasks := run_tasks - benchmark_tasks:
        settings.append(
            f"{len(foreign_tasks):,} of {len(run_tasks):,} tasks are not those of {benchmark.name}"
        )
    return _score(benchmark, aggregator, metrics, model=model, other_settings=settings)


def read_benchmark_tasks(benchmark: Benchmark, path: Path) -> list[TaskRow]:
    """Return the tasks of a benchmark from the file that `pulled_tasks` returns."""
    template = PromptTemplate.read(benchmark.prompt_path) if benchmark.prompt_path else None
    env = Registry().find(benchmark.env).name
    tasks = []
    for row in read_tasks([path], TaskReading(default_env=env, template=template)):
        if isinstance(row, TaskRow):
            tasks.append(row)
        elif isinstance(row, RowProblem):
            raise TasksError(str(row))
    return tasks


def _score(
    benchmark: Benchmark,
    aggregator: Aggregator,
    metrics: RunMetrics,
    *,
    model: str,
    other_settings: Sequence[str],
) -> BenchmarkScore:
    terms = {
        name: aggregator.scores(name) for text in benchmark.metrics for name in text.split(" / ")
    }
    groups = mean_of_metrics(benchmark.metrics, terms)
    if not groups:
        problem = "no attempt has a score"
        if metrics.num_scored:
            missing_metric = next((name for name, scores in terms.items() if not scores), None)
            missing_scores = missing_metric or f"attempt with all of {', '.join(terms)}"
            problem = f"the run has no {missing_scores}, the metric of benchmark {benchmark.name}"
            for divisor in filter(None, (text.partition(" / ")[2] for text in benchmark.metrics)):
                if terms[divisor] and not any(group.any() for group in terms[divisor]):
                    problem = (
                        f"the metric of benchmark {benchmark.name} divides by {divisor}, which is 0"
                    )
        return BenchmarkScore(
            benchmark=benchmark.name,
            model=model,
            metric=benchmark.metric_text,
            value=None,
            other_settings=[*other_settings],
            problem=problem,
        )
    num_tasks, num_all = sum(map(len, groups)), benchmark.source.rows
    if num_tasks != num_all:
        other_settings = [*other_settings, f"{num_tasks:,} of {num_all:,} tasks have a score"]
    score = score_of_run(
        groups,
        benchmark=benchmark.name,
        model=model,
        metric=benchmark.metric_text,
        margin=benchmark.margin or 0.0,  # it may lack one if it has no references
        best=metrics.max_reward if benchmark.metrics == ("mean_reward",) else 1.0,
        weights=weights_of_metrics(benchmark.metrics, terms),
        references=benchmark.reference,
        other_settings=other_settings,
        no_answers=metrics.no_answers,
    )
    if not any(reference.verdict != "other_settings" for reference in score.references):
        score.elsewhere = _testable_elsewhere(benchmark, model)
    return score


def model_of_file(path: Path, env: str | None) -> str:
    """Return the one model that the rollouts of a file name."""
    with index_run(path, env=env) as index:
        models = sorted({row.model for row in index.rows if row.model})
    if len(models) != 1:
        statement = f"name {len(models)} models: {', '.join(models)}" if models else "name no model"
        raise UsageError(f"{path}: its rollouts {statement}; say which with --model")
    return models[0]
