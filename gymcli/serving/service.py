"""One environment behind NeMo Gym's resources-server protocol, for any HTTP server.

| request | answer |
| --- | --- |
| `GET /` | confirms that the server is up |
| `POST /seed_session` | a new session; every answer sets its cookie |
| `POST /<tool>` | the result of the tool, as text |
| `POST /reset`, `/step`, `/close` | the Gymnasium dialect, for clients that play turn by turn |
| `POST /verify` | the score of the conversation, which ends the session |
| `POST /aggregate_metrics` | the metrics of many scores |
| `GET /reverify_mode` | whether `/verify` needs a session |

Source: the protocol of NVIDIA NeMo Gym 0.5 (Apache-2.0), implemented independently;
`gymcli.nemo_gym.wire` documents the additions for clients of gymcli. Differences: a
request without a session is refused, where theirs starts an empty one, except for `/verify` of an
environment without state; a failing verifier is an error 500, where some of theirs return reward 0;
a session cannot be seeded twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple, Self, TypeAlias
from urllib.parse import unquote

import msgspec
from pydantic import ValidationError

from gymcli.environment.contract import Environment, make, shown_tools
from gymcli.environment.contract_checks import checked_json, checked_messages, checked_step
from gymcli.environment.registry import Registry, environment_options, prepare, split_env_args
from gymcli.environment.remote import RemoteEnvironment
from gymcli.environment.tool import Step, Task
from gymcli.errors import (
    AttemptError,
    EnvironmentTimeoutError,
    EpisodeError,
    GymError,
    SetupError,
    SetupTimeoutError,
    UsageError,
    boundary,
    described,
)
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.models.roles import RoleModels, check_declared, check_missing
from gymcli.nemo_gym.rows import read_rollout
from gymcli.nemo_gym.wire import (
    EXTENSION_KEY,
    EpisodeStart,
    ModelOutput,
    StepReply,
    VerifierScore,
    game_answer,
    opening_answer,
    verdict,
)
from gymcli.rollout.episode import DEFAULT_MAX_TURNS, attempt_seed
from gymcli.rollout.scoring import score
from gymcli.runner.attempts import Shared
from gymcli.runner.judges import Judges, open_shared
from gymcli.secrets import environment_secrets
from gymcli.serving.protocol import HttpStatusError, ServedAnswer, ServedRequest, json_answer
from gymcli.serving.sessions import Session, Sessions, close, run_limited
from gymcli.store.scored_lines import EnvironmentFacts, OwnMetrics
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
from gymcli.version import __version__

_LOGGER = logging.getLogger(__name__)

MAX_BODY = 64 * 2**20
"""The most bytes of a request."""

_PATH = re.compile(r"(?<![\w:/.<])(?:/[^\s/'\":,;()]+){2,}")
"""An absolute path in a message, such as that of a missing file."""

_NO_COOKIE_NAME = re.compile(r"[^A-Za-z0-9_.-]")

_COOKIE_LIFETIME = 1_209_600
"""Seconds that a client keeps the cookie, as in NeMo Gym; the session may end earlier."""

_PREFIX = "ng-rollout"
"""The prefix with which NeMo Gym names a rollout, `/ng-rollout/<id>`; it is ignored."""

_STATUSES = {"unknown_tool": 404, "raised": 500, "timeout": 504}
"""Statuses of failed tool calls, 422 for all others. The text is always the model's result."""

_PARAMS = "responses_create_params"

_Reply: TypeAlias = tuple[ServedAnswer, Session | None]
"""An answer, and the session whose cookie it sets."""


class Limits(NamedTuple):
    """The limits of a server."""

    session_lifetime: float = 3600.0
    """Seconds that a session lives after its last request."""
    max_sessions: int = 10_000


