"""One environment behind NeMo Gym's resources-server protocol, whichever HTTP server carries it.

| asked | answered |
| --- | --- |
| `GET /` | that the server is up |
| `POST /seed_session` | a session of its own, whose cookie comes back with every answer |
| `POST /<tool>` | the result of the tool, as text |
| `POST /reset`, `/step`, `/close` | the gymnasium dialect, for whoever plays turn by turn |
| `POST /verify` | the score of the conversation; the session is over then |
| `POST /aggregate_metrics` | the numbers of many scores |
| `GET /reverify_mode` | whether `/verify` needs a session |

Source: the protocol of NVIDIA NeMo Gym 0.5 (Apache-2.0), spoken anew;
`gymcli.environment.remote_session` says what a client of gymcli gets beyond it. Where this differs:
a request without its session is refused, where theirs begins an empty one, but for `/verify` of an
environment without state; a failing verifier is an error 500, where some of theirs answer reward 0;
a session cannot be seeded twice.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Self

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
from gymcli.models.roles import check_declared, check_missing
from gymcli.runner.judging import Judges, judging
from gymcli.secrets import environment_secrets
from gymcli.serving.episodes import Episodes
from gymcli.serving.messages import Answered, Asked, RefusedError, json_answer
from gymcli.serving.routes import Routes
from gymcli.serving.sessions import Session, Sessions
from gymcli.serving.stage import Stage
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSONObject

__all__ = ["MAX_BODY", "Limits", "Service"]

_LOGGER = logging.getLogger(__name__)

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
