"""Runs the attempts of a run concurrently: each is played, or read from disk, and then scored.

An attempt's error becomes its failure record; only errors that end the run are raised.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import (
    AttemptError,
    EndpointGoneError,
    IncompleteGroupError,
    ModelError,
    Phase,
    RoleError,
    UnfinishedAttemptError,
    UnknownUsageError,
    text_of,
)
from gymcli.models.api_errors import is_fatal, is_unreachable
from gymcli.models.client import Client, Conversation
from gymcli.models.roles import RoleModel, RoleModels, waits_to_score
from gymcli.rollout.episode import Episode, EpisodeFailedError, EpisodePlan, Policy
from gymcli.rollout.event_loop import Watchdog
from gymcli.rollout.scoring import Workers, score, score_group
from gymcli.runner.stopping import FailFast, Stopping, cause_of
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import MAX_LINE_BYTES, TOO_LONG
from gymcli.store.rollout_files import redacted
from gymcli.tracebacks import frames_of
from gymcli.types import (
    Answer,
    AttemptKey,
    ErrorRecord,
    Failure,
    JSONObject,
    Request,
    RoleUse,
    Rollout,
    TokenSource,
    Verifier,
)

_LOGGER = logging.getLogger(__name__)

_NUM_STARTS = 500
"""Workers started per turn of the loop: a long turn would use up the 10 s of connecting."""

_MAX_LENT = 8
"""Slots that are lent on suspicion. An endpoint that refuses all requests would refuse those of new
attempts too, which use memory."""


class Attempt(NamedTuple):
    """One attempt to run."""

    environment: type[Environment[Task]]
    options: EnvironmentOptions
    verifier: Verifier
    plan: EpisodePlan | None
    """None: the conversation is on record and waits for its score."""
    generation: Rollout | None = None
    group_size: int = 0
    """How many attempts of the task are scored together; 0 if each is scored separately."""
    is_done: bool = False
    """Whether it has a score already and only completes its group."""
    keeps_score: bool = False
    """Whether its recorded score stays, since its world cannot be replayed."""

    @property
    def key(self) -> AttemptKey:
        if self.plan is not None:
            return AttemptKey(self.plan.row.env, self.plan.row.id, self.plan.attempt)
        assert self.generation is not None, "an attempt without a plan has a conversation"
        return self.generation.key


class Shared(NamedTuple):
    """What all attempts of a run share."""

    policy: Client | Policy | None
    """The policy's endpoint, or a policy in this process; None: the environment's oracle plays."""
    roles: RoleModels
    workers: Workers
    save: Callable[[Rollout], None]
    """Saves a finished conversation before its verifier waits for anything."""
    stopping: Stopping
    watchdog: Watchdog
    answered: frozenset[str] = frozenset()
    """The roles, or `POLICY`, whose endpoints have answered according to the record."""
    scrubber: Scrubber = NOTHING_SECRET
    """Removes the keys in use from conversations before they are scored."""
    written: Callable[[], Awaitable[None]] | None = None
    """Waits until saved conversations are on disk, if another process writes them."""
    slots: asyncio.Semaphore | None = None
    """Limits the attempts in flight of several runs together."""
    slot: _Slot | None = None
    """The slot of the attempt that is run."""
    save_tokens: Callable[[Sequence[bytes]], None] = lambda _: None
    """Saves the lines of a finished conversation's token ids, before the conversation itself."""


class Outcome(NamedTuple):
    """How one attempt ended: with a score, or with a failure."""

    record: Rollout | Failure
    generation: Rollout | None = None
    """The finished conversation of an attempt whose verifier failed, to be scored later."""
    was_answered: bool = False
    """Whether the model answered in this attempt."""
    fatal: AttemptError | None = None
    """An error that every further attempt may meet too."""
    is_own: bool = True
    """False if its score was kept, or if another attempt of its group failed."""


def _role_models(
    attempt: Attempt, fields: JSONObject, shared: Shared, use: dict[str, RoleUse]
) -> dict[str, RoleModel]:
    lend = None if shared.slot is None else shared.slot.lend
    return shared.roles.of(attempt.environment, fields, use, lend)


