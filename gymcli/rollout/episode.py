"""Asks the model for one message of an episode, within the limits of that, and counts it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from gymcli.environment.contract import Environment, Model, make, shown_tools
from gymcli.environment.contract_checks import (
    checked_json,
    checked_messages,
    checked_step,
    checked_turn,
)
from gymcli.environment.time_limit import UnaskedCancellationError
from gymcli.environment.tool import EnvironmentOptions, Step, Task
from gymcli.errors import (
    AttemptError,
    ContextOverflowError,
    EndpointTimeoutError,
    EnvironmentTimeoutError,
    EpisodeError,
    ModelError,
    Phase,
    SetupError,
    SetupTimeoutError,
    UnknownUsageError,
    boundary,
    leave_copy,
)
from gymcli.rollout.event_loop import Watchdog
from gymcli.rollout.flight import Flight
from gymcli.types import (
    SCHEMA_VERSION,
    Answer,
    Call,
    JSONObject,
    Message,
    Request,
    Rollout,
    StopReason,
    TaskRow,
    Timing,
    Tries,
    Usage,
)

__all__ = [
    "DEFAULT_MAX_TURNS",
    "Episode",
    "EpisodeFailedError",
    "EpisodeLimits",
    "EpisodePlan",
    "OutOfTimeError",
    "Policy",
    "ask",
    "attempt_seed",
    "cost_of",
    "limit_reached",
    "play",
]


class Policy(Protocol):
    """The model under test, as the loop sees it."""

    async def answer(self, request: Request) -> Answer:
        """Answer a conversation with one message.

        Raises:
            ModelError: There is no usable answer.

        """
        ...


class EpisodeLimits(NamedTuple):
    """What one episode may take of its model; at a limit it ends, and is scored."""

    max_tokens: int | None = None
    """Prompt and completion tokens of all its requests."""
    max_cost: float | None = None
    max_seconds: float | None = None
    """From the start of the episode; a request that is under way then is cut off."""


class EpisodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one attempt is played with."""

    row: TaskRow
    attempt: int
    environment: type[Environment[Task]]
    options: EnvironmentOptions
    env_version: str
    env_options: JSONObject | None = None
    """What is recorded of the options, where that is known already."""
    model: str
    """The model's name, for the record."""
    params: JSONObject
    """Request parameters: the row's, overridden by the command line's."""
    run_seed: int
    sends_seed: bool
    """Whether the attempt's seed goes into the requests."""
    max_turns: int | None
    """The command line's limit, if any."""
    roles: Mapping[str, Model] = {}
    limits: EpisodeLimits = EpisodeLimits()
    cost: Callable[[Usage], float | None] | None = None
    """What tokens of the policy cost; None: nobody knows."""
    spend: Callable[[Usage, float | None], None] | None = None
    """Told of every answer's tokens and their cost, as it comes."""
    watchdog: Watchdog | None = None
    """Keeps the limits of what waits. None: the episode has one of its own."""


class Episode:
    """One episode under way: its record so far, and where it stands."""

    def __init__(self, plan: EpisodePlan) -> None:
        self.rollout = _new_record(plan)
        self.phase: Phase = "setup"
        self.is_finished = False
        """The record is whole and can be scored; only `close` is left."""
        self.num_turns = 0
        """Messages of the model on record."""
        self.has_known_usage = True
        """False where an answer did not say what it took."""
        self.flight: Flight | None = None
        """The task that plays it, once it is played."""
        self.started = time.perf_counter()
        self.waited = 0.0
        """Seconds since then that its requests waited for others, or for an endpoint that is gone;
        they do not count as its time."""


class EpisodeFailedError(Exception):
    """Raised when an episode cannot be finished; `__cause__` is an AttemptError."""

    def __init__(self, rollout: Rollout, error: AttemptError) -> None:
        super().__init__(str(error))
        self.rollout = rollout
        self.error = error


def attempt_seed(run_seed: int, task_id: str, attempt: int) -> int:
    """Derive the seed of one attempt: 31 bits, which every endpoint takes."""
    text = f"{run_seed}\0{task_id}\0{attempt}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


def _recorded_options(plan: EpisodePlan) -> JSONObject:
    if plan.env_options is not None:
        return plan.env_options
    return plan.options.model_dump(mode="json", exclude_defaults=True)


