"""The plan of a run: its tasks, the settings of their attempts, its manifest and its directory.

Whatever can be wrong with options, tasks and environments is found here, before anything is opened.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymcli.environment.contract import Environment
from gymcli.environment.registry import (
    Registration,
    Registry,
    environment_options,
    prepare,
    split_env_args,
)
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import UsageError
from gymcli.metrics.slicing import field_of, slice_name
from gymcli.models.endpoint import merged_params
from gymcli.models.roles import ORACLE, RoleSource, check_declared, check_missing, role_name
from gymcli.rollout.episode import EpisodeLimits, EpisodePlan
from gymcli.runner.attempts import Attempt
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.identity import (
    declared_sources,
    new_manifest,
    parameter_warnings,
    run_directory_path,
)
from gymcli.runner.judges import scrubber_of_run
from gymcli.runner.stopping import check_prices
from gymcli.secrets import Scrubber
from gymcli.store.manifest import Manifest
from gymcli.store.tokens import neutral_params
from gymcli.tasks.task_source import Survey, TaskInput, TaskSource, env_of_tasks, survey
from gymcli.types import AttemptKey, JSONObject, Rollout, TaskRow, Usage, Verifier


@dataclass(frozen=True, kw_only=True, eq=False)
class AttemptSettings:
    """The settings of all attempts of a run, by environment."""

    options: CollectOptions
    model: str
    """The name of the policy to record."""
    roles: Mapping[str, RoleSource]
    """The models of the roles that the environments declare."""
    env_options: Mapping[str, EnvironmentOptions]
    recorded_options: Mapping[str, JSONObject]
    """`env_options` as every record has them."""
    templates: Mapping[str, Attempt]
    """An attempt in each environment, without its task."""
    cost: Callable[[Usage], float | None] | None
    """Returns the cost of the policy's tokens; None: prices are unknown."""
    records_tokens: bool
    """Whether the token ids of every call are recorded."""
    neutral_params: JSONObject
    """Request parameters that nobody else set: those with which no token is cut off.

    An endpoint is probed for its own ones before the first attempt.
    """
    warnings: tuple[str, ...]
    """Warnings about the models of roles."""
    spend: Callable[[Usage, float | None], None] | None = None
    """Called with the tokens and the cost of every answer."""

    def attempt(self, row: TaskRow, number: int, *, group_size: int) -> Attempt:
        """Return one attempt of a task; `group_size` is as in `Attempt`."""
        plan = self.episode(row, number)
        return self.templates[row.env]._replace(plan=plan, group_size=group_size)

    def recorded(self, rollout: Rollout) -> Attempt:
        """Return the attempt of a conversation on record, which is only scored."""
        attempt = self.templates[rollout.env]
        return attempt._replace(generation=rollout, group_size=rollout.group_size)

    def episode(self, row: TaskRow, number: int) -> EpisodePlan:
        options = self.options
        defaults = options.endpoint.params if options.endpoint else {}
        return EpisodePlan(
            row=row,
            attempt=number,
            environment=self.templates[row.env].environment,
            options=self.env_options[row.env],
            env_options=self.recorded_options[row.env],
            model=self.model,
            params=merged_params(self.neutral_params, defaults, row.params, options.params),
            run_seed=options.seed or 0,
            sends_seed=options.seed is not None,
            max_turns=options.max_turns,
            records_tokens=self.records_tokens,
            limits=EpisodeLimits(
                options.max_episode_tokens, options.max_episode_cost, options.max_episode_time
            ),
            cost=self.cost,
            spend=self.spend,
        )


def attempt_settings(
    options: CollectOptions, environments: Mapping[str, Registration], model: str
) -> AttemptSettings:
    """Return the settings of attempts in these environments, which are prepared to play.

    Raises:
        UsageError: An option of an environment is wrong, a role has no model, or an environment
            cannot be played here.
    """
    endpoint = options.endpoint
    has_prices = endpoint is not None and endpoint.cost(Usage()) is not None
    classes = {name: registration.environment for name, registration in environments.items()}
    reasons = options.missing_roles.items()
    missing_warnings = check_missing(
        {role: reason for role, reason in reasons if role not in options.roles}, classes
    )
    roles = declared_sources(options, environments)
    check_declared(roles, (*options.roles, *options.role_params), classes)
    env_args = split_env_args(options.env_args, environments.values())
    env_options = {
        name: environment_options(environment, name, env_args[name], {})
        for name, environment in classes.items()
    }
    templates = {}
    for name, registration in environments.items():
        prepare(registration, env_options[name])
        verifier = Verifier(registration.environment.version, registration.source_hash)
        templates[name] = Attempt(registration.environment, env_options[name], verifier, plan=None)
    return AttemptSettings(
        options=options,
        model=model,
        roles=roles,
        env_options=env_options,
        recorded_options={
            name: values.model_dump(mode="json", exclude_defaults=True)
            for name, values in env_options.items()
        },
        templates=templates,
        cost=endpoint.cost if endpoint is not None and has_prices else None,
        records_tokens=options.records_tokens,
        neutral_params=neutral_params("model") if options.records_tokens else {},
        warnings=(*_self_judgement(options, model, roles), *missing_warnings),
    )


