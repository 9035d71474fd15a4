"""The answer of `/aggregate_metrics`: the numbers of verified rollouts, under NeMo Gym's keys."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Self

from gymcli import __version__
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
from gymcli.metrics import EnvironmentFacts, OwnMetrics
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.models.roles import check_declared, check_missing
from gymcli.nemo_gym.rows import read_rollout
from gymcli.runner.judging import Judges, judging
from gymcli.secrets import environment_secrets
from gymcli.serving.served_episodes import Episodes, Stage
from gymcli.serving.sessions import Answered, Asked, RefusedError, Session, Sessions, json_answer
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSON, JSONObject, Rollout

__all__ = ["MAX_BODY", "Limits", "Reply", "Routes", "Service", "aggregated"]


_LOGGER = logging.getLogger(__name__)

_INDEX = "_ng_task_index"


def aggregated(
    verified: JSON, *, env: str, facts: EnvironmentFacts, own: OwnMetrics | None = None
) -> JSONObject:
    """Give the numbers of the answers of `/verify`, those that the environment computes among them.

    Rows whose verifier failed count nowhere. Numbers that the environment fails to compute are left
    out, which is logged.

    Raises:
        RefusedError: They are no list of such answers, or two of them are one attempt, or their
            numbers are too large to be added up.

    """
    try:
        return _aggregated(verified, env, NemoAggregate(env, facts, own))
    except OverflowError as error:
        raise RefusedError(422, f"verify_responses: a number is too large: {error}") from error
    except UsageError as error:
        raise RefusedError(422, str(error)) from error


def _aggregated(verified: JSON, env: str, aggregate: NemoAggregate) -> JSONObject:
    if not isinstance(verified, list):
        raise RefusedError(422, '"verify_responses" must be a list of answers of /verify')
    for position, row in enumerate(verified):
        rollout = _read(row, env, position)
        if rollout.reward is not None:
            aggregate.add(row, rollout)
    found: JSONObject = {
        "group_level_metrics": list(aggregate.group_level_metrics()),
        **aggregate.totals(),
    }
    for warning in aggregate.warnings:
        _LOGGER.warning(warning)
    return found


def _read(row: object, env: str, position: int) -> Rollout:
    """Read an answer of `/verify`, which may come without its conversation."""
    if not isinstance(row, dict):
        raise RefusedError(422, f"verify_responses[{position}] is not an object")
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    line = {**row, "responses_create_params": {}, "response": {"output": [], "usage": usage}}
    try:
        rollout = read_rollout(line, env=env)
    except (TypeError, ValueError) as error:
        raise RefusedError(422, f"verify_responses[{position}]: {error}") from error
    index = row.get(_INDEX)
    if isinstance(index, int):
        rollout.task_id = str(index)
    return rollout


_PREFIX = "ng-rollout"
"""NeMo Gym puts `/ng-rollout/<id>` before an address to name the rollout; here nobody needs it."""


class Reply(NamedTuple):
    """What an address answers, and the session whose cookie goes with it."""

    answer: Answered
    session: Session | None = None


class Routes:
    """The addresses of one served environment.

    Args:
        found: The environment.
        episodes: Plays and scores what is asked for.
        sessions: Those that are open.
        cookie: The name under which a session's token comes back.

    """

    def __init__(
        self, found: Found, episodes: Episodes, sessions: Sessions, *, cookie: str
    ) -> None:
        self._found = found
        self._episodes = episodes
        self._sessions = sessions
        self._cookie = cookie
        self._routes: Mapping[tuple[str, str], Callable[[Asked], Awaitable[Reply]]] = {
            ("GET", ""): self._up,
            ("POST", "seed_session"): self._seed,
            ("POST", "reset"): self._reset,
            ("POST", "step"): self._step,
            ("POST", "close"): self._close,
            ("POST", "verify"): self._verify,
            ("GET", "reverify_mode"): self._reverify_mode,
            ("POST", "aggregate_metrics"): self._aggregate_metrics,
        }

    async def reply(self, asked: Asked) -> Reply:
        """Do what an address means; what is none of the protocol's is a tool.

        Raises:
            RefusedError: The request cannot be served.
            GymError: The environment, a role or the verifier failed.

        """
        if "origin" in asked.headers:
            # Else a page in a browser could have code of verifiers run on the reader's machine.
            raise RefusedError(403, "pages in a browser are not served here")
        segments = asked.segments
        if segments[0] == _PREFIX and len(segments) > 2:
            segments = segments[2:]
        [name, *rest] = segments
        if rest:
            raise RefusedError(404, "Not Found")
        route = self._routes.get((asked.method, name))
        if route is not None:
            return await route(asked)
        if any(known == name for _, known in self._routes):
            raise RefusedError(405, "Method Not Allowed")
        if asked.method != "POST":
            raise RefusedError(404, "Not Found")
        session = self._session(asked)
        return Reply(await self._episodes.call_tool(session, name, asked.body), session)

    async def _up(self, asked: Asked) -> Reply:
        told = {"status": "ok", "environment": self._found.name, "gymcli": __version__}
        return Reply(json_answer({**told, "num_sessions": len(self._sessions)}))

    async def _seed(self, asked: Asked) -> Reply:
        self._check_unseeded(asked)
        return Reply(*await self._episodes.seed(asked))

    async def _reset(self, asked: Asked) -> Reply:
        self._check_unseeded(asked)
        return Reply(*await self._episodes.reset(asked))

    async def _step(self, asked: Asked) -> Reply:
        session = self._session(asked)
        return Reply(await self._episodes.step(session, asked.json_object()), session)

    async def _close(self, asked: Asked) -> Reply:
        token = asked.cookie(self._cookie)
        if self._sessions.has(token):
            await self._episodes.close(self._sessions.find(token))
        return Reply(json_answer({}))

    async def _verify(self, asked: Asked) -> Reply:
        token = asked.cookie(self._cookie)
        if self._episodes.is_stateless and not self._sessions.has(token):
            return Reply(await self._episodes.verify_alone(asked))
        session = self._sessions.find(token)
        return Reply(await self._episodes.verify(session, asked.json_object()), session)

    async def _reverify_mode(self, asked: Asked) -> Reply:
        return Reply(json_answer("stateless" if self._episodes.is_stateless else "unsupported"))

    async def _aggregate_metrics(self, asked: Asked) -> Reply:
        environment = self._found.environment
        facts = EnvironmentFacts(
            max_reward=environment.max_reward,
            pass_threshold=environment.pass_threshold,
            can_be_negative=environment.max_reward is None,
        )
        verified = asked.json_object().get("verify_responses")
        # In a thread, since many rows take seconds, and the sessions go on meanwhile.
        own = None
        if environment.computes_metrics():
            own = OwnMetrics(environment.metrics, environment.slice_fields)
        name = self._found.name
        found = await asyncio.to_thread(aggregated, verified, env=name, facts=facts, own=own)
        return Reply(json_answer(found))

    def _session(self, asked: Asked) -> Session:
        return self._sessions.find(asked.cookie(self._cookie))

    def _check_unseeded(self, asked: Asked) -> None:
        """Refuse to begin anew within a session: some agents let a model call any address.

        Raises:
            RefusedError: The request came with a session.

        """
        if self._sessions.has(asked.cookie(self._cookie)):
            raise RefusedError(
                409, "this session has begun; ask for a new one without the cookie of the old one"
            )


MAX_BODY = 64 * 2**20
"""Bytes of a request."""

_PATH = re.compile(r"(?<![\w:/.<])(?:/[^\s/'\":,;()]+){2,}")
"""An absolute path in a message, as of a file that is missing."""

_NO_COOKIE_NAME = re.compile(r"[^A-Za-z0-9_.-]")

_COOKIE_LIFETIME = 1_209_600
"""Seconds that a client keeps the cookie, as NeMo Gym's do; the session may end before."""


