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
from gymcli.suggestions import did_you_mean
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
    checked = CollectOptions.from_arguments("benchmark", options)
    # In a thread, since the caller may run an event loop.
    with ThreadPoolExecutor(1) as pool:
        planning = pool.submit(plan_benchmarks, [find_benchmark(str(name))], [checked], cache=cache)
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
    merged = []
    for benchmark, run_options in zip(benchmark_by_run, options, strict=True):
        names = missing_roles(benchmark, settings, run_options.roles)
        roles = {**role_sources(names, settings, environ or {}), **run_options.roles}
        run_options = run_options.model_copy(update={"roles": roles})
        merged.append(with_benchmark(run_options, benchmark))
    # All are pulled before anything is sent.
    path_by_name = {
        benchmark.name: pulled_tasks(benchmark, cache=cache, notify=notify)
        for benchmark in benchmarks
    }
    return [
        BenchmarkRun([TaskFile(path)], with_pulled_tasks(run_options, benchmark, path))
        for benchmark, run_options in zip(benchmark_by_run, merged, strict=True)
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


def without_foreign_options(options: CollectOptions, found: Benchmark) -> CollectOptions:
    """Return the options without those of roles and environments that the benchmark lacks.

    Other benchmarks of the same command may have them. A judge that is optional in the environment
    is not meant for a benchmark without one.
    """
    item = _environment(options, found)
    own_roles = {*found.roles, *item.environment.required_roles}
    update = {
        "roles": {role: source for role, source in options.roles.items() if role in own_roles},
        "role_params": {
            role: params for role, params in options.role_params.items() if role in own_roles
        },
        "env_args": {k: text for k, text in options.env_args.items() if has_option(item, k)},
    }
    return options.model_copy(update=update)


def with_benchmark(options: CollectOptions, found: Benchmark) -> CollectOptions:
    """Return the options of a run of a benchmark; what is set in `options` wins.

    Raises:
        UsageError: A role of the benchmark has no model.
        UnknownNameError: Its environment is unknown.
    """
    for role, setting in found.roles.items():
        if role not in options.roles:
            raise UsageError(
                f"{found.name}: the role {role} needs {setting.model}, the model behind its "
                "published scores: add it to gym.toml as [models.NAME], or name another one, which "
                f"is another setting, with --role {role}=NAME_OR_URL (roles= from Python)"
            )
    item = _environment(options, found)
    if _has_own_env(options, found):
        check_with_environment(found, item)
    given_args = {
        name.removeprefix(f"{item.name}."): text for name, text in options.env_args.items()
    }
    role_params = {role: setting.params for role, setting in found.roles.items()}
    for role, params in options.role_params.items():
        role_params[role] = merged_params(role_params.get(role, {}), params)
    update: dict[str, object] = {
        "env": options.env or found.env,
        "env_args": {**found.env_arg_texts, **given_args}
        if _has_own_env(options, found)
        else given_args,
        "prompt": options.prompt or found.prompt_path,
        "params": merged_params(_as_spelt(found.params, options), options.params),
        # A judge that the benchmark lacks would move its scores.
        "default_roles": {
            role: source
            for role, source in options.default_roles.items()
            if role in item.environment.required_roles
        },
        "role_params": role_params,
    }
    if "repeats" not in options.model_fields_set:
        update["repeats"] = found.repeats
    merged = options.model_copy(update=update)
    record = BenchmarkRecord(
        name=found.name,
        version=found.version,
        spec=found.lasting_spec,
        settings_hash=_settings_hash(found),
        deviations=tuple(_deviations(merged, found, item)),
        remarks=tuple(_remarks(merged, found)),
    )
    return merged.model_copy(update={"benchmark": record})


def with_pulled_tasks(options: CollectOptions, found: Benchmark, tasks: Path) -> CollectOptions:
    """Return the options of a run whose record says which Hub served the benchmark's tasks."""
    record = options.benchmark
    assert record is not None, "the options are those of `with_benchmark`"
    record = msgspec.structs.replace(
        record,
        hub=pulled_from(tasks) or "",
        deviations=(*record.deviations, *_hub_deviations(found, tasks)),
    )
    return options.model_copy(update={"benchmark": record})


def _hub_deviations(found: Benchmark, tasks: Path) -> list[str]:
    hub = unpinned_hub(found, tasks)
    return [f"rows of {hub}, which no hash pins"] if hub else []


def check_with_environment(found: Benchmark, item: Registration) -> None:
    """Refuse options, roles and references of a benchmark that its environment cannot have."""
    try:
        environment_options(item.environment, item.name, found.env_arg_texts, {})
    except UsageError as error:
        reason = str(error).replace("--env-arg ", "env_args.", 1)
        raise UsageError(f"{found.path}: {reason}") from error
    known = declared_roles(item.environment)
    if role := next((role for role in found.roles if role not in known), None):
        hint = did_you_mean(role, known) or f"it has {', '.join(known) or 'none'}"
        raise UsageError(f"{found.path}: roles.{role}: is no role of {item.name}; {hint}")
    best = item.environment.max_reward
    if found.metrics == ("mean_reward",) and best is not None:
        for one in found.reference:
            if one.score > best:
                raise UsageError(
                    f"{found.path}: reference: {one.model} has {one.score:g}, but the best reward "
                    f"is {best:g}; write 0.95, not 95"
                )


def _settings_hash(found: Benchmark) -> str:
    own = {"env", "env_args", "examples", "params", "roles", "source"}
    settings = found.model_dump(mode="json", include=own, exclude_defaults=True)
    # Hashes of the Hub's rows are compared when they are pulled; the commit names them.
    for name in ("gated", "licence", *(["sha256"] if found.source.hf else [])):
        settings["source"].pop(name, None)
    settings.get("examples", {}).pop("sha256", None)
    map_path = None if found.source.map is None else map_file(found)[0]
    files = [found.template_path, map_path, found.examples_path]
    return digest([settings, *(file_sha256(file) for file in files if file is not None)])


def _as_spelt(params: JSONObject, options: CollectOptions) -> JSONObject:
    """Return parameters with the name of the token limit that the endpoint's settings have.

    Some models refuse `max_tokens`.
    """
    defaults = options.endpoint.params if options.endpoint is not None else {}
    spelt = next((name for name in defaults if name in TOKEN_LIMITS), "max_tokens")
    return {spelt if name in TOKEN_LIMITS else name: value for name, value in params.items()}


def _environment(options: CollectOptions, found: Benchmark) -> Registration:
    # Code is named on the command line only: never by a benchmark.toml.
    env = options.env
    return Registry().find(found.env) if env is None else Registry((env,)).find(env)


def _has_own_env(options: CollectOptions, found: Benchmark) -> bool:
    return options.env in (None, found.env)


def _deviations(options: CollectOptions, found: Benchmark, item: Registration) -> Iterator[str]:
    """Yield in words each setting of a run that is not the benchmark's and may move its score."""
    if not _has_own_env(options, found):
        yield f"environment {options.env}, not {found.env}"
    else:
        ours, theirs = (own_options(own, item) for own in (options.env_args, found.env_arg_texts))
        set_by_it = theirs.model_dump(mode="json", exclude_defaults=True)
        names = ours.model_dump(exclude_defaults=True).keys() | set_by_it.keys()
        yield from _differing(ours.model_dump(mode="json", include={*names}), set_by_it)
        others = {k: v for k, v in options.env_args.items() if not has_option(item, k)}
        yield from _differing(others, {})
    if not _are_equal(options.prompt, found.prompt_path):
        own = "its own" if found.prompt else "those of its rows"
        yield f"prompt {options.prompt}, not {own}"
    yield from _differing(_policy_params(options), _named_once(found.params))
    dialect = DIALECTS[options.endpoint.dialect if options.endpoint else "chat"]
    for name in dialect.unsent(found.params):
        yield f"{name} is not sent"
    yield from _differing(_prompting(options, item.environment), {})
    yield from _role_deviations(options, found)
    defaults = {name: CollectOptions.model_fields[name].default for name in _UNSET}
    given = {name: getattr(options, name) for name in _UNSET}
    yield from _differing({k: v for k, v in given.items() if v != defaults[k]}, {})


def _are_equal(prompt: Path | None, own: Path | None) -> bool:
    """Return whether two prompt files are the same, or say the same."""
    if prompt is None or own is None or prompt == own:
        return prompt == own
    return file_sha256(prompt) == file_sha256(own)


def _remarks(options: CollectOptions, found: Benchmark) -> Iterator[str]:
    """Yield in words how many tasks and attempts are not the benchmark's.

    The verdicts count the attempts, and the tasks that have a score.
    """
    if options.repeats != found.repeats:
        yield f"repeats {options.repeats}, not {found.repeats}"
    if options.task_ids:
        yield f"{len(options.task_ids)} selected of {found.source.rows:,} tasks"
    elif options.limit is not None and options.limit < found.source.rows:
        which = f"{options.limit} random" if options.shuffle else f"the first {options.limit}"
        yield f"{which} of {found.source.rows:,} tasks"


def _prompting(options: CollectOptions, environment: EnvironmentClass) -> JSONObject:
    """Return what gym.toml says about the messages of the policy, where it makes a difference."""
    found: JSONObject = {}
    endpoint = options.endpoint
    has_tools = not environment.executes_tools or environment.tools is not Environment.tools
    if (has_tools or environment.method_tools()) and emulates_tools(options):
        found["emulate_tools"] = True
    if endpoint is not None and environment.properties.structure != "single-step":
        settings = {"send_reasoning": endpoint.send_reasoning, "send_fields": endpoint.send_fields}
        found |= {name: value for name, value in settings.items() if value}
    return found


def _policy_params(options: CollectOptions) -> JSONObject:
    """Return the parameters of the policy's requests by one name for each."""
    neutral = neutral_params("model") if options.records_tokens else {}
    return _named_once(merged_params(neutral, command_params(options)))


def _named_once(params: JSONObject) -> JSONObject:
    return {"max_tokens" if name in TOKEN_LIMITS else name: v for name, v in params.items()}


def _role_deviations(options: CollectOptions, found: Benchmark) -> Iterator[str]:
    for role, source in {**options.default_roles, **options.roles}.items():
        setting = found.roles.get(role)
        own = "none" if setting is None else setting.model
        names = [role_name(source)]
        if isinstance(source, Endpoint) and source.name is not None:
            names.append(source.name)
        if setting is None or not any(same_model(own, name) for name in names):
            yield f"{role} {names[0]}, not {own}"
        if setting is not None:
            defaults = source.params if isinstance(source, Endpoint) else {}
            params = merged_params(defaults, options.role_params.get(role, {}))
            differing = _differing(_named_once(params), _named_once(setting.params))
            yield from (f"{role}.{text}" for text in differing)


def _differing(values: Mapping[str, object], own: Mapping[str, object]) -> Iterator[str]:
    """Yield how values differ from the benchmark's."""
    for name in sorted({*values, *own}):
        if name not in own:
            yield f"{name} {_shown(values[name])}, not the default"
        elif name not in values:
            yield f"{name} unset, not {_shown(own[name])}"
        elif values[name] != own[name]:
            yield f"{name} {_shown(values[name])}, not {_shown(own[name])}"


def _shown(value: object) -> str:
    return str(value) if isinstance(value, str | Path) else msgspec.json.encode(value).decode()


def check_references(manifest: Manifest) -> None:
    """Refuse `--gate reference` for a run that no published score can be compared with."""
    if manifest.benchmark is None:
        raise UsageError(
            "--gate reference: this is not a run of a benchmark; name one instead of the tasks, "
            "as in gym collect gsm8k"
        )
    found = find_benchmark(manifest.benchmark.spec)
    elsewhere = _testable_elsewhere(found, manifest.model)
    way_out = f"; {', '.join(elsewhere)} has one that can be tested" if elsewhere else ""
    if not any(same_model(one.model, manifest.model) for one in found.reference):
        models = ", ".join(dict.fromkeys(one.model for one in found.reference))
        raise UsageError(
            f"--gate reference: {found.name} has no published score of {manifest.model}"
            + (way_out or (f", but of {models}" if models else ", nor of any other model"))
        )
    settings = [*manifest.benchmark.deviations]
    own = [one for one in found.reference if same_model(one.model, manifest.model)]
    if settings or not {*own} & {*found.testable}:
        others = (one.settings or f"it is a score of {one.tasks:,} tasks" for one in own)
        texts = "; ".join(settings or dict.fromkeys(others))
        raise UsageError(
            f"--gate reference: no published score of {manifest.model} can be tested: {texts}"
            + way_out
        )


def _testable_elsewhere(found: Benchmark, model: str) -> list[str]:
    """Return the other variants of a benchmark with a score of the model that can be tested."""
    return [
        sibling.spec
        for sibling in siblings(found)
        if any(same_model(reference.model, model) for reference in sibling.testable)
    ]


def benchmark_score(
    manifest: Manifest,
    aggregator: Aggregator,
    metrics: RunMetrics,
    *,
    found: Benchmark | None = None,
) -> BenchmarkScore:
    """Return the score of a run of a benchmark, compared with those that were published.

    `found` replaces the recorded benchmark, which may be elsewhere now.
    """
    record = manifest.benchmark
    assert record is not None, "the run is one of a benchmark"
    settings = [*record.deviations]
    try:
        found = found or find_benchmark(record.spec)
        if record.version != found.version:
            settings.append(f"version {record.version} of the benchmark, not {found.version}")
        elif record.settings_hash != _settings_hash(found):
            settings.append(f"the benchmark changed, but is still version {found.version}")
    except UsageError as error:
        return BenchmarkScore(
            benchmark=record.name,
            model=manifest.model,
            metric="",
            value=None,
            other_settings=settings,
            problem=f"the published scores of benchmark {record.name} cannot be read: {error}",
        )
    return _score(found, aggregator, metrics, model=manifest.model, other_settings=settings)


def score_as(
    found: Benchmark, aggregator: Aggregator, metrics: RunMetrics, *, model: str, tasks: Path
) -> BenchmarkScore:
    """Return the score of attempts of `model` with unknown settings, taken as a benchmark's.

    `tasks` are those of the benchmark; attempts of others are not compared.
    """
    own = {(task.env, task.id) for task in read_benchmark_tasks(found, tasks)}
    rows = {(row.env, row.task_id) for row in aggregator.task_rows()}
    settings = _hub_deviations(found, tasks)
    if others := rows - own:
        settings.append(f"{len(others):,} of {len(rows):,} tasks are not those of {found.name}")
    return _score(found, aggregator, metrics, model=model, other_settings=settings)


def read_benchmark_tasks(found: Benchmark, path: Path) -> list[TaskRow]:
    """Return the tasks of a benchmark from the file that `pulled_tasks` returns."""
    template = PromptTemplate.read(found.prompt_path) if found.prompt_path else None
    env = Registry().find(found.env).name
    tasks = []
    for row in read_tasks([path], TaskReading(default_env=env, template=template)):
        if isinstance(row, TaskRow):
            tasks.append(row)
        elif isinstance(row, RowProblem):
            raise TasksError(str(row))
    return tasks


def _score(
    found: Benchmark,
    aggregator: Aggregator,
    metrics: RunMetrics,
    *,
    model: str,
    other_settings: Sequence[str],
) -> BenchmarkScore:
    terms = {name: aggregator.scores(name) for text in found.metrics for name in text.split(" / ")}
    groups = mean_of_metrics(found.metrics, terms)
    if not groups:
        problem = "no attempt has a score"
        if metrics.num_scored:
            lacking = next((name for name, scores in terms.items() if not scores), None)
            what = lacking or f"attempt with all of {', '.join(terms)}"
            problem = f"the run has no {what}, the metric of benchmark {found.name}"
            for divisor in filter(None, (text.partition(" / ")[2] for text in found.metrics)):
                if terms[divisor] and not any(group.any() for group in terms[divisor]):
                    problem = (
                        f"the metric of benchmark {found.name} divides by {divisor}, which is 0"
                    )
        return BenchmarkScore(
            benchmark=found.name,
            model=model,
            metric=found.metric_text,
            value=None,
            other_settings=[*other_settings],
            problem=problem,
        )
    num_tasks, num_all = sum(map(len, groups)), found.source.rows
    if num_tasks != num_all:
        other_settings = [*other_settings, f"{num_tasks:,} of {num_all:,} tasks have a score"]
    score = score_of_run(
        groups,
        benchmark=found.name,
        model=model,
        metric=found.metric_text,
        margin=found.margin or 0.0,  # it may lack one if it has no references
        best=metrics.max_reward if found.metrics == ("mean_reward",) else 1.0,
        weights=weights_of_metrics(found.metrics, terms),
        references=found.reference,
        other_settings=other_settings,
        no_answers=metrics.no_answers,
    )
    if not any(own.verdict != "other_settings" for own in score.references):
        score.elsewhere = _testable_elsewhere(found, model)
    return score


def model_of_file(path: Path, env: str | None) -> str:
    """Return the one model that the rollouts of a file name."""
    with index_run(path, env=env) as index:
        models = sorted({row.model for row in index.rows if row.model})
    if len(models) != 1:
        named = f"name {len(models)} models: {', '.join(models)}" if models else "name no model"
        raise UsageError(f"{path}: its rollouts {named}; say which with --model")
    return models[0]
