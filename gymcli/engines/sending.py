"""Turns attempts, outcomes and errors into what is sent, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import aiohttp

from gymcli import errors
from gymcli.engines.messages import EndedAttempt, SentAttempt, SentError, SentPlan
from gymcli.environment.registry import Found
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import GymError, ModelError
from gymcli.models.api_errors import is_unreachable
from gymcli.rollout.episode import EpisodeLimits, EpisodePlan
from gymcli.runner.attempts import Attempt, Outcome
from gymcli.types import AttemptKey, Failure, Rollout, Usage

__all__ = [
    "key_of",
    "outcome_received",
    "plan_received",
    "raised_again",
    "sent_attempt",
    "sent_error",
    "sent_outcome",
]


def key_of(attempt: Attempt) -> AttemptKey:
    """Give what names an attempt."""
    plan = attempt.plan
    if plan is not None:
        return AttemptKey(plan.row.env, plan.row.id, plan.attempt)
    assert attempt.generation is not None, "an attempt without a plan has a conversation"
    return attempt.generation.key


def sent_attempt(attempt: Attempt) -> SentAttempt:
    """Give an attempt as it is sent."""
    return SentAttempt(
        env=key_of(attempt).env,
        options=attempt.options.model_dump(mode="json", exclude_defaults=True),
        verifier=attempt.verifier,
        plan=None if attempt.plan is None else _sent_plan(attempt.plan),
        generation=attempt.generation,
        group_size=attempt.group_size,
        is_done=attempt.is_done,
        keeps_score=attempt.keeps_score,
    )


def _sent_plan(plan: EpisodePlan) -> SentPlan:
    return SentPlan(
        row=plan.row,
        attempt=plan.attempt,
        model=plan.model,
        params=plan.params,
        run_seed=plan.run_seed,
        sends_seed=plan.sends_seed,
        max_turns=plan.max_turns,
        limits=(plan.limits.max_tokens, plan.limits.max_cost, plan.limits.max_seconds),
        has_cost=plan.cost is not None,
        is_spending=plan.spend is not None,
    )


def plan_received(
    sent: SentPlan,
    found: Found,
    options: EnvironmentOptions,
    *,
    cost: Callable[[Usage], float | None] | None,
    spend: Callable[[Usage, float | None], None],
) -> EpisodePlan:
    """Give a plan with what this process has of it.

    Args:
        sent: The plan.
        found: Its environment.
        options: The options of that.
        cost: What tokens of the policy cost.
        spend: Told of every answer's tokens, where somebody counts them.

    """
    return EpisodePlan(
        row=sent.row,
        attempt=sent.attempt,
        environment=found.environment,
        options=options,
        env_version=found.environment.version,
        model=sent.model,
        params=sent.params,
        run_seed=sent.run_seed,
        sends_seed=sent.sends_seed,
        max_turns=sent.max_turns,
        limits=EpisodeLimits(*sent.limits),
        cost=cost if sent.has_cost else None,
        spend=spend if sent.is_spending else None,
    )


def sent_outcome(outcome: Outcome) -> EndedAttempt:
    """Give an outcome as it is sent."""
    record = outcome.record
    return EndedAttempt(
        rollout=record if isinstance(record, Rollout) else None,
        failure=record if isinstance(record, Failure) else None,
        generation=outcome.generation,
        was_answered=outcome.was_answered,
        fatal=None if outcome.fatal is None else sent_error(outcome.fatal),
        is_own=outcome.is_own,
    )


def outcome_received(sent: EndedAttempt) -> Outcome:
    """Give an outcome that was sent."""
    record = sent.rollout or sent.failure
    assert record is not None, "an attempt ends with a record"
    fatal = None if sent.fatal is None else raised_again(sent.fatal)
    return Outcome(
        record,
        generation=sent.generation,
        was_answered=sent.was_answered,
        fatal=cast("errors.AttemptError | None", fatal),
        is_own=sent.is_own,
    )


def sent_error(error: BaseException) -> SentError:
    """Give an error as it is sent, by the nearest of its classes that both sides know."""
    known = next(kind for kind in type(error).__mro__ if _is_known(kind))
    cause = error.__cause__
    return SentError(
        error_class=known.__name__,
        text=str(error),
        status=error.status if isinstance(error, ModelError) else None,
        is_unreachable=is_unreachable(error),
        follows_answers=isinstance(error, ModelError) and error.follows_answers,
        cause=sent_error(cause) if isinstance(cause, GymError) else None,
    )


def _is_known(kind: type) -> bool:
    return kind is BaseException or getattr(errors, kind.__name__, None) is kind


def raised_again(sent: SentError) -> GymError:
    """Give an error that was sent; one that is none of ours is a plain `GymError`."""
    kind: type[GymError] = getattr(errors, sent.error_class, GymError)
    error = kind(sent.text)
    if isinstance(error, ModelError):
        error.status = sent.status
        error.follows_answers = sent.follows_answers
    if sent.cause is not None:
        error.__cause__ = raised_again(sent.cause)
    elif sent.is_unreachable:
        error.__cause__ = aiohttp.ConnectionTimeoutError()  # by which the client tells these
    return error