def _phase(models: Iterable[RoleModel], otherwise: Phase) -> Phase:
    """Return "role" while a role's request is pending, else the attempt's own phase."""
    return "role" if any(model.num_asked for model in models) else otherwise


def _raise_run_error(models: Iterable[RoleModel]) -> None:
    """Raise the first error of these models that ends the run: a full disk, a wrong option."""
    for model in models:
        for error in model.errors:
            if not isinstance(error, AttemptError):
                raise error


class _PolicyConversation(Conversation):
    """The conversation of one attempt, which goes on only in its slot if that was lent."""

    def __init__(self, client: Client, slot: _Slot | None) -> None:
        super().__init__(client, None if slot is None else slot.lend)
        self._slot = slot

    async def answer(self, request: Request, *, sends_back: bool = True) -> Answer:
        await self._take_slot_back()  # the request of a role may have lent it
        answer = await super().answer(request, sends_back=sends_back)
        await self._take_slot_back()
        return answer

    async def _take_slot_back(self) -> None:
        if self._slot is not None and self._slot.is_lent:
            self.idle_since = self.client.clock()
            await self._slot.take()
            self.past_waits, self.idle_since = self.waited, None


async def _play_attempt(attempt: Attempt, plan: EpisodePlan, shared: Shared) -> Rollout | Outcome:
    """Return the conversation of an attempt, or the outcome of one that failed.

    If scoring waits for anything, the conversation is on disk by then.
    """
    use: dict[str, RoleUse] = {}
    roles: dict[str, RoleModel] = {}
    if shared.roles.sources:
        roles = _role_models(attempt, plan.row.fields, shared, use)
        plan = msgspec.structs.replace(plan, roles=roles)
    policy = shared.policy
    # One per attempt: it stays with one replica of the endpoint, and counts how long it waited.
    policy = _PolicyConversation(policy, shared.slot) if isinstance(policy, Client) else policy
    episode = Episode(plan, policy, shared.watchdog)
    # The models of roles add to it while they are asked, so a record that is cut off has it too.
    episode.rollout.role_usage = use
    episode.rollout.group_size = attempt.group_size
    error: AttemptError | None = None
    try:
        with shared.stopping.in_flight(lambda: _phase(roles.values(), episode.phase)):
            await episode.play()
    except (EpisodeFailedError, UnfinishedAttemptError) as failed:
        error = failed.error if isinstance(failed, EpisodeFailedError) else failed
        # The record is written immediately; the environment closes afterwards.
        if episode.is_running:
            shared.stopping.add_closing(episode)
    except asyncio.CancelledError:
        # The caller left. A finished conversation is saved: a resume only has to score it.
        if episode.is_finished:
            shared.save(_record_of(episode, shared))
        if episode.is_running:
            shared.stopping.add_closing(episode)
        raise
    rollout = _record_of(episode, shared)
    _raise_run_error(roles.values())
    if error is not None:
        return Outcome(
            failure_of(rollout, error),
            rollout if episode.is_finished else None,
            was_answered=bool(rollout.responses),
            fatal=_fatal_error(error, roles.values()),
        )
    if waits_to_score(attempt.environment, shared.roles.sources):
        shared.save(rollout)
        if shared.written is not None:
            await shared.written()
    return rollout


def _record_of(episode: Episode, shared: Shared) -> Rollout:
    """Return the record of an attempt without secrets; save the token ids of a finished one."""
    # Before scoring: the verifier must see the record as `gym verify` reads it from disk.
    rollout = redacted(episode.rollout, shared.scrubber)
    if episode.tokens is None:
        return rollout
    # The ids of a redacted conversation would decode to the key.
    is_kept = episode.is_finished and not rollout.redacted
    lines = [msgspec.json.encode(call) for call in episode.tokens.calls] if is_kept else []
    if any(len(line) >= MAX_LINE_BYTES for line in lines):  # and the end of the line
        _LOGGER.warning(
            "%s %s/%d: a line of its token ids %s; they are not written",
            rollout.env,
            rollout.task_id,
            rollout.attempt,
            TOO_LONG,
        )
        lines = []
    if lines:
        shared.save_tokens(lines)
    else:
        rollout.play = ""
    return rollout


