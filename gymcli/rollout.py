"""One episode: the loop between model and environment, recorded as it goes.

The order of events, and where an exception goes in each:

1. the task is typed, the instance made and `setup` runs: a failure is phase `setup`;
2. the model is asked: a failure is phase `model`, but for a context overflow, which is a stop
   reason; the message is recorded before anything looks at it;
3. the environment answers the message: a failure is phase `environment`;
4. 2 and 3 repeat until one of them gives a stop reason or the turns are used up;
5. `final_state` is taken, unless something failed, and `close` runs in any case: a failure there
   is phase `environment`, unless something failed before.

Every failure leaves as an `EpisodeFailedError` that carries the record as far as it got. A
cancelled episode closes its environment and passes the cancellation on.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple, Protocol

import msgspec

from gymcli.boundary import boundary
from gymcli.environment import Environment, EnvironmentOptions, Model, Step, Task
from gymcli.errors import AttemptError, ContextOverflowError, EpisodeError, ModelError, SetupError
from gymcli.types import (
    SCHEMA_VERSION,
    Answer,
    JSONObject,
    Message,
    Request,
    Rollout,
    StopReason,
    TaskRow,
    Timing,
)

__all__ = [
    "DEFAULT_MAX_TURNS",
    "EpisodeFailedError",
    "EpisodePlan",
    "Policy",
    "attempt_seed",
    "play",
]

DEFAULT_MAX_TURNS = 32

_STOPS: dict[str, StopReason] = {"length": "length", "content_filter": "content_filter"}


class Policy(Protocol):
    """The model under test, as the loop sees it."""

    async def answer(self, request: Request) -> Answer:
        """Answer a conversation with one message.

        Raises:
            ModelError: There is no usable answer.

        """
        ...


class EpisodePlan(NamedTuple):
    """Everything that one attempt is played with."""

    row: TaskRow
    attempt: int
    environment: type[Environment[Task]]
    options: EnvironmentOptions
    env_version: str
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


class EpisodeFailedError(Exception):
    """Raised when an episode cannot be finished; `__cause__` is an AttemptError."""

    def __init__(self, rollout: Rollout, error: AttemptError, *, is_finished: bool) -> None:
        super().__init__(str(error))
        self.rollout = rollout
        self.error = error
        self.is_finished = is_finished
        """Only `close` failed: the record is whole and can be scored."""


def attempt_seed(run_seed: int, task_id: str, attempt: int) -> int:
    """Derive the seed of one attempt: 31 bits, which every endpoint takes."""
    text = f"{run_seed}\0{task_id}\0{attempt}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


async def play(plan: EpisodePlan, policy: Policy | None) -> Rollout:
    """Play one episode and give its record, without a score.

    Args:
        plan: What is played.
        policy: The model; None plays the environment's oracle.

    Raises:
        EpisodeFailedError: Model or environment failed; it carries the record so far.

    """
    rollout = _new_record(plan)
    started = time.perf_counter()
    is_finished = False
    try:
        with boundary(EpisodeError):
            environment = _made(plan, rollout)
            async with _closing(environment):
                await _opened(environment, plan, rollout)
                rollout.stop_reason = await _turns(environment, plan, policy, rollout)
                if rollout.step_rewards:
                    _fill_step_rewards(rollout, _num_turns(rollout))
                final_state = await environment.final_state()
                _check_encodable(final_state)
                rollout.final_state = final_state
                is_finished = True
    except AttemptError as error:
        raise EpisodeFailedError(rollout, error, is_finished=is_finished) from error
    finally:
        rollout.timing.total_seconds = time.perf_counter() - started
    return rollout


@asynccontextmanager
async def _closing(environment: Environment[Task]) -> AsyncIterator[None]:
    """Close the environment at the end; what failed before says more than a failing close."""
    has_failed = True
    try:
        yield
        has_failed = False
    finally:
        rollout = environment.rollout
        rollout.timing.tool_seconds = environment.tool_seconds
        rollout.tool_errors = dict(environment.tool_errors.items())
        try:
            await environment.close()
        except (Exception, SystemExit):
            if not has_failed:
                raise


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
        env_options=plan.options.model_dump(mode="json", exclude_defaults=True),
        seed=seed,
        task=row.fields,
        messages=list(row.messages),
        tools=row.tools or [],
        num_prompt_messages=len(row.messages),
        model=plan.model,
        sampling=plan.params,
        timing=Timing(started_at=round(time.time(), 3)),
    )


def _made(plan: EpisodePlan, rollout: Rollout) -> Environment[Task]:
    with boundary(SetupError):
        task = plan.environment.parse_task(rollout.task)
        environment = plan.environment(
            task, options=plan.options, roles=plan.roles, rng=Random(rollout.seed)
        )
    environment.rollout = rollout
    return environment


async def _opened(environment: Environment[Task], plan: EpisodePlan, rollout: Rollout) -> None:
    """Build the environment's state; its opening counts as prompt."""
    with boundary(SetupError):
        opening = await environment.setup()
        _check_encodable(opening)
        rollout.messages += opening
        if not rollout.messages:
            raise SetupError("there is no prompt: neither the row nor the environment gives one")
        if plan.row.tools is None:
            rollout.tools = [tool.spec for tool in environment.tools()]
    environment.shown_tools = rollout.tools
    rollout.num_prompt_messages = len(rollout.messages)


