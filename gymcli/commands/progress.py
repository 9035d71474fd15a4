"""Progress of a collection: a live display on a terminal, else a plain line every few seconds."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import math
import os
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from gymcli.commands.console import display_of, harmless, message, one_line, scrub_display
from gymcli.types import AttemptKey, Failure, Rollout

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

_MAX_ROWS = 8
"""Environments with a row of their own in the live display."""
_MAX_MEANS = 4
"""Environments with a mean of their own in a plain line."""
_NUM_RECENT = 200
"""Durations of an environment that are kept."""


class Running(Protocol):
    """A collection that runs, as its display sees it."""

    @property
    def left(self) -> Mapping[str, int]:
        """Attempts that the collection runs, by environment."""
        ...

    @property
    def begun_at(self) -> Mapping[AttemptKey, float]:
        """When each attempt that has not ended yet began, by `time.monotonic`."""
        ...

    @property
    def num_in_flight(self) -> int:
        """Attempts that are being played or scored."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Whether the run ends early."""
        ...

    @property
    def retries(self) -> Mapping[str, int]:
        """Failed requests that are sent again, counted by error class."""
        ...


class SeveralRuns:
    """The collections of several models, shown as one: each has environments of its own."""

    def __init__(self, runs: Mapping[str, Running]) -> None:
        self._runs = runs
        self.left: dict[str, int] = {}
        """Attempts that the collections run, by the name of their environment here."""
        self.names: dict[tuple[str, str], str] = {}
        """The name under which an environment of a model is shown."""
        for model, run in runs.items():
            for env, num_left in run.left.items():
                name = self.names[model, env] = model if len(run.left) == 1 else f"{model} {env}"
                self.left[name] = num_left

    @property
    def begun_at(self) -> Mapping[AttemptKey, float]:
        """When each attempt that has not ended yet began, by `time.monotonic`."""
        # Copies, since the live display is drawn in a thread of its own.
        return {
            AttemptKey(self.names[model, key.env], key.task_id, key.attempt): began_at
            for model, run in self._runs.items()
            for key, began_at in dict(run.begun_at).items()
        }

    @property
    def num_in_flight(self) -> int:
        """Attempts that are being played or scored."""
        return sum(run.num_in_flight for run in self._runs.values())

    @property
    def is_stopping(self) -> bool:
        """Whether a run ends early: how many attempts are still to come is unknown then."""
        return any(run.is_stopping for run in self._runs.values())

    @property
    def retries(self) -> Mapping[str, int]:
        """Failed requests that are sent again, counted by error class."""
        return sum((Counter(run.retries) for run in self._runs.values()), Counter())


class _Ended:
    """The attempts that ended, of one environment or of all."""

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left
        self.num_ended = 0
        self.num_scored = 0
        self.reward_sum = 0.0
        self.seconds = 0.0
        self.recent: deque[float] = deque(maxlen=_NUM_RECENT)
        """The seconds of those that ended last."""

    @property
    def mean_reward(self) -> str:
        return f"{self.reward_sum / self.num_scored:.3f}" if self.num_scored else "-"

    def add(self, record: Rollout | Failure) -> None:
        self.num_ended += 1
        if isinstance(record, Rollout):
            self.num_scored += 1
            self.reward_sum += record.reward or 0.0
        self.seconds += record.timing.total_seconds
        self.recent.append(record.timing.total_seconds)

    def expected(self, ages: Sequence[float]) -> float:
        """Return the expected seconds of a new attempt; others have been in flight for `ages`.

        The short attempts end first, so those in flight count too.
        """
        in_flight = math.fsum(ages) + math.fsum(self.remaining(ages))
        return (self.seconds + in_flight) / max(1, self.num_ended + len(ages))

    def remaining(self, ages: Sequence[float]) -> list[float]:
        """Return how long each attempt in flight will still take, judged by those that ended."""
        ended = sorted(self.recent)
        sums = [*itertools.accumulate(reversed(ended), initial=0.0)]  # sums[n]: of the n longest
        num_longer = [len(ended) - bisect.bisect_right(ended, age) for age in ages]
        # An attempt that outlasts all that ended is half over, as far as anybody knows.
        return [sums[n] / n - age if n else age for n, age in zip(num_longer, ages, strict=True)]


