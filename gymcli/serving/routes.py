"""What each address of the protocol does, and with which session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from gymcli.environment.registry import Found
from gymcli.metrics import EnvironmentFacts, OwnMetrics
from gymcli.serving.aggregation import aggregated
from gymcli.serving.episodes import Episodes
from gymcli.serving.messages import Answered, Asked, RefusedError, json_answer
from gymcli.serving.sessions import Session, Sessions
from gymcli.version import __version__

__all__ = ["Reply", "Routes"]

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
