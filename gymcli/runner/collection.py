"""A collection from its options to its last outcome: checked, opened, run, resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gymcli.boundary import boundary
from gymcli.errors import (
    AuthenticationError,
    BudgetReachedError,
    FatalEndpointError,
    RoleError,
    RunDirectoryError,
    RunMismatchError,
)
from gymcli.local import model_name, parse_local
from gymcli.registry import Registry
from gymcli.role_models import check_missing
from gymcli.runner.attempts import Attempt, Shared
from gymcli.runner.budget import Budget, check_prices
from gymcli.runner.engine import Engine
from gymcli.runner.episodes import run_attempts
from gymcli.runner.first_request import first_request
from gymcli.runner.judging import Judges, judging, scrubber_of_run
from gymcli.runner.keeping import Keeping
from gymcli.runner.manifest import default_out, identity_of, new_manifest, unused
from gymcli.runner.options import CollectOptions
from gymcli.runner.params import parameter_warnings
from gymcli.runner.plan import Plan
from gymcli.runner.policy import policy_source, sends_no_key
from gymcli.runner.resumption import Standing, carried_on, compare, failed_attempts
from gymcli.runner.stopping import Stopping
from gymcli.runner.survey import survey
from gymcli.runner.task_source import TaskSource
from gymcli.shards import check_same_shard
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.run import DoneTasks, RunDirectory
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
        engine: Where the attempts run; without one in this process.

    Raises:
        UsageError: A file, a row, an option or a name is wrong. Nothing was sent or written.

    """

    def __init__(
        self,
        tasks: Iterable[str | Path],
        options: CollectOptions,
        *,
        keeps: bool = True,
        engine: Engine | None = None,
    ) -> None:
        self._started = time.monotonic()
        self.options = options = options.with_outage_deadline()
        self._engine = engine
        weights = parse_local(options.model)
        model = options.model if weights is None else model_name(weights)
        registry = Registry((options.env,) if options.env else ())
        self._source = TaskSource(tasks, options, registry)
        self._scrubber = scrubber_of_run(options)
        found = survey(self._source, registry, self._scrubber)
        missing = {
            role: why for role, why in options.missing_roles.items() if role not in options.roles
        }
        classes = {name: item.environment for name, item in found.environments.items()}
        missing_warnings = check_missing(missing, classes)
        self._budget = Budget(options, lambda cause: self.stopping.stop(cause))
        spend = self._budget.add if self._budget.is_limited else None
        self._plan = Plan(self._source, options, found, model, spend=spend)
        check_prices(options, self._plan.roles)
        template_hash = self._source.template.hash if self._source.template else None
        env_options = self._plan.env_options
        identity = identity_of(model, options, template_hash, found.environments, env_options)
        manifest = new_manifest(model, options, found, env_options, identity)
        self._keeping = Keeping(manifest)
        self.num_expected = manifest.num_expected
        """Attempts of this plan."""
        self.stopping = Stopping(options.grace)
        """Ends the run early: no new attempts, then the end of those in flight."""
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
        self._done = DoneTasks()
        self._standing = Standing()
        self._shared: Shared | None = None
        self._stack = AsyncExitStack()

    @property
    def manifest(self) -> Manifest:
        """What run.json says of the run."""
        return self._keeping.manifest

    @property
    def num_scored(self) -> int:
        """Attempts of this plan that are scored, those of earlier commands once it is open."""
        return self._keeping.num_scored

    @property
    def num_left(self) -> int:
        """Attempts of this plan that have no score yet and are to get one."""
        return self.num_expected - self.num_scored - self.num_left_failed

    @property
    def num_outages(self) -> int:
        """How often an endpoint was gone."""
        if self._engine is not None:
            return self._engine.num_outages
        return 0 if self._shared is None else self._shared.roles.pool.num_outages

    @property
    def outage_seconds(self) -> float:
        """How long endpoints were gone, all of them together."""
        if self._engine is not None:
            return self._engine.outage_seconds
        return 0.0 if self._shared is None else self._shared.roles.pool.outage_seconds

    @property
    def num_left_failed(self) -> int:
        """Attempts of this plan that failed before and are not tried again."""
        return len(self._standing.left_failed)

    async def first_request(self) -> Request:
        """Give the request that the first attempt starts with; nothing is sent.

        Raises:
            RunError: The environment cannot be set up.

        """
        plan = self._plan.first()
        with boundary(RoleError):
            stand_ins = plan.environment.stand_ins(plan.environment.parse_task(plan.row.fields))
        return await first_request(msgspec.structs.replace(plan, roles=stand_ins))

    def look(self) -> None:
        """Compare with the run that is there already, and leave it as it is.

        Raises:
            UsageError: It was made with other settings or of other tasks, or is damaged.

        """
        if self.path is not None and self.path.is_dir():
            directory = RunDirectory(self.path, self._scrubber)
            directory.check_identity(self.manifest.identity)
            self._compare(directory)

    async def __aenter__(self) -> Self:
        """Take the run directory, read what is done, and start or reach the model.

        Raises:
            UsageError: As `look`.
            RunDirectoryError: The directory cannot be written, or another process writes it.

        """
        async with AsyncExitStack() as stack:
            if self.path is not None:
                directory = RunDirectory(self.path, self._scrubber)
                directory.lock(self.stopping.from_thread())
                stack.callback(directory.close)
                directory.check_identity(self.manifest.identity)
                directory.mend()
                self.warnings += directory.warnings
                self._compare(directory)
                if self._budget.is_limited:
                    policy = self.options.endpoint or self.options.model
                    self._budget.add_record(directory.path, policy, self._plan.roles)
                self._keeping.directory = directory
            self._shared = await self._opened(stack)
            self._keeping.begin(self._started, is_unfinished=self.num_left > 0)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write down how long it took, close the model and give the run directory back."""
        try:
            self._keeping.write_time()
        except RunDirectoryError as failed:  # of what ends a run early, this is the least
            _LOGGER.warning(str(failed))
        await self._stack.aclose()

    def _compare(self, directory: RunDirectory) -> None:
        before = read_manifest(directory.path)
        if before is not None:
            check_same_shard(directory.path, before.shard, self.manifest.shard)
        done = directory.done()
        pending = directory.pending(done)
        mates = directory.mates(done)
        failed = failed_attempts(directory.path) if self.options.no_retry else frozenset()
        standing = compare(
            self._source, self._plan.rows(), done, pending, self._plan.group_sizes, failed
        )._replace(mates=mates)
        if self.options.out is None and done and len(standing.gone) == len(done):
            raise RunMismatchError(
                f"{directory.path}: holds a run of other tasks, none of which is in these files; "
                "give --out another directory"
            )
        self._done, self._standing = done, standing
        self._keeping.num_scored = standing.num_done
        if standing.warning:
            self.warnings.append(standing.warning)
        if before is not None:
            self._keeping.manifest = carried_on(self.manifest, before, standing)

    async def _opened(self, stack: AsyncExitStack) -> Shared:
        """Open what the attempts share; the policy where one of them asks it."""
        judges = Judges(
            self._plan.roles,
            self.options.role_params,
            self.options.concurrency,
            others=self._scrubber,
        )
        folder = None if self._keeping.directory is None else self.path
        verdicts = Verdicts(folder, scrubber=self._scrubber)
        shared = await stack.enter_async_context(
            judging(
                judges,
                verdicts,
                save=self._keeping.save,
                stopping=self.stopping,
                spend=self._budget.add if self._budget.is_limited else None,
            )
        )
        if self.num_left > len(self._standing.waiting):
            source = policy_source(self.options)
            if source is not None and self._engine is None:
                policy = await shared.roles.pool.client(source)
                return shared._replace(policy=policy)
        return shared

    @property
    def _concurrency(self) -> int:
        return max(1, min(self.options.concurrency, self.num_left))

    def _attempts(self) -> Iterator[Attempt]:
        """Give what is left to do; what is done is forgotten here once all of it was given."""
        done, self._done = self._done, DoneTasks()
        return self._plan.attempts(self._standing, done) if self.num_left else iter(())

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
        run = run_attempts if self._engine is None else self._engine.run
        outcomes = run(
            self._attempts(),
            self._shared,
            concurrency=self._concurrency,
            keep=self._keeping.keep,
        )
        if self.num_left:
            self._budget.check()
        try:
            with self._budget.timed(self._started):
                async with aclosing(outcomes):
                    async for record in outcomes:
                        yield record
        except FatalEndpointError as error:
            if sends_no_key(self.options) and isinstance(error.__cause__, AuthenticationError):
                way_out = "no key was sent: give --api-key-env VARIABLE"
                raise FatalEndpointError(f"{error}; {way_out}") from error.__cause__
            if self.num_scored:
                raise FatalEndpointError(f"{error}; {self.told}") from error.__cause__
            raise
        except BudgetReachedError as error:
            # Else nothing was left for the budget to prevent.
            if self.num_left or self._budget.has_unknown:
                raise self._stopped_at(error) from error
        finally:
            if self._keeping.directory is not None:
                self._keeping.directory.sync()
        _LOGGER.info("end %s: %d of %d scored", place, self.num_scored, self.num_expected)

    def _stopped_at(self, cause: BudgetReachedError) -> BudgetReachedError:
        spent = f", {told}" if (told := self._budget.told()) else ""
        return BudgetReachedError(f"{cause}{spent}; {self.told}")

    @property
    def told(self) -> str:
        """Say how much of this plan is scored."""
        return f"{self.num_scored} of {self.num_expected} attempts are scored"

    def finish(self, metrics: bytes, ended_at: float | None) -> None:
        """Write metrics and the end of the run; a run that was complete keeps its end.

        Args:
            metrics: The numbers as JSON.
            ended_at: When it ended; None: it was stopped and can go on.

        """
        self._keeping.finish(metrics, ended_at)
