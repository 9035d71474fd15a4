"""Plays and scores the episodes of one environment, a request at a time.

The order of events of a session: a row opens it (`seed`, `reset`), tools are called or messages
answered in it, and `verify` ends it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gymcli.environment.contract import Environment
from gymcli.environment.registry import EnvironmentClass, Found
from gymcli.environment.remote_session import (
    OWN_KEY,
    SEED_HEADER,
    Opened,
    Said,
    Stepped,
    Verified,
)
from gymcli.environment.tool import Step
from gymcli.errors import EpisodeError, boundary
from gymcli.rollout.episode import DEFAULT_MAX_TURNS
from gymcli.serving.messages import Answered, Asked, RefusedError, json_answer
from gymcli.serving.sessions import Session, Sessions
from gymcli.serving.stage import Stage
from gymcli.serving.wire import (
    game_answer,
    opening_answer,
    played_messages,
    verdict,
    verified_record,
)
from gymcli.types import (
    FunctionCall,
    JSONObject,
    Message,
    Rollout,
    Score,
    StopReason,
    ToolCall,
    Usage,
)

__all__ = ["Episodes"]

T = TypeVar("T")

_STATUSES = {"unknown_tool": 404, "raised": 500, "timeout": 504}
"""By what was wrong with a tool call; all else is 422. The text is the model's in any case."""


class Episodes:
    """What can be done with one environment that is served.

    Args:
        found: The environment.
        stage: Where they take place.
        sessions: Those that are open.

    """

    def __init__(self, found: Found, stage: Stage, sessions: Sessions) -> None:
        self._found = found
        self._stage = stage
        self._sessions = sessions
        self.is_stateless = _is_stateless(found.environment)
        """Whether a record is scored alike without its session."""

    async def seed(self, asked: Asked) -> tuple[Answered, Session | None]:
        """Open a session for `/seed_session`; an environment that talks is none for tools alone.

        Raises:
            RefusedError: The body is no row of this environment, or it has to be played otherwise.
            AttemptError: It cannot be set up.

        """
        seed = _seed_of(asked)
        talks = _overrides(self._found.environment, "step", "reply")
        if seed is None and talks:
            raise _other_dialect(self._found.name)
        session, opening = await self._stage.opened(
            asked.json_object(), seed, is_own=seed is not None
        )
        if seed is None:
            if opening:
                await self._sessions.end(session)
                raise _other_dialect(self._found.name)
            return json_answer({}), session
        session.is_own = True
        opened = Opened(opening, session.rollout.tools, session.environment.max_turns)
        return json_answer({OWN_KEY: msgspec.to_builtins(opened)}), session

    async def reset(self, asked: Asked) -> tuple[Answered, Session]:
        """Open a session for `/reset`, the gymnasium dialect.

        Raises:
            RefusedError: The body is no row of this environment.
            AttemptError: It cannot be set up.

        """
        session, opening = await self._stage.opened(
            asked.json_object(), _seed_of(asked), is_own=True
        )
        return json_answer(opening_answer(opening)), session

    async def call_tool(self, session: Session, name: str, arguments: bytes) -> Answered:
        """Call a tool and give its result as text.

        Raises:
            RefusedError: The session is over.
            AttemptError: The attempt cannot go on, as where a role failed.

        """
        async with self._sessions.turn(session):
            environment = session.environment
            if not environment.executes_tools:
                raise RefusedError(
                    404, f"environment {self._found.name} records tool calls and runs none"
                )
            before = Counter(environment.tool_errors)
            call = FunctionCall(name=name, arguments=arguments.decode(errors="replace"))
            with boundary(EpisodeError):
                [message] = await environment.call_tools([ToolCall(id="call", function=call)])
            faults = environment.tool_errors - before
            status = next((_STATUSES.get(fault, 422) for fault in faults), 200)
            return Answered(status, message.text.encode(), "text/plain; charset=utf-8")

    async def step(self, session: Session, body: JSONObject) -> Answered:
        """Answer a message of the model; for who asks no `/verify`, the last reward is the score.

        Raises:
            RefusedError: There is no message, or the episode is over.
            AttemptError: The environment failed, or the verifier.

        """
        async with self._sessions.turn(session):
            if session.is_finished:
                raise RefusedError(409, "the episode is over; ask /verify or /close")
            if session.is_own:
                return await self._own_step(session, _own(body, Said))
            return await self._game_step(session, played_messages(body))

    async def _own_step(self, session: Session, said: Said) -> Answered:
        before = Counter(session.environment.tool_errors)
        step = await self._stepped(session, said.messages)
        session.is_finished = step.stop_reason is not None or not step.messages
        new = session.environment.tool_errors - before
        errors = {str(fault): number for fault, number in new.items()}
        stepped = Stepped(step.messages, step.reward, step.stop_reason, errors)
        return json_answer({OWN_KEY: msgspec.to_builtins(stepped)})

    async def _game_step(self, session: Session, played: Rollout) -> Answered:
        """Answer as `gym collect` would go on: a message that was cut off ends the episode."""
        rollout = session.rollout
        rollout.model = played.model
        rollout.usage.add(played.usage)
        if played.stop_reason in ("length", "content_filter"):
            rollout.messages += played.messages
            step = Step([], stop_reason=played.stop_reason)
        else:
            step = await self._stepped(session, played.messages)
        stop_reason = step.stop_reason or _end_of(session, step)
        session.is_finished = stop_reason is not None
        reward = step.reward or 0.0
        if session.is_finished:
            rollout.stop_reason = stop_reason
            given = math.fsum(one or 0.0 for one in rollout.step_rewards)
            reward += (await self._stage.scored_session(session)).reward - given
        answer = game_answer(step.messages, reward=reward, stop_reason=stop_reason)
        return json_answer(answer)

    async def _stepped(self, session: Session, messages: list[Message]) -> Step:
        if not messages or messages[-1].role != "assistant":
            raise RefusedError(422, "there is no message of the model in the body")
        return await self._stage.stepped(session, messages)

    async def verify(self, session: Session, body: JSONObject) -> Answered:
        """Score the conversation of a session, which is over then.

        What `/step` was asked is on record here; any other conversation is that of the body.

        Raises:
            RefusedError: The body holds no conversation.
            AttemptError: The verifier failed; the session goes on, and may be asked again.

        """
        async with self._sessions.turn(session):
            rollout = session.rollout
            said = _own(body, Said) if session.is_own else played_messages(body)
            was_stepped = not session.is_own and rollout.env_version and rollout.responses
            if not was_stepped:
                rollout.messages[rollout.num_prompt_messages :] = said.messages
                rollout.model, rollout.usage = said.model, said.usage or Usage()
                rollout.env_version = rollout.env_version if session.is_own else ""
            if session.is_own or not session.is_finished:
                rollout.stop_reason = said.stop_reason
            found = await self._stage.scored_session(session)
            await self._sessions.end(session)
            return _verified(found, None if session.is_own else body)

    async def verify_alone(self, asked: Asked) -> Answered:
        """Score a row with its response, without a session.

        Raises:
            RefusedError: The body is none.
            AttemptError: The verifier failed.

        """
        body = asked.json_object()
        seed = _seed_of(asked)
        rollout = verified_record(body, self._found, self._stage.options, seed)
        found = await self._stage.scored(rollout, self._stage.models())
        return _verified(found, body if seed is None else None)

    async def close(self, session: Session) -> None:
        """End a session without a score, once what it does is done."""
        async with self._sessions.turn(session):
            await self._sessions.end(session)


