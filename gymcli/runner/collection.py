"""A collection: opens the directory and the models of a plan, and runs its attempts."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import IO, Self

from gymcli.errors import (
    AuthenticationError,
    BudgetReachedError,
    CrashedAttemptError,
    EngineError,
    FatalEndpointError,
    GymError,
    RunDirectoryError,
    TooManyFailuresError,
)
from gymcli.models.client import Client
from gymcli.models.in_process import InProcessPolicy
from gymcli.models.roles import ModelPool
from gymcli.rollout.event_loop import Watchdog
from gymcli.rollout.scoring import verifies_in_loop
from gymcli.runner.attempts import Attempt, Engine, Shared, failure_of, run_attempts
from gymcli.runner.identity import policy_source
from gymcli.runner.judges import Judges, open_shared
from gymcli.runner.plan import RunPlan
from gymcli.runner.resume_state import new_state, read_state, remaining_attempts
from gymcli.runner.run_writer import RunWriter
from gymcli.runner.stopping import POLICY, Budget, Stopping
from gymcli.store.manifest import Manifest
from gymcli.store.run_directory import RunDirectory, open_stack_file
from gymcli.store.supervised import Supervised, Tag
from gymcli.store.tokens import TOKEN_SOURCES, neutral_params
from gymcli.store.verdicts import Verdicts
from gymcli.types import AttemptKey, Failure, Rollout

STOPS_EARLY = (BudgetReachedError, FatalEndpointError, EngineError, TooManyFailuresError)
"""Errors that stop a run early; what it has recorded is valid."""

_LOGGER = logging.getLogger(__name__)

_LOCK_SECONDS = 0.1
"""The pause between two tries to lock a run that another process holds."""
_END_SECONDS = 5.0
"""How long the end of a run may take, after its grace and the closing of environments."""


@dataclass(eq=False)
class CommandResources:
    """What all runs of one command share. The run that opens first owns it, and closes last."""

    budget: Budget
    slots: asyncio.Semaphore
    """One for each attempt in flight."""
    blocking_timeout: float
    """The largest of all environments."""
    close_timeout: float
    """The largest of all environments."""
    supervised: Supervised | None = None
    """The supervisor that restarts the command if this process dies."""
    stack_file: IO[str] | None = None
    """In the directory of the first run, for the supervisor; open in a supervised command."""
    watchdog: Watchdog | None = None
    """Watches the event loop from when the first run opens."""
    shared: Shared | None = None
    """The clients and workers of the first run serve all."""


def command_resources(
    plans: Sequence[RunPlan], supervised: Supervised | None = None
) -> CommandResources:
    """Return what the runs of a command share; budgets and concurrency are those of the first."""
    environments = [environment for plan in plans for environment in plan.classes]
    return CommandResources(
        Budget(plans[0].options),
        asyncio.Semaphore(plans[0].options.concurrency),
        max((environment.blocking_timeout for environment in environments), default=60.0),
        max((environment.close_timeout for environment in environments), default=0.0),
        supervised,
    )


class Collection:
    """Runs a plan: `async with` opens its directory and models, `run` runs its attempts.

    `engine` plays the attempts, and is closed with the run; None: this process plays them.
    """

    def __init__(
        self,
        plan: RunPlan,
        *,
        engine: Engine | None = None,
        resources: CommandResources | None = None,
        notify: Callable[[str], None] = _LOGGER.warning,
    ) -> None:
        self._resources = resources or command_resources([plan])
        self.stopping = Stopping(plan.options.grace)
        """Ends the run early."""
        budget = self._resources.budget
        budget.stops.append(self.stopping.stop)
        if budget.is_limited:
            plan = replace(plan, settings=replace(plan.settings, spend=budget.add))
        self._plan = plan
        self.options = plan.options
        self.path = plan.path
        self.num_expected = plan.num_expected
        self.warnings = list(plan.warnings)
        """Warnings for the user; opening the run may add more."""
        self.state = new_state(plan)
        """What the directory held of the plan when the run was opened."""
        self.token_note = ""
        """Where the token ids come from, in words, once the endpoint has been probed for them."""
        self.begun_at: dict[AttemptKey, float] = {}
        """When each attempt that has not ended yet began, by `time.monotonic`."""
        self._has_begun = False
        self._suspects: frozenset[AttemptKey] = frozenset()
        """Attempts that may have crashed an earlier process of the run; they are tried last."""
        self._engine = engine
        self._notify = notify
        self._supervised = self._resources.supervised
        self._writer = RunWriter(plan.manifest, self._supervised, budget)
        self._shared: Shared | None = None
        self._stack = AsyncExitStack()

    @property
    def manifest(self) -> Manifest:
        return self._writer.manifest

    @property
    def num_scored(self) -> int:
        """Attempts of this plan that are scored; once open, it includes earlier commands."""
        return self._writer.num_scored

    @property
    def num_left(self) -> int:
        return self.num_expected - self.num_scored - len(self.state.left_failed)

    @property
    def left(self) -> Counter[str]:
        return self.state.left

    @property
    def num_in_flight(self) -> int:
        return self.stopping.num_in_flight

    @property
    def is_stopping(self) -> bool:
        """Whether the run ends early, so that no further attempts begin."""
        return self.stopping.cause is not None

    @property
    def retries(self) -> Counter[str]:
        """Failed requests that are sent again, counted by error class."""
        return Counter() if self._requests is None else self._requests.retries

    @property
    def num_outages(self) -> int:
        return 0 if self._requests is None else self._requests.num_outages

    @property
    def outage_seconds(self) -> float:
        return 0.0 if self._requests is None else self._requests.outage_seconds

    @property
    def _requests(self) -> Engine | ModelPool | None:
        if self._engine is not None or self._shared is None:
            return self._engine
        return self._shared.roles.pool

    @property
    def num_without_logprobs(self) -> int:
        return self._writer.num_without_logprobs

    async def __aenter__(self) -> Self:
        resources = self._resources
        async with AsyncExitStack() as stack:
            if self.path is not None:
                await self._open_directory(RunDirectory(self.path, self._plan.scrubber), stack)
            if resources.watchdog is None:
                # With an engine, environments run in other processes.
                is_here = self._engine is None
                resources.watchdog = await stack.enter_async_context(
                    Watchdog(
                        blocking_timeout=resources.blocking_timeout,
                        stack_file=resources.stack_file if is_here else None,
                        is_supervised=is_here and self._supervised is not None,
                    )
                )
            self._shared = await self._open_shared(resources.watchdog, stack)
            if self._engine is not None:
                stack.push_async_callback(asyncio.to_thread, self._engine.close)
            # Last: run.json changes only once everything could be opened.
            self._writer.begin(self._plan.began_at, is_unfinished=self.num_left > 0)
            self._stack = stack.pop_all()
        return self

    async def _open_directory(self, directory: RunDirectory, stack: AsyncExitStack) -> None:
        await self._lock(directory)
        stack.callback(directory.close)
        # Under the lock, since another process may have created the run meanwhile.
        directory.check_identity(self.manifest.identity)
        # Before anything is read: a process that was killed may have left half a line.
        directory.mend()
        self.warnings += directory.warnings
        if self._supervised is not None:
            # Before the state is read, which must have the attempt that this may record as crashed.
            self._report_to(self._supervised, directory, stack)
        self.state = read_state(self._plan, directory)
        self.warnings += self.state.warnings
        self._writer.num_scored = self.state.num_scored
        self._writer.manifest = self.state.manifest
        budget = self._resources.budget
        if budget.is_limited:
            policy = self.options.endpoint or self.options.model
            budget.add_record(directory.path, policy, self._plan.settings.roles)
        self._writer.directory = directory
        directory.reserve(records_tokens=self.options.records_tokens)
        # A process that ends normally leaves no attempts in flight, hence no suspects.
        stack.callback(directory.begun.remove)
        if self._supervised is not None:
            directory.begun.open(self._suspects)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        if error is not None:
            self._restart_after(error)
        try:
            self._writer.write_time()
        except RunDirectoryError as failed:  # must not replace the error that ends the run
            _LOGGER.warning(str(failed))
        try:
            await self._stack.aclose()
        except BaseException as failed:
            self._restart_after(failed)
            raise

    def _restart_after(self, error: BaseException) -> None:
        """End the process, to be restarted, if environment code has broken the run.

        It may have cancelled all tasks, patched asyncio or closed a descriptor: once attempts have
        begun, nothing else explains an error that is neither gymcli's own nor an interrupt.
        """
        if self._supervised is None or not self._has_begun:
            return
        if not isinstance(error, GymError | KeyboardInterrupt | SystemExit):
            stack = "".join(traceback.format_exception(error))
            self._supervised.die(self._plan.scrubber.text(stack), self._resources.stack_file)

    async def _lock(self, directory: RunDirectory) -> None:
        """Lock the run directory; wait for another process that may be about to end."""
        ends = time.monotonic() + self._resources.blocking_timeout
        is_notified = False
        while True:
            try:
                directory.lock(self.stopping.from_thread())
            except RunDirectoryError as error:
                is_held = isinstance(error.__cause__, BlockingIOError)
                # Waiting for a run of this same process could never end.
                if not is_held or directory.is_held_here or time.monotonic() >= ends:
                    raise
            else:
                return
            if not is_notified:
                is_notified = True
                self._notify(
                    f"{self.path}: another process is writing this run; waiting up to "
                    f"{self._resources.blocking_timeout:g} s for it to end"
                )
            await asyncio.sleep(_LOCK_SECONDS)

    def _report_to(
        self, supervised: Supervised, directory: RunDirectory, stack: AsyncExitStack
    ) -> None:
        resources = self._resources
        if resources.stack_file is None:  # this is the first run
            # Before the directory is reported: the supervisor reads this file in it.
            resources.stack_file = stack.enter_context(open_stack_file(directory.path))
            patience = self.options.grace + resources.close_timeout + _END_SECONDS
            supervised.tell(Tag.DIRECTORY, str(directory.path))
            supervised.tell(Tag.PATIENCE, str(patience))
        death = supervised.death
        if death is None:
            return
        self._suspects, proved = directory.begun.suspects(directory.done())
        plan = None if proved is None else self._plan.find(proved)
        if plan is None:
            return
        text = (
            f"the run's process died twice during this attempt, lastly with no other: {death.how}"
        )
        error = CrashedAttemptError(f"{text}\n{death.stack}" if death.stack else text)
        directory.append_failure(failure_of(plan.new_record(), error))
        supervised.tell(Tag.RECORDED)

    async def _open_shared(self, watchdog: Watchdog, stack: AsyncExitStack) -> Shared:
        plan, options, resources = self._plan, self.options, self._resources
        roles = plan.settings.roles
        judges = Judges(
            roles, options.role_params, options.concurrency, base_scrubber=plan.scrubber
        )
        folder = None if self._writer.directory is None else self.path
        shared = await stack.enter_async_context(
            open_shared(
                judges,
                Verdicts(folder, scrubber=plan.scrubber),
                save=self._writer.save,
                save_tokens=self._writer.save_tokens,
                stopping=self.stopping,
                watchdog=watchdog,
                spend=plan.settings.spend,
                leader=resources.shared,
            )
        )
        resources.shared = resources.shared or shared
        shared = shared._replace(slots=resources.slots)
        if self.num_left and self._engine is None:
            # Start a worker while the first request is under way.
            first = plan.first()
            if not verifies_in_loop(first.environment, roles):
                shared.workers.warm(first.environment, first.options)
        # A score on record shows that the policy and the roles have answered; a waiting
        # conversation, that the policy has.
        if self.state.done:
            shared = shared._replace(answered=frozenset({POLICY, *roles}))
        elif self.state.waiting:
            shared = shared._replace(answered=frozenset({POLICY}))
        return shared._replace(policy=await self._open_policy(shared.roles.pool))

    async def _open_policy(self, pool: ModelPool) -> Client | InProcessPolicy | None:
        """Return who plays here, probed for token ids if they are recorded; None: nobody does."""
        options = self.options
        if options.policy is not None:
            return InProcessPolicy(options.policy)
        # Waiting conversations are scored even if the policy's endpoint is down.
        source = policy_source(options) if self.num_left > len(self.state.waiting) else None
        if source is None or (self._engine is not None and not options.records_tokens):
            return None
        policy = await pool.client(source)
        if options.records_tokens:
            self._resources.budget.check()  # a run that has used it up sends no request
            if self.stopping.cause is None:
                await self._probe_tokens(policy)
        return policy if self._engine is None else None

    async def _probe_tokens(self, policy: Client) -> None:
        """Find out how the policy's endpoint reports token ids; UsageError if it does not."""
        source = await policy.probe_tokens()
        if self._engine is not None:
            self._engine.token_source = source
        settings = replace(self._plan.settings, neutral_params=neutral_params(source))
        self._plan = replace(self._plan, settings=settings)
        mode = "raw" if source == "llamacpp" else "raw or processed (gym.toml: logprob_mode)"
        self.token_note = (
            f"{policy.endpoint.model}: token ids come from {TOKEN_SOURCES[source]}; "
            f"log-probabilities are {policy.endpoint.logprob_mode or mode}"
        )
        _LOGGER.info(self.token_note)

    async def run(self) -> AsyncGenerator[Rollout | Failure]:
        """Run the attempts that are not done; write each record to disk before yielding it.

        Raises:
            RunError: The endpoint refuses everything, or the directory cannot be written.
        """
        place = self.path or "memory"
        _LOGGER.info("start %s: %d of %d attempts", place, self.num_left, self.num_expected)
        for text in self.warnings:
            _LOGGER.warning(text)
        assert self._shared is not None, "run() must be called inside `async with`"
        if self.num_left:
            # A run that has already used up its budget sends no request at all.
            self._resources.budget.check()
        try:
            with self._resources.budget.timed(self._plan.began_at):
                for records in self._rounds(self._shared):
                    async with aclosing(records):
                        async for record in records:
                            self.begun_at.pop(record.key, None)
                            yield record
        except FatalEndpointError as error:
            endpoint = self.options.endpoint
            sends_key = endpoint is None or endpoint.api_key or endpoint.headers or endpoint.query
            if not sends_key and isinstance(error.__cause__, AuthenticationError):
                way_out = "no key was sent: set --api-key-env VARIABLE"
                raise FatalEndpointError(f"{error}; {way_out}") from error.__cause__
            if self.num_scored:
                raise FatalEndpointError(f"{error}; {self.scored_text}") from error.__cause__
            raise
        except BudgetReachedError as error:
            # If everything is done and counted, the budget has prevented nothing.
            if self.num_left or self._resources.budget.has_unknown:
                spent = f", {text}" if (text := self._resources.budget.spent_text()) else ""
                raise BudgetReachedError(f"{error}{spent}; {self.scored_text}") from error
        finally:
            if self._writer.directory is not None:
                # For the metrics, which are computed next.
                self._writer.directory.free_spare()
                # Raises the error of an earlier sync too, before the command reports success.
                self._writer.directory.sync()
        _LOGGER.info("end %s: %d of %d scored", place, self.num_scored, self.num_expected)

    def _rounds(self, shared: Shared) -> Iterator[AsyncGenerator[Rollout | Failure]]:
        """Yield the run of all attempts, then that of the suspects, one at a time.

        An attempt that crashes the process then affects no other attempt.
        """
        concurrency = max(1, min(self.options.concurrency, self.num_left))
        attempts, write = self._attempts(selects_suspects=False), self._writer.write
        if self._engine is not None:
            # Environments run in other processes and are unlikely to crash this one.
            if self._suspects:
                attempts = itertools.chain(attempts, self._attempts(selects_suspects=True))
            yield self._engine.run(attempts, shared, concurrency=concurrency, write=write)
            return
        yield run_attempts(attempts, shared, concurrency=concurrency, write=write)
        if not self._suspects:
            return
        if self._writer.directory is not None:
            self._writer.directory.begun.begin_alone()
        # The first round has shown that the endpoints answer.
        if self.num_scored:
            shared = shared._replace(answered=frozenset({POLICY, *self._plan.settings.roles}))
        suspects = self._attempts(selects_suspects=True)
        yield run_attempts(suspects, shared, concurrency=1, write=write)

    def _attempts(self, *, selects_suspects: bool) -> Iterator[Attempt]:
        """Return the suspects that are left, or all other attempts; note when each begins."""
        state, directory = self.state, self._writer.directory
        if selects_suspects or not self._suspects:
            # Only the iterator holds the done tasks, so they are freed at its end.
            self.state = state._replace(done={})
        if not self.num_left:
            return iter(())
        suspects, group_sizes = self._suspects, self._plan.survey.group_sizes
        # A suspect's whole group is scored together, so it is run with the suspects.
        groups = {(key.env, key.task_id) for key in suspects} & group_sizes.keys()

        def takes(key: AttemptKey) -> bool:
            is_suspect = key in suspects or (key.env, key.task_id) in groups
            return is_suspect == selects_suspects

        attempts = remaining_attempts(self._plan, state, directory, takes if suspects else None)
        begun = None if directory is None or self._supervised is None else directory.begun

        def note(attempt: Attempt) -> Attempt:
            if not attempt.is_done:
                key = attempt.key
                # Noted before it starts, since it may end the process immediately.
                if begun is not None:
                    begun.add(key)
                self.begun_at[key] = time.monotonic()
                self._has_begun = True
            return attempt

        return map(note, attempts)

    @property
    def scored_text(self) -> str:
        """How much of this plan is scored, in words."""
        return f"{self.num_scored} of {self.num_expected} attempts are scored"

    def finish(self, metrics: bytes, ended_at: float | None) -> None:
        """Write the metrics, as JSON, and the end of the run; `ended_at` is None if stopped."""
        self._writer.finish(metrics, ended_at)