def _new_record(plan: EpisodePlan) -> Rollout:
    row = plan.row
    seed = attempt_seed(plan.run_seed, row.id, plan.attempt)
    return Rollout(
        schema_version=SCHEMA_VERSION,
        task_id=row.id,
        task_hash=row.hash,
        attempt=plan.attempt,
        env=row.env,
        env_version=plan.env_version,
        env_options=_recorded_options(plan),
        seed=seed,
        task=row.fields,
        messages=list(row.messages),
        tools=row.tools or [],
        num_prompt_messages=len(row.messages),
        model=plan.model,
        sampling=plan.params,
        timing=Timing(started_at=time.time_ns() // 1_000_000 / 1000),
    )


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


DEFAULT_MAX_TURNS = 32

_WAYS_OUT = {
    "setup": "setup_timeout",
    "step": "step_timeout",
    "oracle": "step_timeout",
    "final_state": "step_timeout",
    "close": "close_timeout",
}
"""The attribute of the class that limits each call, for messages."""

_STOPS: dict[str, StopReason] = {"length": "length", "content_filter": "content_filter"}


async def play(plan: EpisodePlan, policy: Policy | None, episode: Episode | None = None) -> Rollout:
    """Play one episode and return its record, without a score.

    Args:
        plan: What is played.
        policy: The model; None plays the environment's oracle.
        episode: Shows meanwhile how it stands; made for this plan.

    Raises:
        EpisodeFailedError: Model or environment failed; it carries the record so far.

    """
    episode = episode or Episode(plan)
    if plan.watchdog is None:
        async with Watchdog() as watchdog:
            try:
                own = msgspec.structs.replace(plan, watchdog=watchdog)
                return await play(own, policy, episode)
            finally:
                if episode.flight is not None:
                    await episode.flight.gone()
    flight = Flight(plan.watchdog, plan.environment.close_timeout)
    episode.flight = flight
    try:
        await flight.run(_Play(plan, policy, episode, flight).play())
    except AttemptError as error:
        raise EpisodeFailedError(episode.rollout, error) from error
    except UnaskedCancellationError as error:
        kind = SetupError if episode.phase == "setup" else EpisodeError
        raise EpisodeFailedError(episode.rollout, kind(str(error))) from error
    return episode.rollout


class _Play:
    """The task of one episode."""

    def __init__(
        self, plan: EpisodePlan, policy: Policy | None, episode: Episode, flight: Flight
    ) -> None:
        self._plan = plan
        self._policy = policy
        self._episode = episode
        self._flight = flight
        self._process = os.getpid()

    async def play(self) -> None:
        """Play the episode; its record stands in the `Episode`.

        Raises:
            AttemptError: Model or environment failed.

        """
        plan, episode = self._plan, self._episode
        rollout = episode.rollout
        try:
            with boundary(EpisodeError):
                environment = self._made()
                try:
                    await self._set_up(environment)
                    rollout.stop_reason = await self._turns(environment)
                    await self._finish(environment)
                except BaseException:
                    # What failed before says more.
                    with suppress(AttemptError), boundary(EpisodeError):
                        await self._close(environment)
                    raise
                await self._close(environment)
        finally:
            rollout.timing.total_seconds = time.perf_counter() - episode.started
            rollout.cost = cost_of(episode, plan)

    def _made(self) -> Environment[Task]:
        plan, rollout = self._plan, self._episode.rollout
        with boundary(SetupError):
            environment = make(
                plan.environment,
                rollout.task,
                options=plan.options,
                roles=plan.roles,
                rng=rollout.seed,
            )
        environment.rollout = rollout
        if plan.watchdog is not None:
            environment.now = plan.watchdog.now
        return environment

    async def _set_up(self, environment: Environment[Task]) -> None:
        """Build the environment's state; its opening counts as prompt."""
        episode = self._episode
        rollout = episode.rollout
        kind = type(environment)
        with boundary(SetupError):
            opening: list[Message] = []
            if kind.setup is not Environment.setup:
                self._limit("setup", kind.setup_timeout, SetupTimeoutError)
                opening = await environment.setup()
                self._returned()
                opening = checked_messages(environment, "setup", opening)
            rollout.messages += opening
            if not rollout.messages:
                raise SetupError(
                    "there is no prompt: neither the row nor the environment gives one"
                )
            if self._plan.row.tools is None:
                rollout.tools = shown_tools(environment)
        environment.shown_tools = rollout.tools
        rollout.num_prompt_messages = len(rollout.messages)
        episode.phase = "environment"

    async def _turns(self, environment: Environment[Task]) -> StopReason:
        """Play turn after turn and return why the episode ended."""
        plan, episode = self._plan, self._episode
        rollout = episode.rollout
        max_turns = plan.max_turns or plan.row.max_turns or environment.max_turns
        num_empty = 0
        for _ in range(max_turns or DEFAULT_MAX_TURNS):
            if (limit := limit_reached(episode, plan)) is not None:
                return limit
            try:
                answer = await self._asked(environment)
            except ContextOverflowError:
                return "context_overflow"
            except OutOfTimeError:
                return "episode_time"
            message = answer.message
            rollout.messages.append(message)
            episode.num_turns += 1
            if (stop_reason := _stopped_by(answer)) is not None:
                return stop_reason
            if message.is_reasoning_only:
                # Asked once more; an endpoint that only ever thinks must not loop for ever.
                num_empty += 1
                if num_empty == 2:
                    return "no_answer"
                continue
            num_empty = 0
            step = await self._answered(environment, message)
            _record(episode, step)
            if step.stop_reason is not None:
                return step.stop_reason
            if not step.messages:
                return "done"
        return "max_turns"

    async def _asked(self, environment: Environment[Task]) -> Answer:
        """Ask the model, or the oracle where there is no model, for one message."""
        if self._policy is not None:
            return await ask(self._plan, self._policy, self._episode, self._flight)
        self._limit("oracle", environment.step_timeout, EnvironmentTimeoutError)
        found = await environment.oracle(self._episode.rollout)
        self._returned()
        message = checked_turn(environment, found)
        if message is None:
            raise EpisodeError(f"{self._episode.rollout.env} has no oracle for this task")
        return Answer(message=message)

    async def _answered(self, environment: Environment[Task], message: Message) -> Step:
        """Let the environment answer a message of the model."""
        kind = type(environment)
        is_ours = kind.step is Environment.step and kind.reply is Environment.reply
        if is_ours and not message.tool_calls:
            return Step([])
        self._limit("step", kind.step_timeout, EnvironmentTimeoutError)
        step = await environment.step(message)
        self._returned()
        return checked_step(environment, step)

    async def _finish(self, environment: Environment[Task]) -> None:
        """Make the record of an episode whole, with its final state."""
        episode = self._episode
        rollout = episode.rollout
        if rollout.step_rewards:
            _fill_step_rewards(rollout, episode.num_turns)
        if type(environment).final_state is not Environment.final_state:
            self._limit("final_state", environment.step_timeout, EnvironmentTimeoutError)
            final_state = await environment.final_state()
            self._returned()
            rollout.final_state = checked_json(environment, "final_state", final_state)
        episode.is_finished = True

    async def _close(self, environment: Environment[Task]) -> None:
        """Note what the tools took, and close the environment."""
        rollout = environment.rollout
        rollout.timing.tool_seconds = environment.tool_seconds
        if "tool_errors" in vars(environment):  # it is made for the first one
            rollout.tool_errors = dict(environment.tool_errors.items())
        self._flight.begin_to_close()
        if type(environment).close is not Environment.close:
            self._limit("close", environment.close_timeout, EnvironmentTimeoutError)
            await environment.close()
            self._returned()

    def _limit(self, name: str, seconds: float, error: type[AttemptError]) -> None:
        """Limit the call that comes next."""
        self._flight.limit(
            seconds,
            lambda: error(f"{name} took longer than {seconds:g} seconds ({_WAYS_OUT[name]})"),
        )

    def _returned(self) -> None:
        """Go on after a call of the environment's code."""
        leave_copy(self._process)
        self._flight.unlimit()


def _stopped_by(answer: Answer) -> StopReason | None:
    """Return why no message can follow an answer, if so."""
    if answer.finish_reason in _STOPS:
        return _STOPS[answer.finish_reason]
    message = answer.message
    return "refusal" if message.refusal is not None and not message.tool_calls else None


def _record(episode: Episode, step: Step) -> None:
    """Keep what the environment answered to the last turn, and its reward if it gave one."""
    rollout, messages, reward = episode.rollout, step.messages, step.reward
    if reward is not None:
        _fill_step_rewards(rollout, episode.num_turns - 1)
        rollout.step_rewards.append(float(reward))
    for message in messages:
        rollout.messages.append(message)
        episode.num_turns += message.role == "assistant"


def _fill_step_rewards(rollout: Rollout, length: int) -> None:
    """Let turns before have no reward."""
    rollout.step_rewards += [None] * (length - len(rollout.step_rewards))