def _verified(found: Score, body: JSONObject | None) -> Answered:
    if body is None:
        own: JSONObject = {OWN_KEY: msgspec.to_builtins(Verified(found))}
        return json_answer({"reward": found.reward, **own})
    return json_answer(verdict(found, body))


def _is_stateless(environment: EnvironmentClass) -> bool:
    if environment.method_tools() and environment.executes_tools:
        return False
    return not _overrides(environment, "setup", "step", "reply", "tools", "final_state")


def _overrides(environment: EnvironmentClass, *names: str) -> bool:
    return any(getattr(environment, name) is not getattr(Environment, name) for name in names)


def _other_dialect(name: str) -> RefusedError:
    return RefusedError(
        404, f"environment {name} answers the model itself: play it by /reset and /step"
    )


def _end_of(session: Session, step: Step) -> StopReason | None:
    """Give why an episode is over that the environment itself does not end."""
    if not step.messages:
        return "done"
    num_turns = sum(message.role == "assistant" for message in session.rollout.responses)
    max_turns = session.environment.max_turns or DEFAULT_MAX_TURNS
    return "max_turns" if num_turns >= max_turns else None


def _seed_of(asked: Asked) -> int | None:
    """Give the seed that a client of gymcli sends; None for any other client."""
    text = asked.headers.get(SEED_HEADER.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise RefusedError(422, f"{SEED_HEADER}: must be a whole number")
    return int(text)


def _own(body: Mapping[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert(body[OWN_KEY], type=kind)
    except msgspec.ValidationError as error:
        raise RefusedError(422, f'"{OWN_KEY}": {error}') from error
