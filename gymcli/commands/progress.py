"""Progress of a collection: a live display on a terminal, else a plain line every few seconds."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TextIO

from gymcli.commands.console import display_of, message, one_line, scrub_display
from gymcli.types import Failure, Rollout

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

__all__ = ["Progress"]


class Progress:
    """Counts the outcomes of a collection and shows them on stderr while the block lasts.

    Args:
        num_left: Number of outcomes to expect.
        is_quiet: Show nothing.
        has_one_scale: Whether all rewards share a scale; otherwise their mean is not shown.
        stream: Stream of the live display, if it is a terminal; None: stderr.
        plain_seconds: Seconds between two plain lines.
    """

    def __init__(
        self,
        num_left: int,
        *,
        is_quiet: bool,
        has_one_scale: bool = True,
        stream: TextIO | None = None,
        plain_seconds: float = 5.0,
    ) -> None:
        self.num_left = num_left
        self.num_scored = 0
        self.num_tokens = 0
        self.failures: Counter[str] = Counter()
        self._reward_sum = 0.0
        self._by_run: dict[str, tuple[int, int, float]] = {}
        """Outcomes, scores and the sum of rewards of each run."""
        self._started = time.monotonic()
        self._is_quiet = is_quiet
        self._has_one_scale = has_one_scale
        self._stream = stream or sys.stderr
        self._plain_seconds = plain_seconds
        self._live: Live | None = None

    def __enter__(self) -> Self:
        is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        if not self._is_quiet and self.num_left and is_terminal:
            from rich.console import Console  # late: heavy
            from rich.live import Live

            console = Console(file=display_of(self._stream), stderr=True, force_terminal=True)
            self._live = Live(get_renderable=self._rendered, console=console, transient=True)
            self._live.start(refresh=True)
            scrub_display()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            self._live.stop()
        if self.num_ended:
            self.print_line()

    @asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Print a plain line every few seconds within the block, even when no attempt ends."""

        async def tick() -> None:
            while self._live is None:  # a live display refreshes itself
                await asyncio.sleep(self._plain_seconds)
                self.print_line()

        ticking = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticking.cancel()

    @property
    def num_ended(self) -> int:
        """Number of attempts that ended, scored or failed."""
        return self.num_scored + self.failures.total()

    def add(self, record: Rollout | Failure, run: str = "") -> None:
        """Count one outcome; `run` names its run if there are several."""
        self.num_tokens += record.usage.completion_tokens
        ended, scored, rewards = self._by_run.get(run, (0, 0, 0.0))
        is_scored = isinstance(record, Rollout)
        reward = (record.reward or 0.0) if isinstance(record, Rollout) else 0.0
        self._by_run[run] = (ended + 1, scored + is_scored, rewards + reward)
        if isinstance(record, Failure):
            self.failures[record.error.error_class] += 1
        else:
            self.num_scored += 1
            self._reward_sum += record.reward or 0.0

    def print_line(self) -> None:
        """Print the state in one line."""
        if not self._is_quiet:
            message("  ".join([*self._pace(), *self._quality()]))

    def _pace(self) -> list[str]:
        elapsed = max(time.monotonic() - self._started, 1e-9)
        rate = self.num_ended / elapsed
        parts = [f"{self.num_ended}/{self.num_left}", f"{rate:.1f}/s"]
        if self.num_ended == self.num_left:
            parts.append(f"in {elapsed:.1f} s" if elapsed < 10 else f"in {_duration(elapsed)}")
        elif self.num_ended:
            parts.append(f"{_duration((self.num_left - self.num_ended) / rate)} left")
        return parts

    def _quality(self) -> list[str]:
        elapsed = max(time.monotonic() - self._started, 1e-9)
        parts = []
        if len(self._by_run) > 1:
            for run, (ended, scored, rewards) in self._by_run.items():
                mean = f" {rewards / scored:.3f}" if scored and self._has_one_scale else ""
                parts.append(f"{one_line(run)} {ended}{mean}")
        elif self.num_scored and self._has_one_scale:
            parts.append(f"mean reward {self._reward_sum / self.num_scored:.3f}")
        if self.num_tokens:
            parts.append(f"{self.num_tokens / elapsed:,.0f} tokens/s")
        if self.failures:
            counts = ", ".join(f"{count} {name}" for name, count in self.failures.most_common())
            parts.append(f"failed: {counts}")
        return parts

    def _rendered(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=self.num_left, completed=self.num_ended, width=30)
        head.add_row(bar, *map(Text, self._pace()))
        below = Text("  ".join(self._quality()) or "waiting for the first answers")
        return Group(head, below)


def _duration(seconds: float) -> str:
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