async def _score_attempt(attempt: Attempt, rollout: Rollout, shared: Shared) -> Outcome:
    """Score a conversation; if that fails, the outcome keeps it for later."""
    started = time.perf_counter()
    use: dict[str, RoleUse] = {}
    roles: dict[str, RoleModel] = {}
    if shared.roles.sources:
        roles = _role_models(attempt, rollout.task, shared, use)
    # On disk already: by an earlier command, or by `_play_attempt` before this call.
    is_saved = attempt.plan is None or waits_to_score(attempt.environment, shared.roles.sources)

    def save() -> None:
        nonlocal is_saved
        if not is_saved:
            shared.save(rollout)
            is_saved = True

    try:
        with shared.stopping.in_flight(lambda: _phase(roles.values(), "verify")):
            scored = await score(
                attempt.environment,
                rollout,
                verifier=attempt.verifier,
                options=attempt.options,
                roles=roles,
                workers=shared.workers,
                save=save,
            )
    except AttemptError as error:
        _raise_run_error(roles.values())
        outcome = _unscored(attempt, rollout, error, use, roles.values())
        # `RunWriter.write` saves the conversation together with its failure.
        return outcome if is_saved else outcome._replace(generation=rollout)
    except asyncio.CancelledError:
        save()
        raise
    _raise_run_error(roles.values())  # the environment may have swallowed it
    scored.timing.total_seconds += time.perf_counter() - started
    if use:
        scored.role_usage = _added(rollout.role_usage, use)
    return Outcome(scored, was_answered=len(scored.messages) > scored.num_prompt_messages)


async def _score_members(
    members: Sequence[tuple[Attempt, Rollout | Outcome]], shared: Shared
) -> list[Outcome]:
    """Score all attempts of a task together; if one failed, all stay unscored."""
    waiting = [(attempt, played) for attempt, played in members if isinstance(played, Rollout)]
    unscored = [attempt for attempt, _ in waiting if not attempt.is_done]
    if not unscored:
        return []
    # Attempts scored before are written already, so their use goes to the first unscored one.
    first: dict[str, RoleUse] = {}
    uses = [first if attempt.is_done or attempt is unscored[0] else {} for attempt, _ in waiting]
    roles = [
        _role_models(attempt, rollout.task, shared, use)
        for (attempt, rollout), use in zip(waiting, uses, strict=True)
    ]
    started = time.perf_counter()
    models = [model for models_by_role in roles for model in models_by_role.values()]
    try:
        with shared.stopping.in_flight(lambda: _phase(models, "verify")):
            _check_group(members, shared)
            attempt = members[0][0]
            scored = await score_group(
                attempt.environment,
                [rollout for _, rollout in waiting],
                verifier=attempt.verifier,
                options=attempt.options,
                roles=roles,
                workers=shared.workers,
            )
    except AttemptError as error:
        _raise_run_error(models)
        is_own = not isinstance(error, IncompleteGroupError)
        # Only one attempt counts as its own failure: for `FailFast` the group met one refusal.
        return [
            _unscored(attempt, rollout, error, use, models)._replace(
                is_own=is_own and attempt is unscored[0]
            )
            for (attempt, rollout), use in zip(waiting, uses, strict=True)
            if not attempt.is_done
        ]
    seconds = time.perf_counter() - started
    for rollout, use in zip(scored, uses, strict=True):
        rollout.timing.total_seconds += seconds
        rollout.role_usage = _added(rollout.role_usage, use)
    return [
        Outcome(rollout, was_answered=bool(rollout.responses))
        for (attempt, _), rollout in zip(waiting, scored, strict=True)
        if not attempt.is_done
    ]


