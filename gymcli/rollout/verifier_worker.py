"""What runs in a verifier worker: it scores the records that it is sent, one after another.

Code of others runs in one event loop for the life of the process, and may raise anything.
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
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol, cast

import msgspec

from gymcli import errors
from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import GymError, VerifierError, described, frames_of, leave_copy
from gymcli.rollout.isolation import IsolatedProcesses
from gymcli.rollout.verify_context import VerifyContext, scores_of
from gymcli.rollout.worker_pool import READY, Place, load_place
from gymcli.types import Rollout, Score

__all__ = [
    "Channel",
    "Definition",
    "ErrorReply",
    "Method",
    "ScoreReply",
    "as_reply",
    "call_verifier",
    "main",
    "prepare",
]


_CALLS_SECONDS = 2.5
"""After so many seconds a verifier is no longer called in vain."""

_LOGGER = logging.getLogger(__name__)

Method = Literal["verify", "verify_group"]


class Definition(msgspec.Struct, omit_defaults=True):
    """What the records of a subject have in common."""

    method: Literal["verify", "verify_group", "rescore"]
    place: Place | None = None
    options: str = ""
    """As JSON."""
    job: msgspec.Raw = msgspec.Raw(b"null")
    """A `RescoreJob`."""
    calls_before: int = 0
    """How often the verifier is called in vain with the first record."""


class ErrorReply(NamedTuple):
    """An error of ours, by the name of its class."""

    error_class: str
    text: str
    frames: list[str] = []  # never changed
    """Where the verifier's own code failed."""


class ScoreReply(msgspec.Struct, array_like=True, omit_defaults=True):
    """What a verifier returned for a record or a group, or why there is none."""

    scores: list[Score] = []
    seconds: float = 0.0
    error: ErrorReply | None = None


class _Subject(Protocol):
    """Scores the records of one definition."""

    async def score(self, record: bytes, channel: Channel) -> None:
        """Score a record and send the reply, which may be several lines."""
        ...


class Channel:
    """The socket to the parent, and what verifiers share in this process."""

    def __init__(self, handle: int) -> None:
        self.calls_before = 0
        """How often the next verifier is called in vain, before its score counts."""
        self.isolated = IsolatedProcesses(1)
        """The process of `context.isolated`."""
        self._socket = socket.socket(fileno=handle)
        self._socket.setblocking(False)

    def send(self, data: bytes | bytearray) -> None:
        """Send data at once: what runs next may end the process."""
        view = memoryview(bytes(data))
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                select.select((), (self._socket,), ())
            except OSError:
                os._exit(1)  # nobody reads it

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines that the parent sends, until it closes the socket."""
        loop = asyncio.get_running_loop()
        chunks: list[bytes] = []
        while True:
            try:
                data = await loop.sock_recv(self._socket, 1 << 18)
            except asyncio.CancelledError:  # that verifiers asked for and did not wait for
                continue
            except OSError:
                return
            if not data:
                return
            chunks.append(data)
            if b"\n" in data:
                *lines, rest = b"".join(chunks).split(b"\n")
                chunks = [rest]
                for line in lines:
                    yield line


class _Verifying:
    """Calls the verifier of one environment."""

    def __init__(self, definition: Definition, place: Place) -> None:
        self._environment = cast("type[Environment[Task]]", load_place(place))
        self._options = self._environment.Options.model_validate_json(definition.options)
        self._decoder: msgspec.json.Decoder[Rollout | list[Rollout]] = msgspec.json.Decoder(
            Rollout if definition.method == "verify" else list[Rollout]
        )
        prepare(self._environment, self._options)

    async def score(self, record: bytes, channel: Channel) -> None:
        rollouts = self._decoder.decode(record)
        started = time.perf_counter()
        try:
            scores = await call_verifier(self._environment, self._options, rollouts, channel)
            reply = ScoreReply(scores)
        except GymError as error:
            reply = ScoreReply(error=as_reply(error))
        reply.seconds = time.perf_counter() - started
        channel.send(msgspec.json.encode(reply) + b"\n\n")


class _Unusable:
    """Replies with the error that an environment cannot be loaded here."""

    def __init__(self, text: str) -> None:
        self._reply = ScoreReply(error=as_reply(VerifierError(text)))

    async def score(self, record: bytes, channel: Channel) -> None:
        del record
        channel.send(msgspec.json.encode(self._reply) + b"\n\n")


async def call_verifier(
    environment: type[Environment[Task]],
    options: EnvironmentOptions,
    rollouts: Rollout | list[Rollout],
    channel: Channel,
) -> list[Score]:
    """Call a verifier in the task of this process, with one record or the list of a group.

    Raises:
        GymError: As the verifier raised it; whatever else it raises is a `VerifierError`.

    """
    num_calls, channel.calls_before = channel.calls_before, 0
    ends = time.perf_counter() + _CALLS_SECONDS
    while num_calls and time.perf_counter() < ends:
        num_calls -= 1
        with suppress(GymError):
            await call_verifier(environment, options, rollouts, channel)
    context = VerifyContext(environment, options=options, processes=channel.isolated)
    process = os.getpid()
    try:
        return await scores_of(environment, rollouts, context)
    except GymError:
        raise
    except BaseException as error:
        raise VerifierError(described(error)) from error
    finally:
        leave_copy(process)
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()


def as_reply(error: GymError) -> ErrorReply:
    """Return an error as it is sent: by the nearest of its classes that is one of ours."""
    kinds = type(error).__mro__
    known = next(kind for kind in kinds if getattr(errors, kind.__name__, None) is kind)
    # An exception may say what cannot be encoded.
    text = str(error).encode(errors="replace").decode()
    return ErrorReply(known.__name__, text, frames_of(error))


def prepare(environment: type[Environment[Task]], options: EnvironmentOptions) -> None:
    """Let an environment get ready; what it raises is logged, since the run itself has begun."""
    try:
        environment.prepare(options)
    except BaseException as error:  # noqa: BLE001  # it may raise anything
        _LOGGER.warning("prepare of %s in a worker: %s", environment.__name__, described(error))


def _load(definition: Definition) -> _Subject:
    if definition.place is None:
        from gymcli.rollout.rescored import LineScorer, RescoreJob  # late: few need the files

        return LineScorer(msgspec.json.decode(definition.job, type=RescoreJob))
    try:
        return _Verifying(definition, definition.place)
    except BaseException as error:  # noqa: BLE001  # an import may raise anything
        name = definition.place.qualname
        return _Unusable(f"{name} cannot be loaded in a worker: {described(error)}")


async def _serve(handle: int) -> None:
    channel = Channel(handle)
    process = os.getpid()
    subjects: list[_Subject] = []
    async for line in channel.lines():
        if line.startswith(b"{"):
            definition = msgspec.json.decode(line, type=Definition)
            subjects.append(_load(definition))
            leave_copy(process)
            channel.calls_before = definition.calls_before
            channel.send(READY + b"\n")
        else:
            number, _, record = line.partition(b" ")
            await subjects[int(number)].score(record, channel)
    await channel.isolated.close()


def main(handle: int) -> None:
    """Serve the parent until it closes the socket, whatever tasks of verifiers raise.

    SystemExit and KeyboardInterrupt of a task leave the loop; it is run again with the same task.
    """
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = loop.create_task(_serve(handle))
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except BaseException as error:  # noqa: BLE001  # of a task that verifiers left behind
            if not serving.done():
                _LOGGER.warning("a background task of a verifier raised %s", described(error))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    serving.result()
