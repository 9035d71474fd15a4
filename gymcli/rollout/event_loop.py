"""The event loop of a run, and the watchdog that enforces its limits.

The watchdog checks deadlines several times a second. Environment code that computes or sleeps
blocks the loop: after a second a warning names the function. Where the run can be restarted,
`faulthandler` writes the stack after `blocking_timeout`, and the process ends. `faulthandler` uses
a C thread, since a regular expression that backtracks forever never releases the GIL to a Python
thread.
"""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, NamedTuple, ParamSpec, Protocol, Self, TypeVar

from gymcli.environment.contract import Environment
from gymcli.environment.time_limit import MAX_STRETCH, LoopClock, cpu_wait, leave_copy
from gymcli.store.supervised import opened_out_of_reach

P = ParamSpec("P")
T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

_PATIENCE = 2.0
"""How long cancelled background tasks and async generators may take to end."""
_LEAVE_SECONDS = 5.0
"""How long after an interrupt the process exits, even if the loop is still blocked."""
_MAX_THREADS = 32


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop, uvloop's if installed, whose executor threads never delay the exit."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop  # late: heavy, and not on every platform

        new_loop = uvloop.new_event_loop
    with opened_out_of_reach():
        loop = new_loop()
    loop.set_default_executor(_DaemonThreads())
    return loop


def run(
    main: Coroutine[object, object, T],
    *,
    interrupted_code: Callable[[KeyboardInterrupt], int] | None = None,
) -> T:
    """Run a coroutine in a new loop, as `asyncio.run` does.

    SystemExit in a background task is logged and ignored. At the end, remaining tasks are cancelled
    and have two seconds to end; after that they are abandoned, and threads are never joined. If an
    interrupt cancels the coroutine and the loop is not closed five seconds later, the process exits
    with the code that `interrupted_code` returns.

    Raises:
        KeyboardInterrupt: The loop was interrupted; the coroutine was cancelled.
    """
    loop = new_event_loop()
    task = loop.create_task(main)
    is_over = threading.Event()
    try:
        return drive(loop, task)
    except KeyboardInterrupt as error:
        if interrupted_code is not None:
            arguments = (is_over, interrupted_code(error))
            threading.Thread(target=_leave, args=arguments, daemon=True).start()
        raise
    finally:
        try:
            close(loop)
        except Exception as error:  # noqa: BLE001  # environment code may have patched asyncio
            _LOGGER.warning("the event loop cannot be closed: %r", error)
        is_over.set()