def _check_group(members: Sequence[tuple[Attempt, Rollout | Outcome]], shared: Shared) -> None:
    for _, outcome in members:
        if isinstance(outcome, Outcome) and isinstance(outcome.record, Failure):
            raise IncompleteGroupError(
                f"attempt {outcome.record.attempt} of this task failed "
                f"({outcome.record.error.error_class}); run the same command to retry it"
            )
    group_size = members[0][0].group_size
    if len(members) < group_size:
        # The others were never begun: these attempts are cut off and did not fail.
        if shared.stopping.cause is not None:
            raise shared.stopping.error("verify")
        raise IncompleteGroupError(
            f"only {len(members)} of {group_size} attempts of this task are finished"
        )


def _unscored(
    attempt: Attempt,
    rollout: Rollout,
    error: AttemptError,
    use: Mapping[str, RoleUse],
    models: Iterable[RoleModel],
) -> Outcome:
    failure = failure_of(rollout, error)
    failure.role_usage = _added(rollout.role_usage, use)
    was_answered = attempt.plan is not None and bool(rollout.responses)
    fatal = _fatal_error(error, models)
    return Outcome(failure, was_answered=was_answered, fatal=fatal)


def _added(before: Mapping[str, RoleUse], more: Mapping[str, RoleUse]) -> dict[str, RoleUse]:
    """Add up the use of each role; a role with a new model counts only the new use."""
    total: dict[str, RoleUse] = {}
    for role, use in (*before.items(), *more.items()):
        role_total = total.get(role)
        if role_total is None or role_total.model != use.model:
            role_total = total[role] = RoleUse()
        role_total.add(use)
    return total


def _fatal_error(error: AttemptError, models: Iterable[RoleModel]) -> AttemptError | None:
    if isinstance(error, RoleError) and not any(
        error is raised for model in models for raised in model.errors
    ):
        return None  # an environment's own
    cause = cause_of(error)
    is_fatal_call = isinstance(cause, ModelError) and (is_fatal(cause) or is_unreachable(cause))
    return error if is_fatal_call or isinstance(cause, UnknownUsageError) else None


def failure_of(rollout: Rollout, error: AttemptError) -> Failure:
    cause = cause_of(error)
    named = cause if isinstance(cause, EndpointGoneError) else error  # it ended the run: name it
    shared = [name for name in Failure.__struct_fields__ if name != "error"]
    return Failure(
        **{name: getattr(rollout, name) for name in shared},
        error=ErrorRecord(
            error_class=type(named).__name__,
            phase=error.phase,
            message=text_of(error),
            status=cause.status if isinstance(cause, ModelError) else None,
            frames=frames_of(error),
        ),
    )


class Engine(Protocol):
    """Runs attempts outside of this process, such as on a Ray cluster; only this process writes."""

    token_source: TokenSource | None
    """Where the policy's token ids come from, if they are recorded."""
    num_outages: int
    """How often an endpoint was down."""
    outage_seconds: float
    """How long endpoints were down."""
    retries: Counter[str]
    """Failed requests that were sent again, by error class."""

    def run(
        self,
        attempts: Iterator[Attempt],
        shared: Shared,
        *,
        concurrency: int,
        write: Callable[[Outcome], Outcome],
    ) -> AsyncGenerator[Rollout | Failure]:
        """Run attempts as `run_attempts` does; raise EngineError if the engine fails."""
        ...

    def close(self) -> None: ...


def run_attempts(
    attempts: Iterator[Attempt] | asyncio.Queue[Attempt | None],
    shared: Shared,
    *,
    concurrency: int,
    write: Callable[[Outcome], Outcome],
    gives_up: bool | FailFast = True,
) -> AsyncGenerator[Rollout | Failure]:
    """Run attempts at most `concurrency` at a time and yield each record as it ends.

    Attempts start in the iterator's order, so attempts of one task run next to each other and share
    the endpoint's prefix cache. An outcome is written before its record is yielded, so closing the
    generator loses nothing. Attempts that are scored together end together.

    When the run is stopped (`shared.stopping`), no more attempts start, and each that did still
    ends with a record.

    A queue of attempts ends with None. `write` writes an outcome and returns it as written. With
    `gives_up`, the run stops when an endpoint refuses everything; a `FailFast` in its place also
    counts the outcomes of other runs that have it.

    Raises:
        GymError: Why the run was stopped; raised after the last record.
    """
    outcomes = RunOutcomes(shared, concurrency=concurrency, write=write, gives_up=gives_up)
    return outcomes.records(_RunWork(attempts, shared, outcomes, concurrency).do_all)


