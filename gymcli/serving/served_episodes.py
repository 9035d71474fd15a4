"""Rows and responses of NeMo Gym become records of ours, and what we found becomes its answers.

Format: NVIDIA NeMo Gym 0.5 (Apache-2.0).
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from pydantic import ValidationError

from gymcli.environment.contract import Environment, make, shown_tools
from gymcli.environment.contract_checks import checked_json, checked_messages, checked_step
from gymcli.environment.registry import EnvironmentClass, Found
from gymcli.environment.remote_session import OWN_KEY, SEED_HEADER, Opened, Said, Stepped, Verified
from gymcli.environment.tool import EnvironmentOptions, Step, Task
from gymcli.errors import (
    EnvironmentTimeoutError,
    EpisodeError,
    SetupError,
    SetupTimeoutError,
    boundary,
)
from gymcli.models.roles import RoleModels
from gymcli.nemo_gym.rows import read_rollout
from gymcli.rollout.episode import DEFAULT_MAX_TURNS, attempt_seed
from gymcli.rollout.scoring import score
from gymcli.runner.attempts import Shared
from gymcli.runner.judging import Judges
from gymcli.serving.sessions import (
    Answered,
    Asked,
    RefusedError,
    Session,
    Sessions,
    close,
    json_answer,
    limited,
)
from gymcli.store.verdicts import Verdicts
from gymcli.types import (
    JSON,
    FunctionCall,
    JSONObject,
    Message,
    Rollout,
    Score,
    StopReason,
    Timing,
    ToolCall,
    Usage,
    Verifier,
)

__all__ = [
    "Episodes",
    "Stage",
    "game_answer",
    "opened_record",
    "opening_answer",
    "played_messages",
    "verdict",
    "verified_record",
]


_PARAMS = "responses_create_params"

_CUT: tuple[StopReason, ...] = ("length", "content_filter", "max_turns")
"""Stop reasons of an episode that did not come to its own end."""


def opened_record(
    row: JSONObject,
    found: Found,
    options: EnvironmentOptions,
    seed: int | None,
    *,
    is_own: bool,
) -> Rollout:
    """Give the record with which the episode of a row begins.

    Without a seed the row's task and its `_ng_rollout_index` decide it, else chance does.
    `is_own` says that no other program will write the conversation.

    Raises:
        RefusedError: It is no row.

    """
    if _PARAMS not in row:
        raise RefusedError(422, f'"{_PARAMS}" is missing: the body must be a row of a tasks file')
    rollout = _read({**row, "response": {"output": []}}, found.name)
    if seed is None and "_ng_rollout_index" in row:
        seed = attempt_seed(0, rollout.task_id, rollout.attempt)
    return _of_environment(rollout, found, options, is_own=is_own, seed=seed)


def verified_record(
    body: JSONObject, found: Found, options: EnvironmentOptions, seed: int | None
) -> Rollout:
    """Give the record of a row with its response, without a session.

    Raises:
        RefusedError: It is none.

    """
    if _PARAMS not in body or "response" not in body:
        raise RefusedError(422, f'the body must be a row with "{_PARAMS}" and "response"')
    return _of_environment(_read(body, found.name), found, options, is_own=False, seed=seed)


def played_messages(body: JSONObject) -> Rollout:
    """Give a record that holds what a response says, after no prompt.

    Raises:
        RefusedError: There is none.

    """
    return _read({"response": body.get("response"), _PARAMS: {}}, "")


def opening_answer(messages: Sequence[Message]) -> JSONObject:
    """Give what an environment begins with in the gymnasium dialect."""
    answer = _observed(messages)
    return {**answer, "info": {"supports_explicit_close": True}}


def game_answer(
    messages: Sequence[Message], *, reward: float, stop_reason: StopReason | None
) -> JSONObject:
    """Give what an environment answered in the gymnasium dialect, and whether that is the end."""
    is_cut = stop_reason in _CUT
    is_over = stop_reason is not None and not is_cut
    return {**_observed(messages), "reward": reward, "terminated": is_over, "truncated": is_cut}


def _observed(messages: Sequence[Message]) -> JSONObject:
    outputs: list[JSON] = [
        {"call_id": message.tool_call_id, "output": message.text}
        for message in messages
        if message.role == "tool"
    ]
    texts = [message.text for message in messages if message.role != "tool"]
    info: JSONObject = {"tool_outputs": outputs} if outputs else {}
    return {"observation": "\n\n".join(texts) or None, "info": info}


def verdict(score: Score, body: JSONObject) -> JSONObject:
    """Give a score as the answer of `/verify`: the row and what the verifier adds to it.

    What a row has of an earlier verdict is left out.
    """
    added: JSONObject = {**score.details, **score.metrics}
    answer: JSONObject = {name: value for name, value in body.items() if name not in _STALE}
    answer.update({name: value for name, value in added.items() if name not in _KEPT})
    answer["reward"] = score.reward
    if score.components:
        answer["reward_components"] = dict(score.components)
    if score.answer is not None:
        answer["extracted_answer"] = score.answer
    return answer


_KEPT = (_PARAMS, "response")
"""What no part of a score may stand for."""

_STALE = (
    "reward",
    "reward_components",
    "extracted_answer",
    "mask_sample",
    "_ng_failure_class",
    "_ng_failure_judge_error",
)


def _read(line: JSONObject, env: str) -> Rollout:
    try:
        return read_rollout(line, env=env)
    except (TypeError, ValueError, OverflowError) as error:
        raise RefusedError(422, str(error)) from error


def _of_environment(
    rollout: Rollout,
    found: Found,
    options: EnvironmentOptions,
    *,
    is_own: bool,
    seed: int | None,
) -> Rollout:
    """Give the record with what names the environment, and without any score that came with it.

    Only a conversation that is written here, or by a client of gymcli, bears our version: replaying
    it must give the same words.
    """
    return msgspec.structs.replace(
        rollout.unscored(),
        env_version=found.environment.version if is_own else "",
        env_options=options.model_dump(mode="json", exclude_defaults=True),
        seed=secrets.randbits(31) if seed is None else seed,
        timing=Timing(started_at=round(time.time(), 3)),
    )


class Stage:
    """Where the episodes of one environment take place.

    Args:
        found: The environment.
        options: Its options.
        judges: Who plays its roles.
        shared: What opened models, workers and the watchdog.
        sessions: Those that are open.
        described: Puts an exception into words that a client may read.

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
        self.options = options
        self._judges = judges
        self._shared = shared
        self._sessions = sessions
        self._described = described

    async def opened(
        self, row: JSONObject, seed: int | None, *, is_own: bool
    ) -> tuple[Session, list[Message]]:
        """Open a session for a row; gives the environment's opening as well.

        `is_own` says that no other program writes the conversation or reads the calls in it.

        Raises:
            RefusedError: It is no row of this environment, or there is no room.
            AttemptError: The environment cannot be set up.

        """
        rollout = opened_record(row, self._found, self.options, seed, is_own=is_own)
        models = self.models()
        async with self._sessions.room():
            environment = self._made(rollout, models)
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

    def _made(self, rollout: Rollout, models: RoleModels) -> Environment[Task]:
        environment = self._found.environment
        try:
            with boundary(SetupError):
                made = make(
                    environment,
                    rollout.task,
                    options=self.options,
                    roles=models.of(environment, rollout.task, {}),
                    rng=rollout.seed,
                )
        except SetupError as error:
            if isinstance(error.__cause__, ValidationError):
                text = f"the row is none of environment {self._found.name}: {error}"
                raise RefusedError(422, text) from error
            raise
        try:
            with boundary(SetupError):
                environment.check_task(made.task, self.options)
        except SetupError as error:
            raise RefusedError(422, f"environment {self._found.name}: {error}") from error
        return made

    async def stepped(self, session: Session, messages: list[Message]) -> Step:
        """Let the environment answer the last of these messages, and record all.

        Raises:
            AttemptError: The environment failed.

        """
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

    async def scored_session(self, session: Session) -> Score:
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
        return await self.scored(rollout, session.models)

    async def scored(self, rollout: Rollout, models: RoleModels) -> Score:
        """Score a record, as `gym verify` does.

        Raises:
            AttemptError: The verifier failed.

        """
        environment = self._found.environment
        scored = await score(
            environment,
            rollout,
            verifier=Verifier(environment.version, self._found.source_hash),
            options=self.options,
            roles=models.of(environment, rollout.task, {}),
            workers=self._shared.workers,
        )
        assert scored.reward is not None, "what is scored has a reward"
        return Score(
            scored.reward, scored.components, scored.metrics, scored.answer, scored.details
        )

    def models(self) -> RoleModels:
        """Give the models of one session; what they answered is forgotten with it."""
        return RoleModels(
            self._judges.sources,
            params=self._judges.params,
            pool=self._shared.roles.pool,
            verdicts=Verdicts(),
        )


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
        raise RefusedError(422, "there is no prompt: neither row nor environment gives one")
    environment.shown_tools = rollout.tools
    rollout.num_prompt_messages = len(rollout.messages)
    return opening


def _pad(rollout: Rollout, length: int) -> None:
    rollout.step_rewards += [None] * (length - len(rollout.step_rewards))


def _num_turns(rollout: Rollout) -> int:
    return sum(message.role == "assistant" for message in rollout.responses)


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
