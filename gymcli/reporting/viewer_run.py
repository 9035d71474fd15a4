"""One run that is looked at: its index, asked in threads, refreshed while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from gymcli.errors import UsageError
from gymcli.index import Refreshed, RunIndex
from gymcli.reporting.viewer_listing import Listings
from gymcli.reporting.viewer_queries import sendable
from gymcli.runner.indexing import index_run

__all__ = ["ViewedRun", "open_run"]

_REFRESH_AFTER = 1.0
"""Seconds for which nobody looks again whether a run has grown."""

T = TypeVar("T")


def open_run(path: Path, env: str | None = None) -> ViewedRun:
    """Read a run directory or a rollout file once, to look at it.

    Args:
        path: The directory or file.
        env: The environment of lines that name none.

    Raises:
        UsageError: There is no such run, or a line of it is wrong.

    """
    return ViewedRun(index_run(path, env=env), env)


class ViewedRun:
    """A run and its lists; an async context manager that closes the index at its end.

    The index is for one thread at a time, so that whatever asks it waits its turn.

    Args:
        index: The run.
        env: The environment of lines that name none.

    """

    def __init__(self, index: RunIndex, env: str | None = None) -> None:
        self.index = index
        self.path = index.path
        self.env = env
        self.listings = Listings(index)
        self.problem: str | None = None
        """What kept the run from being read further."""
        self._refreshed_at = 0.0
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._turn.locked():  # else a search is under way, which ends with the process
            self.index.close()

    @property
    def name(self) -> str:
        """Give what the page calls it."""
        return self.path.resolve().name or str(self.path)

    async def ask(self, question: Callable[[RunIndex, Listings], T]) -> T:
        """Let a thread answer a question; one whose turn nobody waits for any more is left out.

        Raises:
            UsageError: A line cannot be read.
            RefusedError: As the question says.

        """
        await self._turn.acquire()
        asking = asyncio.ensure_future(asyncio.to_thread(question, self.index, self.listings))
        # By the thread and not by who asked: that one may leave while the thread goes on.
        asking.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(asking)

    async def refresh(self) -> None:
        """Take what was written since; what is wrong with it is kept in `problem`."""
        now = asyncio.get_running_loop().time()
        if self._refreshed_at and now - self._refreshed_at < _REFRESH_AFTER:
            return
        self._refreshed_at = now
        self.problem = await self.ask(_refresh)


def _refresh(index: RunIndex, listings: Listings) -> str | None:
    num_rows = len(index.rows)
    try:
        listings.take(index.refresh())
    except UsageError as error:
        listings.take(Refreshed(len(index.rows) - num_rows))  # the lines before a damaged one
        return sendable(str(error))
    return None
