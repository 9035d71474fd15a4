"""What runs in a verifier worker: it scores the records that it is sent, one after another.

A request is a line `[number of a subject, definition]`, where the definition comes with the first
request, and a line with the record. The reply is a line for each record. Replies of several
records are sent together every few milliseconds; until then they lie in memory that the parent
shares, so that none is lost where the next record ends the process.

Code of others runs in one event loop for the life of the process, and may raise anything.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import logging
import mmap
import operator
import os
import select
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, cast

import msgspec

from gymcli import errors
from gymcli.boundary import described, leave_copy
from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.errors import GymError, VerifierError
from gymcli.registry.find import module_of_file
from gymcli.scoring.child import TAIL, TAIL_BYTES
from gymcli.scoring.context import VerifyContext, checked_score
from gymcli.scoring.isolation import IsolatedProcesses
from gymcli.types import Rollout, Score

__all__ = [
    "READY",
    "Call",
    "Definition",
    "ErrorReply",
    "Method",
    "Place",
    "ScoreReply",
    "call_verifier",
    "error_reply",
    "main",
    "prepare",
]

READY = b"ready"
"""The line that a worker sends when it has loaded what a definition names."""

_FLUSH_SECONDS = 0.005

_LOGGER = logging.getLogger(__name__)

Method = Literal["verify", "verify_group"]


class Place(NamedTuple):
    """Where another process finds a class."""

    module: str
    file: str
    """Where the module was loaded from, if that was a file that no import finds; else empty."""
    qualname: str


class Definition(msgspec.Struct, array_like=True, omit_defaults=True):
    """What the records of a subject have in common."""

    method: Literal["verify", "verify_group", "rescore_lines", "rescore_part"]
    place: Place | None = None
    options: str = ""
    """As JSON."""
    job: msgspec.Raw = msgspec.Raw(b"null")
    """A `RescoreJob`."""
    calls_before: int = 0
    """So often is the first record scored for nothing but that the verifier has been called."""


class ErrorReply(NamedTuple):
    """An error of ours, by the class that the parent knows it by."""

    error_class: str
    text: str


class ScoreReply(msgspec.Struct, array_like=True, omit_defaults=True):
    """What a verifier returned for a record or a group, or why there is none."""

    scores: list[Score] = []
    seconds: float = 0.0
    error: ErrorReply | None = None


class Subject(Protocol):
    """What scores the records of one definition."""

    async def score(self, record: bytes, call: Call) -> None:
        """Score a record and send the reply, or several."""
        ...


class Call:
    """The channel to the parent, as the code that scores uses it.

    `verify` is called between `begin` and `reply`: what ends the process then is its doing.
    """

    def __init__(self, handle: int, memory: int) -> None:
        self.socket = socket.socket(fileno=handle)
        self.socket.setblocking(False)
        self._memory = mmap.mmap(memory, 0)
        self._num_bytes = 0
        self._sent_at = 0.0
        self.isolated = IsolatedProcesses(1)
        """The processes of `context.isolated`."""

    def begin(self) -> None:
        """Note that code of others runs."""
        TAIL.pack_into(self._memory, 0, self._num_bytes, 1)

    def reply(self, line: bytes) -> None:
        """Add a line to what is sent, and send it where the last sending was a while ago."""
        if self._num_bytes + len(line) >= TAIL_BYTES:
            self.flush()
        if len(line) >= TAIL_BYTES:
            self._send(line + b"\n")
        else:
            start = TAIL.size + self._num_bytes
            self._num_bytes += len(line) + 1
            self._memory[start : TAIL.size + self._num_bytes] = line + b"\n"
        TAIL.pack_into(self._memory, 0, self._num_bytes, 0)
        if time.perf_counter() - self._sent_at > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send all replies."""
        if self._num_bytes:
            self._send(self._memory[TAIL.size : TAIL.size + self._num_bytes])
            self._num_bytes = 0
            TAIL.pack_into(self._memory, 0, 0, 0)
        self._sent_at = time.perf_counter()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                select.select((), (self.socket,), ())
            except OSError:
                os._exit(1)  # nobody reads it

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines that the parent sends, until it closes the socket."""
        loop = asyncio.get_running_loop()
        chunks: list[bytes] = []
        while True:
            try:
                data = await loop.sock_recv(self.socket, 1 << 18)
            except asyncio.CancelledError:  # that verifiers asked for and did not wait for
                continue
            except OSError:
                return
            if not data:
                return
            if b"\n" not in data:
                chunks.append(data)
                continue
            *lines, rest = b"".join((*chunks, data)).split(b"\n")
            chunks = [rest] if rest else []
            for line in lines:
                yield line
            self.flush()


class _Verifying:
    """Calls the verifier of one environment."""

    def __init__(
        self,
        definition: Definition,
        environment: type[Environment[Task]],
        options: EnvironmentOptions,
    ) -> None:
        self._method = method = cast("Method", definition.method)
        self._environment = environment
        self._options = options
        self._calls_before = definition.calls_before
        kind = Rollout if method == "verify" else list[Rollout]
        self._decode = msgspec.json.Decoder(kind).decode

    async def score(self, record: bytes, call: Call) -> None:
        rollouts = self._decode(record)
        while self._calls_before:
            self._calls_before -= 1
            with suppress(GymError):
                await call_verifier(self._method, self._environment, self._options, rollouts, call)
        started = time.perf_counter()
        try:
            scores = await call_verifier(
                self._method, self._environment, self._options, rollouts, call
            )
            reply = msgspec.json.encode(ScoreReply(scores, time.perf_counter() - started))
        except GymError as error:
            seconds = time.perf_counter() - started
            reply = msgspec.json.encode(ScoreReply([], seconds, error_reply(error)))
        call.reply(reply)


async def call_verifier(
    method: Method,
    environment: type[Environment[Task]],
    options: EnvironmentOptions,
    rollouts: object,
    call: Call,
) -> list[Score]:
    """Call a verifier in the task of this process, with one record or the list of a group.

    Raises:
        GymError: As the verifier raised it; whatever else that raises is a `VerifierError`.

    """
    context = VerifyContext(environment, options=options, processes=call.isolated)
    process = os.getpid()
    call.begin()
    try:
        try:
            if method == "verify":
                found = await environment.verify(cast("Rollout", rollouts), context)
                scores = [checked_score(found)]
            else:
                together = await environment.verify_group(cast("list[Rollout]", rollouts), context)
                scores = [checked_score(one) for one in together]
        except BaseException:
            leave_copy(process)
            with suppress(BaseException):  # what failed before says more
                await context.close()
            raise
        leave_copy(process)
        if context.is_used:
            await context.close()
    except GymError:
        raise
    except BaseException as error:
        raise VerifierError(described(error)) from error
    finally:
        leave_copy(process)
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
    return scores


def error_reply(error: GymError) -> ErrorReply:
    """Return an error as it is sent: by the nearest of its classes that is one of ours."""
    kinds = type(error).__mro__
    known = next(kind for kind in kinds if getattr(errors, kind.__name__, None) is kind)
    return ErrorReply(known.__name__, _printable(str(error)))


def _printable(text: str) -> str:
    """Return a text that can be encoded, whatever an exception says."""
    return text.encode(errors="replace").decode()


class _Unusable:
    """Replies with the error for which an environment cannot be loaded here."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def score(self, record: bytes, call: Call) -> None:
        reply = ScoreReply(error=ErrorReply("VerifierError", self._text))
        call.reply(msgspec.json.encode(reply))