def _self_judgement(
    options: CollectOptions, model: str, roles: Mapping[str, RoleSource]
) -> Iterator[str]:
    policy: RoleSource = options.endpoint or options.model
    for role, source in roles.items():
        if source != ORACLE and _place_of(source) == _place_of(policy):
            yield (
                f"the {role} is the policy itself ({model}): its judgement of its own answers is "
                "not independent, and training on it would train both"
            )


def _place_of(source: RoleSource) -> str | tuple[str, str]:
    return source if isinstance(source, str) else (source.base_url, source.model)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPlan:
    """What one run will do. Nothing is opened, sent or written yet."""

    options: CollectOptions
    source: TaskSource
    survey: Survey
    settings: AttemptSettings
    manifest: Manifest
    """The content of run.json if the run is new."""
    path: Path | None
    """The run directory, which may exist; None: the run has none."""
    scrubber: Scrubber
    """Removes every key in use."""
    warnings: tuple[str, ...]
    """Warnings for the user."""
    began_at: float
    """When planning began, by `time.monotonic`: the time of a run includes it."""

    @property
    def num_expected(self) -> int:
        return self.manifest.num_expected

    @property
    def num_planned(self) -> Counter[str]:
        records = self.manifest.environments
        return Counter({name: record.num_expected for name, record in records.items()})

    @property
    def most_attempts(self) -> int:
        return self.survey.most_copies * self.options.repeats

    @property
    def classes(self) -> list[type[Environment[Task]]]:
        return [registration.environment for registration in self.survey.environments.values()]

    def rows(self) -> Iterator[TaskRow]:
        """Yield the planned tasks, done or not."""
        return self.source.selected()

    def numbers(self, row: TaskRow) -> range:
        first = row.first_attempt * self.options.repeats
        return range(first, first + self.options.repeats)

    def first(self, env: str | None = None) -> EpisodePlan:
        """Return what the first attempt is played with, of an environment or of all."""
        rows = (row for row in self.rows() if env in (None, row.env))
        return self.settings.episode(next(rows), 0)

    def find(self, key: AttemptKey) -> EpisodePlan | None:
        """Return what an attempt is played with; None if it is not planned."""
        for row in self.rows():
            if (row.env, row.id) == (key.env, key.task_id) and key.attempt in self.numbers(row):
                return self.settings.episode(row, key.attempt)
        return None

    def slices(self, field: str, env: str | None) -> frozenset[str]:
        rows = (row for row in self.rows() if env in (None, row.env))
        return frozenset(slice_name(field_of(row.fields, field)) for row in rows)


def plan_run(
    inputs: Sequence[TaskInput],
    options: CollectOptions,
    *,
    has_directory: bool = True,
    notify: Callable[[str], None] = lambda _: None,
    earlier: RunPlan | None = None,
) -> RunPlan:
    """Return the plan of a run, checked as far as is possible before the run begins.

    Code that generates tasks also stands for `env` without one. `notify` is called with how tables
    are read. `earlier` is a plan of the same command, so both record the same versions.

    Raises:
        UsageError: A file, a row, an option or a name is wrong.
    """
    began_at = time.monotonic()
    env = env_of_tasks(inputs, options.env)
    options = options.with_outage_deadline().model_copy(update={"env": env})
    model = role_name(options.model)
    registry = Registry((options.env,) if options.env else ())
    source = TaskSource(inputs, options, registry)
    for note in source.notes:
        notify(note)
    scrubber = scrubber_of_run(options)
    rows = survey(source, registry, scrubber)
    _check_recording(options, has_directory=has_directory)
    settings = attempt_settings(options, rows.environments, model)
    check_prices(options, settings.roles)
    template_hash = source.template.hash if source.template else None
    manifest = new_manifest(
        model,
        options,
        rows,
        settings.env_options,
        template_hash,
        earlier=None if earlier is None else earlier.manifest,
    )
    return RunPlan(
        options=options,
        source=source,
        survey=rows,
        settings=settings,
        manifest=manifest,
        path=run_directory_path(source, options, manifest.identity) if has_directory else None,
        scrubber=scrubber,
        warnings=(
            *_task_warnings(source, rows, registry),
            *parameter_warnings(options, rows),
            *settings.warnings,
            *registry.agent_warnings,
        ),
        began_at=began_at,
    )


def _task_warnings(source: TaskSource, rows: Survey, registry: Registry) -> Iterator[str]:
    yield from source.id_warnings
    yield from rows.env_warnings(source.options.env, registry)
    yield from rows.prompt_warnings(source.options.prompt)


def _check_recording(options: CollectOptions, *, has_directory: bool) -> None:
    if not options.records_tokens:
        return
    if options.model == "oracle":
        raise UsageError(
            "--record-tokens: the oracle has no token ids, since no engine plays; leave "
            "the option out, or name another --model"
        )
    if not has_directory:
        raise UsageError("record_tokens needs out: token ids are written to a directory")
