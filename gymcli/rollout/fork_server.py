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
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path

from gymcli.store.supervised import out_of_reach

__all__ = ["Fork", "forget_fork_servers", "fork", "serve", "socket_pair", "start_fork_server"]

_COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from gymcli.rollout.fork_server import serve
serve(int(sys.argv[1]), sys.argv[2])
"""

_REQUEST = struct.Struct("=qq")
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
        self.preface = preface
        self.process = 0
        """Its id; 0 until the server reports it, and when the fork failed."""
        self.ended: Future[int] = Future()
        """Its exit code, negative for a signal; set in another thread. If the server is gone, its
        forks are too, as if killed."""
        self._server = server
        self.number = number

    def kill(self) -> None:
        """Have the process and its process group killed, without waiting for it."""
        if not self.ended.done():
            self._server.request(self.number)


class _Forks:
    """The forks of a server that have not ended, by number."""

    def __init__(self) -> None:
        self.has_server = True
        self.running: dict[int, Fork] = {}

    def add(self, number: int, fork: Fork) -> None:
        self.running[number] = fork
        if not self.has_server:
            self.end()

    def note(self, number: int, process: int, *codes: int) -> None:
        """Note a report of the server."""
        fork = self.running[number]
        fork.process = process
        if codes or not process:
            del self.running[number]
            fork.ended.set_result(codes[0] if codes else -signal.SIGKILL)

    def end(self) -> None:
        """Kill the forks that a dead server has left."""
        self.has_server = False
        # Perhaps in two threads: one of them removes a fork.
        with suppress(KeyError):
            while True:
                _, fork = self.running.popitem()
                if fork.process:
                    _kill(fork.process)
                fork.ended.set_result(-signal.SIGKILL)


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
        self._control = control
        self._numbers = count()
        self._forks = _Forks()
        # It does not refer to this object, which would live as long as the thread does.
        reading = threading.Thread(
            target=_read_reports, args=(control, self._process, self._forks), daemon=True
        )
        reading.start()
        weakref.finalize(self, _end, os.getpid(), self._process, self._forks, control, reading)

    def can_fork(self, variables: Mapping[str, str]) -> bool:
        """Return whether it is alive and has no variable that `variables` lacks."""
        return self._forks.has_server and self._names <= variables.keys()

    def fork(self, preface: bytes, handles: tuple[int, int]) -> Fork:
        """Start a process."""
        fork = Fork(self, next(self._numbers), preface)
        self._forks.add(fork.number, fork)
        self.request(fork.number, len(preface), handles)
        return fork

    def request(self, number: int, length: int = 0, handles: tuple[int, ...] = ()) -> None:
        """Request a fork with a preface of this length, or without handles the end of one."""
        try:
            data = [_REQUEST.pack(number, length)]
            socket.send_fds(self._control, data, handles, socket.MSG_DONTWAIT)
        except OSError:  # it has ended, or has left hundreds of requests unread
            self._forks.has_server = False
            self._process.kill()


def _read_reports(control: socket.socket, process: subprocess.Popen[bytes], forks: _Forks) -> None:
    """Note what a server reports until it ends; runs in a thread."""
    try:
        for line in control.makefile("rb"):
            forks.note(*map(int, line.split()))
    except (OSError, LookupError, TypeError, ValueError):
        process.kill()  # whatever follows an unreadable report is unreadable, too
    forks.has_server = False
    process.wait()
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
    forks: _Forks,
    control: socket.socket,
    reading: threading.Thread,
) -> None:
    if os.getpid() != owner:  # a forked copy, which has no such thread
        os.close(control.detach())
        return
    with suppress(OSError):  # the server is gone
        control.shutdown(socket.SHUT_RDWR)
    if not forks.running:
        process.kill()  # it may still be importing
    if reading is not threading.current_thread():
        reading.join(_END_SECONDS)  # so that no process outlives this one
        process.kill()
        reading.join(_END_SECONDS)
    control.close()


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
