"""A fork server: worker processes start fast, since their parent has done the imports.

Imports take half a second, a fork some milliseconds. Each worker module has its own server, which
later runs of this process reuse. The server is the parent of its forks and kills them all when
this process is gone, even if a C call holds their GIL.

Nothing here waits for the server, which may still be importing: a request fits into the buffer of
its socket, and a thread reads its reports. A request is the number of a fork and the length of its
preface, with two handles, or without handles to kill it. A report is a line, `NUMBER PROCESS` of a
new fork (0: it failed) or `NUMBER PROCESS EXIT_CODE` of one that ended.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path

from gymcli.store.supervised import out_of_reach

_COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from gymcli.rollout.fork_server import serve
serve(int(sys.argv[1]), sys.argv[2])
"""

_REQUEST = struct.Struct("=qq")
"""The number of a fork, and the length of its preface."""
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
    `main` receives a copy of the socket `handle`, once the caller has sent `Fork.preface` to its
    other end. The output of the process goes to the handle `printed`.
    """
    try:
        directory = str(Path.cwd())
    except OSError:  # it was removed
        directory = ""
    path = [str(folder) for folder in sys.path]
    preface = json.dumps((dict(variables), path, directory)).encode()
    return _server_of(module, variables).fork(preface, (handle, printed))


class Fork:
    """A process that a server forked."""

    def __init__(self, server: _ForkServer, number: int, preface: bytes) -> None:
        self.number = number
        self.preface = preface
        """What the caller sends first: the variables, `sys.path` and directory of the process."""
        self.process = 0
        """Its id; 0 until the server reports it, and when the fork failed."""
        self.ended: Future[int] = Future()
        """Its exit code, negative for a signal; set in another thread. If the server is gone, its
        forks are too, as if killed."""
        self._server = server

    def kill(self) -> None:
        """Have the process and its process group killed, without waiting for it."""
        if not self.ended.done():
            self._server.request(self.number)


class _ForkServer:
    """The server process and the socket to it; the process ends when the socket closes."""

    def __init__(self, module: str, variables: Mapping[str, str]) -> None:
        self._names = frozenset(variables)
        self._control, server_socket = socket_pair()
        # With the same `sys.path` the server can import whatever this process can.
        arguments = (str(server_socket.fileno()), module, *map(str, sys.path))
        try:
            with server_socket:
                self._process = subprocess.Popen(  # noqa: S603  # this interpreter, our own module
                    [sys.executable, "-P", "-c", _COMMAND, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=variables,
                    pass_fds=(server_socket.fileno(),),
                    start_new_session=True,  # Ctrl-C is the parent's to decide about
                )
        except BaseException:
            self._control.close()
            raise
        self._numbers = count()
        self._forks: dict[int, Fork] = {}
        """Those that have not ended."""
        self._is_alive = True
        self._is_retired = False
        _alive.add(self)
        self._reading = threading.Thread(target=self._read_reports, daemon=True)
        self._reading.start()

    def can_fork(self, variables: Mapping[str, str]) -> bool:
        """Return whether it is alive and has no variable that `variables` lacks."""
        return self._is_alive and self._names <= variables.keys()

    def fork(self, preface: bytes, handles: tuple[int, int]) -> Fork:
        fork = Fork(self, next(self._numbers), preface)
        self._forks[fork.number] = fork
        self.request(fork.number, len(preface), handles)
        if not self._is_alive:
            self._end_forks()
        return fork

    def request(self, number: int, length: int = 0, handles: tuple[int, ...] = ()) -> None:
        """Request a fork with a preface of this length, or without handles the end of one."""
        try:
            data = [_REQUEST.pack(number, length)]
            socket.send_fds(self._control, data, handles, socket.MSG_DONTWAIT)
        except OSError:  # it has ended, or has left hundreds of requests unread
            self._is_alive = False
            self._process.kill()

    def retire(self) -> None:
        """End the server when its forks have ended."""
        self._is_retired = True
        if not self._forks:
            self._process.kill()

    def end(self) -> None:
        with suppress(OSError):  # it is gone
            self._control.shutdown(socket.SHUT_RDWR)
        self.retire()  # it may still be importing
        self._reading.join(_END_SECONDS)
        self._process.kill()
        self._reading.join(_END_SECONDS)

    def leave(self) -> None:
        """Close the socket in a forked copy of this process, which would steal the reports."""
        os.close(self._control.detach())

    def _read_reports(self) -> None:
        """Note what the server reports until it ends; runs in a thread."""
        try:
            for line in self._control.makefile("rb"):
                self._note(*map(int, line.split()))
        except (OSError, LookupError, TypeError, ValueError):
            self._process.kill()  # whatever follows an unreadable report is unreadable, too
        self._is_alive = False
        self._process.wait()
        self._end_forks()
        self._control.close()
        _alive.discard(self)

    def _note(self, number: int, process: int, *codes: int) -> None:
        fork = self._forks[number]
        fork.process = process
        if codes or not process:
            del self._forks[number]
            fork.ended.set_result(codes[0] if codes else -signal.SIGKILL)
            if self._is_retired:
                self.retire()

    def _end_forks(self) -> None:
        # Perhaps in two threads: one of them removes a fork.
        with suppress(KeyError):
            while True:
                _, fork = self._forks.popitem()
                if fork.process:
                    _kill(fork.process)
                fork.ended.set_result(-signal.SIGKILL)


_servers: dict[str, _ForkServer] = {}
"""Those that fork, by module."""
_alive: set[_ForkServer] = set()
_starting = threading.Lock()


def _server_of(module: str, variables: Mapping[str, str]) -> _ForkServer:
    with _starting:
        server = _servers.get(module)
        if server is None or not server.can_fork(variables):
            if server is not None:
                server.retire()
            server = _servers[module] = _ForkServer(module, variables)
        return server


def forget_fork_servers() -> None:
    """Fork from new servers, which have another hash seed; the old ones end with their forks."""
    with _starting:
        while _servers:
            _servers.popitem()[1].retire()


@atexit.register
def _end_servers() -> None:
    for server in list(_alive):
        server.end()


def _leave_servers() -> None:
    _servers.clear()
    while _alive:
        _alive.pop().leave()


os.register_at_fork(after_in_child=_leave_servers)


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
    parent_socket, child_socket = socket.socketpair()
    return socket.socket(fileno=out_of_reach(parent_socket.detach())), child_socket


def serve(handle: int, module: str) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a starting run blocks some signals
    control = socket.socket(fileno=handle)
    main = importlib.import_module(module).main
    # Otherwise each fork walks through all that was imported when it ends: most of its CPU time.
    gc.freeze()
    arrivals, wake_up = os.pipe()
    os.set_blocking(arrivals, False)
    os.set_blocking(wake_up, False)
    signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _do_nothing)
    inputs = select.poll()
    inputs.register(control, select.POLLIN)
    inputs.register(arrivals, select.POLLIN)
    processes: dict[int, int] = {}
    while True:
        ready = [descriptor for descriptor, _ in inputs.poll()]
        if control.fileno() in ready:
            try:
                request, handles, *_ = socket.recv_fds(control, _REQUEST.size, 2)
            except ConnectionError:
                break
            if len(request) < _REQUEST.size:
                break  # the parent is gone, or its code writes to every descriptor
            number, length = _REQUEST.unpack(request)
            if handles:
                process = _forked()
                if not process:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(arrivals)
                    os.close(wake_up)
                    control.close()
                    main(_become(length, *handles))
                    return
                for descriptor in handles:
                    os.close(descriptor)
                if process > 0:
                    processes[number] = process
                _report(control, number, max(process, 0))
            elif number in processes:
                _kill(processes[number])
        with suppress(BlockingIOError):
            os.read(arrivals, 1024)
        _report_ends(control, processes)
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


def _report_ends(control: socket.socket, processes: dict[int, int]) -> None:
    for number, process in list(processes.items()):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            del processes[number]
            _kill_group(process)  # its surviving children
            _report(control, number, process, os.waitstatus_to_exitcode(status))


def _report(control: socket.socket, *numbers: int) -> None:
    with suppress(ConnectionError):  # the parent is gone; the next read ends the loop
        control.sendall(b" ".join(b"%d" % number for number in numbers) + b"\n")


def _become(length: int, handle: int, printed: int) -> int:
    """Make a forked copy of the server look like a new process, and return its socket."""
    channel = socket.socket(fileno=out_of_reach(handle))
    preface = channel.recv(length, socket.MSG_WAITALL)
    if len(preface) < length:
        os._exit(1)  # the parent has closed the socket
    variables, path, directory = json.loads(preface)
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
    # A program that a verifier starts must not hold the socket open.
    channel.set_inheritable(False)
    return channel.detach()
