"""The service as an aiohttp application, and as an application for any ASGI server.

Both only pass requests on; `gymcli.serving.service` answers them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, TypeAlias
from urllib.parse import quote

from aiohttp import web

from gymcli.errors import GymError
from gymcli.listening import listen
from gymcli.serving.protocol import HttpStatusError, ServedRequest, headers_of
from gymcli.serving.service import MAX_BODY, Service

_Event: TypeAlias = MutableMapping[str, Any]
"""A message of ASGI, with values of any type."""

_Receive: TypeAlias = Callable[[], Awaitable[_Event]]
_Send: TypeAlias = Callable[[_Event], Awaitable[None]]


def aiohttp_application(service: Service, *, max_body: int = MAX_BODY) -> web.Application:
    async def run_service(_: web.Application) -> AsyncIterator[None]:
        async with service:
            yield

    async def handle(request: web.Request) -> web.Response:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            answer = _too_large(max_body).answer()
        except web.RequestPayloadError as error:
            answer = HttpStatusError(400, f"the body cannot be read: {error}").answer()
        except ConnectionError:
            # The client left before its whole body came. Nobody reads this answer; aiohttp would
            # log the exception as an error of ours.
            answer = HttpStatusError(400, "the connection was closed").answer()
        else:
            headers = headers_of(request.headers.items())
            answer = await service.answer(
                ServedRequest(request.method, _path_below(request), headers, body)
            )
        response = web.Response(status=answer.status, body=answer.body)
        # As a header, since aiohttp's argument `content_type` must not contain a charset.
        response.headers["Content-Type"] = answer.content_type
        for name, value in answer.headers:
            response.headers.add(name, value)
        return response

    application = web.Application(client_max_size=max_body)
    application.cleanup_ctx.append(run_service)
    # One route for everything: the service has its own, the same for every HTTP server.
    application.router.add_route("*", "/{path:.*}", handle)
    return application


class AsgiApplication:
    """The service for an ASGI server such as uvicorn, which must offer a lifespan."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._handle_request(scope, receive, send)
        else:
            # ASGI allows a refusal only after the event `websocket.connect` was received.
            await receive()
            await send({"type": "websocket.close"})

    async def _run_lifespan(self, receive: _Receive, send: _Send) -> None:
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

    async def _handle_request(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        try:
            body = await self._body(receive)
        except HttpStatusError as error:
            answer = error.answer()
        else:
            if body is None:
                return
            headers = headers_of(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in scope["headers"]
            )
            request = ServedRequest(scope["method"], _path(scope), headers, body)
            answer = await self._service.answer(request)
        answer_headers = [("Content-Type", answer.content_type), *answer.headers]
        answer_headers.append(("Content-Length", str(len(answer.body))))
        encoded = [(name.lower().encode(), text.encode("latin-1")) for name, text in answer_headers]
        start = {"type": "http.response.start", "status": answer.status, "headers": encoded}
        await send(start)
        await send({"type": "http.response.body", "body": answer.body})

    async def _body(self, receive: _Receive) -> bytes | None:
        """Return the whole body; None if the client disconnected before it was complete."""
        chunks: list[bytes] = []
        num_bytes = 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            chunks.append(event.get("body", b""))
            num_bytes += len(chunks[-1])
            if num_bytes > MAX_BODY:
                raise _too_large(MAX_BODY)
            if not event.get("more_body", False):
                return b"".join(chunks)


def _path_below(request: web.Request) -> str:
    """Return the encoded path relative to the address where the application is mounted."""
    resource = request.match_info.route.resource
    root = "" if resource is None else resource.canonical.removesuffix("/{path}")
    return request.rel_url.raw_path.removeprefix(root)


def _path(scope: _Event) -> str:
    # ASGI servers need not send `raw_path`; without it, an encoded slash looks like any other.
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    root = quote(scope.get("root_path", ""))
    return path.removeprefix(root) if root else path


def _too_large(max_body: int) -> HttpStatusError:
    return HttpStatusError(413, f"the body is longer than {max_body:,} bytes")


_SHUTDOWN = 10.0
"""Seconds that running requests get when the server ends."""


async def serve(service: Service, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; a second signal skips the orderly shutdown.

    `announce` is called with the base URL once the server listens; port 0 picks a free one.

    Raises:
        UsageError: The server cannot listen there.
    """
    application = aiohttp_application(service)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN)
    await listen(runner, host=host, port=port, announce=announce)
