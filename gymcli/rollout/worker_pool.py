"""A pool of warm processes, which take requests from one queue.

A process answers each request before it begins the next, so the parent knows which request it is
working on, and since when. A process that is late, dead or too large, or sends what nobody can
read, is killed with its children, and only its current request fails. Requests are batched only if
they are so quick that waking the process would take longer. The event loop reads the socket and the
output of each process, and never waits for one.

The protocol is lines. The parent sends a definition once, `{...}`, then requests, `NUMBER RECORD`,
with the number of the definition. The process answers a definition with `READY`, and a request with
any number of lines and then `DONE`. Code that writes to every descriptor may add any others.
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
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.environment.registry import module_of_file
from gymcli.environment.source_code import FILE_MODULE_PREFIX
from gymcli.environment.time_limit import MAX_STRETCH, cpu_waits
from gymcli.errors import VerifierCrashedError, VerifierError, VerifierTimeoutError
from gymcli.rollout.fork_server import fork, socket_pair
from gymcli.store.supervised import out_of_reach

READY = b"ready"
"""The reply of a process that has loaded a definition."""
DONE = b"done"
"""The last line of a reply."""

_START_SECONDS = 60.0
"""How long a process may take to start and to import what a definition names."""
_LEAVE_SECONDS = 2.0
"""How long an idle process may take to end by itself."""
_KILL_SECONDS = 5.0
"""How long to wait for the end of a process that was killed: the system may be unable to end it."""
_MAX_LOSSES = 3
"""How often a request may be lost with a process that has not read it."""
_MAX_UNREAD_BYTES = 1 << 28
"""The longest line of a reply; a record has at most half of it."""
_SLOW_SECONDS = 1.0
_WATCH_SECONDS = 0.2
_GATHER_SECONDS = 0.002
"""How long quick requests are batched; a batch is what a process answers in that time."""
_MAX_GATHERED = 16
_MAX_PRINTED_BYTES = 1 << 16
_READ_BYTES = 1 << 18
_MEGABYTE = 2**20


class RequestKind(NamedTuple):
    """What all requests of one kind have in common."""

    definition: bytes
    """A JSON object, sent to each process once."""
    name: str
    """The name in error messages."""
    seconds: float
    """How long a request may take between two lines of its reply. Time in which the process waits
    for a CPU does not count, until four times this has passed."""
    memory_mb: float = math.inf
    """How much the resident memory of the process may grow."""
    option: str = ""
    """The option that sets `seconds`, for the error message."""


class ProcessPool:
    """At most `num_workers` processes, started on demand and used by one event loop.

    Each calls `main` of the module with the handle of its socket. `now` is the clock of the limits.
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
        self._dying: set[WorkerProcess] = set()
        """Those that were killed and have not ended yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._is_closed = False

    def warm(self, kind: RequestKind) -> None:
        """Start the first process and have it load a definition, without waiting for it."""
        if not (self._is_closed or self._workers):
            self._start(1)
            for worker in self._workers:
                worker.load(kind)

    async def run(
        self,
        kind: RequestKind,
        record: bytes,
        take: Callable[[list[bytes]], None],
        *,
        when_slow: Callable[[], None] | None = None,
    ) -> None:
        """Send a request to a process and wait for the whole reply.

        If the caller is cancelled, the process is killed. `take` is called with the lines of the
        reply as they arrive, at last with none, and raises a MsgspecError if it cannot read them.
        `when_slow` is called once if the request has not ended within a second.

        Raises:
            VerifierTimeoutError: It took too long.
            VerifierCrashedError: The process died, needed too much memory or sent no proper reply.
            VerifierError: The pool is closed.
        """
        if self._is_closed:
            raise VerifierError(f"{kind.name} was not called: the workers were closed")
        loop = asyncio.get_running_loop()
        slow_at = self.now() + _SLOW_SECONDS
        request = _Request(kind, record, take, when_slow, slow_at, loop.create_future())
        self.queue.append(request)
        if not self._workers:
            self._start(1)
        if self._timer is None:
            self._timer = loop.call_later(_WATCH_SECONDS, self._watch)
        # Slow or of unknown duration: not worth waiting for others of its kind.
        if self.seconds.get(kind.name, math.inf) > _GATHER_SECONDS:
            self.pump()
        elif self._gathering is None:
            self._gathering = loop.call_later(_GATHER_SECONDS, self.pump)
        try:
            await request.ended
        except BaseException:
            # The caller left, or `when_slow` failed: the score is not needed any more.
            if request in self.queue:
                self.queue.remove(request)
            for worker in list(self._workers):
                if worker.requests and worker.requests[0] is request:
                    self.lose(worker)
            raise

    def pump(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        for worker in list(self._workers):
            if self.queue and not worker.requests:
                worker.begin(self.queue)

    def _start(self, num_workers: int) -> None:
        """Have so many processes, or fail the queued requests if there is none and none starts."""
        try:
            while len(self._workers) < min(num_workers, self.num_workers):
                self._workers.append(WorkerProcess(self, self._module, self._variables()))
        except OSError as error:  # memory, processes or descriptors are short
            if not self._workers:
                for request in self.queue:
                    text = f"{request.kind.name}: no process can be started: {error}"
                    request.fail(VerifierError(text))
                self.queue.clear()

    def _watch(self) -> None:
        """Check every busy process; runs several times a second while there are requests."""
        self._timer = None
        for worker in list(self._workers):
            # First what the socket holds: a reply that has arrived is not late.
            worker.read()
            if worker.requests:
                if self.now() - worker.since > _SLOW_SECONDS / 2:  # a measurement takes 0.1 ms
                    worker.measure_cpu_wait()
                self._check(worker, worker.requests[0].kind)
        now = self.now()
        begun = [request for worker in self._workers for request in worker.requests]
        for request in (*self.queue, *begun):
            if now >= request.slow_at:
                request.tell_slow()
        # An idle process takes a request within milliseconds, so all are busy: start more.
        if self.queue and not any(worker.num_loading for worker in self._workers):
            self._start(len(self._workers) + len(self.queue))
        self.pump()
        if self.queue or self._dying or any(worker.requests for worker in self._workers):
            self._timer = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._watch)

    def _check(self, worker: WorkerProcess, kind: RequestKind) -> None:
        limit, option = kind.seconds, kind.option
        if worker.num_loading:
            limit, option = _START_SECONDS, "to be imported"
        seconds = self.now() - worker.since
        if seconds - worker.cpu_wait > limit or seconds > MAX_STRETCH * limit:
            text = f"{kind.name} took longer than {limit:g} seconds {option}".rstrip()
            self.lose(worker, VerifierTimeoutError(text))
        elif not worker.num_loading and worker.grown_bytes() > kind.memory_mb * _MEGABYTE:
            text = f"{kind.memory_mb:g} MB of memory (verify_memory_mb)"
            self.lose(worker, VerifierCrashedError(f"{kind.name} needed more than {text}"))

    def lose(self, worker: WorkerProcess, error: VerifierError | None = None) -> None:
        """Kill a process; at its end, fail the request that is still unanswered."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._dying.add(worker)
        # All but the first have not begun: another process takes them.
        while len(worker.requests) > 1:
            self.queue.appendleft(worker.requests.pop())
        worker.ended.add_done_callback(lambda ended: self._replace(worker, ended.result(), error))
        worker.kill()

    def _replace(self, worker: WorkerProcess, how: str, error: VerifierError | None) -> None:
        """Fail the request that a process has left unanswered, and start another process."""
        self._dying.discard(worker)
        request = worker.requests.popleft() if worker.requests else None
        if request is None or request.ended.done():
            pass
        elif not error and request.num_losses < _MAX_LOSSES and not worker.has_read():
            request.num_losses += 1
            self.queue.appendleft(request)
        else:
            text = f"{request.kind.name}: its process died ({how})"
            request.fail(error or VerifierCrashedError(text))
        if self.queue:
            self._start(1)
            self.pump()

    async def close(self) -> None:
        self._is_closed = True
        for timer in (self._timer, self._gathering):
            if timer is not None:
                timer.cancel()
        workers, self._workers = [*self._workers, *self._dying], []
        for worker in workers:
            if worker.requests or worker.num_loading:
                worker.kill()
            else:
                worker.leave()
            request, *waiting = worker.requests or (None,)
            worker.requests.clear()
            if request is not None:
                text = f"{request.kind.name} was cut off: the workers were closed"
                request.fail(VerifierError(text))
            self.queue.extend(waiting)
        for request in self.queue:
            text = f"{request.kind.name} was not called: the workers were closed"
            request.fail(VerifierError(text))
        self.queue.clear()
        for worker in workers:
            await worker.ended