class Limits(NamedTuple):
    """What a server holds at most."""

    session_lifetime: float = 3600.0
    """Seconds after its last request that a session lives."""
    max_sessions: int = 10_000


class Service:
    """An environment that is served; an async context manager around all that it opens.

    Args:
        env: The environment: a name, `FILE.py:CLASS` or `MODULE:CLASS`.
        env_args: Its options as text.
        judges: Who plays its roles.
        limits: What it holds at most.
        clock: Tells the time in seconds.

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
        self._limits = limits
        self._clock = clock
        self._scrubber = judges.scrubber()
        self._errors = self._scrubber.also(environment_secrets(os.environ))
        self._cookie = "gymcli___" + _NO_COOKIE_NAME.sub("_", found.name)
        self._stack = AsyncExitStack()
        self._routes: Routes | None = None
        self._sessions: Sessions | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            verdicts = Verdicts(scrubber=self._scrubber)
            shared = await stack.enter_async_context(judging(self._judges, verdicts))
            self._sessions = sessions = await stack.enter_async_context(
                Sessions(
                    lifetime=self._limits.session_lifetime,
                    max_sessions=self._limits.max_sessions,
                    clock=self._clock,
                )
            )
            stage = Stage(
                self.found,
                self._options,
                self._judges,
                shared,
                sessions,
                lambda error: self._without_secrets(described(error)),
            )
            episodes = Episodes(self.found, stage, sessions)
            self._routes = Routes(self.found, episodes, sessions, cookie=self._cookie)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._routes = None
        await self._stack.aclose()

    async def answer(self, asked: Asked) -> Answered:
        """Answer a request; whatever goes wrong with it is an answer, too."""
        if self._routes is None:
            return RefusedError(503, "the server starts or ends", retry_after=1).answer()
        try:
            reply = await self._routes.reply(asked)
        except RefusedError as error:
            return error.answer()
        except GymError as error:
            text = self._errors.text(described(error))
            _LOGGER.warning("%s %s: %s", asked.method, asked.path, text)
            return self._failed(error)
        if reply.session is None:
            return reply.answer
        cookie = self._set_cookie(reply.session)
        return reply.answer._replace(headers=(*reply.answer.headers, cookie))

    async def expire(self) -> None:
        """Close the sessions that nobody uses any more, which is done by itself now and then."""
        if self._sessions is not None:
            await self._sessions.expire()

    def _set_cookie(self, session: Session) -> tuple[str, str]:
        value = f"{self._cookie}={session.token}; path=/; Max-Age={_COOKIE_LIFETIME}"
        return "Set-Cookie", f"{value}; httponly; samesite=lax"

    def _failed(self, error: GymError) -> Answered:
        """Tell what failed."""
        text, name = self._without_secrets(str(error)), type(error).__name__
        phase = error.phase if isinstance(error, AttemptError) else "environment"
        told: JSONObject = {"class": name, "phase": phase, "message": text}
        return json_answer({"detail": f"{name}: {text}", "error": told}, 500)

    def _without_secrets(self, text: str) -> str:
        """Return a text in one line, without secrets and without the paths of this machine."""
        text = self._errors.text(" ".join(text.split()))
        return _PATH.sub(lambda path: path[0].rpartition("/")[2], text)


def _check_servable(found: Found) -> None:
    """Refuse what the protocol has no place for.

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
