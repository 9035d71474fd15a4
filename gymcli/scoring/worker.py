"""What runs in a worker process: it calls the functions that it is sent, one after another.

Whatever the function does, what it started ends with the parent too: a guard, a process beside the
worker that does nothing else, sees that the parent is gone and kills all of their process group.
That also reaches a function that holds the interpreter, as one long operation on huge numbers does.

Memory is limited by address space, and only where the kernel tells how much is in use (Linux);
elsewhere a function may take what it wants.
"""

from __future__ import annotations

import importlib
import math
import os
import pickle
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple, NoReturn, cast

from gymcli.boundary import described
from gymcli.registry.find import module_of_file

__all__ = ["Call", "Report", "main"]

CPU_GRACE_SECONDS = 5.0
"""Processor time beyond the limit of a call; the parent, where it lives, kills before that."""

_MEGABYTE = 2**20


class Call(NamedTuple):
    """One call, as the parent sends it."""

    module: str
    file: str
    """Where the module was loaded from, if that was a file that no import finds; else empty."""
    qualname: str
    imports: tuple[str, ...]
    """Modules to import before the time starts to count: names, or paths of files."""
    arguments: bytes
    """Pickled apart, since their classes may be those of the function's module."""
    timeout: float
    memory_mb: int
    name: str = ""
    """What messages call it."""


class Report(NamedTuple):
    """What a worker says: `ready` once, then for each call `started` and how it ended."""

    kind: Literal["ready", "started", "returned", "raised", "out_of_memory", "failed"]
    data: bytes = b""
    """The result, or the exception where it can be pickled."""
    text: str = ""
    """In words, the exception or why the call could not be made."""


def main(handle: int, guarded: int) -> None:
    """Answer calls over a connection until it breaks.

    Args:
        handle: The connection's file handle.
        guarded: The reading end of a pipe on which the parent never writes.

    """
    os.set_inheritable(handle, False)  # or what a function starts would keep it open
    if os.fork() == 0:
        os.close(handle)  # or the parent would not see that the worker has died
        _guard(guarded)
    os.close(guarded)
    connection = Connection(handle)
    calls: SimpleQueue[bytes] = SimpleQueue()
    is_busy = threading.Lock()
    threading.Thread(target=_receive, args=(connection, calls, is_busy), daemon=True).start()
    _send(connection, Report("ready"))
    while True:
        call = pickle.loads(calls.get())  # noqa: S301  # both ends are ours
        with is_busy:
            _send(connection, _answer(call, connection))


def _guard(guarded: int) -> NoReturn:
    """Wait until the parent is gone, and kill the worker and what it started with it.

    The kernel could kill the worker at its parent's death (PR_SET_PDEATHSIG), but nothing else.
    """
    while os.read(guarded, 1):
        pass
    os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _receive(connection: Connection, calls: SimpleQueue[bytes], is_busy: threading.Lock) -> None:
    """Take in calls; leave when the parent has closed the connection or is gone."""
    while True:
        try:
            calls.put(connection.recv_bytes())
        except (EOFError, OSError):
            break
    if is_busy.locked():
        os.killpg(os.getpid(), signal.SIGKILL)  # with what the function started
    os._exit(0)


def _send(connection: Connection, report: Report) -> None:
    connection.send_bytes(pickle.dumps(report))


def _answer(call: Call, connection: Connection) -> Report:
    """Make one call; whatever somebody else's code raises is reported."""
    try:
        function = _found(call)
        arguments = pickle.loads(call.arguments)  # noqa: S301  # both ends are ours
    except BaseException as error:  # noqa: BLE001  # an import may raise anything
        return Report("failed", text=f"cannot be loaded in a worker: {described(error)}")
    _send(connection, Report("started"))
    try:
        with _limited(call.timeout, call.memory_mb):
            result = function(*arguments)
    except MemoryError:
        return Report("out_of_memory")
    except BaseException as error:  # noqa: BLE001  # some libraries raise what is no Exception
        return _raised(error)
    try:
        return Report("returned", pickle.dumps(result))
    except Exception as error:  # noqa: BLE001  # a class says itself how it is pickled
        return Report("failed", text=f"gave what cannot be sent back: {described(error)}")


def _found(call: Call) -> Callable[..., object]:
    """Import the function, and what it asks to have imported."""
    if call.file:
        found: object = module_of_file(Path(call.file), call.file)
    else:
        found = importlib.import_module(call.module)
    for name in call.qualname.split("."):
        found = getattr(found, name)
    for name in call.imports:
        if name.endswith(".py"):
            module_of_file(Path(name), name)
        else:
            importlib.import_module(name)
    return cast("Callable[..., object]", found)


def _raised(error: BaseException) -> Report:
    """Report an exception, as it is where the parent can make it again."""
    text = described(error)
    if not isinstance(error, Exception):
        return Report("raised", text=text)
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301  # some are pickled and then refuse to be made again
    except Exception:  # noqa: BLE001  # a class says itself how it is pickled
        return Report("raised", text=text)
    return Report("raised", data, text)


@contextmanager
def _limited(timeout: float, memory_mb: int) -> Iterator[None]:
    """Limit processor time and memory for a block, on top of what was used before it."""
    # Threads share the limit, so it allows for one on every core.
    allowed = (timeout + CPU_GRACE_SECONDS) * (os.cpu_count() or 1)
    _set_limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + allowed))
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = _address_space()
    if used is not None:
        _set_limit(resource.RLIMIT_AS, used + memory_mb * _MEGABYTE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _set_limit(kind: int, value: int) -> None:
    """Set a soft limit, below a hard one that is in force already."""
    hard = resource.getrlimit(kind)[1]
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (soft, hard))


def _address_space() -> int | None:
    """Give the bytes of address space in use; None where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[0]
    except OSError:
        return None
    return int(pages) * resource.getpagesize()
