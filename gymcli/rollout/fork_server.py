"""A fork server: worker processes start fast, since their parent has done the imports.

Imports take half a second, a fork some milliseconds. Each worker module has its own server, which
later runs of this process reuse. The server is the parent of its forks and kills them all when
this process is gone, even if a C call holds their GIL.

Nothing here waits for the server, which may still be importing: threads send it requests and read
its reports. The protocol is lines. A request is `[NUMBER, VARIABLES, PATH, DIRECTORY]` with two
handles, for a fork, or `[NUMBER]`, to kill it. A report is `NUMBER PROCESS` of a new fork (0: it
failed) or `NUMBER PROCESS EXIT_CODE` of one that ended.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from gymcli.store.supervised import out_of_reach

__all__ = ["Fork", "forget_fork_servers", "fork", "serve", "socket_pair", "start_fork_server"]

_COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from gymcli.rollout.fork_server import serve
serve(int(sys.argv[1]), sys.argv[2])
"""

_END_SECONDS = 10.0
"""How long a server may take to end: while it imports, it reads nothing."""


def start_fork_server(module: str) -> None:
    """Start the fork server of a module early, so that its imports run meanwhile."""
    with suppress(OSError):
        for descriptor in range(3):  # a closed one is reported elsewhere
            os.fstat(descriptor)
        _server_of(module, os.environ)


def fork(module: str, handle: int, printed: int, variables: Mapping[str, str]) -> Fork:
    """Start a process that calls a module's `main`, without waiting for it.

    The process leads a new session and has the working directory and `sys.path` of this process.
    `main` receives a copy of the socket `handle`; its output goes to the handle `printed`.
    """
    return _server_of(module, variables).fork((handle, printed), variables)


class Fork:
    """A process that a server forked."""

    def __init__(self, server: _ForkServer, number: int) -> None:
        self.process = 0
        """Its id; 0 until the server reports it, and when the fork failed."""
        self.ended: Future[int] = Future()
        """Its exit code, negative for a signal; set in another thread. If the server is gone, its
        forks are too, as if killed."""
        self._server = server
        self._number = number

    def kill(self) -> None:
        """Have the process and its process group killed, without waiting for it."""
        if not self.ended.done():
            self._server.kill(self._number)


class _Request(NamedTuple):
    """What is sent to a server; the handles are closed then."""

    message: list[object]
    handles: tuple[int, ...] = ()


