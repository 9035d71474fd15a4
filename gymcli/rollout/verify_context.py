"""The context that a verifier receives with the record, and the check of what it returns."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from numbers import Real
from typing import Self, TypeVar

import msgspec
import regex

from gymcli.environment.contract import Environment, Model, make
from gymcli.environment.contract_checks import (
    UNENCODABLE,
    checked_messages,
    checked_step,
    named,
    wrong_return,
)
from gymcli.environment.time_limit import leave_copy
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import (
    AttemptError,
    ReplayDivergedError,
    RoleError,
    VerifierError,
    VerifierTimeoutError,
    boundary,
)
from gymcli.rollout.isolation import IsolatedProcesses
from gymcli.types import LARGEST, Message, Rollout, Score, StopReason

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

SEARCH_TIMEOUT = 1.0
"""Seconds of CPU time that a row's regular expression may take."""

_FED_AT_THE_END: tuple[StopReason, ...] = ("done", "env_done", "max_turns")
"""The stop reasons after which the environment has seen the last message."""


class VerifyContext:
    """The context of one call of `verify`; implements `gymcli.Context`.

    An async context manager around the call. Its exit closes the instances that `replay` made, and
    the processes of `isolated` unless they were passed in.
    """

    def __init__(
        self,
        environment: type[Environment[Task]],
        *,
        options: EnvironmentOptions,
        roles: Mapping[str, Model] | None = None,
        processes: IsolatedProcesses | None = None,
    ) -> None:
        self.options = options
        self.roles: Mapping[str, Model] = roles or {}
        self._environment = environment
        self._processes = processes
        self._to_close = AsyncExitStack()

    async def replay(self, rollout: Rollout) -> Environment[Task]:
        """Play the recorded turns in a new instance and return it; implements `Context.replay`.

        Rollouts of other programs, which have no `env_version`, are not compared with their
        record, and arguments are converted as NeMo Gym's servers do.

        The instance sees neither the score nor how the episode ended. The messages that `setup`
        sees include the recorded opening, since only `setup` can tell where it begins.

        Raises:
            ReplayDivergedError: The environment's answer differs from the recorded one.
            RoleError: The environment asked a role, whose answer would differ and cost money.
        """
        is_ours = bool(rollout.env_version)
        roles = {role: _Unasked(role, model) for role, model in self.roles.items()}
        # With the recorded seed, so that it draws the same random numbers.
        environment = make(
            self._environment, rollout.task, options=self.options, roles=roles, rng=rollout.seed
        )
        self._to_close.push_async_callback(environment.close)
        prompt = rollout.messages[: rollout.num_prompt_messages]
        environment.rollout = msgspec.structs.replace(
            rollout.unscored(), messages=prompt, stop_reason=None, final_state=None, step_rewards=[]
        )
        environment.reads_arguments_laxly = not is_ours
        # Rollouts of other programs may lack the tools that the model was shown.
        environment.shown_tools = rollout.tools if is_ours or rollout.tools else None
        opening = checked_messages(environment, "setup", await environment.setup())
        if is_ours and opening and opening != prompt[-len(opening) :]:
            raise ReplayDivergedError("the replayed opening differs from the one on record")
        for turn, answers in _turns(rollout):
            environment.rollout.messages.append(turn)
            if _was_fed(turn, answers, rollout):
                step = checked_step(environment, await environment.step(turn))
                if is_ours and step.messages != answers:
                    _diverged(step.messages, answers)
                environment.rollout.step_rewards.append(step.reward)
            else:
                environment.rollout.step_rewards.append(None)
            environment.rollout.messages += answers
        return environment

    async def isolated(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float = 10.0,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int = 1024,
        imports: tuple[str, ...] = (),
    ) -> T:
        """Call a module-level function in its own process; see `IsolatedProcesses.call`."""
        if self._processes is None:
            self._processes = IsolatedProcesses(1)
            self._to_close.push_async_callback(self._processes.close)
        return await self._processes.call(
            function, *args, timeout=timeout, memory_mb=memory_mb, imports=imports
        )

    def search(self, pattern: str, text: str, *, flags: int = 0) -> list[str]:
        """Return every match of a row's regular expression; implements `Context.search`."""
        try:
            # The package `regex`, since `re` has no time limit.
            compiled = regex.compile(pattern, flags=flags)
            matches = compiled.finditer(text, timeout=SEARCH_TIMEOUT)
            return [match.group(1 if compiled.groups else 0) or "" for match in matches]
        except (regex.error, RecursionError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        except TimeoutError as error:
            raise VerifierTimeoutError(
                f"the row's pattern {pattern!r} took longer than {SEARCH_TIMEOUT:g} seconds"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            with boundary(VerifierError):
                await self._to_close.aclose()
        except AttemptError as failed:
            name = self._environment.__name__
            _LOGGER.warning("%s: close failed after a replay: %s", name, failed)


class _Unasked:
    """The model of a role during a replay."""

    def __init__(self, role: str, model: Model) -> None:
        self._role = role
        self.is_scalar = model.is_scalar

    async def complete(self, messages: list[Message], **options: object) -> Message:
        raise RoleError(f"{self._role}: a replay asks no role; read its answer from the record")


async def scores_of(
    environment: type[Environment[Task]],
    rollouts: Rollout | list[Rollout],
    context: VerifyContext,
) -> list[Score]:
    process = os.getpid()
    method = "verify_group" if isinstance(rollouts, list) else "verify"
    async with context:
        try:
            if isinstance(rollouts, list):
                scores = await environment.verify_group(rollouts, context)
            else:
                scores = [await environment.verify(rollouts, context)]
        finally:
            leave_copy(process)  # the verifier may have forked: the copy must exit here
        if not isinstance(scores, list | tuple):
            raise wrong_return(environment, method, f"{named(scores)}, not a list of Score")
        return [checked_score(environment, method, score) for score in scores]


def checked_score(environment: type[Environment[Task]], method: str, score: object) -> Score:
    """Return a score as it will be read back from disk, or raise a VerifierError."""
    if not isinstance(score, Score):
        raise wrong_return(environment, method, f"{named(score)}, not a Score")
    try:
        plain = msgspec.structs.replace(
            score,
            reward=_finite("reward", score.reward),
            components={name: _finite(name, value) for name, value in score.components.items()},
            metrics={name: _finite(name, value) for name, value in score.metrics.items()},
        )
        return msgspec.json.decode(msgspec.json.encode(plain), type=Score)
    except (AttributeError, *UNENCODABLE) as error:
        text = f"an unusable Score: {error}"
        raise wrong_return(environment, method, text) from error


def _finite(name: str, value: object) -> float:
    if not (isinstance(value, Real) and math.isfinite(value)):  # NaN would be written as null
        raise ValueError(f"{name} = {value!r}, not a finite number")
    number = float(value)
    if abs(number) > LARGEST:
        raise ValueError(f"{name} = {value!r}, and the maximum is {LARGEST:g}")
    return number


def _turns(rollout: Rollout) -> list[tuple[Message, list[Message]]]:
    """Return every model message after the prompt with the environment's answers to it."""
    turns: list[tuple[Message, list[Message]]] = []
    for message in rollout.responses:
        if message.role == "assistant":
            turns.append((message, []))
        elif turns:
            turns[-1][1].append(message)
    return turns


def _was_fed(turn: Message, answers: list[Message], rollout: Rollout) -> bool:
    if turn.is_malformed_call:
        return False
    is_last = turn is rollout.messages[-1]
    was_seen = not is_last or rollout.stop_reason in _FED_AT_THE_END
    return bool(answers) or (was_seen and not turn.is_reasoning_only)


def _diverged(replayed: list[Message], recorded: list[Message]) -> None:
    for replay, record in zip(replayed, recorded, strict=False):
        if replay != record:
            raise ReplayDivergedError(
                f"the replay returned {replay.text[:80]!r}, the record has {record.text[:80]!r}"
            )
    raise ReplayDivergedError(
        f"the replay returned {len(replayed)} messages, the record has {len(recorded)}"
    )
