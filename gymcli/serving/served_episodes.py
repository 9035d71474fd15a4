"""Plays and scores the episodes of one environment, a request at a time.

The order of events of a session: a row opens it (`seed`, `reset`), tools are called or messages
answered in it, and `verify` ends it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from pydantic import ValidationError

from gymcli.environment.contract import Environment, make, shown_tools
from gymcli.environment.contract_checks import checked_json, checked_messages, checked_step
from gymcli.environment.registry import EnvironmentClass, Found
from gymcli.environment.remote_session import OWN_KEY, Opened, Said, Stepped, Verified
from gymcli.environment.tool import EnvironmentOptions, Step, Task
from gymcli.errors import (
    EnvironmentTimeoutError,
    EpisodeError,
    SetupError,
    SetupTimeoutError,
    boundary,
)
from gymcli.models.roles import RoleModels
from gymcli.rollout.episode import DEFAULT_MAX_TURNS
from gymcli.rollout.scoring import score
from gymcli.runner.attempts import Shared
from gymcli.runner.judges import Judges
from gymcli.serving.protocol import (
    RequestRefusedError,
    ServedAnswer,
    ServedRequest,
    game_answer,
    json_answer,
    opened_record,
    opening_answer,
    played_messages,
    verdict,
    verified_record,
)
from gymcli.serving.sessions import Session, Sessions, close, limited
from gymcli.store.verdicts import Verdicts
from gymcli.types import (
    FunctionCall,
    JSONObject,
    Message,
    Rollout,
    Score,
    StopReason,
    ToolCall,
    Usage,
    Verifier,
)

__all__ = ["ServedEpisodes"]

T = TypeVar("T")

_STATUSES = {"unknown_tool": 404, "raised": 500, "timeout": 504}
"""Statuses of failed tool calls, 422 for all others. The text is always what the model is told."""


class ServedEpisodes:
    """The requests that play and score episodes of one environment.

    Args:
        found: The environment.
        options: Its options.
        judges: Who plays its roles.
        shared: The opened models, workers and watchdog.
        sessions: The open sessions.
        described: Returns the text of an exception that a client may read.

    """

    def __init__(
        self,
        found: Found,
        options: EnvironmentOptions,
        judges: Judges,
        shared: Shared,
        sessions: Sessions,
        described: Callable[[BaseException], str],
    ) -> None:
        self._found = found
        self._options = options
        self._judges = judges
        self._shared = shared
        self._sessions = sessions
        self._described = described
        self.is_stateless = _is_stateless(found.environment)
        """Whether a record has the same score without its session."""

    async def seed(self, request: ServedRequest) -> tuple[ServedAnswer, Session | None]:
        """Open a session for `/seed_session`, which environments that answer the model refuse.

        Raises:
            RequestRefusedError: The body is no row of this environment, or it is played otherwise.
            AttemptError: It cannot be set up.

        """
        seed = request.seed()
        talks = _overrides(self._found.environment, "step", "reply")
        if seed is None and talks:
            raise _other_dialect(self._found.name)
        session, opening = await self._open(request.json_object(), seed, is_own=seed is not None)
        if seed is None:
            if opening:
                await self._sessions.end(session)
                raise _other_dialect(self._found.name)
            return json_answer({}), session
        session.is_own = True
        opened = Opened(opening, session.rollout.tools, session.environment.max_turns)
        return json_answer({OWN_KEY: msgspec.to_builtins(opened)}), session

    async def reset(self, request: ServedRequest) -> tuple[ServedAnswer, Session]:
        """Open a session for `/reset`, the gymnasium dialect.

        Raises:
            RequestRefusedError: The body is no row of this environment.
            AttemptError: It cannot be set up.

        """
        session, opening = await self._open(request.json_object(), request.seed(), is_own=True)
        return json_answer(opening_answer(opening)), session

    async def call_tool(self, session: Session, name: str, arguments: bytes) -> ServedAnswer:
        """Call a tool and return its result as text.

        Raises:
            RequestRefusedError: The session is over.
            AttemptError: The attempt cannot go on, as where a role failed.

        """
        async with self._sessions.turn(session):
            environment = session.environment
            if not environment.executes_tools:
                raise RequestRefusedError(
                    404, f"environment {self._found.name} records tool calls and runs none"
                )
            before = Counter(environment.tool_errors)
            call = FunctionCall(name=name, arguments=arguments.decode(errors="replace"))
            with boundary(EpisodeError):
                [message] = await environment.call_tools([ToolCall(id="call", function=call)])
            faults = environment.tool_errors - before
            status = next((_STATUSES.get(fault, 422) for fault in faults), 200)
            return ServedAnswer(status, message.text.encode(), "text/plain; charset=utf-8")

    async def step(self, session: Session, body: JSONObject) -> ServedAnswer:
        """Answer a message of the model; the rewards of an ended episode add up to its score.

        Raises:
            RequestRefusedError: There is no message, or the episode is over.
            AttemptError: The environment failed, or the verifier.

        """
        async with self._sessions.turn(session):
            if session.is_finished:
                raise RequestRefusedError(409, "the episode is over; ask /verify or /close")
            if session.is_own:
                return await self._own_step(session, _own(body, Said))
            return await self._game_step(session, played_messages(body))

    async def _own_step(self, session: Session, said: Said) -> ServedAnswer:
        before = Counter(session.environment.tool_errors)
        step = await self._play(session, said.messages)
        session.is_finished = step.stop_reason is not None or not step.messages
        new = session.environment.tool_errors - before
        errors = {str(fault): number for fault, number in new.items()}
        stepped = Stepped(step.messages, step.reward, step.stop_reason, errors)
        return json_answer({OWN_KEY: msgspec.to_builtins(stepped)})

    async def _game_step(self, session: Session, played: Rollout) -> ServedAnswer:
        """Answer as `gym collect` would: a message that was cut off ends the episode."""
        rollout = session.rollout
        rollout.model = played.model
        rollout.usage.add(played.usage)
        if played.stop_reason in ("length", "content_filter"):
            rollout.messages += played.messages
            step = Step([], stop_reason=played.stop_reason)
        else:
            step = await self._play(session, played.messages)
        stop_reason = step.stop_reason or _end_of(session, step)
        session.is_finished = stop_reason is not None
        reward = step.reward or 0.0
        if session.is_finished:
            rollout.stop_reason = stop_reason
            given = math.fsum(one or 0.0 for one in rollout.step_rewards)
            reward += (await self._score_session(session)).reward - given
        answer = game_answer(step.messages, reward=reward, stop_reason=stop_reason)
        return json_answer(answer)

    async def verify(self, session: Session, body: JSONObject) -> ServedAnswer:
        """Score the conversation of a session and end it.

        Messages of `/step` are on record here; any other conversation is that of the body.

        Raises:
            RequestRefusedError: The body holds no conversation.
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
            found = await self._score_session(session)
            await self._sessions.end(session)
            return _verified(found, None if session.is_own else body)

    async def verify_alone(self, request: ServedRequest) -> ServedAnswer:
        """Score a row with its response, without a session.

        Raises:
            RequestRefusedError: The body is none.
            AttemptError: The verifier failed.

        """
        body = request.json_object()
        seed = request.seed()
        rollout = verified_record(body, self._found, self._options, seed)
        found = await self._score(rollout, self._models())
        return _verified(found, body if seed is None else None)

    async def close(self, session: Session) -> None:
        """End a session without a score, after the requests that are under way."""
        async with self._sessions.turn(session):
            await self._sessions.end(session)

    async def _open(
        self, row: JSONObject, seed: int | None, *, is_own: bool
    ) -> tuple[Session, list[Message]]:
        """Open a session for a row, and return it with the environment's opening.

        `is_own` says that no other program writes the conversation or reads the calls in it.

        Raises:
            RequestRefusedError: It is no row of this environment, or the server is full.
            AttemptError: The environment cannot be set up.

        """
        rollout = opened_record(row, self._found, self._options, seed, is_own=is_own)
        models = self._models()
        async with self._sessions.reserve():
            environment = self._make(rollout, models)
            environment.rollout = rollout
            environment.now = self._shared.watchdog.now
            environment.tool_error_text = self._described
            environment.reads_arguments_laxly = not is_own
            try:
                opening = await _set_up(environment)
            except BaseException:
                await close(environment)
                raise
            session = Session(environment, models)
            self._sessions.add(session)
        return session, opening

    def _make(self, rollout: Rollout, models: RoleModels) -> Environment[Task]:
        environment = self._found.environment
        try:
            with boundary(SetupError):
                made = make(
                    environment,
                    rollout.task,
                    options=self._options,
                    roles=models.of(environment, rollout.task, {}),
                    rng=rollout.seed,
                )
        except SetupError as error:
            if isinstance(error.__cause__, ValidationError):
                text = f"the row is none of environment {self._found.name}: {error}"
                raise RequestRefusedError(422, text) from error
            raise
        try:
            with boundary(SetupError):
                environment.check_task(made.task, self._options)
        except SetupError as error:
            raise RequestRefusedError(422, f"environment {self._found.name}: {error}") from error
        return made

    async def _play(self, session: Session, messages: list[Message]) -> Step:
        """Let the environment answer the last of these messages, and record all.

        Raises:
            RequestRefusedError: The last one is no message of the model.
            AttemptError: The environment failed.

        """
        if not messages or messages[-1].role != "assistant":
            raise RequestRefusedError(422, "there is no message of the model in the body")
        rollout = session.rollout
        rollout.messages += messages
        with boundary(EpisodeError):
            environment = session.environment
            step = await limited(
                environment,
                environment.step(messages[-1]),
                environment.step_timeout,
                lambda text: EnvironmentTimeoutError(f"step {text} (step_timeout)"),
            )
            step = checked_step(environment, step)
        if step.reward is not None:
            _pad(rollout, _num_turns(rollout) - 1)
            rollout.step_rewards.append(float(step.reward))
        rollout.messages += step.messages
        return step

    async def _score_session(self, session: Session) -> Score:
        """Score a session's record as it stands.

        Raises:
            AttemptError: The environment or its verifier failed.

        """
        rollout = session.rollout
        if rollout.step_rewards:
            _pad(rollout, _num_turns(rollout))
        with boundary(EpisodeError):
            environment = session.environment
            final_state = await limited(
                environment,
                environment.final_state(),
                environment.step_timeout,
                lambda text: EnvironmentTimeoutError(f"final_state {text} (step_timeout)"),
            )
            rollout.final_state = checked_json(environment, "final_state", final_state)
        return await self._score(rollout, session.models)

    async def _score(self, rollout: Rollout, models: RoleModels) -> Score:
        """Score a record, as `gym verify` does.

        Raises:
            AttemptError: The verifier failed.

        """
        environment = self._found.environment
        scored = await score(
            environment,
            rollout,
            verifier=Verifier(environment.version, self._found.source_hash),
            options=self._options,
            roles=models.of(environment, rollout.task, {}),
            workers=self._shared.workers,
        )
        assert scored.reward is not None, "what is scored has a reward"
        return Score(
            scored.reward, scored.components, scored.metrics, scored.answer, scored.details
        )

    def _models(self) -> RoleModels:
        """Return the models of one session; their answers are forgotten with it."""
        return RoleModels(
            self._judges.sources,
            params=self._judges.params,
            pool=self._shared.roles.pool,
            verdicts=Verdicts(),
        )


