"""Serves an environment from a process of its own, until it is told to stop."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from gymcli.runner.listening import listen
from gymcli.serving.faces import aiohttp_application
from gymcli.serving.service import Service

__all__ = ["serve"]

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