class _Forks:
    """The forks of a server that have not ended, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forks: dict[int, Fork] = {}
        self.has_server = True

    def add(self, number: int, forked: Fork) -> None:
        with self._lock:
            if self.has_server:
                self._forks[number] = forked
                return
        forked.ended.set_result(-signal.SIGKILL)

    def note(self, number: int, process: int, *codes: int) -> None:
        """Note a report of the server."""
        forked = self._forks[number]
        forked.process = process
        if codes or not process:
            del self._forks[number]
            forked.ended.set_result(codes[0] if codes else -signal.SIGKILL)

    def end(self) -> None:
        """Kill the forks that a dead server has left."""
        with self._lock:
            self.has_server = False
        for forked in self._forks.values():
            if forked.process:
                _kill(forked.process)
            forked.ended.set_result(-signal.SIGKILL)
        self._forks.clear()


class _ForkServer:
    """The server process and the socket to it; the process ends when the socket closes."""

    def __init__(self, module: str, variables: Mapping[str, str]) -> None:
        self._names = frozenset(variables)
        control, theirs = socket_pair()
        # With the same `sys.path` the server can import whatever this process can.
        arguments = (str(theirs.fileno()), module, *map(str, sys.path))
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603  # this interpreter, our own module
                    [sys.executable, "-P", "-c", _COMMAND, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=variables,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is the parent's to decide about
                )
        except BaseException:
            control.close()
            raise
        self._numbers = count()
        self._forks = _Forks()
        self._has_forked = threading.Event()
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        # Neither thread refers to this object, which would live as long as they do.
        reading = threading.Thread(
            target=_read_reports, args=(control, self._process, self._forks), daemon=True
        )
        reading.start()
        threading.Thread(target=_send, args=(control, self._requests), daemon=True).start()
        weakref.finalize(
            self,
            _end,
            os.getpid(),
            self._process,
            self._has_forked,
            control,
            self._requests,
            reading,
        )

    def can_fork(self, variables: Mapping[str, str]) -> bool:
        """Return whether it is alive and has no variable that `variables` lacks."""
        is_alive = self._forks.has_server and self._process.poll() is None
        return is_alive and self._names <= variables.keys()

    def fork(self, handles: tuple[int, int], variables: Mapping[str, str]) -> Fork:
        """Start a process."""
        try:
            directory = str(Path.cwd())
        except OSError:  # it was removed
            directory = ""
        number = next(self._numbers)
        message = [number, dict(variables), [str(path) for path in sys.path], directory]
        forked = Fork(self, number)
        self._has_forked.set()
        self._forks.add(number, forked)
        # The caller closes its handles, perhaps before the request is sent.
        self._requests.put(_Request(message, tuple(map(os.dup, handles))))
        return forked

    def kill(self, number: int) -> None:
        """Kill a fork."""
        self._requests.put(_Request([number]))


def _send(control: socket.socket, requests: SimpleQueue[_Request | None]) -> None:
    """Send requests to a server; runs in a thread, since the server may read nothing for long."""
    while (request := requests.get()) is not None:
        data = json.dumps(request.message).encode() + b"\n"
        with suppress(OSError):  # the server has ended, which `_read_reports` notices
            if request.handles:
                data = data[socket.send_fds(control, [data], request.handles) :]
            control.sendall(data)
        for handle in request.handles:
            os.close(handle)


def _read_reports(control: socket.socket, process: subprocess.Popen[bytes], forks: _Forks) -> None:
    """Note what a server reports until it ends; runs in a thread."""
    data = b""
    try:
        while received := control.recv(1 << 16):
            *lines, data = (data + received).split(b"\n")
            for line in lines:
                forks.note(*map(int, line.split()))
    except (OSError, LookupError, TypeError, ValueError):
        process.kill()  # whatever follows an unreadable report is unreadable, too
    process.wait()
    control.close()
    forks.end()


_servers: dict[str, _ForkServer] = {}
_starting = threading.Lock()


def forget_fork_servers() -> None:
    """Fork from new servers, which have another hash seed; the old ones end with their forks."""
    _servers.clear()


# A forked copy of this process shares the sockets and would steal the replies.
os.register_at_fork(after_in_child=forget_fork_servers)


def _server_of(module: str, variables: Mapping[str, str]) -> _ForkServer:
    with _starting:
        server = _servers.get(module)
        if server is None or not server.can_fork(variables):
            server = _servers[module] = _ForkServer(module, variables)
        return server


def _end(
    owner: int,
    process: subprocess.Popen[bytes],
    has_forked: threading.Event,
    control: socket.socket,
    requests: SimpleQueue[_Request | None],
    reading: threading.Thread,
) -> None:
    if os.getpid() != owner:  # a forked copy, which has none of the threads
        control.close()
        return
    requests.put(None)
    with suppress(OSError):  # the server is gone
        control.shutdown(socket.SHUT_RDWR)
    if not has_forked.is_set():
        process.kill()  # it may still be importing
    # Not imported: that would delay the start of the first server.
    events = sys.modules.get("asyncio.events")
    is_in_loop = events is not None and events._get_running_loop() is not None  # noqa: SLF001
    if not is_in_loop and reading is not threading.current_thread():
        reading.join(_END_SECONDS)  # so that no process outlives this one
        process.kill()


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):  # first by id: a young process may lead no group yet
        os.kill(process, signal.SIGKILL)
    _kill_group(process)


def _kill_group(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: all ended, on macOS
        os.killpg(process, signal.SIGKILL)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, the first out of the reach of environment code."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a closed standard descriptor, which no socket may get
    os.close(number)
    ours, theirs = socket.socketpair()
    return socket.socket(fileno=out_of_reach(ours.detach())), theirs


def serve(handle: int, module: str) -> None:
    """Serve fork and kill requests until the socket closes."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a starting run blocks some signals
    control = socket.socket(fileno=handle)
    main = importlib.import_module(module).main
    arrivals, wake_up = os.pipe()
    os.set_blocking(arrivals, False)
    os.set_blocking(wake_up, False)
    signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _do_nothing)
    inputs = select.poll()
    inputs.register(control, select.POLLIN)
    inputs.register(arrivals, select.POLLIN)
    requests = _Requests(control)
    processes: dict[int, int] = {}
    while not requests.are_over:
        ready = [descriptor for descriptor, _ in inputs.poll()]
        if control.fileno() in ready:
            for (number, *parts), handles in requests.receive():
                if not parts:
                    if number in processes:
                        _kill(processes[number])
                    continue
                process = _forked()
                if not process:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(arrivals)
                    os.close(wake_up)
                    control.close()
                    main(_become(*parts, *handles))
                    return
                for descriptor in handles:
                    os.close(descriptor)
                if process > 0:
                    processes[number] = process
                _report(control, number, max(process, 0))
        with suppress(BlockingIOError):
            os.read(arrivals, 1024)
        for number, process in list(processes.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del processes[number]
                _kill_group(process)  # its surviving children
                _report(control, number, process, os.waitstatus_to_exitcode(status))
    for process in processes.values():
        _kill(process)
    os._exit(0)


def _do_nothing(*_: object) -> None:
    pass  # the wake-up descriptor ends the wait


def _forked() -> int:
    """Fork and return the new process's id, 0 in the fork itself, -1 if it failed."""
    try:
        return os.fork()
    except OSError as error:
        sys.stderr.write(f"a worker cannot be started: {error}\n")
        return -1


def _report(control: socket.socket, *numbers: int) -> None:
    with suppress(ConnectionError):  # the parent is gone; the next read ends the loop
        control.sendall(b" ".join(b"%d" % number for number in numbers) + b"\n")


class _Requests:
    """The requests that a server receives."""

    def __init__(self, control: socket.socket) -> None:
        self.are_over = False
        """Whether the parent is gone, or has sent what is no request."""
        self._control = control
        self._data = b""
        self._handles: list[int] = []

    def receive(self) -> list[tuple[list[Any], list[int]]]:
        """Return the requests that have arrived whole, each with its handles."""
        try:
            received, handles, *_ = socket.recv_fds(self._control, 1 << 16, 2)
        except ConnectionError:
            received, handles = b"", []
        self.are_over = not received
        self._handles += handles
        *lines, self._data = (self._data + received).split(b"\n")
        requests = []
        for line in lines:
            try:
                number, *parts = json.loads(line)
            except (TypeError, ValueError):  # of code that writes to every descriptor
                self.are_over = True
                break
            num_handles = 2 if parts else 0
            requests.append(([number, *parts], self._handles[:num_handles]))
            del self._handles[:num_handles]
        return requests


def _become(
    variables: dict[str, str], path: list[str], directory: str, handle: int, printed: int
) -> int:
    """Make a forked copy of the server look like a new process, and return its socket."""
    # A separate session: Ctrl-C does not reach it, and `_kill_group` reaches its children too.
    os.setsid()
    with suppress(OSError):  # the parent's directory may be gone
        os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    # Files may have been written since the server imported its modules.
    importlib.invalidate_caches()
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.close(printed)
    handle = out_of_reach(handle)
    # A program that a verifier starts must not hold the socket open.
    os.set_inheritable(handle, False)
    return handle
