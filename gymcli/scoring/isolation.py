"""Calls of `context.isolated`: functions that may hang, grow or crash, in processes of their own.

A call goes to an idle process, or to a new one while there are fewer than allowed, else it waits. A
process that ran out of time or memory, died, or whose caller was cancelled, is killed together with
what it started. The processes get no environment variable that holds a secret.

Memory is limited by address space, and only where the kernel tells how much is in use (Linux);
elsewhere a function may take what it wants.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Literal, TypeVar, cast

import msgspec

from gymcli.boundary import described
from gymcli.errors import VerifierCrashedError, VerifierError, VerifierTimeoutError
from gymcli.registry.find import FILE_MODULE_PREFIX, module_of_file
from gymcli.scoring.child import ChildProcess
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["START_SECONDS", "IsolatedProcesses"]

T = TypeVar("T")

START_SECONDS = 60.0
"""Seconds that a process may take to start, and again to import what a call needs."""

CPU_GRACE_SECONDS = 5.0
"""Processor time beyond the limit of a call; the parent, where it lives, kills before that."""

_MEGABYTE = 2**20


class IsolatedCall(msgspec.Struct):
    """One call, as the parent sends it."""

    module: str
    file: str
    """Where the module was loaded from, if that was a file that no import finds; else empty."""
    qualname: str
    imports: tuple[str, ...]
    arguments: bytes
    """Pickled."""
    timeout: float
    memory_mb: int


class Report(msgspec.Struct, omit_defaults=True):
    """What a process says: `ready` once, then for each call `started` and how it ended."""

    kind: Literal["ready", "started", "returned", "raised", "out_of_memory", "failed"]
    data: bytes = b""
    """The result, or the exception where it can be pickled."""
    text: str = ""
    """In words, the exception or why the call could not be made."""


class _DiedError(Exception):
    """Raised when a process ended before it reported."""


class _Process:
    """An isolated process and its reports."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self.has_served = False
        self.child = ChildProcess(
            "gymcli.scoring.isolation",
            variables=scrubber.environment(os.environ),
            take_lines=self._take_lines,
            end=lambda: self._reports.put_nowait(None),
        )

    def _take_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            self._reports.put_nowait(msgspec.json.decode(line, type=Report))

    async def report(self, seconds: float, late: VerifierError) -> Report:
        try:
            async with asyncio.timeout(seconds):
                report = await self._reports.get()
        except TimeoutError:
            raise late from None
        if report is None:
            raise _DiedError
        return report


class IsolatedProcesses:
    """At most `max_processes` of them; nothing is started before the first call."""

    def __init__(self, max_processes: int, scrubber: Scrubber = NOTHING_SECRET) -> None:
        self._scrubber = scrubber
        self._room = asyncio.Semaphore(max_processes)
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._is_closed = False

    async def call(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int,
        imports: tuple[str, ...] = (),
    ) -> T:
        """Call a module-level function in a process of its own and return its result.

        Args:
            function: Found by its name, also in files that were given as environments.
            args: Its arguments; they are pickled, as the result is.
            timeout: Seconds from when the process starts the function. Neither waiting for a
                process nor importing counts.
            memory_mb: Megabytes that it may need beside what the process has (Linux).
            imports: Modules to import before the time starts to count: names, or paths of files.

        Raises:
            TypeError: It is no module-level function.
            VerifierTimeoutError: It took longer than `timeout`; its process is killed.
            VerifierError: Its process died or ran out of memory, something cannot be pickled, or
                the processes are closed.

        """
        call = _call(function, args, timeout, memory_mb, imports)
        async with self._room:
            while True:
                if self._is_closed:
                    raise VerifierError(f"{call.qualname} was not called: the workers were closed")
                process = self._idle.pop() if self._idle else _Process(self._scrubber)
                self._busy.add(process)
                is_reusable = False
                try:
                    report = await _asked(process, call)
                    is_reusable = report.kind != "out_of_memory"
                    break
                except _IdleProcessDiedError:
                    continue
                finally:
                    self._busy.discard(process)
                    if is_reusable and not self._is_closed:
                        self._idle.append(process)
                    else:
                        process.child.kill()
        return cast("T", _result(call, report))

    async def close(self) -> None:
        """End all processes, busy ones in the middle of their call."""
        self._is_closed = True
        for process in self._busy:
            process.child.kill()
            process._reports.put_nowait(None)  # noqa: SLF001  # ours
        await asyncio.gather(*(process.child.leave() for process in self._idle))


class _IdleProcessDiedError(Exception):
    """Raised when a process turns out to have died since its last call; another one is asked."""


