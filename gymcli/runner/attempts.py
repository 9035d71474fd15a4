"""One attempt from its plan to its outcome, and a group of them that is scored together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gymcli.client import is_fatal, is_unreachable
from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.errors import AttemptError, IncompleteGroupError, ModelError, RoleError
from gymcli.role_models import RoleModels, waits_to_score
from gymcli.rollout import EpisodeFailedError, EpisodePlan, Policy, play
from gymcli.scoring import Workers, score, score_group
from gymcli.types import ErrorRecord, Failure, RoleUse, Rollout, Verifier

__all__ = [
    "Attempt",
    "Ended",
    "Outcome",
    "Shared",
    "play_attempt",
    "score_attempt",
    "score_members",
]


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


class Shared(NamedTuple):
    """What all attempts of a run share."""

    policy: Policy | None
    roles: RoleModels
    workers: Workers
    save: Callable[[Rollout], None]
    """Writes a finished conversation down before a verifier starts that waits for anything."""


class Outcome(NamedTuple):
    """How one attempt ended: scored, or not scored and why."""

    record: Rollout | Failure
    generation: Rollout | None = None
    """The finished conversation of an attempt whose verifier failed; it is not asked for again."""
    was_answered: bool = False
    """The model said something in this attempt."""
    fatal: AttemptError | None = None
    """An error that every further attempt would most likely meet."""
    is_own: bool = True
    """False: it met nothing itself; its score was kept, or others of its group failed."""


class Ended(NamedTuple):
    """An attempt whose conversation is over, or failed on the way."""

    attempt: Attempt
    record: Rollout | Failure
    outcome: Outcome | None
    """Its outcome, where it failed or keeps the score it has."""
    is_saved: bool = False

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
    roles = shared.roles.of(attempt.environment, attempt.plan.row.fields, use)
    plan = attempt.plan._replace(roles=roles)
    try:
        rollout = await play(plan, shared.policy)
    except EpisodeFailedError as failed:
        failed.rollout.role_usage = use
        failed.rollout.group_size = attempt.group_size
        failure = failure_of(failed.rollout, failed.error)
        was_answered = any(message.role == "assistant" for message in failed.rollout.responses)
        whole = failed.rollout if failed.is_finished else None
        outcome = Outcome(failure, whole, was_answered=was_answered, fatal=_fatal(failed.error))
        return Ended(attempt, failure, outcome)
    rollout.role_usage = use
    rollout.group_size = attempt.group_size
    is_saved = waits_to_score(attempt.environment, shared.roles.sources)
    if is_saved:
        shared.save(rollout)
    return Ended(attempt, rollout, None, is_saved=is_saved)


async def score_attempt(ended: Ended, shared: Shared) -> Outcome:
    """Score a conversation; whatever goes wrong becomes its record."""
    attempt, rollout = ended.attempt, ended.rollout
    started = time.perf_counter()
    use: dict[str, RoleUse] = {}
    try:
        scored = await score(
            attempt.environment,
            rollout,
            verifier=attempt.verifier,
            options=attempt.options,
            roles=shared.roles.of(attempt.environment, rollout.task, use),
            workers=shared.workers,
        )
    except AttemptError as error:
        return _unscored(ended, error, use)
    _add_scoring(scored, use, time.perf_counter() - started)
    return Outcome(scored, was_answered=True)


async def score_members(members: Sequence[Ended], shared: Shared) -> list[Outcome]:
    """Score all attempts of a task together; where one failed, the others stay without a score."""
    waiting = [member for member in members if member.outcome is None]
    unscored = [member for member in waiting if not member.attempt.is_done]
    if not unscored:
        return []
    # What was scored before has its line already: the first of the others counts for it.
    first: dict[str, RoleUse] = {}
    uses = [first if member.attempt.is_done or member is unscored[0] else {} for member in waiting]
    try:
        scored = await _scored_together(members, uses, shared)
    except AttemptError as error:
        is_own = not isinstance(error, IncompleteGroupError)
        return [
            _unscored(member, error, use)._replace(is_own=is_own and member is unscored[0])
            for member, use in zip(waiting, uses, strict=True)
            if not member.attempt.is_done
        ]
    return [
        Outcome(rollout, was_answered=True)
        for member, rollout in zip(waiting, scored, strict=True)
        if not member.attempt.is_done
    ]


async def _scored_together(
    members: Sequence[Ended], uses: Sequence[dict[str, RoleUse]], shared: Shared
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
            shared.roles.of(attempt.environment, member.rollout.task, use)
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
    """Give the outcome of a conversation that has no score; it is kept for a later one."""
    rollout = ended.rollout
    is_played = ended.attempt.plan is not None
    failure = failure_of(rollout, error)
    failure.role_usage = _added(rollout.role_usage, use)
    waiting = rollout if is_played and not ended.is_saved else None
    return Outcome(failure, generation=waiting, was_answered=is_played, fatal=_fatal(error))


def _fatal(error: AttemptError) -> AttemptError | None:
    """Give an error that every further attempt would meet as well, of the policy or of a role."""
    cause = error.__cause__ if isinstance(error, RoleError) else error
    if isinstance(cause, ModelError) and (is_fatal(cause) or is_unreachable(cause)):
        return error
    return None


def failure_of(rollout: Rollout, error: AttemptError) -> Failure:
    """Give the record of an attempt that could not be scored."""
    cause = error.__cause__ if isinstance(error, RoleError) else error
    return Failure(
        schema_version=rollout.schema_version,
        task_id=rollout.task_id,
        task_hash=rollout.task_hash,
        attempt=rollout.attempt,
        env=rollout.env,
        env_version=rollout.env_version,
        env_options=rollout.env_options,
        seed=rollout.seed,
        error=ErrorRecord(
            error_class=type(error).__name__,
            phase=error.phase,
            message=str(error),
            status=cause.status if isinstance(cause, ModelError) else None,
        ),
        messages=rollout.messages,
        model=rollout.model,
        usage=rollout.usage,
        role_usage=rollout.role_usage,
        timing=rollout.timing,
        retries=rollout.retries,
    )
