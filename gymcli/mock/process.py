"""Runs a mock server, in its own process or in a thread of another program."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from typing import TypeVar

from gymcli.environment.addresses import checked_address
from gymcli.errors import UsageError
from gymcli.listening import stop_signals
from gymcli.mock.behaviours import parse_behaviour
from gymcli.mock.faults import Faults, Latency, Outage
from gymcli.mock.mock_options import MockOptions
from gymcli.mock.recording import Recorder
from gymcli.mock.server import MockServer
from gymcli.mock.tokenizer import TokenSampler
from gymcli.models.settings import proxy_for
from gymcli.secrets import Scrubber, scrubber_of


async def serve(
    server: MockServer, announce: Callable[[str], None], *, with_parent: bool = False
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; SIGUSR1 brings back a server that is down.

    `announce` is called with the base URL. `with_parent` also stops the server when stdin closes,
    so that it does not outlive its parent.
    """
    loop = asyncio.get_running_loop()
    rise_signal = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, rise_signal.set)

    async def rise_when_wanted() -> None:
        while True:
            await rise_signal.wait()
            rise_signal.clear()
            await server.site.rise()

    try:
        async with AsyncExitStack() as stack:
            stop_event = stack.enter_context(stop_signals())
            if with_parent:
                watch = threading.Thread(target=_watch_stdin, args=(loop, stop_event), daemon=True)
                watch.start()
            try:
                await stack.enter_async_context(server)
            except OSError as error:
                place = f"{server.site.host}:{server.site.port}"
                raise UsageError(f"cannot listen on {place}: {error.strerror}") from error
            announce(server.base_url)
            async with asyncio.TaskGroup() as tasks:
                rise_task = tasks.create_task(rise_when_wanted())
                await stop_event.wait()
                rise_task.cancel()
    except ExceptionGroup as group:  # a planned return failed
        raise group.exceptions[0] from None


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop_event: asyncio.Event) -> None:
    """Wait for the end of stdin in a thread, since stdin may be a file, which no loop can watch."""
    # os.read, not sys.stdin: a thread inside the buffered reader makes Python abort at exit.
    while os.read(0, 4096):
        pass
    with suppress(RuntimeError):  # the loop has been closed
        loop.call_soon_threadsafe(stop_event.set)


Server = TypeVar("Server", bound=AbstractAsyncContextManager[object])


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run a server in a thread during the block; exceptions of the server are raised here."""
    loop = asyncio.new_event_loop()
    is_open, is_over = threading.Event(), asyncio.Event()
    failures: list[BaseException] = []

    async def serve() -> None:
        async with server:
            is_open.set()
            await is_over.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001 (raised again in the other thread)
            failures.append(error)
        finally:
            # Also if it failed to open: the other thread waits for this event.
            is_open.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        is_open.wait()
        if not failures:
            yield server
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()
    if failures:
        raise failures[0]


def mock_server(
    options: MockOptions, *, host: str, port: int, environ: Mapping[str, str]
) -> MockServer:
    """Return a server with these options, which keeps no requests.

    Raises:
        UsageError: An option is wrong, or its variable is not set.
    """
    if options.record and options.tokens:
        raise UsageError(
            f"--record {options.record}: cannot be combined with --tokens {options.tokens}"
        )
    key = _key(options.api_key_env, environ)
    secrets = scrubber_of([key] if key else (), environ)
    return MockServer(
        parse_behaviour(options.behaviour),
        host=host,
        port=port,
        latency=Latency.parse(options.latency),
        keeps_requests=False,
        models=options.model,
        api_key=None if options.record else key,  # a recorder sends it; its clients need none
        seed=options.seed,
        faults=Faults.parse(options.fault),
        max_in_flight=options.max_in_flight,
        requests_per_minute=options.requests_per_minute,
        outage=Outage.parse(options.down_after, options.down_for),
        log=options.log,
        recorder=_recorder(options, key, secrets, environ),
        sampler=TokenSampler.parse(
            options.tokens,
            drift=options.token_drift,
            weight_version=options.weight_version,
            seed=options.seed,
        ),
        secrets=secrets,
    )


def _key(variable: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    key = environ.get(variable)
    if not key:
        raise UsageError(f"--api-key-env {variable}: the variable is not set")
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"--api-key-env {variable}: its value cannot be sent in an HTTP header")
    return key


def _recorder(
    options: MockOptions, key: str | None, secrets: Scrubber, environ: Mapping[str, str]
) -> Recorder | None:
    record, base_url = options.record, options.base_url
    if record is None or base_url is None:
        if record is not None:
            raise UsageError(f"--record {record}: needs --base-url, the endpoint to record")
        if base_url is not None:
            raise UsageError("--base-url: needs --record, the file to write")
        return None
    if options.behaviour != "echo":
        raise UsageError(
            f"--record {record}: cannot be combined with --behaviour {options.behaviour}"
        )
    try:
        address = checked_address(base_url, name="the base URL", example="https://host/v1")
    except ValueError as error:
        raise UsageError(f"--base-url: {error}") from None
    proxy = proxy_for(address, environ)
    return Recorder(record, address, api_key=key, proxy=proxy, secrets=secrets)
