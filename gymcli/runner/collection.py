"""A collection: checks its options, opens its directory and models, and runs its attempts."""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import logging
import os
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from gymcli.environment.registry import Registry
from gymcli.errors import (
    AuthenticationError,
    BudgetReachedError,
    CrashedAttemptError,
    EngineError,
    FatalEndpointError,
    GymError,
    ModelError,
    RoleError,
    RunDirectoryError,
    RunError,
    RunMismatchError,
    TooManyFailuresError,
    UsageError,
    boundary,
)
from gymcli.metrics.slicing import field_of, slice_name
from gymcli.models.client import Client
from gymcli.models.in_process import InProcessPolicy
from gymcli.models.local_model import model_name, parse_local
from gymcli.models.roles import ModelPool, check_missing
from gymcli.rollout.episode import EpisodeFailedError, EpisodePlan, play
from gymcli.rollout.event_loop import Watchdog
from gymcli.rollout.scoring import verifies_in_loop
from gymcli.runner.attempts import Attempt, Outcome, Shared, failure_of, run_attempts
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.engine import Engine
from gymcli.runner.identity import (
    default_out,
    identity_of,
    new_manifest,
    parameter_warnings,
    policy_source,
    unused,
)
from gymcli.runner.judges import Judges, open_shared, scrubber_of_run
from gymcli.runner.plan import CUT_OFF, ResumeState, RunPlan, resumed_manifest, source_warnings
from gymcli.runner.run_writer import RunWriter
from gymcli.runner.stopping import POLICY, Budget, Stopping, check_prices
from gymcli.store.durability import open_file, write_error
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.rollout_files import DoneTasks
from gymcli.store.run_directory import RunDirectory
from gymcli.store.shards import check_same_shard
from gymcli.store.supervised import STACK_FILE, Supervised, Tag
from gymcli.store.tokens import TOKEN_SOURCES, neutral_params
from gymcli.store.verdicts import Verdicts
from gymcli.tasks.task_source import TaskInput, TaskSource, env_of_tasks, survey
from gymcli.types import Answer, AttemptKey, Failure, Request, Rollout, TaskRow

STOPS_EARLY = (BudgetReachedError, FatalEndpointError, EngineError, TooManyFailuresError)
"""Errors that stop a run early; what it has recorded is valid."""

_LOGGER = logging.getLogger(__name__)

_LOCK_SECONDS = 0.1
"""The pause between two tries to lock a run that another process holds."""
_END_SECONDS = 5.0
"""How long the end of a run may take, after its grace and the closing of environments."""


@dataclass(eq=False)
class CommandState:
    """What all runs of one command share."""

    budget: Budget
    slots: asyncio.Semaphore
    """One for each attempt in flight."""
    blocking_timeout: float = 0.0
    """The largest of all environments."""
    close_timeout: float = 0.0
    """The largest of all environments."""
    shared: Shared | None = None
    """That of the first run, once it is open: its clients and workers serve all."""


