"""The main program of a verifier worker, which scores the records that it receives.

Verifiers run in one event loop for the life of the process, and may raise anything.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import select
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from gymcli import errors
from gymcli.environment.contract import Environment
from gymcli.environment.time_limit import LoopClock, leave_copy
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import (
    AttemptError,
    GymError,
    VerifierError,
    boundary,
    described,
    text_of,
)
from gymcli.rollout.isolation import IsolatedProcesses
from gymcli.rollout.verify_context import VerifyContext, scores_of
from gymcli.rollout.worker_pool import DONE, READY, CodeReference, load_code
from gymcli.tracebacks import frames_of
from gymcli.types import Rollout, Score

_CALLS_SECONDS = 2.5
"""The time limit of all warm-up calls of a verifier."""

_LOGGER = logging.getLogger(__name__)

Method = Literal["verify", "verify_group"]


class Definition(msgspec.Struct, omit_defaults=True):
    """What all records of one kind have in common."""

    method: Literal["verify", "verify_group", "custom"]
    code: CodeReference
    """An environment; for a custom method, a function that takes `options` and returns a
    `Scorer`."""
    options: str = ""
    """As JSON."""
    calls_before: int = 0
    """Warm-up calls of the verifier with the first record."""


class ErrorReply(NamedTuple):
    """A GymError, by the name of its class."""

    error_class: str
    message: str
    frames: list[str] = []  # never changed
    """Where the verifier's code failed."""


def as_reply(error: GymError) -> ErrorReply:
    kinds = type(error).__mro__
    nearest = next(kind for kind in kinds if getattr(errors, kind.__name__, None) is kind)
    return ErrorReply(nearest.__name__, text_of(error), frames_of(error))


def as_error(reply: ErrorReply) -> GymError:
    kind = getattr(errors, reply.error_class, VerifierError)
    error: GymError = kind(reply.message)
    if isinstance(error, AttemptError):
        error.frames = reply.frames
    return error


class ScoreReply(msgspec.Struct, array_like=True, omit_defaults=True):
    """What a verifier returned for a record or a group, or why it failed."""

    scores: list[Score] = []
    seconds: float = 0.0
    error: ErrorReply | None = None


class Channel:
    """The socket to the parent, and the state that verifiers share in this process."""

    def __init__(self, handle: int, now: Callable[[], float]) -> None:
        self.calls_before = 0
        """Warm-up calls of the next verifier before its score counts."""
        self.isolated = IsolatedProcesses(1, now=now)
        """The process of `context.isolated`."""
        self._socket = socket.socket(fileno=handle)
        self._socket.setblocking(False)

    def send(self, data: bytes | bytearray) -> None:
        """Send data before returning, since the next verifier may end the process."""
        view = memoryview(bytes(data))
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                select.select((), (self._socket,), ())
            except OSError:
                os._exit(1)  # the parent is gone

    async def lines(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        chunks: list[bytes] = []
        while True:
            try:
                data = await loop.sock_recv(self._socket, 1 << 18)
            except asyncio.CancelledError:  # a verifier cancelled this task
                continue
            except OSError:
                return
            if not data:
                return
            chunks.append(data)
            if b"\n" in data:
                *lines, unfinished = b"".join(chunks).split(b"\n")
                chunks = [unfinished]
                for line in lines:
                    yield line


async def call_verifier(
    environment: type[Environment[Task]],
    options: EnvironmentOptions,
    rollouts: Rollout | list[Rollout],
    channel: Channel,
) -> list[Score]:
    """Call a verifier with one record or the list of a group; every error becomes a GymError."""
    num_calls, channel.calls_before = channel.calls_before, 0
    ends = time.perf_counter() + _CALLS_SECONDS
    while num_calls and time.perf_counter() < ends:
        num_calls -= 1
        # Their scores do not count: they show whether earlier calls change the next score.
        with suppress(GymError):
            await call_verifier(environment, options, rollouts, channel)
    context = VerifyContext(environment, options=options, processes=channel.isolated)
    process = os.getpid()
    try:
        with boundary(VerifierError):
            return await scores_of(environment, rollouts, context)
    except AttemptError:
        raise
    except BaseException as error:
        raise VerifierError(described(error)) from error
    finally:
        leave_copy(process)
        # A verifier may have cancelled the task that serves all records.
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()


def prepare(environment: type[Environment[Task]], options: EnvironmentOptions) -> None:
    """Call an environment's `prepare`; log what it raises, since the run has already begun."""
    try:
        environment.prepare(options)
    except BaseException as error:  # noqa: BLE001  # it may raise anything
        _LOGGER.warning("prepare of %s in a worker: %s", environment.__name__, described(error))


Scorer: TypeAlias = Callable[[bytes, Channel], Awaitable[None]]
"""Scores a record and sends the reply, which may be several lines."""


def _scorer(definition: Definition) -> Scorer:
    """Import the environment of a definition and return the function that scores its records."""
    if definition.method == "custom":
        make_scorer = cast("Callable[[str], Scorer]", load_code(definition.code))
        return make_scorer(definition.options)
    try:
        environment = cast("type[Environment[Task]]", load_code(definition.code))
        options = environment.Options.model_validate_json(definition.options)
    except BaseException as error:  # noqa: BLE001  # an import may raise anything
        text = f"{definition.code.qualname} cannot be loaded in a worker: {described(error)}"
        reply = ScoreReply(error=as_reply(VerifierError(text)))

        async def refuse(_: bytes, channel: Channel) -> None:
            channel.send(msgspec.json.encode(reply) + b"\n" + DONE + b"\n")

        return refuse
    prepare(environment, options)
    kind = Rollout if definition.method == "verify" else list[Rollout]
    return partial(_score, environment, options, kind)


async def _score(
    environment: type[Environment[Task]],
    options: EnvironmentOptions,
    kind: type[Rollout | list[Rollout]],
    record: bytes,
    channel: Channel,
) -> None:
    rollouts = msgspec.json.decode(record, type=kind)
    started = time.perf_counter()
    try:
        reply = ScoreReply(await call_verifier(environment, options, rollouts, channel))
    except GymError as error:
        reply = ScoreReply(error=as_reply(error))
    reply.seconds = time.perf_counter() - started
    channel.send(msgspec.json.encode(reply) + b"\n" + DONE + b"\n")


async def _serve(handle: int) -> None:
    async with LoopClock() as clock:
        channel = Channel(handle, clock.now)
        process = os.getpid()
        scorers: list[Scorer] = []
        async for line in channel.lines():
            if line.startswith(b"{"):
                definition = msgspec.json.decode(line, type=Definition)
                scorers.append(_scorer(definition))
                leave_copy(process)
                channel.calls_before = definition.calls_before
                channel.send(READY + b"\n")
            else:
                number, _, record = line.partition(b" ")
                await scorers[int(number)](record, channel)
        await channel.isolated.close()


def main(handle: int) -> None:
    """Serve the parent until it closes the socket, whatever a verifier's tasks raise."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        # A process that is killed would lose what its buffers hold.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = loop.create_task(_serve(handle))
    while not serving.done():
        try:  # SystemExit and KeyboardInterrupt of another task leave the loop
            loop.run_until_complete(serving)
        except BaseException as error:  # noqa: BLE001  # of a task that verifiers left behind
            if not serving.done():
                _LOGGER.warning("a background task of a verifier raised %s", described(error))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    serving.result()
