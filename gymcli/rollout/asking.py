"""Asks the model for one message of an episode, within the limits of that, and counts it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import TracebackType

from gymcli.boundary import boundary
from gymcli.environment import Environment, Task, limited
from gymcli.errors import EndpointTimeoutError, EpisodeError, ModelError, UnknownUsageError
from gymcli.rollout.plan import Episode, EpisodePlan, Policy
from gymcli.types import Answer, Request, StopReason, Tries, Usage

__all__ = ["OutOfTimeError", "ask", "cost_of", "limit_reached"]


_LONG = 2.0
"""Seconds from which on the end of an episode's time is not waited for with a timer of its own."""

_SHORTEST_LOOK = 0.05
"""Seconds between two looks at an episode that has less left, while its request waits."""


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
        if plan.limits.max_seconds is None:
            with boundary(ModelError):
                answer = await policy.answer(request)
        else:
            with _Cut(policy, request, episode, plan), boundary(ModelError):
                answer = await policy.answer(request)
    finally:
        rollout.timing.model_seconds += time.perf_counter() - started
        episode.phase = "environment"
        _count_tries(request.tries, plan, episode)
    _count_usage(answer.usage, plan, episode)
    if answer.model is not None and answer.model != plan.model:
        rollout.response_model = answer.model
    return answer


class _Cut:
    """Cancels a request when the time of its episode is over; waiting in line takes none of it.

    As `asyncio.timeout` it takes that back at its end, but costs a fifth where nothing is cut off:
    no timer of its own, and no cycle of references that would keep a conversation until the next
    collection.

    Raises:
        EndpointTimeoutError: The time is over, and a try failed before.
        OutOfTimeError: The time is over, and nothing but the model took it.

    """

    __slots__ = (
        *("_episode", "_is_cut", "_max_seconds", "_num_before", "_policy", "_reminder"),
        *("_reminders", "_request", "_task", "_timer"),
    )

    def __init__(
        self, policy: Policy, request: Request, episode: Episode, plan: EpisodePlan
    ) -> None:
        self._policy = policy
        self._request = request
        self._episode = episode
        self._max_seconds = plan.limits.max_seconds or 0.0
        self._reminders = plan.reminders
        self._reminder: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_cut = False
        if episode.task is None:
            episode.task = asyncio.current_task()
            assert episode.task is not None, "an episode is played in a task"
        self._task = episode.task
        self._num_before = self._task.cancelling()

    def __enter__(self) -> None:
        left = _seconds_left(self._episode, self._max_seconds, self._episode.waited)
        if left > _LONG:
            self._reminder = self._reminders.add(self, left)
        else:
            self._timer = self._task.get_loop().call_later(left, self.remind)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reminder is not None:
            self._reminders.forget(self, self._reminder)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._episode.waited = _waited(self._policy)
        if not self._is_cut:
            return
        num_left = self._task.cancelling()
        if num_left > self._num_before:
            num_left = self._task.uncancel()
        if kind is not asyncio.CancelledError or num_left > self._num_before:
            return  # there was an answer or an error, or somebody else cancelled it as well
        if failed := ", ".join(self._request.tries.retries):
            text = f"the time of the episode was over before it was answered ({failed} before)"
            raise EndpointTimeoutError(text) from error
        raise OutOfTimeError from error

    def remind(self) -> None:
        """Cancel the request if the time is over; else look again when it should be."""
        left = _seconds_left(self._episode, self._max_seconds, _waited(self._policy))
        if left > 0:
            left = max(left, _SHORTEST_LOOK)
            self._timer = self._task.get_loop().call_later(left, self.remind)
        else:
            self._is_cut = True
            self._timer = None
            self._task.cancel()


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
