"""One environment behind NeMo Gym's resources-server protocol, whichever HTTP server carries it.

| request | answer |
| --- | --- |
| `GET /` | that the server is up |
| `POST /seed_session` | a new session, whose cookie comes with every answer |
| `POST /<tool>` | the result of the tool, as text |
| `POST /reset`, `/step`, `/close` | the gymnasium dialect, for clients that play turn by turn |
| `POST /verify` | the score of the conversation, which ends the session |
| `POST /aggregate_metrics` | the metrics of many scores |
| `GET /reverify_mode` | whether `/verify` needs a session |

Source: the protocol of NVIDIA NeMo Gym 0.5 (Apache-2.0), implemented independently;
`gymcli.environment.remote_session` says what a client of gymcli gets beyond it. Differences: a
request without its session is refused, where theirs begins an empty one, except for `/verify` of an
environment without state; a failing verifier is an error 500, where some of theirs answer reward 0;
a session cannot be seeded twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from gymcli.environment.contract import Environment
from gymcli.environment.registry import (
    Found,
    Registry,
    environment_options,
    prepare,
    split_env_args,
)
from gymcli.environment.remote import RemoteEnvironment
from gymcli.errors import AttemptError, GymError, UsageError, described
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.metrics.scored_lines import EnvironmentFacts, OwnMetrics
from gymcli.models.roles import check_declared, check_missing
from gymcli.nemo_gym.rows import read_rollout
from gymcli.runner.judges import Judges, open_shared
from gymcli.secrets import environment_secrets
from gymcli.serving.protocol import (
    RequestRefusedError,
    ServedAnswer,
    ServedRequest,
    json_answer,
)
from gymcli.serving.served_episodes import ServedEpisodes
from gymcli.serving.sessions import Session, Sessions
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSON, JSONObject, Rollout
from gymcli.version import __version__

__all__ = ["MAX_BODY", "Limits", "Service", "aggregated"]

_LOGGER = logging.getLogger(__name__)

MAX_BODY = 64 * 2**20
"""Bytes of a request."""

_PATH = re.compile(r"(?<![\w:/.<])(?:/[^\s/'\":,;()]+){2,}")
"""An absolute path in a message, as of a file that is missing."""

_NO_COOKIE_NAME = re.compile(r"[^A-Za-z0-9_.-]")

_COOKIE_LIFETIME = 1_209_600
"""Seconds that a client keeps the cookie, as NeMo Gym's do; the session may end before."""

_PREFIX = "ng-rollout"
"""NeMo Gym puts `/ng-rollout/<id>` before an address to name the rollout; it is ignored."""

_Reply: TypeAlias = tuple[ServedAnswer, Session | None]
"""An answer, and the session whose cookie goes with it."""

_Route: TypeAlias = Callable[[ServedRequest, ServedEpisodes], Awaitable[_Reply]]


class Limits(NamedTuple):
    """The most that a server holds."""

    session_lifetime: float = 3600.0
    """Seconds after its last request that a session lives."""
    max_sessions: int = 10_000


