"""A collection from its options to its last outcome: checked, opened, run, resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
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
from gymcli.registry import Registry
from gymcli.role_models import ModelPool, check_missing
from gymcli.rollout import Policy
from gymcli.runner.attempts import Outcome, Shared
from gymcli.runner.episodes import run_attempts
from gymcli.runner.first_request import first_request
from gymcli.runner.judging import Judges, judging
from gymcli.runner.manifest import default_out, identity_of, new_manifest, unused
from gymcli.runner.options import CollectOptions
from gymcli.runner.params import parameter_warnings
from gymcli.runner.plan import Plan
from gymcli.runner.resumption import Standing, carried_on, compare
from gymcli.runner.survey import TaskSource, survey
from gymcli.store.manifest import read_manifest
from gymcli.store.run import Done, RunDirectory
from gymcli.store.verdicts import Verdicts
from gymcli.types import Failure, Request, Rollout

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
        missing = {
            role: why for role, why in options.missing_roles.items() if role not in options.roles
        }
        classes = {name: item.environment for name, item in found.environments.items()}
        missing_warnings = check_missing(missing, classes)
        self._plan = Plan(self._source, options, found, model)
        template_hash = self._source.template.hash if self._source.template else None
        env_options = self._plan.env_options
        identity = identity_of(model, options, template_hash, found.environments, env_options)
        self.manifest = new_manifest(model, options, found, env_options, identity)
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
        self.warnings = [
            *parameter_warnings(options, found),
            *self._plan.self_judgement(),
            *missing_warnings,
        ]
        """What the user should know; more may come when the run is opened."""
        self._directory: RunDirectory | None = None
        self._done: Mapping[tuple[str, str], Done] = {}
        self._standing = Standing()
        self._shared: Shared | None = None
        self._stack = AsyncExitStack()
        self._opened_at = 0.0
        self._seconds_before = 0.0
        self._is_unfinished = False

    @property
    def num_left(self) -> int:
        """Attempts of this plan that have no score yet."""
        return self.num_expected - self.num_scored

    async def first_request(self) -> Request:
        """Give the request that the first attempt starts with; nothing is sent.

        Raises:
            RunError: The environment cannot be set up.

        """
        plan = self._plan.first()
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
        standing = compare(
            self._source, self._plan.rows(), done, pending, self._plan.group_sizes
        )._replace(mates=mates)
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
        judges = Judges(self._plan.roles, self.options.role_params, self.options.concurrency)
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
            self._plan.attempts(self._standing, self._done),
            self._shared,
            concurrency=self._concurrency,
            keep=self._keep,
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

    def finish(self, metrics: bytes, ended_at: float) -> None:
        """Write the end of the run and its metrics; a run that was complete keeps its end."""
        if self._directory is None:
            return
        if self._is_unfinished:
            self.manifest = msgspec.structs.replace(self.manifest, ended_at=round(ended_at, 3))
            self._write_time()
            self._is_unfinished = False
        self._directory.write_metrics(metrics)