class RunOutcomes:
    """The outcomes of one run, each written before it is yielded.

    The arguments are those of `run_attempts`. At most `concurrency` outcomes are buffered.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        concurrency: int,
        write: Callable[[Outcome], Outcome],
        gives_up: bool | FailFast = True,
    ) -> None:
        self.num_ended = 0
        self._stopping = shared.stopping
        self._write = write
        if gives_up is True:
            gives_up = FailFast(concurrency, shared.answered)
        self._fail_fast = gives_up or None
        self._waiting: asyncio.Queue[Outcome | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(concurrency)

    async def add(self, outcomes: Iterable[Outcome]) -> None:
        """Write outcomes, and wait until the buffer has room for them."""
        # All are written before any waits for room: whoever reads the records may stop reading.
        written = []
        for outcome in outcomes:
            self.num_ended += 1
            written.append(self._write(outcome))
            if self._fail_fast is None:
                continue
            cause = self._fail_fast.check(
                outcome.record,
                outcome.fatal,
                was_answered=outcome.was_answered,
                is_own=outcome.is_own,
            )
            if cause is not None:
                # Without grace, since the run cannot succeed; `Stopping` lets verifiers end.
                self._stopping.stop(cause, grace=0.0)
        for outcome in written:
            await self._room.acquire()
            self._waiting.put_nowait(outcome)

    async def records(
        self, work: Callable[[], Coroutine[object, object, None]]
    ) -> AsyncGenerator[Rollout | Failure]:
        """Run `work`, which adds outcomes, and yield their records as `run_attempts` does."""
        stopping = self._stopping
        working = asyncio.create_task(work())
        # Also if the work fails: the loop below ends, and `await working` raises the error.
        working.add_done_callback(lambda _: self._waiting.put_nowait(None))
        try:
            while (outcome := await self._waiting.get()) is not None:
                self._room.release()
                yield outcome.record
            await working
            if stopping.cause is None and self._fail_fast is not None:
                cause = self._fail_fast.unanswered()
                if cause is not None:
                    stopping.stop(cause)
        finally:
            stopping.close()
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            await stopping.closed()
        if stopping.cause is not None:
            raise stopping.cause from stopping.cause.__cause__


@dataclass
class _RunWork:
    """Runs attempts in `concurrency` worker tasks."""

    attempts: Iterator[Attempt] | asyncio.Queue[Attempt | None]
    shared: Shared
    outcomes: RunOutcomes
    concurrency: int
    groups: dict[tuple[str, str], list[tuple[Attempt, Rollout | Outcome]]] = field(
        default_factory=dict
    )
    """Attempts that wait for the other attempts of their task, to be scored together."""
    num_begun: int = 0
    num_lent: int = 0
    """Attempts that wait for an endpoint outside of their slots."""
    limits: list[asyncio.Semaphore] = field(init=False)
    """What a slot is taken of, in this order."""
    workers: asyncio.TaskGroup = field(init=False)

    def __post_init__(self) -> None:
        self.limits = [asyncio.Semaphore(self.concurrency)]
        if self.shared.slots is not None:
            self.limits.append(self.shared.slots)

    async def do_all(self) -> None:
        async with _task_group() as self.workers:
            await _start(self.workers, (self.work() for _ in range(self.concurrency)))
        for members in self.groups.values():  # incomplete groups
            await self.outcomes.add(await _score_members(members, self.shared))
        assert self.outcomes.num_ended == self.num_begun, (
            f"{self.num_begun} attempts were begun, {self.outcomes.num_ended} have an outcome"
        )

    async def work(self) -> None:
        """Run one attempt after the other, each in a slot, until there are no more."""
        has_lent = False
        while True:
            attempt = None
            if isinstance(self.attempts, asyncio.Queue):
                attempt = await self.attempts.get()
                if attempt is None:
                    self.attempts.put_nowait(None)  # for the next worker
                    return
            slot = _Slot(self, has_lent=has_lent)
            await slot.take()
            try:
                if self.shared.stopping.cause is not None:
                    return
                if not isinstance(self.attempts, asyncio.Queue):
                    # Rows are read as they are needed: memory does not grow with their number.
                    attempt = next(self.attempts, None)
                if attempt is None:
                    return
                await self._run(attempt, self.shared._replace(slot=slot))
            finally:
                slot.leave()
            has_lent = slot.has_lent

    async def _run(self, attempt: Attempt, shared: Shared) -> None:
        # An attempt that is scored already only completes its group and has no new outcome.
        self.num_begun += not attempt.is_done
        played: Rollout | Outcome
        if attempt.plan is not None:
            played = await _play_attempt(attempt, attempt.plan, shared)
        else:
            assert attempt.generation is not None, "an attempt without a plan has a conversation"
            played = attempt.generation
            if attempt.keeps_score:
                played = Outcome(played, is_own=False)
        if isinstance(played, Outcome):
            await self.outcomes.add([played])
        elif not attempt.group_size:
            await self.outcomes.add([await _score_attempt(attempt, played, shared)])
        if attempt.group_size:
            group = attempt.key.env, attempt.key.task_id
            members = self.groups.setdefault(group, [])
            members.append((attempt, played))
            if len(members) == attempt.group_size:
                del self.groups[group]
                # In a fixed order for `verify_group`, whichever attempt ended first.
                members.sort(key=lambda member: member[0].key.attempt)
                await self.outcomes.add(await _score_members(members, shared))


class _Slot:
    """The slot of one attempt; at most `concurrency` are taken.

    While the endpoint refuses the attempt's request again and again, the slot is lent: another
    attempt takes it. The request is sent again all the same, since `ConcurrencyLimiter` bounds what
    is in flight; once it is answered, the policy's next turn waits until a slot is free.
    """

    def __init__(self, work: _RunWork, *, has_lent: bool) -> None:
        self.is_lent = False
        self.has_lent = has_lent
        """Whether the worker has lent a slot before, so that there is one more for its sake."""
        self._work = work

    async def take(self) -> None:
        """Wait for a free slot. No attempt may wait for this one meanwhile: it could have it."""
        num_taken = 0
        try:
            for limit in self._work.limits:
                await limit.acquire()
                num_taken += 1
        except asyncio.CancelledError:
            for limit in self._work.limits[:num_taken]:
                limit.release()
            raise
        if self.is_lent:
            self.is_lent = False
            self._work.num_lent -= 1

    def lend(self, is_singled_out: bool) -> bool:
        """Let another attempt have the slot, and return whether one may.

        Of attempts that are not `is_singled_out` by the endpoint, few lend theirs.
        """
        work = self._work
        if self.is_lent:
            return True
        if work.shared.stopping.cause is not None or (
            not is_singled_out and work.num_lent >= _MAX_LENT
        ):
            return False
        self.leave()
        self.is_lent = True
        work.num_lent += 1
        if not self.has_lent:
            self.has_lent = True
            work.workers.create_task(work.work())
        return True

    def leave(self) -> None:
        if self.is_lent:
            self._work.num_lent -= 1
            return
        for limit in self._work.limits:
            limit.release()


@asynccontextmanager
async def _task_group() -> AsyncGenerator[asyncio.TaskGroup]:
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        # Callers expect one error of gymcli, not a group.
        raise errors.exceptions[0] from None


async def _start(
    group: asyncio.TaskGroup, workers: Iterable[Coroutine[object, object, None]]
) -> None:
    for number, worker in enumerate(workers, 1):
        group.create_task(worker)
        if number % _NUM_STARTS == 0:
            await asyncio.sleep(0)


async def run_together(workers: Iterable[Coroutine[object, object, None]]) -> None:
    """Run workers until all have ended; an error in one, such as a full disk, stops all."""
    async with _task_group() as group:
        await _start(group, workers)