async def _turns(
    environment: Environment[Task], plan: EpisodePlan, policy: Policy | None, rollout: Rollout
) -> StopReason:
    """Play turn after turn; gives why the episode ended."""
    max_turns = plan.max_turns or plan.row.max_turns or environment.max_turns
    num_empty = 0
    for _ in range(max_turns or DEFAULT_MAX_TURNS):
        try:
            answer = await _asked(environment, plan, policy, rollout)
        except ContextOverflowError:
            return "context_overflow"
        message = answer.message
        rollout.messages.append(message)
        if answer.finish_reason in _STOPS:
            return _STOPS[answer.finish_reason]
        if message.refusal is not None and not message.tool_calls:
            return "refusal"
        if message.is_reasoning_only:
            # Asked once more; an endpoint that only ever thinks must not loop for ever.
            num_empty += 1
            if num_empty == 2:
                return "no_answer"
            continue
        num_empty = 0
        step = await _answered(environment, message)
        _record_reward(rollout, step.reward)
        rollout.messages += step.messages
        if step.stop_reason is not None:
            return step.stop_reason
        if not step.messages:
            return "done"
    return "max_turns"


async def _asked(
    environment: Environment[Task], plan: EpisodePlan, policy: Policy | None, rollout: Rollout
) -> Answer:
    """Ask the model for one message and count what that took."""
    if policy is None:
        message = await environment.oracle(rollout)
        if message is None:
            raise EpisodeError(f"{rollout.env} has no oracle for this task")
        return Answer(message=message)
    params = rollout.sampling
    if plan.sends_seed:
        params = {**params, "seed": rollout.seed}
    started = time.perf_counter()
    try:
        with boundary(ModelError):
            answer = await policy.answer(
                Request(messages=rollout.messages, tools=rollout.tools, params=params)
            )
    except ModelError as error:
        _count(rollout, error.retries)
        raise
    finally:
        rollout.timing.model_seconds += time.perf_counter() - started
    rollout.usage.add(answer.usage)
    if answer.retries:
        _count(rollout, answer.retries)
    if answer.model is not None and answer.model != plan.model:
        rollout.response_model = answer.model
    return answer


async def _answered(environment: Environment[Task], message: Message) -> Step:
    step = await environment.step(message)
    _check_encodable(step.messages)
    return step


def _record_reward(rollout: Rollout, reward: float | None) -> None:
    """Keep the reward of the last turn; turns before it that have none are None."""
    if reward is None:
        return
    if not math.isfinite(reward):
        raise EpisodeError(f"{rollout.env} gave the step reward {reward!r}, no finite number")
    _fill_step_rewards(rollout, _num_turns(rollout) - 1)
    rollout.step_rewards.append(float(reward))


def _fill_step_rewards(rollout: Rollout, length: int) -> None:
    rollout.step_rewards += [None] * (length - len(rollout.step_rewards))


def _num_turns(rollout: Rollout) -> int:
    return sum(message.role == "assistant" for message in rollout.responses)


def _check_encodable(value: object) -> None:
    """Raise here for what is no JSON, rather than where the record is written."""
    msgspec.json.encode(value)


def _count(rollout: Rollout, retries: Mapping[str, int]) -> None:
    rollout.retries = dict(Counter(rollout.retries) + Counter(retries))