class Collection:
    """One run: the constructor checks it, `async with` opens it, `run` runs it.

    Args:
        inputs: Task files and generated tasks. Code that generates tasks also stands for `env`
            without one.
        options: If `out` is None, a run with a directory uses the default one.
        has_directory: Whether to write a run directory.
        supervised: The supervisor that restarts the run if this process dies.
        notify: Shows the user a line immediately.
        beside: A run of the same command that opens before this one and closes after it. Both share
            its concurrency, budgets, clients, workers and watchdog.
        engine: Plays the attempts, and is closed with the run; None: this process plays them.

    Raises:
        UsageError: A file, a row, an option or a name is wrong. Nothing was sent or written.
    """

    def __init__(
        self,
        inputs: Sequence[TaskInput],
        options: CollectOptions,
        *,
        has_directory: bool = True,
        supervised: Supervised | None = None,
        notify: Callable[[str], None] = _LOGGER.warning,
        beside: Collection | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._started = time.monotonic()
        self._beside = beside
        env = env_of_tasks(inputs, options.env)
        self.options = options = options.with_outage_deadline().model_copy(update={"env": env})
        self._engine = engine
        self.supervised = supervised
        self._notify = notify
        weights = parse_local(options.model)
        model = options.model if weights is None else model_name(weights)
        registry = Registry((options.env,) if options.env else ())
        source = TaskSource(inputs, options, registry)
        is_restart = supervised is not None and supervised.directory is not None
        if beside is None and not is_restart:  # else it has been said already
            for note in source.notes:
                notify(note)
        self._scrubber = scrubber_of_run(options)
        found = survey(source, registry, self._scrubber)
        classes = {name: item.environment for name, item in found.environments.items()}
        self.command: CommandState = (
            CommandState(Budget(options), asyncio.Semaphore(options.concurrency))
            if beside is None
            else beside.command
        )
        """What all runs of this command share."""
        blocking = max((one.blocking_timeout for one in classes.values()), default=60.0)
        closing = max((one.close_timeout for one in classes.values()), default=0.0)
        self.command.blocking_timeout = max(self.command.blocking_timeout, blocking)
        self.command.close_timeout = max(self.command.close_timeout, closing)
        self.watchdog = Watchdog(blocking_timeout=self.command.blocking_timeout)
        """Watches the run's event loop once the collection is open."""
        missing_warnings = check_missing(
            {role: why for role, why in options.missing_roles.items() if role not in options.roles},
            classes,
        )
        if options.records_tokens:
            if options.model == "oracle":
                raise UsageError(
                    "--record-tokens: the oracle has no token ids, since no engine plays; leave "
                    "the option out, or name another --model"
                )
            if not has_directory:
                raise UsageError("record_tokens needs out: token ids are written to a directory")
        self.stopping = Stopping(options.grace)
        """Ends the run early."""
        self._budget = self.command.budget
        self._budget.stops.append(self.stopping.stop)
        self._spend = self._budget.add if self._budget.is_limited else None
        self._plan = RunPlan(source, options, found, model, spend=self._spend)
        check_prices(options, self._plan.roles)
        template_hash = source.template.hash if source.template else None
        env_options = self._plan.env_options
        identity = identity_of(
            model,
            options,
            template_hash,
            found.environments,
            env_options,
            param_names=found.param_names,
        )
        beside_manifest = None if beside is None else beside.manifest
        manifest = new_manifest(
            model, options, found, env_options, identity, beside=beside_manifest
        )
        self._writer = RunWriter(manifest, supervised)
        self.num_expected = manifest.num_expected
        self._num_planned = {n: one.num_expected for n, one in manifest.environments.items()}
        self._most_planned = found.most_copies * options.repeats
        self.path: Path | None = None
        if has_directory:
            self.path = options.out or default_out(source, options, identity)
            if options.fresh:
                self.path = unused(self.path)
        self.warnings = [
            *source.id_warnings,
            *found.env_warnings(options.env, registry),
            *found.prompt_warnings(options.prompt),
            *parameter_warnings(options, found),
            *self._plan.self_judgement(),
            *missing_warnings,
            *registry.agent_warnings,
            *(
                f"{name}: verifies_in_worker no longer has an effect: remove it. Every verifier "
                "that awaits nothing runs in a worker process"
                for name, environment in classes.items()
                if environment.verifies_in_worker
            ),
        ]
        """Warnings for the user; opening the run may add more."""
        self.token_note = ""
        """Where the token ids come from, in words, once the endpoint has been probed for them."""
        self._done: DoneTasks = {}
        self._state = ResumeState()
        self.selection: frozenset[AttemptKey] | None = None
        """The attempts, planned or scored, of the tasks that `--limit` or `--task` selects; None if
        the run holds no other tasks."""
        self._suspects: frozenset[AttemptKey] = frozenset()
        """Attempts that may have crashed an earlier process of the run; they are tried last."""
        self.begun_at: dict[AttemptKey, float] = {}
        """When each attempt that has not ended yet began, by `time.monotonic`."""
        self._has_begun = False
        self.stack_file: IO[str] | None = None
        """Open in a supervised run; the one of several models that came first has it."""
        self._shared: Shared | None = None
        self._outages: Engine | ModelPool | None = self._engine
        """Counts how often endpoints were down."""
        self._stack = AsyncExitStack()

    @property
    def manifest(self) -> Manifest:
        """The content of run.json."""
        return self._writer.manifest

    @property
    def most_attempts(self) -> int:
        """The most attempts of a task; once the run is read, those on record count too."""
        on_record = (one.attempts.bit_count() for one in self._done.values())
        return max([self._most_planned, *on_record])

    def slices(self, field: str, env: str | None) -> frozenset[str]:
        """Return the names of the slices of the planned tasks, of one environment or of all."""
        planned = (row for row, _ in self._plan.rows() if env in (None, row.env))
        return frozenset(slice_name(field_of(row.fields, field)) for row in planned)

    @property
    def num_scored(self) -> int:
        """Attempts of this plan that are scored; once open, it includes earlier commands."""
        return self._writer.num_scored

    @property
    def num_left(self) -> int:
        """Attempts of this plan that are not scored yet."""
        return self.num_expected - self.num_scored - self.num_left_failed

    @property
    def left(self) -> Counter[str]:
        """The attempts that this command runs, by environment."""
        others = Counter(self._state.num_done) + Counter(key.env for key in self._state.left_failed)
        return Counter(self._num_planned) - others

    @property
    def num_in_flight(self) -> int:
        """Attempts that are being played or scored."""
        return self.stopping.num_in_flight

    @property
    def is_stopping(self) -> bool:
        """Whether the run ends early, so that no further attempts begin."""
        return self.stopping.cause is not None

    @property
    def retries(self) -> Counter[str]:
        """Failed requests that are sent again, counted by error class."""
        if self._engine is not None:
            return self._engine.retries
        return Counter() if self._shared is None else self._shared.roles.pool.retries

    @property
    def num_outages(self) -> int:
        """How often an endpoint was down."""
        return 0 if self._outages is None else self._outages.num_outages

    @property
    def outage_seconds(self) -> float:
        """How long endpoints were down, summed over all of them."""
        return 0.0 if self._outages is None else self._outages.outage_seconds

    @property
    def num_without_logprobs(self) -> int:
        """Answers without the log-probabilities that were requested."""
        return self._writer.num_without_logprobs

    @property
    def num_left_failed(self) -> int:
        """Attempts of this plan that failed before and are not retried."""
        return len(self._state.left_failed)

    @property
    def num_crashed(self) -> int:
        """Attempts of `num_left_failed` during which the process of a run died."""
        return self._state.num_crashed

    def rows(self) -> Iterator[TaskRow]:
        """Yield the planned tasks, done or not."""
        repeats = self.options.repeats
        return (row for row, n in self._plan.rows() if n == row.first_attempt * repeats)

    def first_plan(self, env: str | None = None) -> EpisodePlan:
        """Return the plan of the first attempt, of an environment or of all."""
        return self._plan.first(env)

    async def first_request(self, env: str | None = None) -> Request:
        """Return the first request of `first_plan(env)`, without sending it."""
        plan = self.first_plan(env)
        with boundary(RoleError):
            # A dry run sends no request, so scripted models play the roles that `setup` may ask.
            stand_ins = plan.environment.stand_ins(plan.environment.parse_task(plan.row.fields))
        policy = _FirstRequest()
        try:
            await play(msgspec.structs.replace(plan, roles=stand_ins), policy)
        except EpisodeFailedError as failed:
            if policy.request is None:
                raise RunError(f"the first attempt cannot start: {failed}") from failed.error
        assert policy.request is not None, "an episode starts with a request"
        return policy.request

    def check_existing_run(self) -> None:
        """Check that an existing run in the directory can be resumed, without changing it."""
        if self.path is not None and self.path.is_dir():
            directory = RunDirectory(self.path, self._scrubber)
            directory.check_identity(self.manifest.identity)
            self._resume(directory)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self.path is not None:
                directory = RunDirectory(self.path, self._scrubber)
                await self._lock(directory)
                stack.callback(directory.close)
                # Under the lock, since another process may have created the run meanwhile.
                directory.check_identity(self.manifest.identity)
                # Before anything is read: a process that was killed may have left half a line.
                directory.mend()
                self.warnings += directory.warnings
                if self.supervised is not None:
                    if self._beside is None:
                        # Before the directory is reported: the supervisor reads this file in it.
                        self.stack_file = _stack_file(self.path, stack)
                    # Before `_resume`, which must see the attempt that this may record as crashed.
                    self._report_to(self.supervised, directory)
                self._resume(directory)
                if self._budget.is_limited:
                    policy = self.options.endpoint or self.options.model
                    self._budget.add_record(directory.path, policy, self._plan.roles)
                self._writer.directory = directory
                directory.reserve(records_tokens=self.options.records_tokens)
                # A process that ends normally leaves no attempts in flight, hence no suspects.
                stack.callback(directory.begun.remove)
                if self.supervised is not None:
                    directory.begun.open(self._suspects)
                if self._engine is None:  # else environments run in other processes
                    self.watchdog = Watchdog(
                        blocking_timeout=self.command.blocking_timeout,
                        stack_file=self.stack_file,
                        is_supervised=self.supervised is not None,
                    )
            if self._beside is None:
                await stack.enter_async_context(self.watchdog)
            else:
                self.watchdog = self._beside.watchdog
            self._shared = await self._open_shared(stack)
            if self._engine is None:
                self._outages = self._shared.roles.pool
            else:
                stack.push_async_callback(asyncio.to_thread, self._engine.close)
            # Last: run.json changes only once everything could be opened.
            self._writer.begin(self._started, is_unfinished=self.num_left > 0)
            self._stack = stack.pop_all()
        return self

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
        if self.supervised is None or not self._has_begun:
            return
        if not isinstance(error, GymError | KeyboardInterrupt | SystemExit):
            stack = "".join(traceback.format_exception(error))
            self.supervised.die(self._scrubber.text(stack), (self._beside or self).stack_file)

    async def _lock(self, directory: RunDirectory) -> None:
        """Lock the run directory; wait for another process that may be about to end."""
        ends = time.monotonic() + self.command.blocking_timeout
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
                    f"{self.command.blocking_timeout:g} s for it to end"
                )
            await asyncio.sleep(_LOCK_SECONDS)

    def _report_to(self, supervised: Supervised, directory: RunDirectory) -> None:
        if self._beside is None:  # it has the stack file
            patience = self.options.grace + self.command.close_timeout + _END_SECONDS
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

    def _resume(self, directory: RunDirectory) -> None:
        before = read_manifest(directory.path)
        if before is not None:
            check_same_shard(directory.path, before.shard, self.manifest.shard)
        num_scored: Counter[tuple[str, str]] = Counter()
        done = directory.done(num_scored)
        state = self._plan.resume_state(directory, done)
        # The default name has no hash of the tasks, so files of the same name lead to one
        # directory.
        if self.options.out is None and done and len(state.removed_ids) == len(done):
            raise RunMismatchError(
                f"{directory.path}: holds a run of other tasks, none of which is in these files; "
                "choose another directory with --out"
            )
        self._done, self._state = done, state
        self._writer.num_scored = sum(state.num_done.values())
        if state.warning:
            self.warnings.append(state.warning)
        if before is not None:
            self.warnings += source_warnings(self.manifest, num_scored, directory.path)
            self._writer.manifest = resumed_manifest(self.manifest, before, state)
            if self.options.limit is not None or self.options.task_ids:
                selection = self._plan.selection(done)
                if len(selection) < self.manifest.num_expected:
                    self.selection = selection

    async def _open_shared(self, stack: AsyncExitStack) -> Shared:
        options = self.options
        judges = Judges(
            self._plan.roles, options.role_params, options.concurrency, others=self._scrubber
        )
        folder = None if self._writer.directory is None else self.path
        shared = await stack.enter_async_context(
            open_shared(
                judges,
                Verdicts(folder, scrubber=self._scrubber),
                save=self._writer.save,
                save_tokens=self._writer.save_tokens,
                stopping=self.stopping,
                watchdog=self.watchdog,
                spend=self._spend,
                beside=self.command.shared,
            )
        )
        self.command.shared = self.command.shared or shared
        shared = shared._replace(slots=self.command.slots)
        if self.num_left and self._engine is None:
            # Start a worker while the first request is under way.
            first = self._plan.first()
            if not verifies_in_loop(first.environment, self._plan.roles):
                shared.workers.warm(first.environment, first.options)
        # A score on record shows that the policy and the roles have answered; a waiting
        # conversation, that the policy has.
        if self._done:
            shared = shared._replace(answered=frozenset({POLICY, *self._plan.roles}))
        elif self._state.waiting:
            shared = shared._replace(answered=frozenset({POLICY}))
        # Waiting conversations are scored even if the policy's endpoint is down.
        source = policy_source(options) if self.num_left > len(self._state.waiting) else None
        if source is not None and (self._engine is None or options.records_tokens):
            policy = await shared.roles.pool.client(source)
            if options.records_tokens:
                self._budget.check()  # a run that has used up its budget sends no request
                if self.stopping.cause is None:
                    await self._probe_tokens(policy)
            if self._engine is None:
                shared = shared._replace(policy=policy)
        if options.policy is not None:
            shared = shared._replace(policy=InProcessPolicy(options.policy))
        return shared

    async def _probe_tokens(self, policy: Client) -> None:
        """Find out how the policy's endpoint reports token ids; UsageError if it does not."""
        source = await policy.probe_tokens()
        if self._engine is not None:
            self._engine.token_source = source
        self._plan.neutral_params = neutral_params(source)
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
            self._budget.check()
        try:
            with self._budget.timed(self._started):
                for records in self._rounds(self._shared):
                    async with aclosing(records):
                        async for record in records:
                            self.begun_at.pop(record.key, None)
                            yield record
        except FatalEndpointError as error:
            one = self.options.endpoint
            sends_key = one is None or one.api_key or one.headers or one.query
            if not sends_key and isinstance(error.__cause__, AuthenticationError):
                way_out = "no key was sent: set --api-key-env VARIABLE"
                raise FatalEndpointError(f"{error}; {way_out}") from error.__cause__
            if self.num_scored:
                raise FatalEndpointError(f"{error}; {self.scored_text}") from error.__cause__
            raise
        except BudgetReachedError as error:
            # If everything is done and counted, the budget has prevented nothing.
            if self.num_left or self._budget.has_unknown:
                spent = f", {text}" if (text := self._budget.spent_text()) else ""
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
        attempts, write = self._attempts(of_suspects=False), self._write
        if self._engine is not None:
            # Environments run in other processes and are unlikely to crash this one.
            if self._suspects:
                attempts = itertools.chain(attempts, self._attempts(of_suspects=True))
            yield self._engine.run(attempts, shared, concurrency=concurrency, write=write)
            return
        yield run_attempts(attempts, shared, concurrency=concurrency, write=write)
        if not self._suspects:
            return
        if self._writer.directory is not None:
            self._writer.directory.begun.begin_alone()
        # The first round has shown that the endpoints answer.
        if self.num_scored:
            shared = shared._replace(answered=frozenset({POLICY, *self._plan.roles}))
        suspects = self._attempts(of_suspects=True)
        yield run_attempts(suspects, shared, concurrency=1, write=write)

    def _write(self, outcome: Outcome) -> Outcome:
        written = self._writer.write(outcome)
        record = written.record
        # A group that fails together is one failure.
        error = record.error if isinstance(record, Failure) and outcome.is_own else None
        if error is not None and error.error_class not in CUT_OFF:
            self._budget.add_failure()
        return written

    def _attempts(self, *, of_suspects: bool) -> Iterator[Attempt]:
        done, directory = self._done, self._writer.directory
        if of_suspects or not self._suspects:
            self._done = {}  # only the iterator holds the done tasks, so they are freed at its end
        if not self.num_left:
            return iter(())

        def takes(key: AttemptKey) -> bool:
            # A suspect's whole group is scored together, so it is run with the suspects.
            task = key.env, key.task_id
            is_suspect = key in self._suspects or (
                self._plan.group_sizes[task] > 0
                and any(task == (one.env, one.task_id) for one in self._suspects)
            )
            return is_suspect == of_suspects

        attempts = self._plan.attempts(
            self._state, done, directory, takes if self._suspects else None
        )
        begun = None if directory is None or self.supervised is None else directory.begun

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


def _stack_file(folder: Path, stack: AsyncExitStack) -> IO[str]:
    path = folder.absolute() / STACK_FILE
    try:
        descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
    except OSError as error:
        raise write_error(folder / STACK_FILE, error) from error
    file = stack.enter_context(os.fdopen(descriptor, "w"))
    # A crash in C code, such as a segmentation fault, leaves its stack there too.
    faulthandler.enable(file)
    stack.callback(faulthandler.disable)
    return file


class _FirstRequest:
    """A policy that stores the first request and refuses to answer."""

    request: Request | None = None

    async def answer(self, request: Request) -> Answer:
        self.request = request
        raise ModelError("a dry run sends no requests")