@dataclass(eq=False)
class _Request:
    kind: RequestKind
    record: bytes
    take: Callable[[list[bytes]], None]
    when_slow: Callable[[], None] | None
    slow_at: float
    ended: asyncio.Future[None]
    num_losses: int = 0
    """How many processes have died before they read it."""

    def tell_slow(self) -> None:
        """Call `when_slow` once; an error in it fails the request."""
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
    """One process of a pool, its socket and the requests that it was sent."""

    def __init__(self, pool: ProcessPool, module: str, variables: Mapping[str, str]) -> None:
        self.requests: deque[_Request] = deque()
        """It works on the first and has not begun the others."""
        self.began = self.since = pool.now()
        """When it began the first request, and when it sent the last line."""
        self.num_loading = 0
        """How many definitions it has yet to load."""
        self.has_served = False
        self._has_unread = False
        """Whether it ended before it had read all data (known on Linux only)."""
        self.cpu_wait = 0.0
        """For how many seconds since `since` it, its threads or its children waited for a CPU."""
        self._pool = pool
        self._numbers: dict[bytes, int] = {}
        self._unread = bytearray()
        """The start of a line, whose rest has not arrived."""
        self._is_unreadable = False
        self._unsent = bytearray()
        self._unprinted = b""
        self._first_bytes = 0
        """Its resident memory in bytes after it loaded the last definition."""
        self._cpu_waits: dict[int, float] = {}
        self._measured_since = 0.0
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """How it ended, once it has."""
        self._socket, child_socket = socket_pair()
        printed, prints = os.pipe()
        self._printed = os.fdopen(out_of_reach(printed), "rb", buffering=0)
        try:
            with child_socket:
                self.process = fork(module, child_socket.fileno(), prints, variables)
        except BaseException:
            self._socket.close()
            self._printed.close()
            raise
        finally:
            os.close(prints)
        self._socket.setblocking(False)
        os.set_blocking(self._printed.fileno(), False)
        self._loop.add_reader(self._socket.fileno(), self.read)
        self.write(self.process.preface)
        self._loop.add_reader(self._printed, self._print)
        self.process.ended.add_done_callback(self._call_end)

    def begin(self, queue: deque[_Request]) -> None:
        """Send the next request to an idle process, and more of its kind if they are quick."""
        kind = queue[0].kind
        self.began = self.since = self._pool.now()
        if kind.definition not in self._numbers:
            self.load(kind)
        number = self._numbers[kind.definition]
        max_requests = _GATHER_SECONDS / max(self._pool.seconds.get(kind.name, math.inf), 1e-6)
        lines: list[bytes] = []
        while queue and queue[0].kind.definition == kind.definition:
            request = queue.popleft()
            self.requests.append(request)
            lines.append(b"%d %b\n" % (number, request.record))
            if len(lines) >= min(max_requests, _MAX_GATHERED):
                break
        self.write(b"".join(lines))

    def load(self, kind: RequestKind) -> None:
        self._numbers[kind.definition] = len(self._numbers)
        self.num_loading += 1
        self.write(kind.definition + b"\n")

    def _take_lines(self, lines: list[bytes]) -> None:
        self.since = now = self._pool.now()
        while self.num_loading and lines and lines[0] == READY:
            self.num_loading -= 1
            self._first_bytes = self._resident_bytes()
            del lines[0]
        if lines and (self.num_loading or not self.requests):
            raise msgspec.DecodeError  # nobody has asked for a line
        reply: list[bytes] = []
        for line in lines:
            if line != DONE:
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
        """Send data; the rest is sent later if the socket's buffer is full."""
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                pass
            except OSError:  # the process has ended; `read` will notice
                self._has_unread = True
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
        """Handle received data, if any; return whether there may be more."""
        if self.ended.done():
            return False
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            # Linux resets the socket if the process exits with unread data in its buffer.
            self._has_unread |= isinstance(error, ConnectionResetError)
            data = b""
        if not data:
            self._loop.remove_reader(self._socket.fileno())
            self._pool.lose(self)
            return False
        if self._is_unreadable:
            return True
        self._unread += data
        try:
            if b"\n" in data:
                *lines, unfinished = bytes(self._unread).split(b"\n")
                self._unread[:] = unfinished
                self._take_lines(lines)
            if len(self._unread) > _MAX_UNREAD_BYTES:
                raise msgspec.DecodeError
        except msgspec.MsgspecError:
            self._is_unreadable = True
            self._unread.clear()
            name = self.requests[0].kind.name if self.requests else "a worker"
            text = f"{name}: its process sent a reply that cannot be read"
            self._pool.lose(self, VerifierCrashedError(text))
        return True

    def grown_bytes(self) -> int:
        """Return by how much the memory of the process grew since it loaded a definition."""
        self._first_bytes = self._first_bytes or self._resident_bytes()
        return self._resident_bytes() - self._first_bytes

    def _resident_bytes(self) -> int:
        """Return the resident memory of the process in bytes; 0 without /proc."""
        try:
            pages = Path(f"/proc/{self.process.process}/statm").read_bytes().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * resource.getpagesize()

    def measure_cpu_wait(self) -> None:
        """Add to `cpu_wait` what has passed since the last call without a CPU.

        The threads that wait at the same time do not add up: the longest wait counts.
        """
        before = self._cpu_waits
        self._cpu_waits = cpu_waits(self.process.process) if self.process.process else {}
        if self._measured_since != self.since:
            self._measured_since, self.cpu_wait = self.since, 0.0
            return
        added = (wait - before.get(thread, 0.0) for thread, wait in self._cpu_waits.items())
        self.cpu_wait += max(added, default=0.0)

    def has_read(self) -> bool:
        """Return whether it may have read its request before it ended."""
        return bool(self.process.process) and not (self.has_served and self._has_unread)

    def kill(self) -> None:
        """Kill the process and its children; `ended` follows."""
        if self.ended.done():
            return
        self.process.kill()
        if self.process.process:
            self._loop.call_later(_KILL_SECONDS, self._end, "and it cannot be killed")
        else:  # the fork server may still be importing
            self._loop.call_soon(self._end, "before it started")

    def leave(self) -> None:
        """Have an idle process end by itself, and kill it after two seconds; `ended` follows."""
        if self.ended.done():
            return
        with suppress(OSError):  # the process has closed its end already
            # `main` ends when it has read everything.
            self._socket.shutdown(socket.SHUT_WR)
        self._loop.call_later(_LEAVE_SECONDS, self.kill)

    def _call_end(self, ended: Future[int]) -> None:
        """Have the event loop note the end of the process; runs in another thread."""
        code = ended.result()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end, how)

    def _end(self, how: str) -> None:
        """Read the last lines of the process, and close what is left of it."""
        if self.ended.done():
            return
        while self.read():
            pass
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        while not self._printed.closed and self._print():
            pass
        self._stop_printing()
        self.ended.set_result(how)
        self._pool.lose(self)

    def _print(self) -> bool:
        """Copy the output of the process to our stderr, which redacts secrets."""
        data = self._printed.read(_MAX_PRINTED_BYTES)
        if data is None:
            return False
        if data:
            *lines, unfinished = (self._unprinted + data).split(b"\n")
            if len(unfinished) > _MAX_PRINTED_BYTES:
                lines, unfinished = [*lines, unfinished], b""
        else:
            lines, unfinished = [self._unprinted] if self._unprinted else [], b""
            self._stop_printing()
        self._unprinted = unfinished
        with suppress(OSError, ValueError):  # stderr is closed, or its reader is gone
            for line in lines:
                sys.stderr.write(line.decode(errors="replace") + "\n")
            sys.stderr.flush()
        return bool(data)

    def _stop_printing(self) -> None:
        if not self._printed.closed:
            self._loop.remove_reader(self._printed)
            self._printed.close()


class CodeReference(NamedTuple):
    """Where another process finds a class or a function."""

    module: str
    file: str
    """The file of a module that is not importable by name; else empty."""
    qualname: str


def code_reference(target: object) -> CodeReference | None:
    """Return where another process finds a class or a function; None if it cannot."""
    module = getattr(target, "__module__", None) or ""
    qualname = getattr(target, "__qualname__", None) or ""
    named_object: object = sys.modules.get(module)
    for part in qualname.split("."):
        named_object = getattr(named_object, part, None)
    # Every process has its own __main__.
    if named_object is not target or not qualname or module == "__main__":
        return None
    file = str(sys.modules[module].__file__) if module.startswith(FILE_MODULE_PREFIX) else ""
    return CodeReference(module, file, qualname)


def load_code(code: CodeReference) -> object:
    if code.file:
        module = module_of_file(Path(code.file), code.file)
    else:
        module = importlib.import_module(code.module)
    return operator.attrgetter(code.qualname)(module)
