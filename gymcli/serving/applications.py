"""Serves an environment from a process of its own, until it is told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, TypeAlias
from urllib.parse import quote

from aiohttp import web

from gymcli.errors import GymError
from gymcli.runner.listening import listen
from gymcli.serving.service import MAX_BODY, Service
from gymcli.serving.sessions import Asked, RefusedError, headers_of

__all__ = ["AsgiApplication", "aiohttp_application", "serve"]


_Event: TypeAlias = MutableMapping[str, Any]
"""A message of ASGI, whose values are of any type."""


def aiohttp_application(service: Service, *, max_body: int = MAX_BODY) -> web.Application:
    """Give an application that opens the service when it starts and closes it when it ends."""

    async def opened(_: web.Application) -> AsyncIterator[None]:
        async with service:
            yield

    async def handle(request: web.Request) -> web.Response:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            answered = _too_large(max_body).answer()
        except web.RequestPayloadError as error:
            answered = RefusedError(400, f"the body cannot be read: {error}").answer()
        else:
            headers = headers_of(request.headers.items())
            answered = await service.answer(
                Asked(request.method, _path_below(request), headers, body)
            )
        response = web.Response(status=answered.status, body=answered.body)
        response.headers["Content-Type"] = answered.content_type
        for name, value in answered.headers:
            response.headers.add(name, value)
        return response

    application = web.Application(client_max_size=max_body)
    application.cleanup_ctx.append(opened)
    application.router.add_route("*", "/{path:.*}", handle)
    return application


class AsgiApplication:
    """The service for an ASGI server such as uvicorn, which must offer a lifespan.

    Args:
        service: What is served.
        max_body: Bytes of a request.

    """

    def __init__(self, service: Service, *, max_body: int = MAX_BODY) -> None:
        self._service = service
        self._max_body = max_body

    async def __call__(
        self,
        scope: _Event,
        receive: Callable[[], Awaitable[_Event]],
        send: Callable[[_Event], Awaitable[None]],
    ) -> None:
        """Carry the life of the server, or one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._carry(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close"})

    async def _live(
        self,
        receive: Callable[[], Awaitable[_Event]],
        send: Callable[[_Event], Awaitable[None]],
    ) -> None:
        async with AsyncExitStack() as stack:
            await receive()
            try:
                await stack.enter_async_context(self._service)
            except GymError as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _carry(
        self,
        scope: _Event,
        receive: Callable[[], Awaitable[_Event]],
        send: Callable[[_Event], Awaitable[None]],
    ) -> None:
        try:
            body = await self._body(receive)
        except RefusedError as error:
            answered = error.answer()
        else:
            if body is None:
                return
            headers = headers_of(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in scope["headers"]
            )
            asked = Asked(scope["method"], _path(scope), headers, body)
            answered = await self._service.answer(asked)
        own = [("Content-Type", answered.content_type), *answered.headers]
        own.append(("Content-Length", str(len(answered.body))))
        encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in own]
        start = {"type": "http.response.start", "status": answered.status, "headers": encoded}
        await send(start)
        await send({"type": "http.response.body", "body": answered.body})

    async def _body(self, receive: Callable[[], Awaitable[_Event]]) -> bytes | None:
        """Read a body whole; None where the client went before it was.

        Raises:
            RefusedError: It is longer than the limit.

        """
        chunks: list[bytes] = []
        num_bytes = 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            chunks.append(event.get("body", b""))
            num_bytes += len(chunks[-1])
            if num_bytes > self._max_body:
                raise _too_large(self._max_body)
            if not event.get("more_body", False):
                return b"".join(chunks)


def _path_below(request: web.Request) -> str:
    """Give the path as it came, below the address at which the application is mounted."""
    resource = request.match_info.route.resource
    root = "" if resource is None else resource.canonical.removesuffix("/{path}")
    return request.rel_url.raw_path.removeprefix(root)


def _path(scope: _Event) -> str:
    """Give the path as it came, below the address at which the application is mounted."""
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    root = quote(scope.get("root_path", ""))
    return path.removeprefix(root) if root else path


def _too_large(max_body: int) -> RefusedError:
    return RefusedError(413, f"the body is longer than {max_body:,} bytes")


_SHUTDOWN = 10.0
"""Seconds that requests under way have left when the server ends."""


async def serve(service: Service, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; a second one does not wait for what is still to be closed.

    Args:
        service: What is served.
        host: Where to listen.
        port: 0 picks a free one.
        announce: Called with the base URL once it listens.

    Raises:
        UsageError: It cannot listen there.

    """
    application = aiohttp_application(service)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN)
    await listen(runner, host=host, port=port, announce=announce)
