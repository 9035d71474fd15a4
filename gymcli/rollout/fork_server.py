"""A fork server: worker processes start fast, since their parent has done the imports.

Imports take half a second, a fork some milliseconds. Each worker module has its own server, which
later runs of this process reuse. The server is the parent of its forks and kills them all when
this process is gone, even if a C call holds their GIL.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Fork", "forget_fork_servers", "fork", "serve", "start_fork_server"]

_COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from gymcli.rollout.fork_server import serve
serve(int(sys.argv[1]), sys.argv[2])
"""


_NONE = -1
"""The process id that reports a failed fork."""


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

    def __init__(self, server: _ForkServer) -> None:
        self._server = server
        self.process = 0
        """Its id; 0 while it is unknown, and when the fork failed."""
        self._code: int | None = None

    def pid(self) -> int:
        """Wait for the server's import and return the process id; 0 if the fork failed."""
        self._server.settle()
        return self.process

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._end(os.WNOHANG)

    def kill(self) -> int:
        """Kill the process and its process group, and return its exit code."""
        if self._code is None and (process := self.pid()):
            _kill(process)
        code = self._end(0)
        return -signal.SIGKILL if code is None else code

    def _end(self, flags: int) -> int | None:
        if self._code is None:
            process = self.pid()
            reply = self._server.ask(process, flags) if process else b""
            # An empty reply: the server is gone, and its forks with it.
            self._code = int(reply) if reply.strip() else None if reply else -signal.SIGKILL
        return self._code


class _ForkServer:
    """The server process and the socket to it; the process ends when the socket closes."""

    def __init__(self, module: str, variables: Mapping[str, str]) -> None:
        self._names = frozenset(variables)
        fill_standard()
        self._control, theirs = socket.socketpair()
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
            self._control.close()
            raise
        self._replies = self._control.makefile("rb")
        self._unsettled: deque[Fork] = deque()
        self._lock = threading.RLock()  # event loops of several threads may use it
        self._has_forked = threading.Event()
        weakref.finalize(self, _end, self._process, self._has_forked, self._control, self._replies)

    def can_fork(self, variables: Mapping[str, str]) -> bool:
        """Return whether it is alive and has no variable that `variables` lacks."""
        return self._process.poll() is None and self._names <= variables.keys()

    def fork(self, handles: tuple[int, int], variables: Mapping[str, str]) -> Fork:
        """Start a process."""
        try:
            directory = str(Path.cwd())
        except OSError:  # it was removed
            directory = ""
        request = (dict(variables), [str(path) for path in sys.path], directory)
        forked = Fork(self)
        self._has_forked.set()
        with self._lock:
            data = json.dumps(request).encode() + b"\n"
            with suppress(OSError):  # the server has ended; the empty reply will show it
                sent = socket.send_fds(self._control, [data], handles)
                self._control.sendall(data[sent:])
            self._unsettled.append(forked)
        return forked

    def ask(self, process: int, flags: int) -> bytes:
        """Wait for a process; return its exit code, an empty line if it runs, or b"" on failure."""
        with self._lock:
            self.settle()
            with suppress(OSError):
                self._control.sendall(b"%s\n" % json.dumps((process, flags)).encode())
            return self._reply()

    def settle(self) -> None:
        """Read the ids of newly started processes."""
        with self._lock:
            while self._unsettled:
                self._unsettled[0].process = max(0, int(self._reply() or _NONE))
                self._unsettled.popleft()

    def _reply(self) -> bytes:
        try:
            return self._replies.readline()
        except (OSError, ValueError):  # ValueError: closed, since this process ends
            return b""


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


def _end(process: subprocess.Popen[bytes], has_forked: threading.Event, *sockets: Any) -> None:
    for one in sockets:
        one.close()
    if not has_forked.is_set():
        process.kill()  # it may still be importing
    process.wait()


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):  # first by id: a young process may lead no group yet
        os.kill(process, signal.SIGKILL)
    _kill_group(process)


def _kill_group(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: all ended, on macOS
        os.killpg(process, signal.SIGKILL)


def fill_standard() -> None:
    """Open closed standard descriptors, so that no socket is assigned one of them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def serve(handle: int, module: str) -> None:
    """Serve fork and wait requests until the socket closes."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a starting run blocks some signals
    control = socket.socket(fileno=handle)
    main = importlib.import_module(module).main
    processes: set[int] = set()
    for request, handles in _requests(control):
        if handles:
            try:
                process = os.fork()
            except OSError as error:
                sys.stderr.write(f"a worker cannot be started: {error}\n")
                process = _NONE
            if not process:
                control.close()
                main(_become(*request, *handles))
                return
            for one in handles:
                os.close(one)
            processes.add(process)
            reply = b"%d" % process
        else:
            process, status = os.waitpid(*request)
            reply = b""
            if process:
                processes.discard(process)
                _kill_group(process)  # its surviving children
                reply = b"%d" % os.waitstatus_to_exitcode(status)
        with suppress(ConnectionError):  # the parent is gone; the next read ends the loop
            control.sendall(reply + b"\n")
    for process in processes - {_NONE}:
        _kill(process)
    os._exit(0)


def _requests(control: socket.socket) -> Iterator[tuple[Any, list[int]]]:
    """Yield the parent's requests: a fork with its two handles, or a wait with none."""
    data = b""
    handles: list[int] = []
    while True:
        try:
            received, more, *_ = socket.recv_fds(control, 1 << 16, 2)
        except ConnectionError:
            return
        if not received:
            return
        handles += more
        *lines, data = (data + received).split(b"\n")
        for line in lines:
            request = json.loads(line)
            num_handles = 2 if len(request) == 3 else 0
            yield request, handles[:num_handles]
            del handles[:num_handles]


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
    # A program that a verifier starts must not hold the socket open.
    os.set_inheritable(handle, False)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.close(printed)
    return handle