async def _asked(process: _Process, call: IsolatedCall) -> Report:
    """Send a call and return how it ends.

    Raises:
        VerifierTimeoutError: The function took too long.
        VerifierError: The process died, or did not come to start the function.
        _IdleProcessDiedError: It had died before it was asked.

    """
    name, has_started = call.qualname, False
    was_idle, process.has_served = process.has_served, True
    try:
        if not was_idle:
            stuck = VerifierError(f"{name}: no process could be started for it")
            await process.report(START_SECONDS, stuck)
        process.child.write(msgspec.json.encode(call) + b"\n")
        late = f"{name}: its module was not imported within {START_SECONDS:g} seconds"
        report = await process.report(START_SECONDS, VerifierError(late))
        if report.kind != "started":
            return report
        has_started = True
        late = f"{name} took longer than {call.timeout:g} seconds"
        return await process.report(call.timeout, VerifierTimeoutError(late))
    except _DiedError:
        how = process.child.kill()
        if was_idle and not has_started and how:
            raise _IdleProcessDiedError from None
        if not how:
            raise VerifierError(
                f"{name} was not called to its end: the workers were closed"
            ) from None
        raise VerifierCrashedError(f"{name}: its process died ({how})") from None


def _call(
    function: Callable[..., object],
    args: tuple[object, ...],
    timeout: float,
    memory_mb: int,
    imports: tuple[str, ...],
) -> IsolatedCall:
    """Name a function so that another process can find it, and pickle its arguments.

    Raises:
        TypeError: It cannot be found by a name.
        VerifierError: An argument cannot be pickled.

    """
    module = getattr(function, "__module__", None) or ""
    qualname = getattr(function, "__qualname__", None) or ""
    found: object = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if not qualname or found is not function or module == "__main__":
        place = f"{module}.{qualname}" if qualname else repr(function)
        raise TypeError(
            f"{place} cannot be called in another process: it must be a function at the top level "
            "of a module that can be imported, no lambda, method, or function of a script"
        )
    file = str(sys.modules[module].__file__) if module.startswith(FILE_MODULE_PREFIX) else ""
    try:
        arguments = pickle.dumps(args)
    except Exception as error:
        reason = f"its arguments cannot be sent to another process: {described(error)}"
        raise VerifierError(f"{qualname}: {reason}") from error
    return IsolatedCall(module, file, qualname, imports, arguments, timeout, memory_mb)


def _result(call: IsolatedCall, report: Report) -> object:
    """Return what a function returned, or raise what it raised.

    Raises:
        Exception: As the function raised it.
        VerifierError: It ran out of memory, or its result cannot be sent.

    """
    name = call.qualname
    if report.kind == "returned" or (report.kind == "raised" and report.data):
        try:
            value = pickle.loads(report.data)  # noqa: S301  # both ends are ours
        except Exception as error:
            reason = f"returned what cannot be read here: {described(error)}"
            raise VerifierError(f"{name} {reason}") from error
        if report.kind == "returned":
            return value
        raise value
    if report.kind == "out_of_memory":
        raise VerifierCrashedError(f"{name} needed more than {call.memory_mb} MB of memory")
    raise VerifierError(f"{name} {'raised ' if report.kind == 'raised' else ''}{report.text}")


def main(handle: int, memory: int) -> None:
    """Answer the calls of the parent until it closes the socket."""
    os.close(memory)
    channel = socket(fileno=handle)

    def send(report: Report) -> None:
        channel.sendall(msgspec.json.encode(report) + b"\n")

    send(Report("ready"))
    process = os.getpid()
    for line in channel.makefile("rb"):
        report = _answer(msgspec.json.decode(line, type=IsolatedCall), send)
        if os.getpid() != process:  # a forked copy that came back
            os._exit(0)
        send(report)


def _answer(call: IsolatedCall, send: Callable[[Report], None]) -> Report:
    """Make one call; whatever somebody else's code raises is reported."""
    try:
        function = _found(call)
        arguments = pickle.loads(call.arguments)  # noqa: S301  # both ends are ours
    except BaseException as error:  # noqa: BLE001  # an import may raise anything
        return Report("failed", text=_text("cannot be loaded in another process", error))
    send(Report("started"))
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
        return Report("failed", text=_text("returned what cannot be sent back", error))


def _text(what: str, error: BaseException) -> str:
    return f"{what}: {described(error)}".encode(errors="replace").decode()


def _found(call: IsolatedCall) -> Callable[..., object]:
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
    text = described(error).encode(errors="replace").decode()
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
    """Return the bytes of address space in use; None where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[0]
    except OSError:
        return None
    return int(pages) * resource.getpagesize()
