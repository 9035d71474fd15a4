"""Serves an aiohttp application until a signal stops it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from gymcli.errors import UsageError

__all__ = ["listen", "stop_signals"]

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


async def listen(
    runner: web.AppRunner, *, host: str, port: int, announce: Callable[[str], None]
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; a second signal skips the orderly shutdown.

    Port 0 picks a free one; `announce` is called with the base URL.

    Raises:
        UsageError: It cannot listen there.
    """
    try:
        with stop_signals() as stopped:
            await runner.setup()
            site = web.TCPSite(runner, host, port, backlog=_BACKLOG)
            try:
                await site.start()
            except (OSError, UnicodeError) as error:  # UnicodeError: the host is not a valid name
                reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
                raise UsageError(f"cannot listen on {host}:{port}: {reason}") from error
            shown = f"[{host}]" if ":" in host else host
            announce(f"http://{shown}:{runner.addresses[0][1]}")
            await stopped.wait()
    finally:
        # Outside the block, so that a second signal ends the process as usual.
        await runner.cleanup()