class Progress:
    """Counts the outcomes of a collection and shows them on stderr while the block lasts.

    Args:
        run: The collection.
        is_quiet: Show nothing.
        has_one_scale: Whether all rewards share a scale; otherwise they have a mean for each
            environment only.
        stream: Stream of the live display, if it is a terminal; None: stderr.
        plain_seconds: Seconds between two plain lines.
    """

    def __init__(
        self,
        run: Running,
        *,
        is_quiet: bool,
        has_one_scale: bool = True,
        stream: TextIO | None = None,
        plain_seconds: float = 5.0,
    ) -> None:
        self.failures: Counter[str] = Counter()
        self._run = run
        self._names = run.names if isinstance(run, SeveralRuns) else {}
        self._all = _Ended(sum(run.left.values()))
        self._environments = {name: _Ended(num_left) for name, num_left in run.left.items()}
        self._num_tokens = 0
        self._started = time.monotonic()
        self._is_quiet = is_quiet
        self._has_one_scale = has_one_scale
        self._stream = stream or sys.stderr
        self._plain_seconds = plain_seconds
        self._live: Live | None = None
        self._estimate: tuple[float, float | None] = (-math.inf, None)
        """When the time left was last estimated, and the seconds."""

    def __enter__(self) -> Self:
        is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        if not self._is_quiet and self._all.num_left and is_terminal:
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
        if self._all.num_ended:
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

    def add(self, record: Rollout | Failure, run_name: str = "") -> None:
        """Count one outcome, of the run of this name if there are several."""
        self._num_tokens += record.usage.completion_tokens
        if isinstance(record, Failure):
            self.failures[record.error.error_class] += 1
        name = self._names.get((run_name, record.env), record.env)
        for ended in (self._all, self._environments[name]):
            ended.add(record)

    def print_line(self) -> None:
        """Print the state in one line."""
        if not self._is_quiet:
            count = f"{self._all.num_ended}/{self._all.num_left}"
            # At the end the summary has the mean of each environment.
            is_over = self._all.num_ended == self._all.num_left
            means = self._mean() or ([] if is_over else self._means())
            message("  ".join([count, *self._pace(), *means, *self._tokens(), *self._errors()]))

    @property
    def _elapsed(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)

    def _pace(self) -> list[str]:
        elapsed = self._elapsed
        parts = [f"{self._all.num_ended / elapsed:.1f}/s"]
        if self._all.num_ended == self._all.num_left:
            parts.append(f"in {elapsed:.1f} s" if elapsed < 10 else f"in {_duration(elapsed)}")
        elif self._all.num_ended and not self._run.is_stopping:
            seconds = self._seconds_left()
            parts += [] if seconds is None else [f"{_duration(seconds)} left"]
        if num_in_flight := self._run.num_in_flight:
            parts.append(f"{num_in_flight} in flight")
        return parts

    def _mean(self) -> list[str]:
        has_mean = self._all.num_scored and self._has_one_scale
        return [f"mean reward {self._all.mean_reward}"] if has_mean else []

    def _means(self) -> list[str]:
        scored = {name: part for name, part in self._environments.items() if part.num_scored}
        means = [f"{one_line(name)} {part.mean_reward}" for name, part in scored.items()]
        more = f" and {len(means) - _MAX_MEANS} more" if len(means) > _MAX_MEANS else ""
        return [f"mean reward {', '.join(means[:_MAX_MEANS])}{more}"] if means else []

    def _tokens(self) -> list[str]:
        return [f"{self._num_tokens / self._elapsed:,.0f} tokens/s"] if self._num_tokens else []

    def _errors(self) -> list[str]:
        """Return the retried requests and the failed attempts, by error class."""
        # Copies, since the live display is drawn in a thread of its own.
        counts = {"retries": Counter(self._run.retries), "failed": self.failures.copy()}
        return [
            f"{title}: {', '.join(f'{num} {name}' for name, num in by_class.most_common())}"
            for title, by_class in counts.items()
            if by_class
        ]

    def _seconds_left(self) -> float | None:
        """Estimate the seconds until the end, at most once a second; None if nobody knows.

        The plain rate is wrong where some attempts take long: it counts those in flight, which are
        the long ones, like all others. Nobody knows how long the last attempts in flight take, nor
        one that has taken longer than all that ended and than all others still need.
        """
        now = time.monotonic()
        if now - self._estimate[0] < 1.0:
            return self._estimate[1]
        ages: dict[str, list[float]] = {name: [] for name in self._environments}
        for key, began_at in dict(self._run.begun_at).items():
            ages[key.env].append(now - began_at)
        all_ages = [age for ages_of_env in ages.values() for age in ages_of_env]
        work = longest = longest_new = outlasting = 0.0
        num_new = 0
        for name, ended in self._environments.items():
            remaining = ended.remaining(ages[name])
            work += math.fsum(remaining)
            longest = max(longest, *remaining, 0.0)
            longest_ended = max(ended.recent, default=0.0)
            outlasting = max(outlasting, *(age for age in ages[name] if age >= longest_ended), 0.0)
            num_own = ended.num_left - ended.num_ended - len(remaining)
            if num_own > 0:
                # Nobody knows how long the attempts of an environment take before one has begun.
                is_known = ended.num_ended or remaining
                basis, basis_ages = (ended, ages[name]) if is_known else (self._all, all_ages)
                num_new += num_own
                work += num_own * basis.expected(basis_ages)
                longest_new = max(longest_new, *basis.recent, 0.0)
        # While the last attempts run, other places are idle: for half of an attempt on average;
        # Graham, "Bounds on Multiprocessing Timing Anomalies" (1969), has the bound.
        num_places = max(1, len(all_ages))
        left = work / num_places + (1.0 - 1.0 / num_places) * longest_new / 2.0
        seconds = max(longest, left) if num_new and outlasting <= left else None
        self._estimate = (now, seconds)
        return seconds

    def _rendered(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(ratio=1)
        head.add_column(no_wrap=True)
        bar = ProgressBar(total=self._all.num_left, completed=self._all.num_ended)
        head.add_row(bar, Text(f"{self._all.num_ended}/{self._all.num_left}"))
        if not self._all.num_ended:
            waiting = ["waiting for the first answers"]
        else:
            waiting = [*self._mean(), *self._tokens()]
        lines = ["  ".join([*self._pace(), *waiting]), *self._errors()]
        rows = [self._environment_rows()] if len(self._environments) > 1 else []
        return Group(head, *map(Text, lines), *rows)

    def _environment_rows(self) -> Table:
        """Return a row for each environment; of many, those with attempts in flight come first."""
        from rich.table import Table
        from rich.text import Text

        begun = Counter(key.env for key in dict(self._run.begun_at))
        rows = list(self._environments.items())
        if len(rows) > _MAX_ROWS:
            rows.sort(key=lambda item: not begun[item[0]])
        table = Table.grid(padding=(0, 2))
        table.add_column(overflow="ellipsis")  # the only one that gives way
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        for name, ended in rows[:_MAX_ROWS]:
            cells = (
                harmless(one_line(name)),  # a display lets escape sequences through
                f"{ended.num_ended}/{ended.num_left}",
                f"mean reward {ended.mean_reward}",
                f"{begun[name]} in flight" if begun[name] else "",
            )
            table.add_row(*map(Text, cells))
        if len(rows) > _MAX_ROWS:
            table.add_row(Text(f"and {len(rows) - _MAX_ROWS} more"))
        return table


def _duration(seconds: float) -> str:
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{remainder:02d}" if hours else f"{minutes}:{remainder:02d}"
