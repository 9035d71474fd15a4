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

Every failure leaves as an `EpisodeFailedError` that carries the record as far as it got. A
cancelled episode closes its environment and passes the cancellation on; who gave it an `Episode`
has the record of what came before.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress

import msgspec

from gymcli.boundary import boundary
from gymcli.environment import Environment, Step, Task, limited
from gymcli.errors import AttemptError, ContextOverflowError, EpisodeError, SetupError
from gymcli.rollout.asking import OutOfTimeError, ask, cost_of, limit_reached
from gymcli.rollout.plan import Episode, EpisodeFailedError, EpisodePlan, Policy
from gymcli.types import Answer, Rollout, StopReason

__all__ = ["DEFAULT_MAX_TURNS", "play"]

DEFAULT_MAX_TURNS = 32

_STOPS: dict[str, StopReason] = {"length": "length", "content_filter": "content_filter"}


async def play(plan: EpisodePlan, policy: Policy | None, episode: Episode | None = None) -> Rollout:
    """Play one episode and give its record, without a score.

    Args:
        plan: What is played.
        policy: The model; None plays the environment's oracle.
        episode: Shows meanwhile how it stands; made for this plan.

    Raises:
        EpisodeFailedError: Model or environment failed; it carries the record so far.

    """
    episode = episode or Episode(plan)
    rollout = episode.rollout
    try:
        with boundary(EpisodeError):
            environment = _made(plan, rollout)
            try:
                await _opened(environment, plan, episode)
                rollout.stop_reason = await _turns(environment, plan, policy, episode)
                await _finished(environment, episode)
            except BaseException:
                with suppress(Exception, SystemExit):  # what failed before says more
                    await _closed(environment)
                raise
            await _closed(environment)
    except AttemptError as error:
        raise EpisodeFailedError(rollout, error) from error
    finally:
        rollout.timing.total_seconds = time.perf_counter() - episode.started
        rollout.cost = cost_of(episode, plan)
    return rollout


async def _finished(environment: Environment[Task], episode: Episode) -> None:
    """Make the record of an episode whole, with its final state."""
    rollout = episode.rollout
    if rollout.step_rewards:
        _fill_step_rewards(rollout, episode.num_turns)
    final_state = await limited.final_state(environment)
    if final_state is not None:
        _check_encodable(final_state)
        rollout.final_state = final_state
    episode.is_finished = True


async def _closed(environment: Environment[Task]) -> None:
    """Note what the tools took, and close the environment."""
    rollout = environment.rollout
    rollout.timing.tool_seconds = environment.tool_seconds
    if "tool_errors" in vars(environment):  # it is made for the first one
        rollout.tool_errors = dict(environment.tool_errors.items())
    await limited.close(environment)


def _made(plan: EpisodePlan, rollout: Rollout) -> Environment[Task]:
    with boundary(SetupError):
        environment = limited.make(
            plan.environment,
            rollout.task,
            options=plan.options,
            roles=plan.roles,
            rng=rollout.seed,
            alarm=plan.alarm,
        )
    environment.rollout = rollout
    return environment


async def _opened(environment: Environment[Task], plan: EpisodePlan, episode: Episode) -> None:
    """Build the environment's state; its opening counts as prompt."""
    rollout = episode.rollout
    with boundary(SetupError):
        opening = await limited.set_up(environment)
        if opening:
            _check_encodable(opening)
        rollout.messages += opening
        if not rollout.messages:
            raise SetupError("there is no prompt: neither the row nor the environment gives one")
        if plan.row.tools is None:
            rollout.tools = [tool.spec for tool in limited.tools(environment)]
    environment.shown_tools = rollout.tools
    rollout.num_prompt_messages = len(rollout.messages)
    episode.phase = "environment"


async def _turns(
    environment: Environment[Task], plan: EpisodePlan, policy: Policy | None, episode: Episode
) -> StopReason:
    """Play turn after turn; gives why the episode ended."""
    rollout = episode.rollout
    max_turns = plan.max_turns or plan.row.max_turns or environment.max_turns
    num_empty = 0
    for _ in range(max_turns or DEFAULT_MAX_TURNS):
        if (limit := limit_reached(episode, plan)) is not None:
            return limit
        try:
            answer = await ask(environment, plan, policy, episode)
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
        step = await limited.answer(environment, message)
        _record(episode, step)
        if step.stop_reason is not None:
            return step.stop_reason
        if not step.messages:
            return "done"
    return "max_turns"


def _stopped_by(answer: Answer) -> StopReason | None:
    """Give why no message can follow an answer, if so."""
    if answer.finish_reason in _STOPS:
        return _STOPS[answer.finish_reason]
    message = answer.message
    return "refusal" if message.refusal is not None and not message.tool_calls else None


def _record(episode: Episode, step: Step) -> None:
    """Keep what the environment answered to the last turn, and its reward if it gave one."""
    rollout, messages, reward = episode.rollout, step.messages, step.reward
    if messages:
        _check_encodable(messages)
    if reward is not None:
        if not math.isfinite(reward):
            raise EpisodeError(f"{rollout.env} gave the step reward {reward!r}, no finite number")
        _fill_step_rewards(rollout, episode.num_turns - 1)
        rollout.step_rewards.append(float(reward))
    for message in messages:
        rollout.messages.append(message)
        episode.num_turns += message.role == "assistant"


def _fill_step_rewards(rollout: Rollout, length: int) -> None:
    """Let turns before have no reward."""
    rollout.step_rewards += [None] * (length - len(rollout.step_rewards))


def _check_encodable(value: object) -> None:
    """Raise here for what is no JSON, rather than where the record is written."""
    msgspec.json.encode(value)