def drive(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    """Run the loop until this task is done, even if another one stops it or raises SystemExit."""
    while True:
        try:
            return loop.run_until_complete(task)
        except SystemExit as error:
            if task.done():
                raise
            # `asyncio.run` and `asyncio.Runner` would exit here, with a background task's code.
            _LOGGER.warning("SystemExit(%s) in a background task is ignored", error.code)
        except RuntimeError as error:
            if task.done() or not str(error).startswith("Event loop stopped"):
                raise
            _LOGGER.warning("a call of loop.stop() is ignored")


class LoopRunner:
    """An event loop for synchronous code; it runs in a thread if a notebook already runs one."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread: _DaemonThreads | None = None
        self._is_abandoned = False

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end; a KeyboardInterrupt cancels it and propagates.

        If it does not end in time it is abandoned, and so is all that should run later.
        """
        if self._is_abandoned:
            # From Python 3.13 on, `aclose` of a generator in which an abandoned task is refuses.
            with suppress(RuntimeError):
                coroutine.close()
            raise KeyboardInterrupt
        task = self._loop.create_task(coroutine)
        try:
            return self._driven(task) if self._thread is None else self._in_thread(task)
        finally:
            self._is_abandoned = not task.done()

    def _driven(self, task: asyncio.Task[T]) -> T:
        try:
            return drive(self._loop, task)
        except KeyboardInterrupt:
            task.cancel()
            drive(self._loop, self._loop.create_task(asyncio.wait([task], timeout=_PATIENCE)))
            raise

    def _in_thread(self, task: asyncio.Task[T]) -> T:
        assert self._thread is not None
        is_over = threading.Event()

        def driven() -> T:
            try:
                return self._driven(task)
            finally:
                is_over.set()

        def interrupt() -> None:
            if not task.done():
                raise KeyboardInterrupt

        try:
            return self._thread.submit(driven).result()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(interrupt)
            is_over.wait(_LEAVE_SECONDS)  # code that blocks the loop may never end
            raise

    def __enter__(self) -> Self:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self._thread = _DaemonThreads(1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            close(self._loop)
            return
        closing = self._thread.submit(close, self._loop)
        self._thread.shutdown()
        if not self._is_abandoned:
            closing.result()


def close(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks of a loop, wait two seconds for them and close the loop."""
    left = drive(loop, loop.create_task(_left()))
    loop.close()
    if left:
        # Garbage collection would resume such a coroutine to close it, so a thread that never
        # ends holds a reference.
        forever = threading.Event()
        threading.Thread(target=lambda _: forever.wait(), args=(left,), daemon=True).start()
        names = ", ".join(sorted({getattr(task.get_coro(), "__qualname__", "?") for task in left}))
        _LOGGER.warning("%d cancelled tasks are still running; abandoned: %s", len(left), names)


async def _left() -> set[asyncio.Task[object]]:
    """Cancel all tasks, close async generators and return the tasks that do not end."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_PATIENCE)
    if not all(task.done() for task in tasks):  # else asyncio logs the generators they still use
        loop.set_exception_handler(lambda _loop, _context: None)
    closing = asyncio.create_task(loop.shutdown_asyncgens())
    await asyncio.wait([closing], timeout=_PATIENCE)
    return {task for task in {*tasks, closing} if not task.done()}


def _leave(is_over: threading.Event, code: int) -> None:
    if is_over.wait(_LEAVE_SECONDS):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the process exits either way
            stream.flush()
    os._exit(code)


class _DaemonThreads(ThreadPoolExecutor):
    """Runs calls in daemon threads; ThreadPoolExecutor joins its threads at interpreter exit."""

    def __init__(self, max_threads: int = _MAX_THREADS) -> None:
        super().__init__(max_threads)
        self._calls: queue.SimpleQueue[tuple[Future[object], Callable[[], object]] | None]
        self._calls = queue.SimpleQueue()
        self._num_idle = threading.Semaphore(0)
        self._num_started = 0

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        call = functools.partial(function, *args, **kwargs)
        self._calls.put((future, call))  # type: ignore[arg-type]  # a future takes what its call returns
        if not self._num_idle.acquire(blocking=False) and self._num_started < self._max_workers:
            self._num_started += 1
            threading.Thread(target=self._work, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            try:
                item = self._calls.get_nowait()
            except queue.Empty:
                self._num_idle.release()
                item = self._calls.get()
            if item is None:
                return
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001  # raised where it is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del item, future, call  # else an idle thread keeps its last call and result alive

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Tell the threads to end, without waiting for them."""
        for _ in range(self._num_started):
            self._calls.put(None)


_BLOCKED_SECONDS = 1.0
_LOOK_SECONDS = 0.5
_CALLERS = (
    "asyncio.base_events",
    "asyncio.events",
    "asyncio.runners",
    "gymcli.rollout.episode",
    "gymcli.rollout.event_loop",
    "gymcli.rollout.scoring",
    "gymcli.runner",
)
"""Modules that call environments or run the loop: what has called one of them, such as a script
that also defines an environment, did not call the code that blocks."""


class Watched(Protocol):
    """Something with a deadline by `Watchdog.now`."""

    deadline: float

    def on_deadline(self) -> None:
        """Act on the deadline that has passed: set a new one, or end."""
        ...


class Watchdog(LoopClock):
    """Ends what is late in the running event loop, and names what blocks it.

    An async context manager. After `blocking_timeout` seconds without a turn of the loop, the stack
    is written to `stack_file` and the process ends; without that file it continues. A supervised
    process is killed by its supervisor, which knows whether both were only stopped.
    """

    def __init__(
        self,
        *,
        blocking_timeout: float = 60.0,
        stack_file: IO[str] | None = None,
        is_supervised: bool = False,
    ) -> None:
        super().__init__()
        self.blocking_timeout = blocking_timeout
        self._stack_file = stack_file
        self._is_supervised = is_supervised
        self.watched: set[Watched] = set()
        """Checked several times a second."""
        self._process = os.getpid()
        self._arming = threading.Lock()
        self._is_armed = False
        self._is_over = threading.Event()

    def arm(self) -> None:
        with self._arming:
            self._is_armed = True
            self._start_timer(self.blocking_timeout)

    def disarm(self) -> None:
        with self._arming:
            self._is_armed = False
            if self._stack_file is not None:
                faulthandler.cancel_dump_traceback_later()

    def _start_timer(self, seconds: float) -> None:
        if self._stack_file is not None:
            faulthandler.dump_traceback_later(
                seconds,
                # Again, since the supervisor ignores a stack that was written after a stop.
                repeat=self._is_supervised,
                exit=not self._is_supervised,
                file=self._stack_file,
            )

    def _prolong(self, beat_at: float, passed: float, cpu_wait: float) -> None:
        """Restart the timer without the time in which the loop's thread waited for a CPU."""
        limit = self.blocking_timeout
        left = min(limit - (passed - cpu_wait), MAX_STRETCH * limit - passed)
        with self._arming:
            if self._is_armed and left > 0 and beat_at == self.beat_at:
                # Not at once: the loop may turn right now.
                self._start_timer(max(left, _LOOK_SECONDS))

    async def __aenter__(self) -> Self:
        if self._stack_file is not None:
            _disarm_before_forks()
        self.arm()
        thread = threading.current_thread()
        threading.Thread(target=self._look, args=(thread,), daemon=True).start()
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        self._is_over.set()
        await super().__aexit__()
        self.disarm()

    def check_deadlines(self, moment: float) -> None:
        leave_copy(self._process)
        self.arm()
        for watched in list(self.watched):
            if watched.deadline < moment:
                watched.on_deadline()

    def _look(self, thread: threading.Thread) -> None:
        """Log which environment code blocks the loop, once for each function; runs in a thread."""
        warned: set[CodeType] = set()
        turned = began = before = self._seen(thread)
        while not self._is_over.wait(_LOOK_SECONDS):
            look = self._seen(thread)
            has_turned = look.beat_at != before.beat_at
            was_stopped = look.at - before.at > 2 * _LOOK_SECONDS
            if has_turned:
                turned = before
            else:
                self._prolong(look.beat_at, look.at - look.beat_at, look.cpu_wait - turned.cpu_wait)
            before = look
            if look.frame is not began.frame or has_turned or was_stopped:
                began = look
                continue
            # On a busy machine a second passes in which the code did not run at all.
            seconds = look.at - began.at - (look.cpu_wait - began.cpu_wait)
            frame = look.frame
            if frame is not None and frame.f_code not in warned and seconds >= _BLOCKED_SECONDS:
                warned.add(frame.f_code)
                _LOGGER.warning(
                    "%s (%s:%d) has blocked the event loop for a second, and so every other "
                    "attempt; a tool that blocks can be @tool(in_thread=True)",
                    frame.f_code.co_qualname,
                    frame.f_code.co_filename,
                    frame.f_lineno,
                )

    def _seen(self, thread: threading.Thread) -> _Look:
        assert thread.ident is not None
        assert thread.native_id is not None
        return _Look(
            time.monotonic(),
            self.beat_at,
            cpu_wait(self._process, thread.native_id),
            _environment_frame(sys._current_frames().get(thread.ident)),  # noqa: SLF001  # no other way
        )


class _Look(NamedTuple):
    """What a look at the thread of the loop shows."""

    at: float
    beat_at: float
    """When the loop last turned."""
    cpu_wait: float
    frame: FrameType | None
    """The environment code that it runs."""


def _environment_frame(frame: FrameType | None) -> FrameType | None:
    packages, folders = _environment_code()
    outermost = None
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(_CALLERS):
            break
        is_of_package = any(name == root or name.startswith(f"{root}.") for root in packages)
        if is_of_package or os.path.dirname(frame.f_code.co_filename) in folders:  # noqa: PTH120  # light
            outermost = frame
        frame = frame.f_back
    return outermost


def _environment_code() -> tuple[set[str], set[str]]:
    packages, folders = {"gymcli.envs"}, set()
    classes = Environment.__subclasses__()
    while classes:
        environment = classes.pop()
        classes += environment.__subclasses__()
        name = environment.__module__
        package = name.partition(".")[0]
        if package == "gymcli":
            continue
        packages.add(package)
        file = getattr(sys.modules.get(name), "__file__", None)
        if package == name and file:  # modules that lie beside it may hold its tools
            folder = Path(file).parent
            if folder.name not in ("site-packages", "dist-packages"):
                folders.add(str(folder))
    return packages, folders


@functools.cache
def _disarm_before_forks() -> None:
    """Cancel the timer before each fork: a forked copy with a timer hangs when it exits."""
    os.register_at_fork(before=faulthandler.cancel_dump_traceback_later)
