"""Asks the model for one message of an episode, within the limits of that, and counts it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

from gymcli.boundary import boundary
from gymcli.environment import Environment, Task, limited
from gymcli.errors import EpisodeError, ModelError
from gymcli.rollout.plan import Episode, EpisodePlan, Policy
from gymcli.types import Answer, Request, Rollout, StopReason

__all__ = ["OutOfTimeError", "ask", "cost_of", "limit_reached"]


class OutOfTimeError(Exception):
    """Raised when the time of an episode is over while its model is asked."""


def limit_reached(episode: Episode, plan: EpisodePlan) -> StopReason | None:
    """Say which limit leaves no room for another request."""
    max_tokens, max_cost, max_seconds = plan.limits
    usage = episode.rollout.usage
    if max_tokens is not None and usage.prompt_tokens + usage.completion_tokens >= max_tokens:
        return "episode_tokens"
    if max_cost is not None and plan.cost is not None and (plan.cost(usage) or 0.0) >= max_cost:
        return "episode_cost"
    if max_seconds is not None and time.perf_counter() - episode.started >= max_seconds:
        return "episode_time"
    return None


def cost_of(episode: Episode, plan: EpisodePlan) -> float | None:
    """Give what the episode's answers cost; None where one did not say what it took."""
    if plan.cost is None or not episode.has_known_cost:
        return None
    return plan.cost(episode.rollout.usage)


async def ask(
    environment: Environment[Task], plan: EpisodePlan, policy: Policy | None, episode: Episode
) -> Answer:
    """Ask the model for one message and count what that took."""
    rollout = episode.rollout
    if policy is None:
        message = await limited.oracle(environment, rollout)
        if message is None:
            raise EpisodeError(f"{rollout.env} has no oracle for this task")
        return Answer(message=message)
    params = rollout.sampling
    if plan.sends_seed:
        params = {**params, "seed": rollout.seed}
    request = Request(messages=rollout.messages, tools=rollout.tools, params=params)
    started = time.perf_counter()
    episode.phase = "model"
    try:
        answer = await _answer_in_time(policy, request, episode, plan.limits.max_seconds)
    except ModelError as error:
        _count(rollout, error.retries)
        raise
    finally:
        rollout.timing.model_seconds += time.perf_counter() - started
        episode.phase = "environment"
    _count_answer(answer, plan, episode)
    return answer


async def _answer_in_time(
    policy: Policy, request: Request, episode: Episode, max_seconds: float | None
) -> Answer:
    """Wait for an answer as long as the episode has time.

    Raises:
        ModelError: There is no usable answer.
        OutOfTimeError: The time is over first.

    """
    left = None
    if max_seconds is not None:
        left = max_seconds - (time.perf_counter() - episode.started)
    try:
        async with asyncio.timeout(left):
            with boundary(ModelError):
                return await policy.answer(request)
    except TimeoutError as error:
        raise OutOfTimeError from error


def _count_answer(answer: Answer, plan: EpisodePlan, episode: Episode) -> None:
    """Add to the record what an answer took."""
    rollout, usage = episode.rollout, answer.usage
    rollout.usage.add(usage)
    if not (usage.prompt_tokens or usage.completion_tokens):
        episode.has_known_cost = False
    if plan.spend is not None:
        plan.spend(usage, None if plan.cost is None else plan.cost(usage))
    if answer.retries:
        _count(rollout, answer.retries)
    if answer.model is not None and answer.model != plan.model:
        rollout.response_model = answer.model


def _count(rollout: Rollout, retries: Mapping[str, int]) -> None:
    rollout.retries = dict(Counter(rollout.retries) + Counter(retries))
