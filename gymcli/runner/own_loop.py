"""A loop for code that is not async itself, even where a notebook runs one around it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["OwnLoop"]

T = TypeVar("T")


class OwnLoop:
    """Runs one coroutine after another on the same loop; a context manager that closes it."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._thread: ThreadPoolExecutor | None = None

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end; what others started goes on meanwhile, and only then."""
        if self._thread is None:
            return self._runner.run(coroutine)
        return self._thread.submit(self._runner.run, coroutine).result()

    def __enter__(self) -> Self:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self._thread = ThreadPoolExecutor(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is None:
            self._runner.close()
            return
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()
