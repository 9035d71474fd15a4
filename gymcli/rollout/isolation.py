"""Calls of `context.isolated`: functions that may hang, grow or crash run in a child process.

The processes receive no environment variable that holds a secret. The memory limit is one of
address space, and works on Linux only, where /proc reports how much is in use.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket
from typing import Literal, TypeVar, cast

import msgspec

from gymcli.environment.registry import module_of_file
from gymcli.environment.time_limit import leave_copy
from gymcli.errors import VerifierCrashedError, VerifierError, described
from gymcli.rollout.worker_pool import (
    DONE,
    READY,
    CodeReference,
    ProcessPool,
    RequestKind,
    code_reference,
    load_code,
)
from gymcli.secrets import NOTHING_SECRET, Scrubber

T = TypeVar("T")

_MEGABYTE = 2**20


class FunctionDefinition(msgspec.Struct):
    """A function, identified by names that another process can import."""

    code: CodeReference
    imports: tuple[str, ...]


class CallReport(msgspec.Struct, omit_defaults=True):
    """How a call ended."""

    kind: Literal["returned", "raised", "out_of_memory", "failed"]
    data: bytes = b""
    """The result, or the exception where it can be pickled."""
    text: str = ""
    """The exception, or why the call could not be made."""


class IsolatedProcesses(ProcessPool):
    """At most `max_processes` processes; the first call starts one."""

    def __init__(
        self,
        max_processes: int,
        scrubber: Scrubber = NOTHING_SECRET,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            "gymcli.rollout.isolation",
            max_processes,
            variables=lambda: scrubber.environment(os.environ),
            now=now,
        )

    async def call(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int,
        imports: tuple[str, ...] = (),
    ) -> T:
        """Call a module-level function in a process of this pool; implements `Context.isolated`.

        The function is found by its name, also in files that `--env` named. `imports` are names of
        modules or paths of files. If the caller is cancelled, the process is killed.

        Raises:
            TypeError: It is not a module-level function.
            VerifierTimeoutError: It took longer than `timeout`; its process is killed.
            VerifierError: Its process died or ran out of memory, something cannot be pickled, or
                the processes are closed.
            Exception: Whatever the function raised.
        """
        qualname = getattr(function, "__qualname__", None)
        code = code_reference(function)
        if code is None:
            name = f"{function.__module__}.{qualname}" if qualname else repr(function)
            raise TypeError(
                f"{name} cannot be called in another process: it must be a function at the top "
                "level of an importable module, not a lambda, a method or a function of a script"
            )
        try:
            record = msgspec.json.encode((pickle.dumps(args), memory_mb))
        except Exception as error:
            reason = f"its arguments cannot be sent to another process: {described(error)}"
            raise VerifierError(f"{qualname}: {reason}") from error
        definition = msgspec.json.encode(FunctionDefinition(code, imports))
        kind = RequestKind(definition, code.qualname, timeout)
        reports: list[CallReport] = []

        def take(lines: list[bytes]) -> None:
            reports.extend(msgspec.json.decode(line, type=CallReport) for line in lines)

        try:
            await self.run(kind, record, take)
        except VerifierCrashedError:
            # A process that ran out of memory reports that before it exits.
            if [report.kind for report in reports] != ["out_of_memory"]:
                raise
        if len(reports) != 1:
            raise VerifierCrashedError(f"{qualname}: its process sent {len(reports)} replies")
        return cast("T", _result(code.qualname, memory_mb, reports[0]))


def _result(name: str, memory_mb: int, report: CallReport) -> object:
    if report.kind == "returned" or (report.kind == "raised" and report.data):
        try:
            value = pickle.loads(report.data)  # noqa: S301  # both ends are ours
        except Exception as error:
            reason = f"returned a value that cannot be unpickled here: {described(error)}"
            raise VerifierError(f"{name} {reason}") from error
        if report.kind == "returned":
            return value
        raise value
    if report.kind == "out_of_memory":
        raise VerifierCrashedError(f"{name} needed more than {memory_mb} MB of memory")
    raise VerifierError(f"{name} {'raised ' if report.kind == 'raised' else ''}{report.text}")


def main(handle: int) -> None:
    channel = socket(fileno=handle)
    process = os.getpid()
    functions: list[Callable[..., object] | CallReport] = []
    for line in channel.makefile("rb"):
        if line.startswith(b"{"):
            functions.append(_loaded(msgspec.json.decode(line, type=FunctionDefinition)))
            leave_copy(process)
            channel.sendall(READY + b"\n")
            continue
        number, _, record = line.partition(b" ")
        function = functions[int(number)]
        if isinstance(function, CallReport):
            report = function
        else:
            report = _answer(function, *msgspec.json.decode(record, type=tuple[bytes, int]))
        leave_copy(process)  # the function may have forked: the copy must not reply
        data = msgspec.json.encode(report) + b"\n"
        if report.kind == "out_of_memory":  # leaked memory would count against the next call
            channel.sendall(data)
            os._exit(1)
        channel.sendall(data + DONE + b"\n")


def _loaded(definition: FunctionDefinition) -> Callable[..., object] | CallReport:
    """Import a function and its imports; return why it cannot be called."""
    try:
        function = load_code(definition.code)
        for name in definition.imports:
            if name.endswith(".py"):
                module_of_file(Path(name), name)
            else:
                importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001  # an import may raise anything
        return CallReport("failed", text=_text("cannot be loaded in another process", error))
    return cast("Callable[..., object]", function)


def _answer(function: Callable[..., object], pickled: bytes, memory_mb: int) -> CallReport:
    try:
        arguments = pickle.loads(pickled)  # noqa: S301  # both ends are ours
    except BaseException as error:  # noqa: BLE001  # unpickling runs the user's code
        return CallReport("failed", text=_text("cannot be loaded in another process", error))
    try:
        with _limited(memory_mb):
            result = function(*arguments)
    except MemoryError:
        return CallReport("out_of_memory")
    except BaseException as error:  # noqa: BLE001  # some libraries raise BaseExceptions
        return _raised(error)
    try:
        return CallReport("returned", pickle.dumps(result))
    except Exception as error:  # noqa: BLE001  # pickling runs the user's code
        return CallReport("failed", text=_text("returned a value that cannot be pickled", error))


def _text(problem: str, error: BaseException) -> str:
    return f"{problem}: {described(error)}".encode(errors="replace").decode()


def _raised(error: BaseException) -> CallReport:
    report = CallReport("raised", text=described(error).encode(errors="replace").decode())
    if isinstance(error, Exception):
        with suppress(Exception):  # pickling runs the user's code
            data = pickle.dumps(error)
            pickle.loads(data)  # noqa: S301  # some can be pickled but not unpickled
            report.data = data
    return report


@contextmanager
def _limited(memory_mb: int) -> Iterator[None]:
    """Limit how much address space a block may use beyond what is in use before it."""
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # not Linux
        yield
        return
    limit = pages * resource.getpagesize() + memory_mb * _MEGABYTE
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
