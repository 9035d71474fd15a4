"""A loop for code that is not async itself, even where a notebook runs one around it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from gymcli.deadlines import close, leaving_threads

__all__ = ["OwnLoop"]

T = TypeVar("T")

_SIGNAL_SECONDS = 0.1
"""CPython hears a signal only when such a wait ends, if it came right before it."""


class OwnLoop:
    """Runs one coroutine after another on the same loop; a context manager that closes it."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(
            loop_factory=lambda: leaving_threads(asyncio.new_event_loop())
        )
        self._thread: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[object] | None = None
        self._is_interrupted = False

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end; what others started goes on meanwhile, and only then.

        Raises:
            KeyboardInterrupt: The coroutine was cancelled by it, and has ended.

        """
        if self._thread is None:
            return self._run(coroutine)
        self._task, self._is_interrupted = None, False
        try:
            return _waited_for(self._thread.submit(self._run, coroutine)).result()
        except KeyboardInterrupt:
            self._is_interrupted = True
            over: Future[None] | None = None
            while over is None or not over.done():
                with suppress(KeyboardInterrupt):  # again
                    # Comes after the coroutine, if that was submitted.
                    over = over or self._thread.submit(_nothing)
                    self._runner.get_loop().call_soon_threadsafe(self._cancel)
                    _waited_for(over)
            raise

    def _run(self, coroutine: Coroutine[object, object, T]) -> T:
        try:
            return self._runner.run(self._noted(coroutine))
        except KeyboardInterrupt:
            while self._task is not None and not self._task.done():
                self._task.cancel()
                with suppress(KeyboardInterrupt):  # again, or of another task that met it
                    self._runner.run(_ended(self._task))
            raise

    async def _noted(self, coroutine: Coroutine[object, object, T]) -> T:
        self._task = asyncio.current_task()
        if self._is_interrupted:  # before this began
            coroutine.close()
            raise asyncio.CancelledError
        return await coroutine

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Self:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self._thread = ThreadPoolExecutor(1)
            self._thread.submit(self._runner.get_loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is None:
            close(self._runner)
            return
        self._thread.submit(close, self._runner).result()
        self._thread.shutdown()


def _waited_for(future: Future[T]) -> Future[T]:
    """Wait for a future, and hear a signal that comes just before the wait begins."""
    while not future.done():
        wait([future], _SIGNAL_SECONDS)
    return future


def _nothing() -> None:
    """Do nothing, in its turn."""


async def _ended(task: asyncio.Task[object]) -> None:
    await asyncio.wait([task])
