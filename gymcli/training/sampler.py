"""Sampled rollouts for a training loop: groups of attempts at a task, with their token ids."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from gymcli.benchmarks.resolution import task_inputs
from gymcli.environment.registry import (
    EnvironmentClass,
    Registry,
    generated_lines,
    generates,
    own_options,
    own_tasks,
)
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import TasksError, UnknownNameError, UsageError
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.models.in_process import InProcessPolicy, PolicyModel
from gymcli.models.roles import ORACLE
from gymcli.runner.attempts import Shared, run_attempts
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.identity import policy_source
from gymcli.runner.judges import Judges, open_shared, scrubber_of_run
from gymcli.runner.plan import attempt_settings
from gymcli.runner.run_writer import RunWriter
from gymcli.runner.stopping import FailFast, Stopping
from gymcli.secrets import Scrubber
from gymcli.store.manifest import Manifest
from gymcli.store.sequences import TokenSequence, sequences
from gymcli.store.tokens import TokenCall, neutral_params
from gymcli.store.verdicts import Verdicts
from gymcli.suggestions import did_you_mean, options_from
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_source import (
    Survey,
    TaskFile,
    TaskSource,
    env_of_tasks,
    row_problems,
    survey,
)
from gymcli.types import Failure, JSONObject, Message, Rollout, TaskRow

_LOGGER = logging.getLogger(__name__)

Tasks = str | Path | Iterable[str | Path | JSONObject]
"""A tasks file, the name of an environment for its shipped tasks, a row, or several of these."""

_OPTIONS = frozenset(
    (
        *("concurrency", "env_args", "id_by_file", "id_field", "map_file", "max_episode_cost"),
        *("max_episode_time", "max_episode_tokens", "max_turns", "model", "outage_deadline"),
        *("params", "prompt", "role_params", "roles", "secrets", "seed"),
    )
)
"""The fields of `CollectOptions` that concern single attempts, and not a run as a whole."""


class SampledRollout(NamedTuple):
    """One attempt, sampled for training."""

    rollout: Rollout | Failure
    sequences: list[TokenSequence]
    """What of it can be trained; none if it has no score, or the policy reported no token ids."""

    @property
    def reward(self) -> float | None:
        """The reward; None if the attempt has no score. Mask it then: it is not a 0."""
        return self.rollout.reward if isinstance(self.rollout, Rollout) else None

    @property
    def messages(self) -> list[Message]:
        """The conversation."""
        return self.rollout.messages


class TaskTable:
    """The tasks that are known by their ids, and the environments that may play.

    Args:
        env: As in `Sampler`.
        tasks: As in `Sampler`.
        options: How rows become tasks.
        scrubber: Knows the keys that no row may name.

    Raises:
        UsageError: A file, a row, an option or a name is wrong.
    """

    def __init__(
        self,
        env: str | EnvironmentClass | None,
        tasks: Tasks | None,
        options: TaskOptions,
        scrubber: Scrubber,
    ) -> None:
        sources = [tasks] if isinstance(tasks, str | Path | dict) else list(tasks or ())
        inputs = task_inputs(source for source in sources if not isinstance(source, dict))
        rows: list[JSONObject] = [source for source in sources if isinstance(source, dict)]
        if isinstance(env, type):
            registry = Registry()
            env = registry.add(env)
        else:
            env = env_of_tasks(inputs, env)
            registry = Registry((env,) if env else ())
        self.options = options = options.model_copy(update={"env": env})
        """The given options, with the name of the environment."""
        self._environment_options: dict[str, EnvironmentOptions] = {}
        self.survey = Survey()
        """The environments; `group_sizes` is empty."""
        if env is not None:
            registration = registry.find(env)
            self.survey.environments[registration.name] = registration
            if tasks is None:
                shipped_file = own_tasks(registration)
                inputs = [] if shipped_file is None else [TaskFile(shipped_file)]
                if shipped_file is None and generates(registration):
                    rows = [msgspec.json.decode(line) for line in generated_lines(registration)]
        self.source = TaskSource(inputs, options, registry)
        task_rows: list[TaskRow] = []
        if inputs:
            file_survey = survey(self.source, registry, scrubber)
            self.survey.environments.update(file_survey.environments)
            task_rows += self.source.rows()
        for number, fields in enumerate(rows, 1):
            row = self.source.row(fields, place=f"row {number} of tasks")
            self.survey.environments.setdefault(row.env, registry.find(row.env))
            task_rows.append(self._check_row(row))
        hashes: dict[tuple[str, str], str] = {}
        for row in task_rows:
            if hashes.setdefault((row.env, row.id), row.hash) != row.hash:
                raise TasksError(f"{row.place}: another row has the same id and other content")
        ids = Counter(task_id for _, task_id in hashes)
        self.ids = [row.id if ids[row.id] == 1 else f"{row.env}/{row.id}" for row in task_rows]
        """The id of each row, in order; ENV/ID where several environments have the id."""
        self.rows = dict(zip(self.ids, task_rows, strict=True))
        """The tasks by these ids."""
        if not self.survey.environments:
            raise UsageError("name an environment, or tasks that name theirs")

    def find(self, task: str | JSONObject) -> TaskRow:
        """Return a task by its id, or that of a row.

        Raises:
            UsageError: There is no such task, or the row is wrong.
        """
        if isinstance(task, dict):
            return self._check_row(self.source.row(task, place="the task"))
        if task not in self.rows:
            hint = did_you_mean(task, self.rows)
            raise UnknownNameError(
                f"no task has the id {task!r}{hint and f'; {hint}'} ({len(self.rows)} tasks are "
                "known; tasks= names files, and a row can be given in place of an id)"
            )
        return self.rows[task]

    def _check_row(self, row: TaskRow) -> TaskRow:
        registration = self.survey.environments.get(row.env)
        if registration is None:
            names = ", ".join(self.survey.environments)
            raise UsageError(f"{row.place}: its environment {row.env} is not one of: {names}")
        if row.env not in self._environment_options:
            self._environment_options[row.env] = own_options(self.options.env_args, registration)
        if problems := row_problems(row, registration, self._environment_options[row.env]):
            raise TasksError("\n".join(f"{row.place}: {problem}" for problem in problems))
        return row


class Sampler:
    """Plays and scores attempts for a training loop, and returns their token ids.

    An async context manager. Many groups may be sampled at once: `concurrency` attempts are in
    flight at most.

    Args:
        env: A name, `FILE.py:CLASS` or a class; None: each task names its environment.
        tasks: Tasks that `group` finds by their ids; by default those that ship with the
            environment, or that it generates.
        endpoint: The endpoint of the policy. Token ids are recorded if it reports them.
        policy: A model in this process, in place of an endpoint; its answers are
            `SampledMessage`s if they have token ids.
        first_attempt: The number of the first attempt at each task. The `next_attempt` of an
            earlier sampler continues its numbers, and so its seeds.
        options: Fields of `gymcli.runner.collect_options.CollectOptions` that concern single
            attempts: `params`, `seed`, `max_turns`, `env_args`, `roles`, `concurrency` and so on.

    Raises:
        UsageError: A file, a row, an option or a name is wrong. Nothing was sent.
    """

    def __init__(
        self,
        env: str | EnvironmentClass | None = None,
        *,
        tasks: Tasks | None = None,
        endpoint: Endpoint | None = None,
        policy: PolicyModel | None = None,
        first_attempt: int = 0,
        **options: object,
    ) -> None:
        if first_attempt < 0:
            raise UsageError(f"first_attempt={first_attempt}: is negative; numbers begin at 0")
        for name in options.keys() - _OPTIONS:
            hint = did_you_mean(name, _OPTIONS)
            option_names = ", ".join(sorted(_OPTIONS))
            raise UsageError(
                f"a Sampler has no option {name}{hint and f'; {hint}'} (has: {option_names}; "
                "request parameters go into params=)"
            )
        if policy is not None and not isinstance(policy, PolicyModel):
            raise UsageError(f"policy={policy!r}: has no method complete")
        if policy is not None and endpoint is not None:
            raise UsageError("a Sampler has an endpoint= or a policy=, not both")
        if endpoint is not None:
            options["endpoint"] = endpoint
        if policy is not None:
            options["model"] = policy
        if not {"endpoint", "model"} & options.keys():
            raise UsageError("a Sampler needs an endpoint= or a policy=")
        records_tokens = options.get("model") != ORACLE
        options["record_tokens"] = records_tokens
        collect_options = options_from(CollectOptions, "Sampler", options)
        collect_options = collect_options.with_outage_deadline()
        self.tasks = TaskTable(env, tasks, collect_options, scrubber_of_run(collect_options))
        """The tasks that `group` finds by their ids."""
        self.options = collect_options.model_copy(update={"env": self.tasks.options.env})
        """What the attempts are made with."""
        environments = self.tasks.survey.environments
        self._settings = attempt_settings(self.options, environments, self.options.model)
        self._is_warned = False
        """Whether a call without usable token ids was reported."""
        self.first_attempt = first_attempt
        """No later attempt has a lower number."""
        self._next_attempts: dict[tuple[str, str], int] = {}
        """The number of the next attempt of each task: each has its own, and so its own seed."""
        self._fail_fast = FailFast(self.options.concurrency)
        self._writer = RunWriter(Manifest())
        self._shared: Shared | None = None
        self._stack = AsyncExitStack()

    @property
    def next_attempt(self) -> int:
        """The number after those of all attempts so far, to be stored in a checkpoint."""
        return max((self.first_attempt, *self._next_attempts.values()))

    async def __aenter__(self) -> Self:
        options, settings = self.options, self._settings
        for text in settings.warnings:
            _LOGGER.warning(text)
        scrubber = scrubber_of_run(options)
        judges = Judges(
            settings.roles, options.role_params, options.concurrency, base_scrubber=scrubber
        )
        async with AsyncExitStack() as stack:
            verdicts = Verdicts(None, scrubber=scrubber)
            shared = await stack.enter_async_context(open_shared(judges, verdicts))
            shared = shared._replace(slots=asyncio.Semaphore(options.concurrency))
            source = policy_source(options)
            if options.policy is not None:
                shared = shared._replace(policy=InProcessPolicy(options.policy))
            elif source is not None:
                client = await shared.roles.pool.client(source)
                await self._probe_tokens(client)
                shared = shared._replace(policy=client)
            self._shared = shared
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._shared = None
        await self._stack.aclose()

    async def _probe_tokens(self, client: Client) -> None:
        """Find out how the endpoint reports token ids; without any, none are recorded."""
        try:
            params = neutral_params(await client.probe_tokens())
            self._settings = replace(self._settings, neutral_params=params)
        except UsageError as error:
            if client.endpoint.record_tokens:
                raise
            _LOGGER.warning("no token ids are recorded: %s", error)
            self._settings = replace(self._settings, records_tokens=False, neutral_params={})

    async def group(
        self, task: str | JSONObject, *, attempts: int = 8, version: object = None
    ) -> list[SampledRollout]:
        """Sample several attempts at one task; one that fails is returned with its failure.

        Args:
            task: A row, or the id of one of the tasks.
            attempts: How many; an environment with `verify_group` scores them together.
            version: Recorded as the version of the weights where the policy reports none.

        Raises:
            UsageError: There is no such task, or the row is wrong.
            GymError: What ends every attempt: the key is refused, the endpoint is gone. A later
                call asks the endpoint again.
        """
        if self._shared is None:
            raise UsageError("a Sampler is open only inside of `async with`")
        row = self.tasks.find(task)
        first = max(self.first_attempt, self._next_attempts.get((row.env, row.id), 0))
        self._next_attempts[row.env, row.id] = first + attempts
        scores_groups = self.tasks.survey.environments[row.env].environment.scores_groups()
        new_attempts = [
            self._settings.attempt(row, number, group_size=attempts if scores_groups else 0)
            for number in range(first, first + attempts)
        ]
        lines: list[bytes] = []
        # A group ends for itself: a later one may find that the endpoint is up again.
        shared = self._shared._replace(stopping=Stopping(), save_tokens=lines.extend)
        records = run_attempts(
            iter(new_attempts),
            shared,
            concurrency=attempts,
            write=self._writer.write,
            gives_up=self._fail_fast,
        )
        async with aclosing(records):
            done = [record async for record in records]
        calls = self._calls_by_play(lines, "" if version is None else str(version))
        return [
            SampledRollout(
                record,
                sequences(record, calls.get(record.play, ()))
                if isinstance(record, Rollout)
                else [],
            )
            for record in sorted(done, key=lambda record: record.attempt)
        ]

    def _calls_by_play(self, lines: list[bytes], version: str) -> dict[str, list[TokenCall]]:
        calls: dict[str, list[TokenCall]] = {}
        for line in lines:
            call = msgspec.json.decode(line, type=TokenCall)
            call.weight_version = call.weight_version or version
            if call.problem and not self._is_warned:
                self._is_warned = True
                _LOGGER.warning(
                    "%s %s: call %d cannot be trained on: %s (the only warning of this kind)",
                    *(call.env, call.task_id, call.call, call.problem),
                )
            calls.setdefault(call.play, []).append(call)
        return calls