def _subject(data: bytes) -> Subject:
    definition = msgspec.json.decode(data, type=Definition)
    if definition.place is None:
        from gymcli.scoring.rescored import RescoreJob, Rescoring  # late: few need the files

        return Rescoring(definition.method, msgspec.json.decode(definition.job, type=RescoreJob))
    try:
        environment = _found(definition.place)
        options = environment.Options.model_validate_json(definition.options)
    except BaseException as error:  # noqa: BLE001  # an import may raise anything
        text = f"{definition.place.qualname} cannot be loaded in a worker: {described(error)}"
        return _Unusable(_printable(text))
    prepare(environment, options)
    return _Verifying(definition, environment, options)


def prepare(environment: type[Environment[Task]], options: EnvironmentOptions) -> None:
    """Let an environment get ready; what it raises is logged, since the run itself has begun."""
    try:
        environment.prepare(options)
    except BaseException as error:  # noqa: BLE001  # it may raise anything
        _LOGGER.warning("prepare of %s in a worker: %s", environment.__name__, described(error))


def _found(place: Place) -> type[Environment[Task]]:
    if place.file:
        module = module_of_file(Path(place.file), place.file)
    else:
        module = importlib.import_module(place.module)
    return cast("type[Environment[Task]]", operator.attrgetter(place.qualname)(module))


async def _serve(call: Call) -> None:
    subjects: dict[int, Subject] = {}
    subject: Subject | None = None
    async for line in call.lines():
        if subject is None:
            number, *definition = msgspec.json.decode(line, type=list[msgspec.Raw])
            key = int(bytes(number))
            if definition:
                process = os.getpid()
                call.begin()
                subjects[key] = _subject(bytes(definition[0]))
                leave_copy(process)
                call.reply(READY)
                call.flush()
            subject = subjects[key]
        elif not line:  # only a definition
            subject = None
        else:
            await subject.score(line, call)
            subject = None
    await call.isolated.close()


def main(handle: int, memory: int) -> None:
    """Serve the parent until it closes the socket."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    run_to_end(_serve_on(handle, memory))


async def _serve_on(handle: int, memory: int) -> None:
    await _serve(Call(handle, memory))


def run_to_end(main: Awaitable[None]) -> None:
    """Run a coroutine in an event loop of its own, whatever other tasks raise there.

    SystemExit and KeyboardInterrupt of a task leave the loop; it is run again with the same task.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = asyncio.ensure_future(main, loop=loop)
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except BaseException as error:  # noqa: BLE001  # of a task that verifiers left behind
            if not serving.done():
                _LOGGER.warning("a background task of a verifier raised %s", described(error))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    serving.result()