class Service:
    """A served environment; an async context manager that closes everything it opens.

    The arguments are those of `gymcli.serving.application`; `clock` returns the time in seconds.

    Raises:
        UsageError: The environment does not exist or cannot be served.
    """

    _shared: Shared
    """The opened models, workers and watchdog."""

    def __init__(
        self,
        env: str,
        *,
        env_args: Mapping[str, str] | None = None,
        judges: Judges | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registration = registration = Registry((env,)).find(env)
        self.name = name = registration.name
        self._environment: type[Environment[Task]] = registration.environment
        if issubclass(self._environment, RemoteEnvironment):
            raise UsageError(f"{name}: is on a server already; give an environment's code")
        if self._environment.scores_groups():
            raise UsageError(
                f"environment {name}: scores all attempts of a task together, and a server "
                "is asked about one at a time; collect it in one process, by its name"
            )
        args = split_env_args(env_args or {}, [registration])[name]
        self._options = environment_options(self._environment, name, args, {})
        prepare(registration, self._options)
        self._judges = judges = judges or Judges()
        self.warnings = check_missing(judges.missing, {name: self._environment})
        check_declared(judges.sources, judges.named_roles, {name: self._environment})
        self._scrubber = judges.scrubber()
        # Exceptions of environment code may quote any variable, not only keys in use.
        self._errors = self._scrubber.also(environment_secrets(os.environ))
        # Cookies do not distinguish ports: servers of two environments on one host need two names.
        self._cookie = "gymcli___" + _NO_COOKIE_NAME.sub("_", name)
        self._is_open = False
        self._stack = AsyncExitStack()
        limits = limits or Limits()
        self._sessions = Sessions(
            lifetime=limits.session_lifetime, max_sessions=limits.max_sessions, clock=clock
        )
        # A record scores the same without its session if neither tools nor environment have state.
        runs_tools = bool(self._environment.method_tools()) and self._environment.executes_tools
        has_state = self._overrides("setup", "step", "reply", "tools", "final_state")
        self._is_stateless = not (runs_tools or has_state)
        self._routes: Mapping[tuple[str, str], Callable[[ServedRequest], Awaitable[_Reply]]] = {
            ("GET", ""): self._up,
            ("POST", "seed_session"): self._seed,
            ("POST", "reset"): self._reset,
            ("POST", "step"): self._step,
            ("POST", "close"): self._close,
            ("POST", "verify"): self._verify,
            ("GET", "reverify_mode"): self._reverify_mode,
            ("POST", "aggregate_metrics"): self._aggregate_metrics,
        }

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # In memory: a server has no run directory.
            verdicts = Verdicts(scrubber=self._scrubber)
            self._shared = await stack.enter_async_context(open_shared(self._judges, verdicts))
            await stack.enter_async_context(self._sessions)
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_open = False
        await self._stack.aclose()

    async def answer(self, request: ServedRequest) -> ServedAnswer:
        """Answer a request; errors become answers."""
        if not self._is_open:
            return HttpStatusError(503, "the server starts or stops", retry_after=1).answer()
        try:
            answer, session = await self._reply(request)
        except HttpStatusError as error:
            return error.answer()
        except GymError as error:
            log_message = self._errors.text(described(error))
            _LOGGER.warning("%s %s: %s", request.method, request.path, log_message)
            text, name = self._without_secrets(str(error)), type(error).__name__
            phase = error.phase if isinstance(error, AttemptError) else "environment"
            failure: JSONObject = {"class": name, "phase": phase, "message": text}
            return json_answer({"detail": f"{name}: {text}", "error": failure}, 500)
        if session is None:
            return answer
        value = f"{self._cookie}={session.token}; path=/; Max-Age={_COOKIE_LIFETIME}"
        cookie = ("Set-Cookie", f"{value}; httponly; samesite=lax")
        return answer._replace(headers=(*answer.headers, cookie))

    async def _reply(self, request: ServedRequest) -> _Reply:
        if "origin" in request.headers:
            # Otherwise any web page could run code of verifiers on the reader's machine.
            raise HttpStatusError(403, "requests from web pages are refused")
        # An encoded slash does not separate parts of the path.
        segments = [unquote(part) for part in request.path.strip("/").split("/")]
        if segments[0] == _PREFIX and len(segments) > 2:
            segments = segments[2:]
        if len(segments) > 1:
            raise HttpStatusError(404, "Not Found")
        name = segments[0]
        route = self._routes.get((request.method, name))
        if route is not None:
            return await route(request)
        if any(route_name == name for _, route_name in self._routes):
            raise HttpStatusError(405, "Method Not Allowed")
        if request.method != "POST":
            raise HttpStatusError(404, "Not Found")
        return await self._call_tool(request, name)

    async def _up(self, _: ServedRequest) -> _Reply:
        state = {"status": "ok", "environment": self.name, "gymcli": __version__}
        return json_answer({**state, "num_sessions": len(self._sessions)}), None

    async def _seed(self, request: ServedRequest) -> _Reply:
        """Open a session; if the environment answers the model, only for clients of gymcli."""
        self._check_unseeded(request)
        seed = request.seed()
        # Agents that only call tools never send messages to `/step`, so such an episode could not
        # go on.
        refusal = HttpStatusError(
            404,
            f"environment {self.name} answers the model itself: play it by /reset and /step",
        )
        if seed is None and self._overrides("step", "reply"):
            raise refusal
        session, opening = await self._open(request.json_object(), seed, is_exact=seed is not None)
        if seed is not None:
            session.is_gymcli_client = True
            start = EpisodeStart(opening, session.rollout.tools, session.environment.max_turns)
            return json_answer({EXTENSION_KEY: msgspec.to_builtins(start)}), session
        if opening:
            await self._sessions.end(session)
            raise refusal
        return json_answer({}), session

    async def _reset(self, request: ServedRequest) -> _Reply:
        self._check_unseeded(request)
        session, opening = await self._open(request.json_object(), request.seed(), is_exact=True)
        return json_answer(opening_answer(opening)), session

    async def _call_tool(self, request: ServedRequest, name: str) -> _Reply:
        session = self._sessions.find(request.cookie(self._cookie))
        async with self._sessions.turn(session):
            environment = session.environment
            if not environment.executes_tools:
                raise HttpStatusError(
                    404, f"environment {self.name} records tool calls and runs none"
                )
            errors_before = Counter(environment.tool_errors)
            # Checked like the arguments of any call, so that a wrong body is answered to the model.
            call = FunctionCall(name=name, arguments=request.body.decode(errors="replace"))
            with boundary(EpisodeError):
                [message] = await environment.call_tools([ToolCall(id="call", function=call)])
            # Those of this call, since requests to one session take turns.
            faults = environment.tool_errors - errors_before
            status = next((_STATUSES.get(fault, 422) for fault in faults), 200)
            body = message.text.encode()
            return ServedAnswer(status, body, "text/plain; charset=utf-8"), session

    async def _step(self, request: ServedRequest) -> _Reply:
        """Answer a message of the model; the rewards of a finished episode add up to its score."""
        session = self._sessions.find(request.cookie(self._cookie))
        body = request.json_object()
        async with self._sessions.turn(session):
            if session.is_finished:
                raise HttpStatusError(409, "the episode is over; ask /verify or /close")
            if session.is_gymcli_client:
                answer = await self._gymcli_step(session, _model_output(body))
            else:
                answer = await self._game_step(session, _read_response(body))
            return json_answer(answer), session

    async def _gymcli_step(self, session: Session, output: ModelOutput) -> JSONObject:
        errors_before = Counter(session.environment.tool_errors)
        step = await self._play(session, output.messages)
        session.is_finished = step.stop_reason is not None or not step.messages
        new_errors = session.environment.tool_errors - errors_before
        errors = {str(fault): number for fault, number in new_errors.items()}
        reply = StepReply(step.messages, step.reward, step.stop_reason, errors)
        return {EXTENSION_KEY: msgspec.to_builtins(reply)}

    async def _game_step(self, session: Session, response: Rollout) -> JSONObject:
        """Answer as `gym collect` does: a message that was cut off ends the episode."""
        rollout = session.rollout
        rollout.model = response.model
        rollout.usage.add(response.usage)
        if response.stop_reason in ("length", "content_filter"):
            rollout.messages += response.messages
            step = Step([], stop_reason=response.stop_reason)
        else:
            step = await self._play(session, response.messages)
        stop_reason: StopReason | None = step.stop_reason
        if stop_reason is None and not step.messages:
            stop_reason = "done"
        elif stop_reason is None:
            max_turns = session.environment.max_turns or DEFAULT_MAX_TURNS
            stop_reason = "max_turns" if _num_turns(rollout) >= max_turns else None
        reward = step.reward or 0.0
        if stop_reason is not None:
            session.is_finished = True
            rollout.stop_reason = stop_reason
            # The score is known only now, and the rewards of all steps have to add up to it.
            earlier_rewards = math.fsum(step_reward or 0.0 for step_reward in rollout.step_rewards)
            reward += (await self._score_session(session)).reward - earlier_rewards
        return game_answer(step.messages, reward=reward, stop_reason=stop_reason)

    async def _close(self, request: ServedRequest) -> _Reply:
        token = request.cookie(self._cookie)
        # An unknown session is no error: `/verify` may have ended it already.
        if self._sessions.has(token):
            session = self._sessions.find(token)
            async with self._sessions.turn(session):
                await self._sessions.end(session)
        return json_answer({}), None

    async def _verify(self, request: ServedRequest) -> _Reply:
        """Score the conversation of a session, and end the session unless the verifier fails.

        Messages of `/step` are recorded here; any other conversation comes from the body.
        """
        token = request.cookie(self._cookie)
        if self._is_stateless and not self._sessions.has(token):
            body, seed = request.json_object(), request.seed()
            if _PARAMS not in body or "response" not in body:
                raise HttpStatusError(
                    422, f'the body must be a row with "{_PARAMS}" and "response"'
                )
            rollout = self._new_record(_read(body, self.name), seed, is_exact=False)
            final_score = await self._score(rollout, self._models())
            return _verify_answer(final_score, body if seed is None else None), None
        session = self._sessions.find(token)
        body = request.json_object()
        async with self._sessions.turn(session):
            rollout = session.rollout
            output = _model_output(body) if session.is_gymcli_client else _read_response(body)
            # The messages of `/step` count: a client could send others here.
            was_stepped = not session.is_gymcli_client and rollout.env_version and rollout.responses
            if not was_stepped:
                rollout.messages[rollout.num_prompt_messages :] = output.messages
                rollout.model, rollout.usage = output.model, output.usage or Usage()
                # Without a version, a replay does not compare texts, which another program wrote.
                rollout.env_version = rollout.env_version if session.is_gymcli_client else ""
            if session.is_gymcli_client or not session.is_finished:
                rollout.stop_reason = output.stop_reason
            final_score = await self._score_session(session)
            # Not if the verifier failed: then the client may ask again.
            await self._sessions.end(session)
            return _verify_answer(final_score, None if session.is_gymcli_client else body), session

    async def _reverify_mode(self, _: ServedRequest) -> _Reply:
        return json_answer("stateless" if self._is_stateless else "unsupported"), None

    async def _aggregate_metrics(self, request: ServedRequest) -> _Reply:
        environment = self._environment
        facts = EnvironmentFacts(
            max_reward=environment.max_reward,
            pass_threshold=environment.pass_threshold,
            can_be_negative=environment.max_reward is None,
        )
        answers = request.json_object().get("verify_responses")
        environment_metrics = None
        if environment.computes_metrics():
            environment_metrics = OwnMetrics(environment.metrics, environment.slice_fields)
        # In a thread, since many rows take seconds and must not hold up the sessions.
        metrics = await asyncio.to_thread(
            aggregate_metrics,
            answers,
            env=self.name,
            facts=facts,
            environment_metrics=environment_metrics,
        )
        return json_answer(metrics), None

    def _check_unseeded(self, request: ServedRequest) -> None:
        """Refuse to seed a session twice: some agents let a model call any address."""
        if self._sessions.has(request.cookie(self._cookie)):
            raise HttpStatusError(409, "this session has started; for a new one, send no cookie")

    # `is_exact`: no other program writes the conversation or interprets its calls.
    async def _open(
        self, row: JSONObject, seed: int | None, *, is_exact: bool
    ) -> tuple[Session, list[Message]]:
        if _PARAMS not in row:
            raise HttpStatusError(
                422, f'"{_PARAMS}" is missing: the body must be a row of a tasks file'
            )
        rollout = _read({**row, "response": {"output": []}}, self.name)
        # The same attempt of NeMo Gym gets the same seed whenever it is played.
        if seed is None and "_ng_rollout_index" in row:
            seed = attempt_seed(0, rollout.task_id, rollout.attempt)
        rollout = self._new_record(rollout, seed, is_exact=is_exact)
        models = self._models()
        async with self._sessions.reserve():
            environment = self._make(rollout, models)
            environment.rollout = rollout
            environment.now = self._shared.watchdog.now
            environment.tool_error_text = lambda error: self._without_secrets(described(error))
            environment.reads_arguments_laxly = not is_exact
            try:
                opening = await _set_up(environment)
            # Also if the request is cancelled: `setup` may have started something.
            except BaseException:
                await close(environment)
                raise
            session = Session(environment, models)
            self._sessions.touch(session)
        return session, opening

    def _new_record(self, rollout: Rollout, seed: int | None, *, is_exact: bool) -> Rollout:
        """Return the record with the environment's version, options and seed, without a score.

        Only a conversation written here or by a client of gymcli gets our version, since its replay
        must produce the same text.
        """
        return msgspec.structs.replace(
            rollout.unscored(),
            env_version=self._environment.version if is_exact else "",
            env_options=self._options.model_dump(mode="json", exclude_defaults=True),
            seed=secrets.randbits(31) if seed is None else seed,
            timing=Timing(started_at=round(time.time(), 3)),
        )

    def _make(self, rollout: Rollout, models: RoleModels) -> Environment[Task]:
        name = self.name
        try:
            with boundary(SetupError):
                environment = make(
                    self._environment,
                    rollout.task,
                    options=self._options,
                    roles=models.of(self._environment, rollout.task, {}),
                    rng=rollout.seed,
                )
        except SetupError as error:
            # A row that does not fit is the client's mistake; other failures are the server's.
            if isinstance(error.__cause__, ValidationError):
                text = f"the row does not fit environment {name}: {error}"
                raise HttpStatusError(422, text) from error
            raise
        try:
            with boundary(SetupError):
                self._environment.check_task(environment.task, self._options)
        except SetupError as error:
            raise HttpStatusError(422, f"environment {name}: {error}") from error
        return environment

    async def _play(self, session: Session, messages: list[Message]) -> Step:
        if not messages or messages[-1].role != "assistant":
            raise HttpStatusError(422, "the body has no message of the model")
        rollout, environment = session.rollout, session.environment
        rollout.messages += messages
        with boundary(EpisodeError):
            call = environment.step(messages[-1])
            step = await run_limited(environment, "step", call, EnvironmentTimeoutError)
            step = checked_step(environment, step)
        if step.reward is not None:
            # Earlier turns without a reward are filled in, so that each reward is at its turn.
            _pad(rollout, _num_turns(rollout) - 1)
            rollout.step_rewards.append(float(step.reward))
        rollout.messages += step.messages
        return step

    async def _score_session(self, session: Session) -> Score:
        rollout, environment = session.rollout, session.environment
        if rollout.step_rewards:
            _pad(rollout, _num_turns(rollout))
        with boundary(EpisodeError):
            call = environment.final_state()
            state = await run_limited(environment, "final_state", call, EnvironmentTimeoutError)
            rollout.final_state = checked_json(environment, "final_state", state)
        return await self._score(rollout, session.models)

    async def _score(self, rollout: Rollout, models: RoleModels) -> Score:
        environment = self._environment
        scored_rollout = await score(
            environment,
            rollout,
            verifier=Verifier(environment.version, self._registration.source_hash),
            options=self._options,
            roles=models.of(environment, rollout.task, {}),
            workers=self._shared.workers,
        )
        assert scored_rollout.reward is not None, "what is scored has a reward"
        return Score(
            scored_rollout.reward,
            scored_rollout.components,
            scored_rollout.metrics,
            scored_rollout.answer,
            scored_rollout.details,
        )

    # Made for each session, so that cached answers end with it.
    def _models(self) -> RoleModels:
        return RoleModels(
            self._judges.sources,
            params=self._judges.params,
            pool=self._shared.roles.pool,
            verdicts=Verdicts(),
        )

    def _overrides(self, *names: str) -> bool:
        environment_class = self._environment
        return any(
            getattr(environment_class, name) is not getattr(Environment, name) for name in names
        )

    def _without_secrets(self, text: str) -> str:
        """Return a text on one line, without secrets and without paths of this machine."""
        text = self._errors.text(" ".join(text.split()))
        return _PATH.sub(lambda path: path[0].rpartition("/")[2], text)


def _read(line: JSONObject, env: str) -> Rollout:
    try:
        return read_rollout(line, env=env)
    except (TypeError, ValueError, OverflowError) as error:
        raise HttpStatusError(422, str(error)) from error


def _read_response(body: JSONObject) -> Rollout:
    return _read({"response": body.get("response"), _PARAMS: {}}, "")


def _model_output(body: JSONObject) -> ModelOutput:
    try:
        return msgspec.convert(body.get(EXTENSION_KEY), type=ModelOutput)
    except msgspec.ValidationError as error:
        raise HttpStatusError(422, f'"{EXTENSION_KEY}": {error}') from error


def _verify_answer(final_score: Score, body: JSONObject | None) -> ServedAnswer:
    if body is None:
        extension: JSONObject = {EXTENSION_KEY: msgspec.to_builtins(VerifierScore(final_score))}
        return json_answer({"reward": final_score.reward, **extension})
    return json_answer(verdict(final_score, body))


async def _set_up(environment: Environment[Task]) -> list[Message]:
    rollout = environment.rollout
    with boundary(SetupError):
        opening = await run_limited(environment, "setup", environment.setup(), SetupTimeoutError)
        opening = checked_messages(environment, "setup", opening)
        rollout.messages += opening
        if not rollout.tools:
            rollout.tools = shown_tools(environment)
    if not rollout.messages:
        raise HttpStatusError(422, "no prompt: neither the row nor the environment has one")
    environment.shown_tools = rollout.tools
    rollout.num_prompt_messages = len(rollout.messages)
    return opening


def _pad(rollout: Rollout, length: int) -> None:
    rollout.step_rewards += [None] * (length - len(rollout.step_rewards))


def _num_turns(rollout: Rollout) -> int:
    return sum(message.role == "assistant" for message in rollout.responses)


def aggregate_metrics(
    answers: JSON,
    *,
    env: str,
    facts: EnvironmentFacts,
    environment_metrics: OwnMetrics | None = None,
) -> JSONObject:
    """Return the metrics over answers of `/verify`, including those that the environment computes.

    Rows whose verifier failed do not count. If the environment's `metrics` fails, the error is
    logged and its numbers are left out.

    Raises:
        HttpStatusError: They are not a list of such answers, two of them are of the same attempt,
            or their numbers are too large to be added up.
    """
    if not isinstance(answers, list):
        raise HttpStatusError(422, '"verify_responses" must be a list of answers of /verify')
    aggregate = NemoAggregate(env, facts, environment_metrics)
    try:
        for position, row in enumerate(answers):
            rollout = _read_aggregated_row(row, env, position)
            if rollout.reward is not None:
                aggregate.add(row, rollout)
        metrics: JSONObject = {
            "group_level_metrics": list(aggregate.group_level_metrics()),
            **aggregate.totals(),
        }
    except OverflowError as error:
        text = f"verify_responses: a number is too large: {error}"
        raise HttpStatusError(422, text) from error
    except UsageError as error:
        raise HttpStatusError(422, str(error)) from error
    for warning in aggregate.warnings:
        _LOGGER.warning(warning)
    return metrics


def _read_aggregated_row(row: object, env: str, position: int) -> Rollout:
    if not isinstance(row, dict):
        raise HttpStatusError(422, f"verify_responses[{position}] is not an object")
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    # Only the numbers count, so the conversation is not read.
    line = {**row, "responses_create_params": {}, "response": {"output": [], "usage": usage}}
    try:
        rollout = read_rollout(line, env=env)
    except (TypeError, ValueError) as error:
        raise HttpStatusError(422, f"verify_responses[{position}]: {error}") from error
    # NeMo Gym groups attempts by the position of their row, whatever id it has.
    index = row.get("_ng_task_index")
    if isinstance(index, int):
        rollout.task_id = str(index)
    return rollout
