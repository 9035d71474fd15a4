"""A collection from its options to its last outcome: checked, opened, run, resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gymcli.boundary import boundary
from gymcli.errors import (
    AuthenticationError,
    FatalEndpointError,
    RoleError,
    RunDirectoryError,
    RunMismatchError,
    UsageError,
)
from gymcli.local import model_name, parse_local
from gymcli.registry import Registry, environment_options, split_env_args
from gymcli.role_models import ORACLE, ModelPool, check_declared
from gymcli.rollout import EpisodePlan, Policy
from gymcli.runner.attempts import Attempt, Outcome, Shared
from gymcli.runner.episodes import run_attempts
from gymcli.runner.first_request import first_request
from gymcli.runner.judging import Judges, judging
from gymcli.runner.manifest import declared_sources, default_out, identity_of, new_manifest, unused
from gymcli.runner.options import CollectOptions
from gymcli.runner.params import merged_params, parameter_warnings
from gymcli.runner.resumption import Standing, carried_on, compare
from gymcli.runner.survey import TaskSource, survey
from gymcli.store.manifest import read_manifest
from gymcli.store.run import Done, RunDirectory
from gymcli.store.verdicts import Verdicts
from gymcli.types import AttemptKey, Failure, Request, Rollout, TaskRow, Verifier

__all__ = ["Collection"]

_LOGGER = logging.getLogger(__name__)


class Collection:
    """One run, checked when it is made; an async context manager around what it opens.

    Args:
        tasks: Task files, or names of environments for the tasks that ship with them.
        options: What is asked for. `out` None takes the default directory where `keeps`.
        keeps: Write a run directory.

    Raises:
        UsageError: A file, a row, an option or a name is wrong. Nothing was sent or written.

    """

    def __init__(
        self, tasks: Iterable[str | Path], options: CollectOptions, *, keeps: bool = True
    ) -> None:
        self.options = options
        self._weights = parse_local(options.model)
        model = options.model if self._weights is None else model_name(self._weights)
        registry = Registry((options.env,) if options.env else ())
        self._source = TaskSource(tasks, options, registry)
        found = survey(self._source, registry)
        self._environments = found.environments
        self._group_sizes = found.group_sizes
        classes = [item.environment for item in found.environments.values()]
        self._roles = declared_sources(options, found.environments)
        check_declared(self._roles, options.roles, classes)
        given = split_env_args(options.env_args, found.environments.values())
        self._env_options = {
            name: environment_options(item.environment, name, given[name], {})
            for name, item in found.environments.items()
        }
        for name, item in found.environments.items():
            item.environment.prepare(self._env_options[name])
        template_hash = self._source.template.hash if self._source.template else None
        identity = identity_of(model, options, template_hash, found.environments, self._env_options)
        self.manifest = new_manifest(model, options, found, self._env_options, identity)
        self.num_expected = self.manifest.num_expected
        """Attempts of this plan."""
        self.num_scored = 0
        """Attempts of this plan that are scored, those of earlier commands once it is open."""
        self.path: Path | None = None
        """The run directory."""
        if keeps:
            self.path = options.out or default_out(self._source, options, identity)
            if options.fresh:
                self.path = unused(self.path)
        self.warnings = parameter_warnings(options, found) + self._self_judgement()
        """What the user should know; more may come when the run is opened."""
        self._directory: RunDirectory | None = None
        self._done: Mapping[tuple[str, str], Done] = {}
        self._standing = Standing()
        self._shared: Shared | None = None
        self._stack = AsyncExitStack()
        self._opened_at = 0.0
        self._seconds_before = 0.0
        self._is_unfinished = False

    def _self_judgement(self) -> list[str]:
        """Warn of roles that the policy itself plays."""
        policy = self.options.endpoint
        own = self.options.model if policy is None else (policy.base_url, policy.model)
        played = {
            role: source if isinstance(source, str) else (source.base_url, source.model)
            for role, source in self._roles.items()
        }
        return [
            f"the {role} is the policy itself ({self.manifest.model}): it judges its own answers, "
            f"and training on them would train the {role}"
            for role, who in played.items()
            if who == own and who != ORACLE
        ]

    @property
    def num_left(self) -> int:
        """Attempts of this plan that have no score yet."""
        return self.num_expected - self.num_scored

    async def first_request(self) -> Request:
        """Give the request that the first attempt starts with; nothing is sent.

        Raises:
            RunError: The environment cannot be set up.

        """
        plan = self._plan(next(self._source.selected()), 0)
        with boundary(RoleError):
            stand_ins = plan.environment.stand_ins(plan.environment.parse_task(plan.row.fields))
        return await first_request(plan._replace(roles=stand_ins))

    def look(self) -> None:
        """Compare with the run that is there already, and leave it as it is.

        Raises:
            UsageError: It was made with other settings or of other tasks, or is damaged.

        """
        if self.path is not None and self.path.is_dir():
            directory = RunDirectory(self.path)
            directory.check_identity(self.manifest.identity)
            self._compare(directory)

    async def __aenter__(self) -> Self:
        """Take the run directory, read what is done, and start or reach the model.

        Raises:
            UsageError: As `look`.
            RunDirectoryError: The directory cannot be written, or another process writes it.

        """
        self._opened_at = time.monotonic()
        async with AsyncExitStack() as stack:
            if self.path is not None:
                directory = RunDirectory(self.path)
                directory.lock()
                stack.callback(directory.close)
                directory.check_identity(self.manifest.identity)
                directory.mend()
                self.warnings += directory.warnings
                self._compare(directory)
                self._directory = directory
            self._shared = await self._opened(stack)
            self._seconds_before = self.manifest.seconds
            self._is_unfinished = self.num_left > 0 or self.manifest.ended_at is None
            if self._directory is not None:
                self._directory.write_manifest(self.manifest)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write down how long it took, close the model and give the run directory back."""
        if self._is_unfinished:
            try:
                self._write_time()
            except RunDirectoryError as failed:  # of what ends a run early, this is the least
                _LOGGER.warning(str(failed))
        await self._stack.aclose()

    def _write_time(self) -> None:
        seconds = self._seconds_before + time.monotonic() - self._opened_at
        self.manifest = msgspec.structs.replace(self.manifest, seconds=round(seconds, 3))
        if self._directory is not None:
            self._directory.write_manifest(self.manifest)

    def _compare(self, directory: RunDirectory) -> None:
        done = directory.done()
        pending = directory.pending(done)
        mates = directory.mates(done, pending.values())
        standing = compare(self._source, self._planned(), done, pending)._replace(mates=mates)
        if self.options.out is None and done and len(standing.gone) == len(done):
            raise RunMismatchError(
                f"{directory.path}: holds a run of other tasks, none of which is in these files; "
                "give --out another directory"
            )
        self._done, self._standing = done, standing
        self.num_scored = standing.num_done
        if standing.warning:
            self.warnings.append(standing.warning)
        before = read_manifest(directory.path)
        if before is not None:
            self.manifest = carried_on(self.manifest, before, standing)

    async def _opened(self, stack: AsyncExitStack) -> Shared:
        """Open what the attempts share; the policy where one of them asks it."""
        judges = Judges(self._roles, self.options.role_params, self.options.concurrency)
        verdicts = Verdicts(None if self._directory is None else self.path)
        shared = await stack.enter_async_context(judging(judges, verdicts, self._save))
        if self.num_left > len(self._standing.waiting):
            return shared._replace(policy=await self._policy(shared.roles.pool))
        return shared

    async def _policy(self, pool: ModelPool) -> Policy | None:
        if self.options.model == "oracle":
            return None
        source = self._weights or self.options.endpoint
        if source is None:
            raise UsageError(f"the model {self.options.model} needs an endpoint; give one")
        return await pool.client(source)

    def _save(self, rollout: Rollout) -> None:
        if self._directory is not None:
            self._directory.append_generation(rollout)

    @property
    def _concurrency(self) -> int:
        return max(1, min(self.options.concurrency, self.num_left))

    async def run(self) -> AsyncGenerator[Rollout | Failure]:
        """Run what is not done yet; every record is on disk before it is given.

        Raises:
            RunError: The endpoint refuses everything, or the directory cannot be written.

        """
        place = self.path or "memory"
        _LOGGER.info("start %s: %d of %d attempts", place, self.num_left, self.num_expected)
        for text in self.warnings:
            _LOGGER.warning(text)
        assert self._shared is not None, "a collection is run inside its `async with`"
        outcomes = run_attempts(
            self._attempts(), self._shared, concurrency=self._concurrency, keep=self._keep
        )
        try:
            async with aclosing(outcomes):
                async for record in outcomes:
                    yield record
        except FatalEndpointError as error:
            if self._sends_no_key and isinstance(error.__cause__, AuthenticationError):
                way_out = "no key was sent: give --api-key-env VARIABLE"
                raise FatalEndpointError(f"{error}; {way_out}") from error.__cause__
            raise
        _LOGGER.info("end %s: %d of %d scored", place, self.num_scored, self.num_expected)

    @property
    def _sends_no_key(self) -> bool:
        endpoint = self.options.endpoint
        return endpoint is not None and not (endpoint.api_key or endpoint.headers or endpoint.query)

    def _keep(self, outcome: Outcome) -> None:
        """Write an outcome down, and say what went wrong; texts of models are not logged."""
        record = outcome.record
        if isinstance(record, Rollout):
            self.num_scored += 1
            if self._directory is not None:
                self._directory.append_rollout(record)
        else:
            where = (record.env, record.task_id, record.attempt)
            error = record.error
            _LOGGER.info("%s %s/%d: %s: %s", *where, error.error_class, error.message)
            if self._directory is not None:
                if outcome.generation is not None:
                    self._directory.append_generation(outcome.generation)
                self._directory.append_failure(record)
        for name, count in record.retries.items():
            where = (record.env, record.task_id, record.attempt)
            _LOGGER.info("%s %s/%d: %s, tried again %d times", *where, name, count)

    def _planned(self) -> Iterator[tuple[TaskRow, int]]:
        """Give every attempt of the plan; those of one row follow each other."""
        repeats = self.options.repeats
        for row in self._source.selected():
            first = row.first_attempt * repeats
            for attempt in range(first, first + repeats):
                yield row, attempt

    def _attempts(self) -> Iterator[Attempt]:
        """Give what is left to do: waiting conversations first, then everything not done."""
        waiting = set()
        for rollout in self._standing.waiting:
            waiting.add(rollout.key)
            yield self._attempt(rollout.env, generation=rollout)
        for rollout in self._standing.mates:
            yield self._attempt(rollout.env, generation=rollout)._replace(is_done=True)
        for row, attempt in self._planned():
            done = self._done.get((row.env, row.id))
            is_done = done is not None and done.has(attempt)
            if not is_done and AttemptKey(row.env, row.id, attempt) not in waiting:
                yield self._attempt(row.env, plan=self._plan(row, attempt))

    def _attempt(
        self, env: str, *, plan: EpisodePlan | None = None, generation: Rollout | None = None
    ) -> Attempt:
        found = self._environments[env]
        verifier = Verifier(found.environment.version, found.source_hash)
        size = 0
        if plan is not None:
            size = self._group_sizes[env, plan.row.id]
        elif generation is not None:
            size = generation.group_size
        return Attempt(found.environment, self._env_options[env], verifier, plan, generation, size)

    def _plan(self, row: TaskRow, attempt: int) -> EpisodePlan:
        options = self.options
        environment = self._environments[row.env].environment
        return EpisodePlan(
            row=row,
            attempt=attempt,
            environment=environment,
            options=self._env_options[row.env],
            env_version=environment.version,
            model=self.manifest.model,
            params=merged_params(row.params, options.params),
            run_seed=options.seed or 0,
            sends_seed=options.seed is not None,
            max_turns=options.max_turns,
        )

    def finish(self, metrics: bytes, ended_at: float) -> None:
        """Write the end of the run and its metrics; a run that was complete keeps its end."""
        if self._directory is None:
            return
        if self._is_unfinished:
            self.manifest = msgspec.structs.replace(self.manifest, ended_at=round(ended_at, 3))
            self._write_time()
            self._is_unfinished = False
        self._directory.write_metrics(metrics)
