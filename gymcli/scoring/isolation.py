"""A pool of worker processes that can be killed, for functions that may hang, grow or crash.

A call goes to an idle worker, or to a new one while there are fewer than allowed, else it waits.
Threads talk to the workers, so that the pool outlives any event loop. A worker that ran out of
time or memory, died, or whose caller was cancelled, is killed together with what it started, and
the next call gets another one.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar, cast

from gymcli.boundary import described
from gymcli.errors import VerifierError
from gymcli.registry.find import FILE_MODULE_PREFIX
from gymcli.scoring.process import LEAVE_SECONDS, IdleWorkerDiedError, WorkerProcess
from gymcli.scoring.worker import Call, Report
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["Submitted", "Workers"]

T = TypeVar("T")


class Workers:
    """At most `num_workers` processes; None: one for each core that this process may use.

    They get no environment variable that holds a secret, those of `scrubber` among them.

    Nothing is started before the first call. Safe to use from several threads and event loops; a
    context manager that closes itself.
    """

    def __init__(
        self, num_workers: int | None = None, *, scrubber: Scrubber = NOTHING_SECRET
    ) -> None:
        self._scrubber = scrubber
        self.num_workers = num_workers or _usable_cores()
        """How many there may be."""
        self._threads = ThreadPoolExecutor(self.num_workers, "gymcli-worker")
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._is_closed = False
        self.slow: set[type] = set()
        """Environments whose verifiers turned out slow; they are called here at once."""

    async def call(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int,
        imports: tuple[str, ...] = (),
        name: str = "",
    ) -> T:
        """Call a module-level function in a worker and give its result.

        Args:
            function: Found by its name, also in files that were given as environments.
            args: Its arguments; they are pickled, as the result is.
            timeout: Seconds from when the worker starts the function. Neither waiting for a
                worker nor importing counts.
            memory_mb: Megabytes that it may need beside what the worker has (Linux).
            imports: Modules to import before the time starts to count: names, or paths of files.
            name: What messages call it; else the function's own name.

        Raises:
            TypeError: It is no module-level function.
            VerifierTimeoutError: It took longer than `timeout`; its worker is killed.
            VerifierError: Its worker died or ran out of memory, something cannot be pickled, or
                the pool is closed.

        """
        submitted = self.submit(
            function, *args, timeout=timeout, memory_mb=memory_mb, imports=imports, name=name
        )
        try:
            await asyncio.wrap_future(submitted.future)
        finally:
            submitted.cancel()
        return submitted.result()

    def submit(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float,
        memory_mb: int,
        imports: tuple[str, ...] = (),
        name: str = "",
    ) -> Submitted[T]:
        """Begin a call, as `call` makes one, whose result is asked for later.

        Raises:
            TypeError, VerifierError: As of `call`, before anything runs.

        """
        call = _call(function, args, timeout, memory_mb, imports)
        call = call._replace(name=name or call.qualname)
        ticket = _Ticket()
        try:
            return Submitted(self._threads.submit(self._made, call, ticket), ticket.cancel)
        except RuntimeError as error:
            raise _closed(call) from error

    def close(self) -> None:
        """End all workers, busy ones in the middle of their call, and wait for that."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.kill()
        for worker in idle:
            worker.hang_up()
        for worker in idle:
            worker.end(LEAVE_SECONDS)
        self._threads.shutdown()

    def __enter__(self) -> Self:
        """Give the pool."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _made(self, call: Call, ticket: _Ticket) -> _Outcome:
        """Make a call; runs in a thread and waits for the worker there."""
        while True:
            worker = self._take(call)
            is_reusable = False
            try:
                ticket.hold(worker)
                report = worker.ask(call)
                is_reusable = report.kind != "out_of_memory"
                return _outcome(call, report)
            except IdleWorkerDiedError:
                if ticket.is_cancelled:
                    raise
            except VerifierError as error:
                if self._is_closed:
                    raise _closed(call) from error
                raise
            finally:
                ticket.let_go()  # before the worker can be given to another call
                self._put_back(worker, is_reusable=is_reusable)

    def _take(self, call: Call) -> WorkerProcess:
        """Give the worker that was used last, or a new one where none is idle."""
        with self._lock:
            if self._is_closed:
                raise _closed(call)
            worker = self._idle.pop() if self._idle else WorkerProcess(self._scrubber)
            self._busy.add(worker)
            return worker

    def _put_back(self, worker: WorkerProcess, *, is_reusable: bool) -> None:
        with self._lock:
            self._busy.discard(worker)
            if is_reusable and not self._is_closed:
                self._idle.append(worker)
                return
        worker.end()


def _usable_cores() -> int:
    """Count the cores that this process may use, where the system says that (Linux)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


class _Outcome(NamedTuple):
    """How a call ended. Handed over as data: a future treats some exceptions in its own way."""

    value: object = None
    error: Exception | None = None


class Submitted(Generic[T]):
    """A call under way."""

    def __init__(self, future: Future[_Outcome], cancel: Callable[[], None]) -> None:
        self.future = future
        self.cancel = cancel
        """Kills the worker, if the call is still running."""

    def result(self) -> T:
        """Wait for the result and give it.

        Raises:
            Exception: What the function raised.
            VerifierError: As of `Workers.call`.

        """
        outcome = self.future.result()
        if outcome.error is not None:
            raise outcome.error
        return cast("T", outcome.value)


class _Ticket:
    """Lets the caller kill the worker of its call, and never that of another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: WorkerProcess | None = None
        self.is_cancelled = False

    def hold(self, worker: WorkerProcess) -> None:
        """Name the worker; it is killed at once where the caller has already left."""
        with self._lock:
            self._worker = worker
            if self.is_cancelled:
                worker.kill()

    def let_go(self) -> None:
        """Forget the worker."""
        with self._lock:
            self._worker = None

    def cancel(self) -> None:
        """Kill the worker, if the call is still running."""
        with self._lock:
            self.is_cancelled = True
            if self._worker is not None:
                self._worker.kill()


def _call(
    function: Callable[..., object],
    args: tuple[object, ...],
    timeout: float,
    memory_mb: int,
    imports: tuple[str, ...],
) -> Call:
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
            f"{place} cannot be called in a worker: it must be a function at the top level of a "
            "module that can be imported, no lambda, method, or function of a script"
        )
    file = ""
    if module.startswith(FILE_MODULE_PREFIX):
        file = str(sys.modules[module].__file__)
    try:
        arguments = pickle.dumps(args)
    except Exception as error:
        reason = f"its arguments cannot be sent to a worker: {described(error)}"
        raise VerifierError(f"{qualname}: {reason}") from error
    return Call(module, file, qualname, imports, arguments, timeout, memory_mb)


def _outcome(call: Call, report: Report) -> _Outcome:
    """Read a worker's report; an exception of the function is given as it was raised."""
    if report.kind == "returned" or (report.kind == "raised" and report.data):
        try:
            value = pickle.loads(report.data)  # noqa: S301  # both ends are ours
        except Exception as error:  # noqa: BLE001  # a class says itself how it is made again
            reason = f"gave what cannot be read here: {described(error)}"
            return _Outcome(error=VerifierError(f"{call.name} {reason}"))
        return _Outcome(value) if report.kind == "returned" else _Outcome(error=value)
    reason = {
        "raised": f"raised {report.text}",
        "out_of_memory": f"needed more than {call.memory_mb} MB of memory",
    }.get(report.kind, report.text)
    return _Outcome(error=VerifierError(f"{call.name} {reason}"))


def _closed(call: Call) -> VerifierError:
    return VerifierError(f"{call.name} was not called to its end: the workers were closed")
