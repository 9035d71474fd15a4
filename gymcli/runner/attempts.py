"""One attempt of a run: its conversation is played, or read from disk, and then scored.

Whatever goes wrong on the way becomes the record of the attempt; only what ends a run is raised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gymcli.environment.contract import Cache, Environment, Model
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
    frames_of,
)
from gymcli.models.api_errors import is_fatal, is_unreachable
from gymcli.models.client import Client
from gymcli.models.roles import RoleModels, waits_to_score
from gymcli.rollout.episode import Episode, EpisodeFailedError, EpisodePlan
from gymcli.rollout.event_loop import Watchdog
from gymcli.rollout.scoring import Workers, score, score_group
from gymcli.runner.stopping import Stopping
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.rollout_files import redacted
from gymcli.types import (
    AttemptKey,
    ErrorRecord,
    Failure,
    JSONObject,
    Message,
    RoleUse,
    Rollout,
    Verifier,
)

__all__ = [
    "POLICY",
    "Attempt",
    "Outcome",
    "Shared",
    "cause_of",
    "failure_of",
    "play_attempt",
    "role_of",
    "score_attempt",
    "score_members",
]

POLICY = ""
"""The policy, where roles are named."""

_SHARED = tuple(name for name in Failure.__struct_fields__ if name != "error")
"""The fields of a failure that the rollout has under the same name."""


class Attempt(NamedTuple):
    """One attempt to be run."""

    environment: type[Environment[Task]]
    options: EnvironmentOptions
    verifier: Verifier
    plan: EpisodePlan | None
    """None: the conversation is on record and only waits for its score."""
    generation: Rollout | None = None
    group_size: int = 0
    """Attempts of the task that are scored together; 0 where each is scored by itself."""
    is_done: bool = False
    """It has its score, and is here for the others of its group."""
    keeps_score: bool = False
    """Its score stays as it is on record: its world cannot be played again."""

    @property
    def key(self) -> AttemptKey:
        """What names the attempt."""
        if self.plan is not None:
            return AttemptKey(self.plan.row.env, self.plan.row.id, self.plan.attempt)
        assert self.generation is not None, "an attempt without a plan has a conversation"
        return self.generation.key


class Shared(NamedTuple):
    """What all attempts of a run share."""

    policy: Client | None
    roles: RoleModels
    workers: Workers
    save: Callable[[Rollout], None]
    """Writes a finished conversation down before a verifier starts that waits for anything."""
    stopping: Stopping
    """Tells the attempts that the run ends early."""
    watchdog: Watchdog
    """Keeps the limits of code of environments that waits."""
    answered: frozenset[str] = frozenset()
    """The roles whose endpoints have answered on record, and `POLICY`."""
    scrubber: Scrubber = NOTHING_SECRET
    """Takes the keys in use out of conversations, before these are scored."""
    written: Callable[[], Awaitable[None]] | None = None
    """Waits until what `save` took is on disk, where another process writes it."""


class Outcome(NamedTuple):
    """How one attempt ended: scored, or not scored and why."""

    record: Rollout | Failure
    generation: Rollout | None = None
    """The finished conversation of an attempt whose verifier failed; it is not asked for again."""
    was_answered: bool = False
    """The model said something in this attempt."""
    fatal: AttemptError | None = None
    """An error that every further attempt may meet as well."""
    is_own: bool = True
    """False: it met nothing itself; its score was kept, or others of its group failed."""


class _RoleModels:
    """The models that one attempt may ask, and how many of them it waits for."""

    def __init__(
        self, attempt: Attempt, fields: JSONObject, shared: Shared, use: dict[str, RoleUse]
    ) -> None:
        self.num_asked = 0
        self.models: Mapping[str, Model] = {}
        if shared.roles.sources:
            models = shared.roles.of(attempt.environment, fields, use)
            self.models = {role: _CountedModel(model, self) for role, model in models.items()}

    def phase(self, otherwise: Phase) -> Phase:
        """Return the phase of the attempt: its own, or that of the roles while one is asked."""
        return "role" if self.num_asked else otherwise


class _CountedModel:
    """The model of one role, counted while it is asked."""

    def __init__(self, model: Model, roles: _RoleModels) -> None:
        self._model = model
        self._roles = roles

    @property
    def is_scalar(self) -> bool:
        return self._model.is_scalar

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        self._roles.num_asked += 1
        try:
            return await self._model.complete(messages, schema=schema, params=params, cache=cache)
        finally:
            self._roles.num_asked -= 1


async def play_attempt(attempt: Attempt, shared: Shared) -> Rollout | Outcome:
    """Play an attempt, unless its conversation is on record, and return the conversation.

    Where scoring waits for anything, the conversation is on disk by then. An attempt that failed on
    the way, or keeps the score that it has, has its outcome already.
    """
    if attempt.plan is None:
        assert attempt.generation is not None, "an attempt without a plan has a conversation"
        return (
            Outcome(attempt.generation, is_own=False) if attempt.keeps_score else attempt.generation
        )
    use: dict[str, RoleUse] = {}
    roles = _RoleModels(attempt, attempt.plan.row.fields, shared, use)
    plan = msgspec.structs.replace(attempt.plan, roles=roles.models)
    policy = None if shared.policy is None else shared.policy.conversation()
    episode = Episode(plan, policy, shared.watchdog)
    episode.rollout.role_usage = use
    episode.rollout.group_size = attempt.group_size
    error: AttemptError | None = None
    try:
        with shared.stopping.under_way(lambda: roles.phase(episode.phase)):
            await episode.play()
    except EpisodeFailedError as failed:
        error = failed.error
    except UnfinishedAttemptError as unfinished:
        error = unfinished
    except asyncio.CancelledError:
        if episode.is_finished:
            shared.save(redacted(episode.rollout, shared.scrubber))
        raise
    finally:
        if not episode.is_over:
            shared.stopping.add_closing(episode)
    rollout = redacted(episode.rollout, shared.scrubber)
    if error is not None:
        return Outcome(
            failure_of(rollout, error),
            rollout if episode.is_finished else None,
            was_answered=_was_answered(rollout),
            fatal=_fatal_error(error),
        )
    if waits_to_score(attempt.environment, shared.roles.sources):
        shared.save(rollout)
        if shared.written is not None:
            await shared.written()
    return rollout


async def score_attempt(attempt: Attempt, rollout: Rollout, shared: Shared) -> Outcome:
    """Score a conversation; where that fails, it is kept for a later scoring."""
    started = time.perf_counter()
    use: dict[str, RoleUse] = {}
    roles = _RoleModels(attempt, rollout.task, shared, use)
    is_saved = attempt.plan is None or waits_to_score(attempt.environment, shared.roles.sources)

    def save() -> None:
        nonlocal is_saved
        if not is_saved:
            shared.save(rollout)
            is_saved = True

    try:
        with shared.stopping.under_way(lambda: roles.phase("verify")):
            scored = await score(
                attempt.environment,
                rollout,
                verifier=attempt.verifier,
                options=attempt.options,
                roles=roles.models,
                workers=shared.workers,
                save=save,
            )
    except AttemptError as error:
        outcome = _unscored(attempt, rollout, error, use)
        return outcome if is_saved else outcome._replace(generation=rollout)
    except asyncio.CancelledError:
        save()
        raise
    _add_scoring(scored, use, time.perf_counter() - started)
    return Outcome(scored, was_answered=_was_answered(scored))


async def score_members(
    members: Sequence[tuple[Attempt, Rollout | Outcome]], shared: Shared
) -> list[Outcome]:
    """Score all attempts of a task together; where one failed, the others stay without a score."""
    waiting = [(attempt, one) for attempt, one in members if isinstance(one, Rollout)]
    unscored = [attempt for attempt, _ in waiting if not attempt.is_done]
    if not unscored:
        return []
    # What was scored before has its line already: the first of the others counts for it.
    first: dict[str, RoleUse] = {}
    uses = [first if attempt.is_done or attempt is unscored[0] else {} for attempt, _ in waiting]
    roles = [
        _RoleModels(attempt, rollout.task, shared, use)
        for (attempt, rollout), use in zip(waiting, uses, strict=True)
    ]
    started = time.perf_counter()
    try:
        with shared.stopping.under_way(
            lambda: "role" if any(one.num_asked for one in roles) else "verify"
        ):
            _check_group(members, shared)
            attempt = members[0][0]
            scored = await score_group(
                attempt.environment,
                [rollout for _, rollout in waiting],
                verifier=attempt.verifier,
                options=attempt.options,
                roles=[one.models for one in roles],
                workers=shared.workers,
            )
    except AttemptError as error:
        is_own = not isinstance(error, IncompleteGroupError)
        return [
            _unscored(attempt, rollout, error, use)._replace(
                is_own=is_own and attempt is unscored[0]
            )
            for (attempt, rollout), use in zip(waiting, uses, strict=True)
            if not attempt.is_done
        ]
    seconds = time.perf_counter() - started
    for rollout, use in zip(scored, uses, strict=True):
        _add_scoring(rollout, use, seconds)
    return [
        Outcome(rollout, was_answered=_was_answered(rollout))
        for (attempt, _), rollout in zip(waiting, scored, strict=True)
        if not attempt.is_done
    ]


def _check_group(members: Sequence[tuple[Attempt, Rollout | Outcome]], shared: Shared) -> None:
    """Check that every attempt of a task has a conversation.

    Raises:
        IncompleteGroupError: One failed, or is not there.
        UnfinishedAttemptError: One is not there, since the run was ended.

    """
    for _, one in members:
        if isinstance(one, Outcome) and isinstance(one.record, Failure):
            raise IncompleteGroupError(
                f"attempt {one.record.attempt} of this task failed "
                f"({one.record.error.error_class}); the same command tries it again"
            )
    group_size = members[0][0].group_size
    if len(members) < group_size:
        if shared.stopping.cause is not None:
            raise shared.stopping.error("verify")
        raise IncompleteGroupError(
            f"{len(members)} of {group_size} attempts of this task are there"
        )


def _unscored(
    attempt: Attempt, rollout: Rollout, error: AttemptError, use: Mapping[str, RoleUse]
) -> Outcome:
    """Return the outcome of a conversation whose scoring failed."""
    failure = failure_of(rollout, error)
    failure.role_usage = _added(rollout.role_usage, use)
    was_answered = attempt.plan is not None and _was_answered(rollout)
    return Outcome(failure, was_answered=was_answered, fatal=_fatal_error(error))


def _was_answered(rollout: Rollout) -> bool:
    return any(message.role == "assistant" for message in rollout.responses)


def _add_scoring(rollout: Rollout, use: Mapping[str, RoleUse], seconds: float) -> None:
    """Add what scoring took to a record that has its score."""
    rollout.timing.total_seconds += seconds
    if use:
        rollout.role_usage = _added(rollout.role_usage, use)


def _added(before: Mapping[str, RoleUse], more: Mapping[str, RoleUse]) -> dict[str, RoleUse]:
    """Add up the use of each role; of one that another model plays now, only the new use."""
    total: dict[str, RoleUse] = {}
    for role, use in (*before.items(), *more.items()):
        there = total.get(role)
        if there is None or there.model != use.model:
            there = total[role] = RoleUse()
        there.add(use)
    return total


def _fatal_error(error: AttemptError) -> AttemptError | None:
    """Return an error that every further attempt may meet as well, of the policy or of a role."""
    cause = cause_of(error)
    if isinstance(cause, UnknownUsageError):
        return error
    if isinstance(cause, ModelError) and (is_fatal(cause) or is_unreachable(cause)):
        return error
    return None


def cause_of(error: AttemptError) -> BaseException | None:
    """Return the client's error behind that of a role; any other error as it is."""
    return error.__cause__ if isinstance(error, RoleError) else error


def role_of(error: AttemptError) -> str:
    """Return the role whose model failed, with which its error begins, or `POLICY`."""
    return str(error).partition(":")[0] if isinstance(error, RoleError) else POLICY


def failure_of(rollout: Rollout, error: AttemptError) -> Failure:
    """Return the record of an attempt that could not be scored."""
    cause = cause_of(error)
    named = cause if isinstance(cause, EndpointGoneError) else error  # that it ended the run
    return Failure(
        **{name: getattr(rollout, name) for name in _SHARED},
        error=ErrorRecord(
            error_class=type(named).__name__,
            phase=error.phase,
            # An exception may say what cannot be encoded.
            message=str(error).encode(errors="replace").decode(),
            status=cause.status if isinstance(cause, ModelError) else None,
            frames=frames_of(error),
        ),
    )
