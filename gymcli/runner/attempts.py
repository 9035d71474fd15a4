"""One attempt from its plan to its outcome, and a group of them that is scored together."""

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
from gymcli.rollout.episode import Episode, EpisodeFailedError, EpisodePlan, play
from gymcli.rollout.event_loop import Watchdog
from gymcli.rollout.scoring import score, score_group
from gymcli.rollout.verifier_workers import Workers
from gymcli.runner.stopping import Stopping, UnderWay
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
    "Asking",
    "Attempt",
    "Ended",
    "Outcome",
    "Shared",
    "cause_of",
    "failure_of",
    "fatal_error",
    "play_attempt",
    "role_of",
    "score_attempt",
    "score_members",
]


POLICY = ""
"""The policy, where roles are named."""

_SHARED = tuple(name for name in Failure.__struct_fields__ if name != "error")
"""The fields of a failure that the rollout has under the same name."""


def fatal_error(error: AttemptError) -> AttemptError | None:
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


class Asking(msgspec.Struct, eq=False):
    """Counts the models of roles that one attempt is waiting for."""

    num_asked: int = 0

    def phase(self, otherwise: Phase) -> Phase:
        """Give the phase of an attempt."""
        return "role" if self.num_asked else otherwise

    def follow(self, roles: Mapping[str, Model]) -> Mapping[str, Model]:
        """Give the same models, counted while they are asked."""
        return {role: _Followed(model, self) for role, model in roles.items()}


class _Followed:
    """The model of one role."""

    def __init__(self, model: Model, asking: Asking) -> None:
        self._model = model
        self._asking = asking

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
        self._asking.num_asked += 1
        try:
            return await self._model.complete(messages, schema=schema, params=params, cache=cache)
        finally:
            self._asking.num_asked -= 1


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


class Ended(msgspec.Struct, eq=False):
    """An attempt whose conversation is over, or failed on the way."""

    attempt: Attempt
    record: Rollout | Failure
    outcome: Outcome | None
    """Its outcome, where it failed or keeps the score it has."""
    is_saved: bool = False
    asking: Asking | None = None
    under_way: UnderWay | None = None
    """Goes on where the task that played it scores it, too."""

    @property
    def rollout(self) -> Rollout:
        """The conversation of an attempt that did not fail."""
        assert isinstance(self.record, Rollout)
        return self.record


async def play_attempt(attempt: Attempt, shared: Shared) -> Ended:
    """Play an attempt, unless its conversation is on record; save it where scoring waits."""
    if attempt.plan is None:
        assert attempt.generation is not None, "an attempt without a plan has a conversation"
        kept = Outcome(attempt.generation, is_own=False) if attempt.keeps_score else None
        return Ended(attempt, attempt.generation, kept, is_saved=True)
    use: dict[str, RoleUse] = {}
    asking = Asking()
    roles = _roles(attempt, attempt.plan.row.fields, shared, asking, use)
    plan = msgspec.structs.replace(attempt.plan, roles=roles, watchdog=shared.watchdog)
    episode = Episode(plan)
    rollout = episode.rollout
    rollout.role_usage = use
    rollout.group_size = attempt.group_size
    under_way = shared.stopping.under_way(lambda: asking.phase(episode.phase))
    try:
        with under_way:
            policy = None if shared.policy is None else shared.policy.conversation()
            await play(plan, policy, episode)
    except EpisodeFailedError as failed:
        return _failed(attempt, episode, failed.error, shared.scrubber)
    except UnfinishedAttemptError as error:
        return _failed(attempt, episode, error, shared.scrubber)
    except asyncio.CancelledError:
        if episode.is_finished:
            shared.save(redacted(rollout, shared.scrubber))
        raise
    finally:
        if episode.flight is not None and not episode.flight.is_over:
            shared.stopping.add_closing(episode.flight)
    rollout = redacted(rollout, shared.scrubber)
    is_saved = waits_to_score(attempt.environment, shared.roles.sources)
    if is_saved:
        shared.save(rollout)
    episode.phase = "verify"
    return Ended(attempt, rollout, None, is_saved, asking, under_way)


def _roles(
    attempt: Attempt,
    fields: JSONObject,
    shared: Shared,
    asking: Asking,
    use: dict[str, RoleUse],
) -> Mapping[str, Model]:
    """Return the models that an attempt may ask; what they take is counted in `use`."""
    if not shared.roles.sources:
        return {}
    return asking.follow(shared.roles.of(attempt.environment, fields, use))


