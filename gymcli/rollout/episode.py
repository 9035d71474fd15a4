"""Plays one episode: `setup`, the turns, `final_state` and `close`.

The order of events, and the phase that a failure in each one has:

1. The task row is validated, the environment is instantiated and `setup` runs: phase `setup`.
2. The model is asked: phase `model`. A context overflow and a filtered prompt are stop reasons, and
   so is more text than turns may add. The message is recorded before anything inspects it; a tool
   call that the endpoint could not read is answered here, without the environment.
3. The environment answers the message: phase `environment`.
4. Steps 2 and 3 repeat until one of them has a stop reason or the episode reaches a limit. Only
   the time limit cuts off a request.
5. `final_state` is recorded unless something failed: phase `environment`. `close` always runs, and
   its failure is only logged.

All of this is one asyncio task. When a call exceeds its limit, the task is cancelled, `close` runs
and the episode fails. Only cancellation is ever thrown into the task, which then has
`close_timeout` seconds to end; a task that is still running after that is abandoned with a warning.
When the caller is cancelled, `play` ends immediately and `close` still runs in the task.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

import msgspec

from gymcli.environment.contract import Environment, Model, make, shown_tools
from gymcli.environment.contract_checks import (
    checked_json,
    checked_messages,
    checked_step,
    checked_turn,
)
from gymcli.environment.time_limit import leave_copy
from gymcli.environment.tool import EnvironmentOptions, Step, Task
from gymcli.errors import (
    AttemptError,
    ContextOverflowError,
    EndpointTimeoutError,
    EnvironmentTimeoutError,
    EpisodeError,
    ModelError,
    Phase,
    PromptFilteredError,
    SetupError,
    SetupTimeoutError,
    UnknownUsageError,
    VerifierError,
    boundary,
    text_of,
)
from gymcli.nemo_gym.payload import object_in
from gymcli.rollout.event_loop import Watchdog
from gymcli.store.tokens import PlayTokens
from gymcli.types import (
    JSON,
    MALFORMED_CALL,
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
    Usage,
)

_LOGGER = logging.getLogger(__name__)

DEFAULT_MAX_TURNS = 32

_MALFORMED_CALL_TEXT = (
    "This tool call could not be read. Call a tool by its name, with a JSON object of arguments "
    "that fits its schema."
)
_NO_TOKENS = Usage()

_MAX_TEXT_BYTES = 32 * 2**20
"""The most text that a prompt may have, and the most that turns may add to it. Each request sends
the whole conversation, so the work of an episode grows with the square of its length."""
_MEDIA_TYPE = re.compile("image|audio|video|file|screenshot")

_UNWIND_SECONDS = 1.0
"""How long a cancelled episode waits for its task to complete the record."""


class Policy(Protocol):
    """The model under test, as the loop sees it."""

    async def answer(self, request: Request) -> Answer:
        """Answer a conversation with one message, or raise a ModelError."""
        ...


class EpisodeLimits(NamedTuple):
    """Limits of one episode; an episode that reaches one ends and is scored."""

    max_tokens: int | None = None
    """Prompt and completion tokens of all requests."""
    max_cost: float | None = None
    max_seconds: float | None = None


class EpisodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one attempt."""

    row: TaskRow
    attempt: int
    environment: type[Environment[Task]]
    options: EnvironmentOptions
    env_options: JSONObject | None = None
    """The options as recorded; None: `new_record` dumps them for each attempt."""
    model: str
    params: JSONObject
    """Request parameters: the row's, overridden by the command line's."""
    run_seed: int
    sends_seed: bool
    """Whether the attempt's seed goes into the requests."""
    max_turns: int | None
    """The command line's limit, if any."""
    records_tokens: bool = False
    """Whether to record the token ids of every call."""
    roles: Mapping[str, Model] = {}
    limits: EpisodeLimits = EpisodeLimits()
    cost: Callable[[Usage], float | None] | None = None
    """Returns the cost of the policy's tokens; None: prices are unknown."""
    spend: Callable[[Usage, float | None], None] | None = None
    """Called with the tokens and the cost of every answer."""

    def new_record(self) -> Rollout:
        row = self.row
        env_options = self.env_options
        if env_options is None:
            env_options = self.options.model_dump(mode="json", exclude_defaults=True)
        return Rollout(
            schema_version=SCHEMA_VERSION,
            task_id=row.id,
            task_hash=row.hash,
            attempt=self.attempt,
            env=row.env,
            env_version=self.environment.version,
            env_options=env_options,
            seed=attempt_seed(self.run_seed, row.id, self.attempt),
            task=row.fields,
            messages=list(row.messages),
            tools=row.tools or [],
            num_prompt_messages=len(row.messages),
            model=self.model,
            sampling=self.params,
            timing=Timing(started_at=time.time_ns() // 1_000_000 / 1000),
        )


def attempt_seed(run_seed: int, task_id: str, attempt: int) -> int:
    """Derive the seed of one attempt: 31 bits, which every endpoint accepts."""
    text = f"{run_seed}\0{task_id}\0{attempt}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


def _num_text_bytes(message: Message) -> int:
    """Return the size of a message's text in UTF-8; media and log-probabilities do not count."""
    calls: list[JSON] = []
    for call in message.tool_calls:
        calls += [call.name, call.arguments, call.extra or None]
    # The items of Responses repeat the rest of the message.
    repeated: list[JSON] = [message.text, message.reasoning, message.refusal, *calls]
    pending: list[JSON] = [message.extra, *(message.response_items or repeated)]
    num_bytes = 0
    while pending:
        match pending.pop():
            case str() as text:
                num_bytes += len(text if text.isascii() else text.encode("utf-8", "replace"))
            case list() as values:
                pending += values
            case dict() as fields if not _MEDIA_TYPE.search(str(fields.get("type"))):
                pending += fields.values()
    return num_bytes


class EpisodeFailedError(Exception):
    """Raised when an episode fails; carries the record so far and the AttemptError."""

    def __init__(self, rollout: Rollout, error: AttemptError) -> None:
        super().__init__(text_of(error))
        self.rollout = rollout
        self.error = error


async def play(plan: EpisodePlan, policy: Policy | None) -> Rollout:
    """Play one episode with its own watchdog and return its unscored record.

    Raises:
        EpisodeFailedError: The model or the environment failed; it carries the record so far.
    """
    async with Watchdog() as watchdog:
        episode = Episode(plan, policy, watchdog)
        try:
            return await episode.play()
        finally:
            await episode.wait_closed()


class Episode:
    """One episode: its record so far, its phase and the task that plays it.

    Without a policy, the environment's oracle plays. The watchdog calls `on_deadline`.
    """

    def __init__(self, plan: EpisodePlan, policy: Policy | None, watchdog: Watchdog) -> None:
        self.rollout = plan.new_record()
        self.tokens = PlayTokens() if plan.records_tokens and policy is not None else None
        """The token ids of the calls so far, if they are recorded."""
        if self.tokens is not None:
            self.rollout.play = self.tokens.play
        self.phase: Phase = "setup"
        self.is_finished = False
        """Whether the record is complete and can be scored; only `close` is left to run."""
        self.deadline = math.inf
        """When the current call or request exceeds its limit, by `Watchdog.now`."""
        self._plan = plan
        self._policy = policy
        self._watchdog = watchdog
        self._started = time.perf_counter()
        self._num_turns = 0
        """Messages of the model on record."""
        self._num_text_bytes = 0
        """The text that turns have added to the prompt."""
        self._num_measured = 0
        """Messages that are the prompt or counted in that."""
        self._has_known_usage = True
        """False once an answer did not report its token usage."""
        self._task: asyncio.Task[None] | None = None
        self._close_timeout = plan.environment.close_timeout
        self._running_method: tuple[str, float] | None = None
        """The method that is running and its limit in seconds; None during a request."""
        self._error: AttemptError | None = None
        """Why the episode failed; `close` does not change it."""
        self._is_cancelled = False
        self._is_out_of_time = False
        """Whether the episode's time ran out during a request."""
        self._closing = asyncio.Event()
        """Set when the record is complete; a cancelled caller waits no longer than that."""
        self._ended = asyncio.Event()
        """Set when the task has ended or was abandoned."""

    async def play(self) -> Rollout:
        """Play the episode in its own task and return its unscored record.

        If the caller is cancelled, so is the task, unless it is already closing. The record is
        complete when this raises; `wait_closed` waits for the end of the task.

        Raises:
            EpisodeFailedError: The model or the environment failed.
        """
        self._task = task = asyncio.create_task(self._play())
        task.add_done_callback(self._stop_watching)
        self._watchdog.watched.add(self)
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            if not (self._is_cancelled or self._closing.is_set()):
                self._cancel()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _UNWIND_SECONDS)
            raise
        if self.is_finished:  # whatever became of `close`
            return self.rollout
        try:
            if self._error is not None:
                raise self._error
            if task.cancelled():
                # Code of the environment cancelled the task that it runs in.
                kind = SetupError if self.phase == "setup" else EpisodeError
                raise kind("CancelledError, which gymcli did not request")
            task.result()
        except AttemptError as error:
            raise EpisodeFailedError(self.rollout, error) from error
        return self.rollout

    async def _play(self) -> None:
        plan, rollout = self._plan, self.rollout
        environment: Environment[Task] | None = None
        try:
            # Code of the environment is called within a boundary of its own.
            with boundary(EpisodeError, AttemptError):
                with boundary(SetupError):
                    environment = make(
                        plan.environment,
                        rollout.task,
                        options=plan.options,
                        roles=plan.roles,
                        rng=rollout.seed,
                    )
                    environment.rollout = rollout
                    environment.now = self._watchdog.now
                    if plan.environment.setup is not Environment.setup:
                        with self._within_limit("setup", environment.setup_timeout):
                            opening = await environment.setup()
                        rollout.messages += checked_messages(environment, "setup", opening)
                    if not rollout.messages:
                        raise SetupError(
                            "there is no prompt: neither the row nor the environment has one"
                        )
                    if (num_bytes := sum(map(_num_text_bytes, rollout.messages))) > _MAX_TEXT_BYTES:
                        raise SetupError(
                            f"the prompt has {num_bytes / 2**20:.1f} MiB of text, but the limit is "
                            f"{_MAX_TEXT_BYTES // 2**20} MiB"
                        )
                    if plan.row.tools is None:
                        rollout.tools = shown_tools(environment)
                environment.shown_tools = rollout.tools
                # Including the opening, which the model did not write either.
                rollout.num_prompt_messages = self._num_measured = len(rollout.messages)
                self.phase = "environment"
                rollout.stop_reason = await self._take_turns(environment)
                if rollout.step_rewards:
                    self._fill_step_rewards(self._num_turns)
                if plan.environment.final_state is not Environment.final_state:
                    with self._within_limit("final_state", environment.step_timeout):
                        state = await environment.final_state()
                        rollout.final_state = checked_json(environment, "final_state", state)
                # Before `close`: its failure must not cost the conversation.
                self.is_finished = True
        except AttemptError as error:
            self._error = self._error or error  # so that a failure of `close` does not hide it
            raise
        finally:
            rollout.timing.total_seconds = time.perf_counter() - self._started
            if plan.cost is not None and self._has_known_usage:
                rollout.cost = plan.cost(rollout.usage)
            if environment is not None:
                rollout.timing.tool_seconds = environment.tool_seconds
                rollout.tool_errors = dict(environment.tool_errors.items())
                self._closing.set()
                if plan.environment.close is not Environment.close:
                    await self._close(environment)

    async def _take_turns(self, environment: Environment[Task]) -> StopReason:
        plan, rollout = self._plan, self.rollout
        kind = type(environment)
        answers_texts = kind.step is not Environment.step or kind.reply is not Environment.reply
        # Read after `setup`, which may set the environment's limit.
        max_turns = plan.max_turns or plan.row.max_turns or environment.max_turns
        num_empty = 0
        for _ in range(max_turns or DEFAULT_MAX_TURNS):
            # Only before a request: the last answer of an episode may lack its token counts.
            if (limit := self._limit_reached()) is not None:
                return limit
            answer = await self._ask(environment)
            if isinstance(answer, str):
                return answer
            message = answer.message
            rollout.messages.append(message)
            self._num_turns += 1
            if answer.finish_reason in ("length", "content_filter", "refusal", "no_answer"):
                return answer.finish_reason
            if answer.finish_reason == "malformed_call":
                message.extra = {**object_in(message.extra), MALFORMED_CALL: True}
                environment.tool_errors["malformed"] += 1
                if not environment.executes_tools:
                    return "done"
                rollout.messages.append(Message(role="user", content=_MALFORMED_CALL_TEXT))
                continue
            if message.is_reasoning_only:
                # Ask once more, but not forever: some endpoints only ever return reasoning.
                num_empty += 1
                if num_empty == 2:
                    return "no_answer"
                continue
            num_empty = 0
            # Neither a call nor an environment that answers texts: this is the final answer.
            if not (answers_texts or message.tool_calls):
                return "done"
            with self._within_limit("step", environment.step_timeout):
                step = checked_step(environment, await environment.step(message))
            self._record(step)
            if step.stop_reason is not None:
                return step.stop_reason
            if not step.messages:
                return "done"
        return "max_turns"

    def _limit_reached(self) -> StopReason | None:
        messages = self.rollout.messages
        self._num_text_bytes += sum(map(_num_text_bytes, messages[self._num_measured :]))
        self._num_measured = len(messages)
        if self._num_text_bytes > _MAX_TEXT_BYTES:
            return "context_overflow"
        max_tokens, max_cost, _ = self._plan.limits
        usage, cost = self.rollout.usage, self._plan.cost
        if max_tokens is None and max_cost is None:
            return None
        if not self._has_known_usage:
            option = "--max-episode-cost" if max_tokens is None else "--max-episode-tokens"
            raise UnknownUsageError(
                f"an answer did not report its token usage, so {option} cannot be enforced; "
                "leave the option out to continue without the limit"
            )
        if max_tokens is not None and usage.prompt_tokens + usage.completion_tokens >= max_tokens:
            return "episode_tokens"
        if max_cost is not None and cost is not None and (cost(usage) or 0.0) >= max_cost:
            return "episode_cost"
        return None

    async def _ask(self, environment: Environment[Task]) -> Answer | StopReason:
        """Ask the model or the oracle for one message, or return why there can be none."""
        plan, rollout = self._plan, self.rollout
        seconds_left = self._seconds_left()
        if seconds_left <= 0:
            return "episode_time"
        if self._policy is None:
            return await self._ask_oracle(environment)
        params = rollout.sampling
        if plan.sends_seed:
            # The attempt's own: with the run's, all attempts of a task might be the same.
            params = {**params, "seed": rollout.seed}
        request = Request(
            messages=rollout.messages,
            tools=rollout.tools,
            params=params,
            last_tokens=None if self.tokens is None else self.tokens.last,
        )
        tries = request.tries
        assert self._task is not None, "an episode is played in a task"
        num_cancellations = self._task.cancelling()
        started = time.perf_counter()
        self.phase = "model"
        self._running_method, self._is_out_of_time = None, False
        self.deadline = self._watchdog.now() + seconds_left
        try:
            with boundary(ModelError):
                answer = await self._policy.answer(request)
        except (ContextOverflowError, PromptFilteredError) as error:
            is_overflow = isinstance(error, ContextOverflowError)
            return "context_overflow" if is_overflow else "content_filter"
        except asyncio.CancelledError as error:
            if not self._is_out_of_time or self._task.uncancel() > num_cancellations:
                raise  # the whole task was cancelled as well, not only this request
            # Scored as it is, unless failures of the endpoint used up the time.
            if not tries.retries:
                return "episode_time"
            failed = ", ".join(tries.retries)
            raise EndpointTimeoutError(
                f"the episode's time was over before an answer came (earlier: {failed})"
            ) from error
        finally:
            seconds = time.perf_counter() - started
            rollout.timing.model_seconds += seconds
            self.phase = "environment"
            # Also of a request that failed or was cut off: its tries took place and cost tokens.
            if tries.retries:
                rollout.retries = dict(Counter(rollout.retries) + Counter(tries.retries))
            if tries.usage != _NO_TOKENS:
                self._count(tries.usage)
            if not self._is_cancelled:
                self.deadline = math.inf
        if self._is_cancelled:  # the policy swallowed the cancellation
            raise asyncio.CancelledError
        # The refusal of a malformed call has no token counts.
        self._count(answer.usage, must_be_known=answer.finish_reason != "malformed_call")
        self._record_call(answer, params, seconds)
        return answer

    def _record_call(self, answer: Answer, params: JSONObject, seconds: float) -> None:
        rollout, message = self.rollout, answer.message
        finish_reason = answer.unknown_finish or answer.finish_reason
        rollout.calls.append(
            Call(
                usage=answer.usage,
                finish_reason=finish_reason,
                response_id=answer.response_id,
                seconds=round(seconds, 6),
                lacks_logprobs=bool(
                    params.get("logprobs") and message.logprobs is None and message.text
                ),
            )
        )
        if self.tokens is not None:
            self.tokens.add(rollout, answer.tokens, finish_reason=finish_reason, sampling=params)
        if answer.model is not None and answer.model != self._plan.model:
            rollout.response_model = answer.model

    async def _ask_oracle(self, environment: Environment[Task]) -> Answer:
        with self._within_limit("oracle", environment.step_timeout):
            gold = checked_turn(environment, await environment.oracle(self.rollout))
        if gold is None:
            raise EpisodeError(f"{self.rollout.env} has no oracle for this task")
        return Answer(message=gold)

    def _seconds_left(self) -> float:
        max_seconds = self._plan.limits.max_seconds
        if max_seconds is None:
            return math.inf
        # Time in the client's queue, or while the endpoint is down, does not count.
        waited: float = getattr(self._policy, "waited", 0.0)
        return max_seconds + waited - (time.perf_counter() - self._started)

    def _count(self, usage: Usage, *, must_be_known: bool = True) -> None:
        plan = self._plan
        self.rollout.usage.add(usage)
        if must_be_known and not (usage.prompt_tokens or usage.completion_tokens):
            self._has_known_usage = False
        if plan.spend is not None:
            plan.spend(usage, None if plan.cost is None else plan.cost(usage))

    def _record(self, step: Step) -> None:
        if step.reward is not None:
            # So that each reward is at the position of its turn.
            self._fill_step_rewards(self._num_turns - 1)
            self.rollout.step_rewards.append(float(step.reward))
        self.rollout.messages += step.messages
        self._num_turns += sum(message.role == "assistant" for message in step.messages)

    def _fill_step_rewards(self, length: int) -> None:
        rewards = self.rollout.step_rewards
        rewards += [None] * (length - len(rewards))

    async def _close(self, environment: Environment[Task]) -> None:
        started = time.perf_counter()
        try:
            with self._within_limit("close", environment.close_timeout):
                await environment.close()
        except AttemptError as error:
            self._warn_of_close(error)
        self.rollout.timing.total_seconds += time.perf_counter() - started

    def _warn_of_close(self, error: AttemptError) -> None:
        """Log why an environment did not close; its record counts as it is."""
        rollout = self.rollout
        place = f"{rollout.env} {rollout.task_id}/{rollout.attempt}"
        _LOGGER.warning("%s: close failed: %s", place, error)

    @contextmanager
    def _within_limit(self, method: str, seconds: float) -> Iterator[None]:
        """Limit how long a call of the environment's code may wait; its errors get their phase."""
        process = os.getpid()
        error_class = SetupError if method == "setup" else EpisodeError
        # The final state of a remote environment holds its server's verdict.
        passes = (VerifierError,) if method == "final_state" else ()
        self._running_method = method, seconds
        if not self._is_cancelled:
            self.deadline = self._watchdog.now() + seconds
        try:
            with boundary(error_class, *passes):
                yield
        finally:
            leave_copy(process)  # the code may have forked: the copy must exit here
        if self._is_cancelled:  # the environment's code swallowed the cancellation
            raise asyncio.CancelledError
        self.deadline = math.inf

    def on_deadline(self) -> None:
        """Cancel what exceeded its limit; abandon a task that was cancelled before."""
        self.deadline = math.inf
        assert self._task is not None, "a watched episode has a task"
        if self._is_cancelled:
            self._stop_watching(self._task)
            name = getattr(self._task.get_coro(), "__qualname__", "a task")
            _LOGGER.warning(
                "%s was cancelled and is still running after %g seconds; it is abandoned",
                name,
                self._close_timeout,
            )
        elif self._running_method is not None:
            method, seconds = self._running_method
            kind = SetupTimeoutError if method == "setup" else EnvironmentTimeoutError
            option = method if method in ("setup", "close") else "step"
            error = kind(f"{method} took longer than {seconds:g} seconds ({option}_timeout)")
            if method == "close":
                self._warn_of_close(error)
            else:
                self._error = error
            self._cancel()
        elif (seconds_left := self._seconds_left()) > 0:
            # Part of the time was waiting, which does not count (see `_seconds_left`).
            self.deadline = self._watchdog.now() + seconds_left
        else:
            self._is_out_of_time = True
            self._task.cancel()

    def _cancel(self) -> None:
        assert self._task is not None, "a cancelled episode has a task"
        self._is_cancelled = True
        self.deadline = self._watchdog.now() + self._close_timeout
        self._task.cancel()

    def _stop_watching(self, task: asyncio.Task[None]) -> None:
        if task.done() and not task.cancelled():
            # Mark it as retrieved, else asyncio logs it: `play` raises it, or one is on record.
            task.exception()
        self._watchdog.watched.discard(self)
        self._closing.set()
        self._ended.set()

    @property
    def is_running(self) -> bool:
        """Whether a task plays or closes the episode; not one that was abandoned."""
        return self._task is not None and not self._ended.is_set()

    async def wait_closed(self) -> None:
        if self.is_running:
            await self._ended.wait()

    def limit_close(self, seconds: float) -> None:
        """Abandon a task that is still closing after `seconds` instead of `close_timeout`."""
        if self.is_running:
            self._is_cancelled = True  # at its deadline the task is abandoned, not cancelled
            self._close_timeout = seconds
            self.deadline = min(self.deadline, self._watchdog.now() + seconds)
