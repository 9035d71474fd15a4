"""A pool of warm processes, which take requests from one queue.

A process answers each request before it begins with the next, so that the parent knows what it is
doing, and since when. One that is late, dead or too large is killed with everything it started, and
only the request that it was doing fails. It is sent several at once only where they are so quick
that waking it would take longer. The event loop reads the socket and the output of each process.

Messages are lines. A process gets a definition once, `{...}`, and then requests, `NUMBER RECORD`,
with the number of the definition. It answers a definition with `READY`, and a request with any
number of lines and an empty one.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import operator
import os
import resource
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gymcli.environment.registry import FILE_MODULE_PREFIX, module_of_file
from gymcli.errors import VerifierCrashedError, VerifierError, VerifierTimeoutError
from gymcli.rollout.fork_server import fill_standard, fork

__all__ = [
    "READY",
    "CodeReference",
    "ProcessPool",
    "RequestKind",
    "WorkerProcess",
    "code_reference",
    "load_code",
]


READY = b"ready"
"""What a process answers when it has loaded a definition."""

_START_SECONDS = 60.0
"""A process may take so long to start and to import what a definition names."""
_LEAVE_SECONDS = 2.0
"""An idle process may take so long to end by itself."""
_SLOW_SECONDS = 1.0
_WATCH_SECONDS = 0.2
_GATHER_SECONDS = 0.002
"""Quick requests are gathered for so long; a process gets as many as it does in that time."""
_MAX_GATHERED = 16
_MAX_PRINTED_BYTES = 1 << 16
_READ_BYTES = 1 << 18
_MEGABYTE = 2**20


class RequestKind(NamedTuple):
    """What requests have in common."""

    definition: bytes
    """A JSON object, which a process is sent once."""
    name: str
    """What error messages call it."""
    seconds: float
    """How long a request may take between two lines of its reply."""
    memory_mb: float = math.inf
    """How much the resident memory of the process may grow."""
    option: str = ""
    """What sets `seconds`, for the error message."""


class ProcessPool:
    """At most `num_workers` processes, started as they are needed and used in one event loop.

    They call `main` of the module with the handle of their socket. `now` is the clock of limits.
    """

    def __init__(
        self,
        module: str,
        num_workers: int,
        *,
        variables: Callable[[], Mapping[str, str]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_workers = num_workers
        self.now = now
        self._module = module
        self._variables = variables
        self.seconds: dict[str, float] = {}
        """How long the last request took, by the name of its kind."""
        self.queue: deque[_Request] = deque()
        self._workers: list[WorkerProcess] = []
        self._timer: asyncio.TimerHandle | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._is_closed = False

    def warm(self, kind: RequestKind) -> None:
        """Start the first process and let it load a definition; return at once."""
        if not (self._is_closed or self._workers):
            self._start(1)
            self._workers[0].load(kind)

    async def run(
        self,
        kind: RequestKind,
        record: bytes,
        take: Callable[[list[bytes]], None],
        *,
        when_slow: Callable[[], None] | None = None,
    ) -> None:
        """Send a process a request, and wait for its end.

        A process whose caller is cancelled is killed. `take` is called with the lines of the reply
        as they come, and `when_slow` once if the request has not ended within a second.

        Raises:
            VerifierTimeoutError: It took too long.
            VerifierCrashedError: The process died, or needed too much memory.
            VerifierError: The pool is closed.
        """
        if self._is_closed:
            raise VerifierError(f"{kind.name} was not called: the workers were closed")
        if not self._workers:
            self._start(1)
        loop = asyncio.get_running_loop()
        slow_at = self.now() + _SLOW_SECONDS
        request = _Request(kind, record, take, when_slow, slow_at, loop.create_future())
        self.queue.append(request)
        if self._timer is None:
            self._timer = loop.call_later(_WATCH_SECONDS, self._watch)
        if self.seconds.get(kind.name, math.inf) > _GATHER_SECONDS:
            self.pump()
        elif self._gathering is None:
            self._gathering = loop.call_later(_GATHER_SECONDS, self.pump)
        try:
            await request.ended
        except BaseException:
            if request in self.queue:
                self.queue.remove(request)
            for worker in list(self._workers):
                if worker.requests and worker.requests[0] is request:
                    self.lose(worker)
            raise

    def pump(self) -> None:
        """Send idle processes the requests that wait."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        for worker in list(self._workers):
            if self.queue and not worker.requests:
                worker.begin(self.queue)

    def _start(self, num_workers: int) -> None:
        while len(self._workers) < min(num_workers, self.num_workers):
            self._workers.append(WorkerProcess(self, self._module, self._variables()))

    def _watch(self) -> None:
        """Look at every busy process, several times a second while there are requests."""
        self._timer = None
        for worker in list(self._workers):
            worker.read()
            if worker.requests:
                self._check(worker, worker.requests[0].kind)
        now = self.now()
        begun = [request for worker in self._workers for request in worker.requests]
        for request in (*self.queue, *begun):
            if now >= request.slow_at:
                request.tell_slow()
        if self.queue and all(worker.is_ready for worker in self._workers):
            self._start(len(self._workers) + len(self.queue))
        self.pump()
        if any(worker.requests for worker in self._workers):
            self._timer = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._watch)

    def _check(self, worker: WorkerProcess, kind: RequestKind) -> None:
        """Kill a process that is dead, late or too large."""
        limit, option = kind.seconds, kind.option
        if not worker.is_ready:
            limit, option = _START_SECONDS, "to be imported"
        if worker.process.poll() is not None:  # a copy of it may hold the socket
            self.lose(worker)
        elif self.now() - worker.since > limit:
            text = f"{kind.name} took longer than {limit:g} seconds {option}".rstrip()
            self.lose(worker, VerifierTimeoutError(text))
        elif worker.is_ready and kind.memory_mb < math.inf:
            grown = worker.resident_bytes() - worker.first_bytes
            if grown > kind.memory_mb * _MEGABYTE:
                text = f"{kind.memory_mb:g} MB of memory (verify_memory_mb)"
                self.lose(worker, VerifierCrashedError(f"{kind.name} needed more than {text}"))

    def lose(self, worker: WorkerProcess, error: VerifierError | None = None) -> None:
        """Kill a process, and fail the request that it still does after its last replies."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        how = worker.kill()
        request, *others = worker.requests or (None,)
        worker.requests.clear()
        self.queue.extendleft(reversed(others))
        if request is not None and worker.has_served and worker.has_unread and not error:
            self.queue.appendleft(request)  # it died while it was idle
        elif request is not None:
            text = f"{request.kind.name}: its process died ({how})"
            request.fail(error or VerifierCrashedError(text))
        if self.queue:
            self._start(1)
            self.pump()

    async def close(self) -> None:
        """End all processes, busy ones in the middle of a request."""
        self._is_closed = True
        for timer in (self._timer, self._gathering):
            if timer is not None:
                timer.cancel()
        workers, self._workers = self._workers, []
        for worker in workers:
            request, *others = worker.requests or (None,)
            if request is not None or not worker.is_ready:
                worker.kill()
            if request is not None:
                text = f"{request.kind.name} was not called to its end: the workers were closed"
                request.fail(VerifierError(text))
            self.queue.extend(others)
        for request in self.queue:
            text = f"{request.kind.name} was not called: the workers were closed"
            request.fail(VerifierError(text))
        self.queue.clear()
        await asyncio.gather(*(worker.leave() for worker in workers))


@dataclass(eq=False)
class _Request:
    kind: RequestKind
    record: bytes
    take: Callable[[list[bytes]], None]
    when_slow: Callable[[], None] | None
    slow_at: float
    ended: asyncio.Future[None]

    def tell_slow(self) -> None:
        """Call `when_slow` once; an error of that ends the request."""
        when_slow, self.when_slow = self.when_slow, None
        if when_slow is not None and not self.ended.done():
            try:
                when_slow()
            except Exception as error:  # noqa: BLE001  # the disk may be full
                self.ended.set_exception(error)

    def fail(self, error: VerifierError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


class WorkerProcess:
    """One process of a pool, the socket to it, and the requests that it was sent."""

    def __init__(self, pool: ProcessPool, module: str, variables: Mapping[str, str]) -> None:
        self.requests: deque[_Request] = deque()
        """It does the first, and has not begun with the others."""
        self.began = self.since = pool.now()
        """When it began with the first request, and with the part of it that is under way."""
        self.is_ready = True
        """False while it loads a definition."""
        self.has_served = False
        self.has_unread = False
        """It ended before it had read all that it was sent (Linux tells)."""
        self.first_bytes = 0
        """Its resident memory after the last import."""
        self._pool = pool
        self._numbers: dict[bytes, int] = {}
        self._chunks: list[bytes] = []
        self._unsent = bytearray()
        self._unprinted = b""
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        fill_standard()
        self._socket, theirs = socket.socketpair()
        self._printed, prints = os.pipe()
        try:
            with theirs:
                self.process = fork(module, theirs.fileno(), prints, variables)
        except BaseException:
            self._socket.close()
            os.close(self._printed)
            raise
        finally:
            os.close(prints)
        self._socket.setblocking(False)
        os.set_blocking(self._printed, False)
        self._loop.add_reader(self._socket.fileno(), self.read)
        self._loop.add_reader(self._printed, self._print)

    def begin(self, queue: deque[_Request]) -> None:
        """Send an idle process the next request, with more of its kind where they are quick."""
        kind = queue[0].kind
        self.began = self.since = self._pool.now()
        if kind.definition not in self._numbers:
            self.load(kind)
        number = self._numbers[kind.definition]
        most = _GATHER_SECONDS / max(self._pool.seconds.get(kind.name, math.inf), 1e-6)
        lines: list[bytes] = []
        while queue and queue[0].kind.definition == kind.definition:
            request = queue.popleft()
            self.requests.append(request)
            lines.append(b"%d %b\n" % (number, request.record))
            if len(lines) >= min(most, _MAX_GATHERED):
                break
        self.write(b"".join(lines))

    def load(self, kind: RequestKind) -> None:
        """Send a definition that the process does not have."""
        self._numbers[kind.definition] = len(self._numbers)
        self.is_ready = False
        self.write(kind.definition + b"\n")

    def _take_lines(self, lines: list[bytes]) -> None:
        self.since = now = self._pool.now()
        if lines[0] == READY:
            self.is_ready = True
            self.first_bytes = self.resident_bytes()
            lines = lines[1:]
        reply: list[bytes] = []
        for line in lines:
            if line:
                reply.append(line)
            elif self.requests:
                self.has_served = True
                request = self.requests[0]
                request.take(reply)
                reply = []
                self.requests.popleft()
                self._pool.seconds[request.kind.name] = now - self.began
                self.began = now
                if not request.ended.done():
                    request.ended.set_result(None)
        if self.requests and reply:
            self.has_served = True
            self.requests[0].take(reply)
        elif self._pool.queue and not self.requests:
            self._pool.pump()

    def write(self, data: bytes) -> None:
        """Send data; what the socket has no room for is sent later."""
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                pass
            except OSError:  # it has ended, which `read` will see
                self.has_unread = True
                return
            if sent < len(data):
                self._loop.add_writer(self._socket.fileno(), self._write_on)
        self._unsent += data[sent:]

    def _write_on(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def read(self) -> bool:
        """Take what the process has sent, if anything; return whether there may be more."""
        if not self._is_open:
            return False
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            # It is reset if the other end was closed before all was read there.
            self.has_unread |= isinstance(error, ConnectionResetError)
            data = b""
        if not data:
            self._loop.remove_reader(self._socket.fileno())
            self._pool.lose(self)
            return False
        self._chunks.append(data)
        if b"\n" in data:
            *lines, rest = b"".join(self._chunks).split(b"\n")
            self._chunks = [rest] if rest else []
            self._take_lines(lines)
        return True

    def resident_bytes(self) -> int:
        """Return the resident memory of the process; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self.process.pid()}/statm").read_bytes().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * resource.getpagesize()

    def kill(self) -> str:
        """Kill the process and what it started, take its last lines, and return how it died."""
        if not self._is_open:
            return ""
        code = self.process.kill()
        while self.read():
            pass
        self._close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    async def leave(self) -> None:
        """Wait for an idle process to end itself, and kill it where it does not."""
        if not self._is_open:
            return
        try:
            self._socket.shutdown(socket.SHUT_WR)
            ends = self._loop.time() + _LEAVE_SECONDS
            while self.process.poll() is None and self._loop.time() < ends:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0.005)
        except OSError:  # its end of the socket is closed already
            pass
        finally:
            self.process.kill()
            self._close()

    def _close(self) -> None:
        self._is_open = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        while self._printed >= 0 and self._print():
            pass
        self._stop_printing()

    def _print(self) -> bool:
        """Pass on what the process prints, through this stderr, which hides secrets."""
        try:
            data = os.read(self._printed, _MAX_PRINTED_BYTES)
        except BlockingIOError:
            return False
        if data:
            *lines, rest = (self._unprinted + data).split(b"\n")
            if len(rest) > _MAX_PRINTED_BYTES:
                lines, rest = [*lines, rest], b""
        else:
            lines, rest = [self._unprinted] if self._unprinted else [], b""
            self._stop_printing()
        self._unprinted = rest
        with suppress(OSError, ValueError):  # closed, or its reader has left
            for line in lines:
                sys.stderr.write(line.decode(errors="replace") + "\n")
            sys.stderr.flush()
        return bool(data)

    def _stop_printing(self) -> None:
        if self._printed >= 0:
            self._loop.remove_reader(self._printed)
            os.close(self._printed)
            self._printed = -1


class CodeReference(NamedTuple):
    """Where another process finds a class or a function."""

    module: str
    file: str
    """The file of a module that no import finds; else empty."""
    qualname: str


def code_reference(item: object) -> CodeReference | None:
    """Return where another process finds a class or a function; None where it cannot."""
    module = getattr(item, "__module__", None) or ""
    qualname = getattr(item, "__qualname__", None) or ""
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not item or not qualname or module == "__main__":
        return None
    file = str(sys.modules[module].__file__) if module.startswith(FILE_MODULE_PREFIX) else ""
    return CodeReference(module, file, qualname)


def load_code(code: CodeReference) -> object:
    """Import a class or a function."""
    if code.file:
        module = module_of_file(Path(code.file), code.file)
    else:
        module = importlib.import_module(code.module)
    return operator.attrgetter(code.qualname)(module)