def _failed(attempt: Attempt, episode: Episode, error: AttemptError, scrubber: Scrubber) -> Ended:
    """End an attempt that cannot be scored now; a conversation that is whole is kept."""
    rollout = redacted(episode.rollout, scrubber)
    failure = failure_of(rollout, error)
    whole = rollout if episode.is_finished else None
    outcome = Outcome(failure, whole, was_answered=_was_answered(rollout), fatal=fatal_error(error))
    return Ended(attempt, failure, outcome)


def _was_answered(rollout: Rollout) -> bool:
    for message in rollout.responses:  # noqa: SIM110  # `any` costs twice as much
        if message.role == "assistant":
            return True
    return False


async def score_attempt(ended: Ended, shared: Shared) -> Outcome:
    """Score a conversation; whatever goes wrong becomes its record."""
    attempt, rollout = ended.attempt, ended.rollout
    started = time.perf_counter()
    use: dict[str, RoleUse] = {}
    asking = ended.asking or Asking()
    under_way = ended.under_way or shared.stopping.under_way(lambda: asking.phase("verify"))

    def save() -> None:
        if attempt.plan is not None and not ended.is_saved:
            shared.save(rollout)
            ended.is_saved = True

    try:
        with under_way:
            scored = await score(
                attempt.environment,
                rollout,
                verifier=attempt.verifier,
                options=attempt.options,
                roles=_roles(attempt, rollout.task, shared, asking, use),
                workers=shared.workers,
                save=save,
            )
    except AttemptError as error:
        return _unscored(ended, error, use)
    except asyncio.CancelledError:
        save()
        raise
    _add_scoring(scored, use, time.perf_counter() - started)
    return Outcome(scored, was_answered=_was_answered(scored))


async def score_members(members: Sequence[Ended], shared: Shared) -> list[Outcome]:
    """Score all attempts of a task together; where one failed, the others stay without a score."""
    waiting = [member for member in members if member.outcome is None]
    unscored = [member for member in waiting if not member.attempt.is_done]
    if not unscored:
        return []
    # What was scored before has its line already: the first of the others counts for it.
    first: dict[str, RoleUse] = {}
    uses = [first if member.attempt.is_done or member is unscored[0] else {} for member in waiting]
    asking = Asking()
    try:
        with shared.stopping.under_way(lambda: asking.phase("verify")):
            scored = await _scored_together(members, uses, shared, asking)
    except AttemptError as error:
        is_own = not isinstance(error, IncompleteGroupError)
        return [
            _unscored(member, error, use)._replace(is_own=is_own and member is unscored[0])
            for member, use in zip(waiting, uses, strict=True)
            if not member.attempt.is_done
        ]
    return [
        Outcome(rollout, was_answered=_was_answered(rollout))
        for member, rollout in zip(waiting, scored, strict=True)
        if not member.attempt.is_done
    ]


async def _scored_together(
    members: Sequence[Ended],
    uses: Sequence[dict[str, RoleUse]],
    shared: Shared,
    asking: Asking,
) -> list[Rollout]:
    """Score a group that is complete; what each member's roles took is counted in `uses`.

    Raises:
        AttemptError: It is not, or a verifier failed.

    """
    attempt = members[0].attempt
    failed = next((m.record for m in members if isinstance(m.record, Failure)), None)
    if failed is not None:
        raise IncompleteGroupError(
            f"attempt {failed.attempt} of this task failed ({failed.error.error_class}); "
            "the same command tries it again"
        )
    if len(members) < attempt.group_size:
        if shared.stopping.cause is not None:
            raise shared.stopping.error("verify")
        raise IncompleteGroupError(
            f"{len(members)} of {attempt.group_size} attempts of this task are there"
        )
    started = time.perf_counter()
    scored = await score_group(
        attempt.environment,
        [member.rollout for member in members],
        verifier=attempt.verifier,
        options=attempt.options,
        roles=[
            _roles(attempt, member.rollout.task, shared, asking, use)
            for member, use in zip(members, uses, strict=True)
        ],
        workers=shared.workers,
    )
    seconds = time.perf_counter() - started
    for rollout, use in zip(scored, uses, strict=True):
        _add_scoring(rollout, use, seconds)
    return scored


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


def _unscored(ended: Ended, error: AttemptError, use: Mapping[str, RoleUse]) -> Outcome:
    """Return the outcome of a conversation that has no score; it is kept for a later one."""
    rollout = ended.rollout
    is_played = ended.attempt.plan is not None
    failure = failure_of(rollout, error)
    failure.role_usage = _added(rollout.role_usage, use)
    waiting = rollout if is_played and not ended.is_saved else None
    was_answered = is_played and _was_answered(rollout)
    return Outcome(failure, generation=waiting, was_answered=was_answered, fatal=fatal_error(error))
