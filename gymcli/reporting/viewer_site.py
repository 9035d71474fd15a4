"""The page and its answers on 127.0.0.1, for whoever has the address that was printed.

The token is the first part of the path. A cookie would be sent to every other server of this
machine, since cookies know hosts and no ports; a path is sent to this one alone, and pages of
others learn nothing of it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.resources import files

import msgspec
from aiohttp import web

from gymcli.reporting.viewer_answers import Answers
from gymcli.reporting.viewer_queries import Query, RefusedError
from gymcli.reporting.viewer_run import ViewedRun
from gymcli.runner.listening import listen
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["HOST", "Site", "new_token", "serve"]

HOST = "127.0.0.1"

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""What a browser may take this machine for, through a tunnel too; any other name in a request is
that of a page of others, which had its name lead here (DNS rebinding)."""
_SHUTDOWN = 1.0
_MAX_LINE_BYTES = 1 << 16
"""Of a request: ids of tasks stand in it, whatever their length."""
_API = "api/"
_JSON = "application/json"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def new_token() -> str:
    """Give a token that nobody can guess."""
    return secrets.token_urlsafe(24)


class Site:
    """One run or two behind a token.

    Args:
        runs: What is shown.
        token: The first part of the path of every address.
        scrubber: Takes secrets out of all that is sent.

    """

    def __init__(
        self, runs: Sequence[ViewedRun], token: str, *, scrubber: Scrubber = NOTHING_SECRET
    ) -> None:
        self._runs = runs
        self._token = token
        self._scrubber = scrubber
        self._answers = Answers(runs)
        self._files = _page_files()

    def runner(self) -> web.AppRunner:
        """Give what runs the site, which closes the runs when it ends."""

        async def opened(_: web.Application) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                for run in self._runs:
                    await stack.enter_async_context(run)
                stack.push_async_callback(self._answers.close)
                yield

        application = web.Application()
        application.cleanup_ctx.append(opened)
        application.router.add_route("*", "/{path:.*}", self._respond)
        return web.AppRunner(
            application,
            access_log=None,  # it would tell the token
            handler_cancellation=True,  # a search that nobody waits for is not begun
            max_line_size=_MAX_LINE_BYTES,
            shutdown_timeout=_SHUTDOWN,
        )

    async def _respond(self, request: web.Request) -> web.Response:
        try:
            response = await self._answer(request)
        except RefusedError as error:
            response = self._refusal(error)
        response.headers.update(_HEADERS)
        return response

    async def _answer(self, request: web.Request) -> web.Response:
        name = self._checked(request)
        if name.startswith(_API):
            given: Mapping[str, str] = request.query
            data = await self._answers.answer(name.removeprefix(_API), Query(given))
            return _sent(self._scrubber.line(data), _JSON)
        if name not in self._files:
            raise RefusedError(404, "there is no such address")
        content_type, data = self._files[name]
        return _sent(data, content_type)

    def _checked(self, request: web.Request) -> str:
        """Give what is asked for behind the token.

        Raises:
            RefusedError: The request came by another name or without the token.

        """
        host = request.headers.get("Host", "").lower()
        name, colon, port = host.rpartition(":")
        if (name if colon and port.isdecimal() else host) not in _HOSTS:
            raise RefusedError(403, "this server is asked as 127.0.0.1 or localhost alone")
        token, slash, rest = request.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(errors="replace"), self._token.encode()):
            raise RefusedError(403, "open the address that gym view printed, with its token")
        if request.method not in ("GET", "HEAD"):
            raise RefusedError(405, "there is nothing to change here")
        if not slash:
            raise RefusedError(404, "the address ends with a slash")
        return rest

    def _refusal(self, error: RefusedError) -> web.Response:
        told = {"error": self._scrubber.text(str(error)), "field": error.field}
        return _sent(msgspec.json.encode(told), _JSON, status=error.status)


def _page_files() -> dict[str, tuple[str, bytes]]:
    """Give type and data of the page's files by name; the page itself is what a folder shows."""
    found = {}
    for file in files("gymcli.reporting").joinpath("viewer").iterdir():
        kind = _TYPES.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            name = "" if file.name == "index.html" else file.name
            found[name] = kind, file.read_bytes()
    return found


def _sent(data: bytes, content_type: str, *, status: int = 200) -> web.Response:
    return web.Response(body=data, status=status, content_type=content_type, charset="utf-8")


async def serve(
    runs: Sequence[ViewedRun],
    *,
    port: int,
    scrubber: Scrubber,
    announce: Callable[[str], None],
) -> None:
    """Serve the page until SIGTERM or SIGINT.

    Args:
        runs: What is shown.
        port: 0 picks a free one.
        scrubber: Takes secrets out of all that is sent.
        announce: Called with the address of the page, token and all, once it listens.

    Raises:
        UsageError: It cannot listen there.

    """
    token = new_token()
    runner = Site(runs, token, scrubber=scrubber).runner()

    def tell(base_url: str) -> None:
        announce(f"{base_url}/{token}/")

    await listen(runner, host=HOST, port=port, announce=tell)
