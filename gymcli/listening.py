"""Serves an aiohttp application until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import ClientConnectionResetError, web
from aiohttp.http_exceptions import HttpProcessingError

from gymcli.errors import UsageError

_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ClientConnectionResetError)
_BACKLOG = 4096
"""Connections that may wait to be accepted: a client opens hundreds at the same moment."""


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM, SIGINT and SIGHUP set while the block lasts."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores SIGHUP
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextmanager
def quiet_about_clients() -> Iterator[None]:
    """Keep aiohttp from logging, within the block, what clients did wrong.

    It logs a traceback, which nobody can act on, for every request that is not HTTP, every body
    that cannot be unpacked and every client that leaves before it is told to continue.
    """
    logger = logging.getLogger("aiohttp.server")
    logger.addFilter(_is_about_server)
    try:
        yield
    finally:
        logger.removeFilter(_is_about_server)


def _is_about_server(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, _OF_CLIENTS)


async def listen(
    runner: web.AppRunner, *, host: str, port: int, announce: Callable[[str], None]
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; a second signal skips the orderly shutdown.

    Port 0 picks a free one; `announce` is called with the base URL.

    Raises:
        UsageError: It cannot listen there.
    """
    with quiet_about_clients():
        try:
            with stop_signals() as stopped:
                await runner.setup()
                site = web.TCPSite(runner, host, port, backlog=_BACKLOG)
                try:
                    await site.start()
                # UnicodeError: the host is not a valid name.
                except (OSError, UnicodeError) as error:
                    reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
                    raise UsageError(f"cannot listen on {host}:{port}: {reason}") from error
                url_host = f"[{host}]" if ":" in host else host
                announce(f"http://{url_host}:{runner.addresses[0][1]}")
                await stopped.wait()
        finally:
            # Outside the block, so that a second signal ends the process as usual.
            await runner.cleanup()
