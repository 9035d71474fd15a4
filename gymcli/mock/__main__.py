"""Runs the mock server as a process of its own: `python -m gymcli.mock --port 0`.

One line of stdout says where it listens. It stops at SIGTERM or SIGINT, and with `--with-parent`
when its stdin closes, so that it does not outlive whoever started it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading

import uvloop

from gymcli.errors import UsageError
from gymcli.mock.behaviours import parse_behaviour
from gymcli.mock.server import MockServer

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gymcli.mock", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--behaviour", default="echo", help="echo, fixed:TEXT or script:FILE.jsonl")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--with-parent", action="store_true", help="stop when stdin closes")
    options = parser.parse_args(arguments)
    try:
        behaviour = parse_behaviour(options.behaviour)
    except UsageError as error:
        parser.error(str(error))
    server = MockServer(behaviour, port=options.port, latency=options.latency, keeps_requests=False)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(server, with_parent=options.with_parent))
    except OSError as error:
        parser.error(f"cannot listen on port {options.port}: {error.strerror}")
    return 0


async def _serve(server: MockServer, *, with_parent: bool) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if with_parent:
        threading.Thread(target=_watch_stdin, args=(loop, stopped), daemon=True).start()
    async with server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        await stopped.wait()


def _watch_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Wait for the end of stdin; a thread, since stdin may be a file that no loop can watch."""
    # os.read and not sys.stdin: a thread inside the buffered reader makes Python abort at its end.
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(stopped.set)


if __name__ == "__main__":
    raise SystemExit(main())
