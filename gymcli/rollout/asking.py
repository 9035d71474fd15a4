"""Asks the model for one message of an episode, within the limits of that, and counts it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from gymcli.errors import EndpointTimeoutError, ModelError, UnknownUsageError, boundary
from gymcli.rollout.flight import Flight
from gymcli.rollout.plan import Episode, EpisodePlan, Policy
from gymcli.types import Answer, Call, Request, StopReason, Tries, Usage

__all__ = ["OutOfTimeError", "ask", "cost_of", "limit_reached"]


class OutOfTimeError(Exception):
    """Raised when the time of an episode is over while its model is asked."""


def limit_reached(episode: Episode, plan: EpisodePlan) -> StopReason | None:
    """Say which limit leaves no room for another request.

    Raises:
        UnknownUsageError: Tokens are limited, and an answer did not say how many it took.

    """
    max_tokens, max_cost, max_seconds = plan.limits
    usage = episode.rollout.usage
    if not episode.has_known_usage and not (max_tokens is None and max_cost is None):
        option = "--max-episode-cost" if max_tokens is None else "--max-episode-tokens"
        raise UnknownUsageError(
            f"an answer did not say how many tokens it took, so {option} cannot be kept; "
            "leave that out to go on without"
        )
    if max_tokens is not None and usage.prompt_tokens + usage.completion_tokens >= max_tokens:
        return "episode_tokens"
    if max_cost is not None and plan.cost is not None and (plan.cost(usage) or 0.0) >= max_cost:
        return "episode_cost"
    if max_seconds is not None and _seconds_left(episode, max_seconds, episode.waited) <= 0:
        return "episode_time"
    return None


def cost_of(episode: Episode, plan: EpisodePlan) -> float | None:
    """Give what the episode's answers cost; None where one did not say what it took."""
    if plan.cost is None or not episode.has_known_usage:
        return None
    return plan.cost(episode.rollout.usage)


async def ask(plan: EpisodePlan, policy: Policy, episode: Episode, flight: Flight) -> Answer:
    """Ask the model for one message and count what that took.

    Raises:
        ModelError: There is no usable answer.
        OutOfTimeError: The time of the episode was over first.

    """
    rollout = episode.rollout
    params = rollout.sampling
    if plan.sends_seed:
        params = {**params, "seed": rollout.seed}
    request = Request(messages=rollout.messages, tools=rollout.tools, params=params)
    started = time.perf_counter()
    episode.phase = "model"
    max_seconds = plan.limits.max_seconds
    try:
        if max_seconds is None:
            with boundary(ModelError):
                answer = await policy.answer(request)
        else:
            answer = await _answer_in_time(policy, request, episode, flight, max_seconds)
    finally:
        seconds = time.perf_counter() - started
        rollout.timing.model_seconds += seconds
        episode.phase = "environment"
        _count_tries(request.tries, plan, episode)
    _count_usage(answer.usage, plan, episode)
    message = answer.message
    rollout.calls.append(
        Call(
            usage=answer.usage,
            finish_reason=answer.unknown_finish or answer.finish_reason,
            response_id=answer.response_id,
            seconds=round(seconds, 6),
            lacks_logprobs=bool(
                params.get("logprobs") and message.logprobs is None and message.text
            ),
        )
    )
    if answer.model is not None and answer.model != plan.model:
        rollout.response_model = answer.model
    return answer


async def _answer_in_time(
    policy: Policy, request: Request, episode: Episode, flight: Flight, max_seconds: float
) -> Answer:
    """Ask for an answer within the time of the episode; waiting in line takes none of it.

    Raises:
        EndpointTimeoutError: The time is over, and a try failed before.
        OutOfTimeError: The time is over, and nothing but the model took it.

    """
    task = flight.task
    assert task is not None, "an episode is played in a task"
    num_before = task.cancelling()
    is_cut = False

    def look() -> None:
        nonlocal is_cut
        left = _seconds_left(episode, max_seconds, _waited(policy))
        if left > 0:
            flight.call_late(left, look)
        else:
            is_cut = True
            task.cancel()

    flight.call_late(_seconds_left(episode, max_seconds, episode.waited), look)
    try:
        with boundary(ModelError):
            return await policy.answer(request)
    except asyncio.CancelledError as error:
        if not is_cut or task.uncancel() > num_before:
            raise  # somebody else wants all of it ended
        if failed := ", ".join(request.tries.retries):
            text = f"the time of the episode was over before it was answered ({failed} before)"
            raise EndpointTimeoutError(text) from error
        raise OutOfTimeError from error
    finally:
        episode.waited = _waited(policy)
        flight.unlimit()


def _seconds_left(episode: Episode, max_seconds: float, waited: float) -> float:
    return max_seconds + waited - (time.perf_counter() - episode.started)


def _waited(policy: Policy) -> float:
    """Give the seconds that the requests waited so far; only conversations with endpoints do."""
    waited: float = getattr(policy, "waited", 0.0)
    return waited


def _count_tries(tries: Tries, plan: EpisodePlan, episode: Episode) -> None:
    """Add to the record what came of a request beside its answer."""
    if tries.retries:
        episode.rollout.retries = dict(Counter(episode.rollout.retries) + Counter(tries.retries))
    if tries.usage != Usage():
        _count_usage(tries.usage, plan, episode)


def _count_usage(usage: Usage, plan: EpisodePlan, episode: Episode) -> None:
    """Add to the record what an answer took."""
    episode.rollout.usage.add(usage)
    if not (usage.prompt_tokens or usage.completion_tokens):
        episode.has_known_usage = False
    if plan.spend is not None:
        plan.spend(usage, None if plan.cost is None else plan.cost(usage))