def _verified(found: Score, body: JSONObject | None) -> ServedAnswer:
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


def _other_dialect(name: str) -> RequestRefusedError:
    return RequestRefusedError(
        404, f"environment {name} answers the model itself: play it by /reset and /step"
    )


def _end_of(session: Session, step: Step) -> StopReason | None:
    """Return why an episode is over that the environment itself did not end."""
    if not step.messages:
        return "done"
    max_turns = session.environment.max_turns or DEFAULT_MAX_TURNS
    return "max_turns" if _num_turns(session.rollout) >= max_turns else None


def _own(body: Mapping[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert(body[OWN_KEY], type=kind)
    except msgspec.ValidationError as error:
        raise RequestRefusedError(422, f'"{OWN_KEY}": {error}') from error


async def _set_up(environment: Environment[Task]) -> list[Message]:
    """Build the environment's state and record its opening, which counts as prompt."""
    rollout = environment.rollout
    with boundary(SetupError):
        opening = await limited(
            environment,
            environment.setup(),
            environment.setup_timeout,
            lambda text: SetupTimeoutError(f"setup {text} (setup_timeout)"),
        )
        opening = checked_messages(environment, "setup", opening)
        rollout.messages += opening
        if not rollout.tools:
            rollout.tools = shown_tools(environment)
    if not rollout.messages:
        raise RequestRefusedError(422, "there is no prompt: neither row nor environment gives one")
    environment.shown_tools = rollout.tools
    rollout.num_prompt_messages = len(rollout.messages)
    return opening


def _pad(rollout: Rollout, length: int) -> None:
    rollout.step_rewards += [None] * (length - len(rollout.step_rewards))


def _num_turns(rollout: Rollout) -> int:
    return sum(message.role == "assistant" for message in rollout.responses)