class Service:
    """A served environment; an async context manager around everything that it opens.

    Args:
        env: The environment: a name, `FILE.py:CLASS` or `MODULE:CLASS`.
        env_args: Its options as text.
        judges: Who plays its roles.
        limits: The most that it holds.
        clock: Returns the time in seconds.

    Raises:
        UsageError: There is no such environment, or it cannot be served.

    """

    def __init__(
        self,
        env: str,
        *,
        env_args: Mapping[str, str] | None = None,
        judges: Judges = Judges(),  # noqa: B008  # a tuple of nothing
        limits: Limits = Limits(),  # noqa: B008  # the same
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.found = found = Registry((env,)).find(env)
        _check_servable(found)
        given = split_env_args(env_args or {}, [found])[found.name]
        self._options = environment_options(found.environment, found.name, given, {})
        prepare(found, self._options)
        self.warnings = check_missing(judges.missing, {found.name: found.environment})
        check_declared(judges.sources, judges.given, {found.name: found.environment})
        self._judges = judges
        self._scrubber = judges.scrubber()
        self._errors = self._scrubber.also(environment_secrets(os.environ))
        self._cookie = "gymcli___" + _NO_COOKIE_NAME.sub("_", found.name)
        self._stack = AsyncExitStack()
        self._episodes: ServedEpisodes | None = None
        self._sessions = Sessions(
            lifetime=limits.session_lifetime, max_sessions=limits.max_sessions, clock=clock
        )
        self._routes: Mapping[tuple[str, str], _Route] = {
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
            verdicts = Verdicts(scrubber=self._scrubber)
            shared = await stack.enter_async_context(open_shared(self._judges, verdicts))
            await stack.enter_async_context(self._sessions)
            self._episodes = ServedEpisodes(
                self.found,
                self._options,
                self._judges,
                shared,
                self._sessions,
                lambda error: self._without_secrets(described(error)),
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._episodes = None
        await self._stack.aclose()

    async def answer(self, request: ServedRequest) -> ServedAnswer:
        """Answer a request; errors are answers, too."""
        if self._episodes is None:
            return RequestRefusedError(503, "the server starts or ends", retry_after=1).answer()
        try:
            answer, session = await self._reply(request, self._episodes)
        except RequestRefusedError as error:
            return error.answer()
        except GymError as error:
            text = self._errors.text(described(error))
            _LOGGER.warning("%s %s: %s", request.method, request.path, text)
            return self._failed(error)
        if session is None:
            return answer
        value = f"{self._cookie}={session.token}; path=/; Max-Age={_COOKIE_LIFETIME}"
        cookie = ("Set-Cookie", f"{value}; httponly; samesite=lax")
        return answer._replace(headers=(*answer.headers, cookie))

    async def _reply(self, request: ServedRequest, episodes: ServedEpisodes) -> _Reply:
        if "origin" in request.headers:
            # Else a page in a browser could have code of verifiers run on the reader's machine.
            raise RequestRefusedError(403, "pages in a browser are not served here")
        segments = request.segments
        if segments[0] == _PREFIX and len(segments) > 2:
            segments = segments[2:]
        [name, *rest] = segments
        if rest:
            raise RequestRefusedError(404, "Not Found")
        route = self._routes.get((request.method, name))
        if route is not None:
            return await route(request, episodes)
        if any(known == name for _, known in self._routes):
            raise RequestRefusedError(405, "Method Not Allowed")
        if request.method != "POST":
            raise RequestRefusedError(404, "Not Found")
        session = self._sessions.find(request.cookie(self._cookie))
        return await episodes.call_tool(session, name, request.body), session

    async def _up(self, _: ServedRequest, __: ServedEpisodes) -> _Reply:
        state = {"status": "ok", "environment": self.found.name, "gymcli": __version__}
        return json_answer({**state, "num_sessions": len(self._sessions)}), None

    async def _seed(self, request: ServedRequest, episodes: ServedEpisodes) -> _Reply:
        self._check_unseeded(request)
        return await episodes.seed(request)

    async def _reset(self, request: ServedRequest, episodes: ServedEpisodes) -> _Reply:
        self._check_unseeded(request)
        return await episodes.reset(request)

    async def _step(self, request: ServedRequest, episodes: ServedEpisodes) -> _Reply:
        session = self._sessions.find(request.cookie(self._cookie))
        return await episodes.step(session, request.json_object()), session

    async def _close(self, request: ServedRequest, episodes: ServedEpisodes) -> _Reply:
        token = request.cookie(self._cookie)
        if self._sessions.has(token):
            await episodes.close(self._sessions.find(token))
        return json_answer({}), None

    async def _verify(self, request: ServedRequest, episodes: ServedEpisodes) -> _Reply:
        token = request.cookie(self._cookie)
        if episodes.is_stateless and not self._sessions.has(token):
            return await episodes.verify_alone(request), None
        session = self._sessions.find(token)
        return await episodes.verify(session, request.json_object()), session

    async def _reverify_mode(self, _: ServedRequest, episodes: ServedEpisodes) -> _Reply:
        return json_answer("stateless" if episodes.is_stateless else "unsupported"), None

    async def _aggregate_metrics(self, request: ServedRequest, _: ServedEpisodes) -> _Reply:
        environment = self.found.environment
        facts = EnvironmentFacts(
            max_reward=environment.max_reward,
            pass_threshold=environment.pass_threshold,
            can_be_negative=environment.max_reward is None,
        )
        verified = request.json_object().get("verify_responses")
        own = None
        if environment.computes_metrics():
            own = OwnMetrics(environment.metrics, environment.slice_fields)
        name = self.found.name
        # In a thread, since many rows take seconds, and the sessions go on meanwhile.
        found = await asyncio.to_thread(aggregated, verified, env=name, facts=facts, own=own)
        return json_answer(found), None

    def _check_unseeded(self, request: ServedRequest) -> None:
        """Refuse to seed a session again: some agents let a model call any address."""
        if self._sessions.has(request.cookie(self._cookie)):
            raise RequestRefusedError(
                409, "this session has begun; ask for a new one without the cookie of the old one"
            )

    async def expire(self) -> None:
        """Close unused sessions, which also happens regularly while the service is open."""
        await self._sessions.expire()

    def _failed(self, error: GymError) -> ServedAnswer:
        text, name = self._without_secrets(str(error)), type(error).__name__
        phase = error.phase if isinstance(error, AttemptError) else "environment"
        failure: JSONObject = {"class": name, "phase": phase, "message": text}
        return json_answer({"detail": f"{name}: {text}", "error": failure}, 500)

    def _without_secrets(self, text: str) -> str:
        """Return a text in one line, without secrets and without the paths of this machine."""
        text = self._errors.text(" ".join(text.split()))
        return _PATH.sub(lambda path: path[0].rpartition("/")[2], text)


def _check_servable(found: Found) -> None:
    """Refuse environments that the protocol cannot serve.

    Raises:
        UsageError: It is a server itself, or scores attempts together.

    """
    environment: type[Environment] = found.environment  # type: ignore[type-arg]
    if issubclass(environment, RemoteEnvironment):
        raise UsageError(f"{found.name}: is on a server already; give an environment's code")
    if environment.scores_groups():
        raise UsageError(
            f"environment {found.name}: scores all attempts of a task together, and a server is "
            "asked about one at a time; collect it in one process, by its name"
        )


def aggregated(
    verified: JSON, *, env: str, facts: EnvironmentFacts, own: OwnMetrics | None = None
) -> JSONObject:
    """Return the metrics of answers of `/verify`, including those that the environment computes.

    Rows whose verifier failed do not count. If the environment's `metrics` fails, that is logged
    and its numbers are missing.

    Raises:
        RequestRefusedError: They are no list of such answers, two of them are one attempt, or their
            numbers are too large to be added up.

    """
    if not isinstance(verified, list):
        raise RequestRefusedError(422, '"verify_responses" must be a list of answers of /verify')
    aggregate = NemoAggregate(env, facts, own)
    try:
        for position, row in enumerate(verified):
            rollout = _read(row, env, position)
            if rollout.reward is not None:
                aggregate.add(row, rollout)
        found: JSONObject = {
            "group_level_metrics": list(aggregate.group_level_metrics()),
            **aggregate.totals(),
        }
    except OverflowError as error:
        raise RequestRefusedError(
            422, f"verify_responses: a number is too large: {error}"
        ) from error
    except UsageError as error:
        raise RequestRefusedError(422, str(error)) from error
    for warning in aggregate.warnings:
        _LOGGER.warning(warning)
    return found


def _read(row: object, env: str, position: int) -> Rollout:
    """Read an answer of `/verify`, which may come without its conversation."""
    if not isinstance(row, dict):
        raise RequestRefusedError(422, f"verify_responses[{position}] is not an object")
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    line = {**row, "responses_create_params": {}, "response": {"output": [], "usage": usage}}
    try:
        rollout = read_rollout(line, env=env)
    except (TypeError, ValueError) as error:
        raise RequestRefusedError(422, f"verify_responses[{position}]: {error}") from error
    index = row.get("_ng_task_index")
    if isinstance(index, int):
        rollout.task_id = str(index)
    return rollout
