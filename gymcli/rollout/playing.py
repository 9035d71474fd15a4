"""Plays one episode: setup, turn after turn, the final state, and the end in any case.

The order of events, and where an exception goes in each:

1. the task is typed, the instance made and `setup` runs: a failure is phase `setup`;
2. the model is asked: a failure is phase `model`, but for a context overflow, which is a stop
   reason; the message is recorded before anything looks at it;
3. the environment answers the message: a failure is phase `environment`;
4. 2 and 3 repeat until one of them gives a stop reason, or the turns or another limit of the
   episode are used up; of these only the time cuts a request off that is under way;
5. `final_state` is taken, unless something failed, and `close` runs in any case: a failure there
   is phase `environment`, unless something failed before.

All of it is one task, which is awaited from outside: a call that waits beyond its limit is
cancelled, `close` runs, and the episode failed. Every failure leaves as an `EpisodeFailedError`
that carries the record as far as it got. Where the caller is cancelled that passes at once, and
`close` still runs in the task; who gave an `Episode` has the record of what came before.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import msgspec

from gymcli.environment.contract import Environment, make, shown_tools
from gymcli.environment.contract_checks import (
    checked_json,
    checked_messages,
    checked_step,
    checked_turn,
)
from gymcli.environment.time_limit import UnaskedCancellationError
from gymcli.environment.tool import Step, Task
from gymcli.errors import (
    AttemptError,
    ContextOverflowError,
    EnvironmentTimeoutError,
    EpisodeError,
    SetupError,
    SetupTimeoutError,
    boundary,
    leave_copy,
)
from gymcli.rollout.asking import OutOfTimeError, ask, cost_of, limit_reached
from gymcli.rollout.flight import Flight
from gymcli.rollout.plan import Episode, EpisodeFailedError, EpisodePlan, Policy
from gymcli.rollout.watchdog import Watchdog
from gymcli.types import Answer, Message, Rollout, StopReason

__all__ = ["DEFAULT_MAX_TURNS", "play"]

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
