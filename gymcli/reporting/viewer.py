"""`gym view`: the page and its JSON answers on 127.0.0.1, for anyone with the printed address.

The token is the first part of the path. A cookie would be sent to every other server on this
machine, since cookies belong to hosts, not ports; a path is sent only to this server.

Slow results are cached until the run has grown, and for a while after that.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Mapping,
    Sequence,
)
from importlib.resources import files
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec
from aiohttp import web

from gymcli.comparison.comparison_results import Comparison
from gymcli.errors import FilterError, RunError, RunFileError, UsageError
from gymcli.listening import listen
from gymcli.metrics.at_k import METRICS
from gymcli.metrics.measure import index_run, measure
from gymcli.metrics.results import RunMetrics
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.filters import parse_filter
from gymcli.store.lines import iterate_lines
from gymcli.store.rollout_files import FAILURES, WAYS_OUT
from gymcli.store.run_index import Refreshed, Row, RunIndex
from gymcli.types import JSON_ERRORS, Failure, JSONObject, Rollout
from gymcli.version import __version__

T = TypeVar("T")


def sendable(text: str) -> str:
    """Return a text that JSON can hold, with `?` for bytes of a path that are not UTF-8."""
    return text.encode(errors="replace").decode()


class RefusedError(Exception):
    """Raised when a request has no answer; `field` is the name of the wrong parameter."""

    def __init__(self, status: int, message: str, *, field: str | None = None) -> None:
        super().__init__(sendable(message))
        self.status = status
        self.field = field


class ViewerQuery:
    """The parameters of a request."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters

    def text(self, name: str) -> str:
        return self._parameters.get(name, "")

    def number(self, name: str, *, default: int = 0, largest: int | None = None) -> int:
        """Return a whole number from 0 to `largest`; refuse anything else."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 15):
            raise RefusedError(400, f"{name}: expected a whole number", field=name)
        number = int(text)
        if largest is not None and number > largest:
            raise RefusedError(400, f"{name}: must be at most {largest}", field=name)
        return number


_REST = 10.0
"""An outdated result is replaced after this multiple of the seconds that it took."""


class Measurement(NamedTuple, Generic[T]):
    """A result, the version of the run it belongs to, and until when it is fresh enough."""

    value: T
    version: Hashable
    fresh_until: float


class CachedMeasurement(Generic[T]):
    """A slow measurement: made once for each version of a run, with pauses.

    Concurrent requests share one measurement. It continues when they are cancelled, for the next
    request. `measure` is called in a thread.
    """

    def __init__(
        self, measure: Callable[[], T], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure = measure
        self._clock = clock
        self._last: Measurement[T] | None = None
        self._running: asyncio.Task[None] | None = None

    async def of(self, version: Hashable) -> Measurement[T]:
        """Return the measurement of a version; for a while, that of an older version."""
        # Repeated, since the measurement that was awaited may be of an older version.
        while self._last is None or (
            self._last.version != version and self._clock() >= self._last.fresh_until
        ):
            if self._running is None:
                self._running = asyncio.create_task(self._run(version))
            await asyncio.shield(self._running)
        return self._last

    async def close(self) -> None:
        """Cancel a running measurement; its thread ends by itself."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _run(self, version: Hashable) -> None:
        started = self._clock()
        try:
            value = await asyncio.to_thread(self._measure)
            ended = self._clock()
            self._last = Measurement(value, version, ended + _REST * (ended - started))
        finally:
            self._running = None


_REWARD_CHOICES = {
    "passed": "passed == True",
    "not-passed": "passed == False",
    "zero": "reward == 0",
    "between": "0 < reward < 1",
    "mixed": "0 < avg < 1",
}
"""The filter expressions of the quick choices of rewards, by name."""

_EQUAL = {"only_env": "env", "only_status": "status", "only_stop_reason": "stop_reason"}
"""The names in filters, by the quick choices that compare them with one value."""

_MAX_KEPT = 8
"""Cached lists; each takes 8 bytes per rollout."""
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
"""Characters that must be escaped in a quoted text of an expression."""


class Listing(NamedTuple):
    """Which rollouts to list, and in which order."""

    expression: str = ""
    """A filter; empty selects all."""
    sort: str = ""


def _listing(query: ViewerQuery) -> Listing:
    parts = []
    where = query.text("where").strip()
    if where:
        try:
            parse_filter(where)
        except FilterError as error:
            raise RefusedError(400, str(error), field="where") from error
        parts.append(where)
    for choice, name in _EQUAL.items():
        if value := query.text(choice):
            parts.append(f"{name} == {quote(value)}")
    if reward := query.text("only_reward"):
        if reward not in _REWARD_CHOICES:
            choices = ", ".join(_REWARD_CHOICES)
            raise RefusedError(400, f"only_reward: use one of {choices}", field="only_reward")
        parts.append(_REWARD_CHOICES[reward])
    if text := query.text("containing"):
        parts.append(f"contains(text, {quote(text)})")
    expression = parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)
    return Listing(expression, query.text("sort"))


def quote(text: str) -> str:
    """Return a text as a quoted literal of an expression."""

    def escape(character: re.Match[str]) -> str:
        return f"\\{character[0]}" if character[0] in '"\\' else f"\\u{ord(character[0]):04x}"

    return f'"{_TO_ESCAPE.sub(escape, text)}"'


class Listings:
    """The lists of one run; used by one thread at a time."""

    def __init__(self, index: RunIndex, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._index = index
        self._clock = clock
        self.version = 0
        """Grows when records are added."""
        self._measurements: dict[Listing, Measurement[list[int]]] = {}
        self._choices: tuple[int, dict[str, dict[str, int]]] | None = None

    def take(self, refresh: Refreshed) -> None:
        if refresh.is_rebuilt:  # the numbers of rows mean other rows now
            self._measurements.clear()
        if refresh.is_rebuilt or refresh.num_new or refresh.num_changed:
            self.version += 1

    def rows(self, listing: Listing) -> tuple[Sequence[int], Hashable]:
        """Return the numbers of the listed rows, and the version they belong to."""
        if not any(listing):  # all rows in the order of the file
            return range(len(self._index.rows)), self.version
        measurement = self._measurements.pop(listing, None)
        if measurement is None or (
            measurement.version != self.version and self._clock() > measurement.fresh_until
        ):
            measurement = self._search(listing)
        # Popped above and added again, so the first is the least recently used.
        self._measurements[listing] = measurement
        while len(self._measurements) > _MAX_KEPT:
            del self._measurements[next(iter(self._measurements))]
        return measurement.value, measurement.version

    def _search(self, listing: Listing) -> Measurement[list[int]]:
        started = self._clock()
        try:
            row_filter = parse_filter(listing.expression) if listing.expression else None
            rows = self._index.select(row_filter, sort=listing.sort)
        except FilterError as error:
            raise RefusedError(400, str(error), field="where") from error
        ended = self._clock()
        return Measurement(rows, self.version, ended + _REST * (ended - started))

    def choices(self) -> dict[str, dict[str, int]]:
        """Count the rollouts by environment, status and stop reason, most frequent first."""
        if self._choices is None or self._choices[0] != self.version:
            counts_by_name = {}
            for name in ("env", "status", "stop_reason"):
                counts = Counter(self._index.values(name)).most_common()
                counts_by_name[name] = {
                    str(value): num for value, num in counts if value is not None
                }
            self._choices = self.version, counts_by_name
        return self._choices[1]


Kind = Literal[
    "regressed",
    "improved",
    "unchanged",
    "broken",
    "fixed",
    "flaky_a",
    "flaky_b",
    "flaky_both",
    "only_a",
    "only_b",
]
"""The first three by the means, of which a task of both runs has one; `broken`: all attempts passed
in A and all fail in B; `fixed`: the other way round; `flaky_`: some pass and some fail, in A alone,
in B alone, or in both."""

KINDS: tuple[Kind, ...] = get_args(Kind)


class TaskScores(NamedTuple):
    """The scored attempts of a task in one run."""

    mean: float
    num_scored: int
    num_passed: int | None
    """None if the reward from which an attempt passes is unknown."""


class ViewedTask(msgspec.Struct, kw_only=True):
    """A task in two runs; None for numbers of a run that has no score for it."""

    env: str
    task_id: str
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    """B - A."""
    num_a: int
    num_b: int
    passes_a: int | None
    passes_b: int | None
    kinds: list[Kind]


class ViewedTasks(NamedTuple):
    """All tasks with a score in at least one of two runs."""

    rows: list[ViewedTask]
    counts: Mapping[Kind, int]

    def select(self, kind: str, sort: str) -> Sequence[ViewedTask]:
        """Return the tasks of a kind, or all; tasks without the value to sort by come last."""
        name, is_descending = sort.removeprefix("-"), sort.startswith("-")
        if name not in ViewedTask.__struct_fields__:
            names = ", ".join(ViewedTask.__struct_fields__)
            raise RefusedError(400, f"sort: use one of {names}", field="sort")
        if kind and kind not in KINDS:
            raise RefusedError(400, f"kind: use one of {', '.join(KINDS)}", field="kind")
        rows = [row for row in self.rows if not kind or kind in row.kinds]
        known_rows = [row for row in rows if getattr(row, name) is not None]
        known_rows.sort(key=lambda row: getattr(row, name), reverse=is_descending)
        return known_rows + [row for row in rows if getattr(row, name) is None]


def _task_scores(index: RunIndex) -> dict[tuple[str, str], TaskScores]:
    rewards: dict[tuple[object, object], list[float]] = {}
    passes: dict[tuple[object, object], int] = {}
    columns = [index.values(name) for name in ("env", "task_id", "reward", "passed", "status")]
    for env, task_id, reward, passed, status in zip(*columns, strict=True):
        if status != "scored" or not isinstance(reward, float):
            continue
        key = (env, task_id)
        rewards.setdefault(key, []).append(reward)
        if passed is not None:
            passes[key] = passes.get(key, 0) + bool(passed)
    return {
        (str(env), str(task_id)): TaskScores(
            math.fsum(task_rewards) / len(task_rewards),
            len(task_rewards),
            passes.get((env, task_id)),
        )
        for (env, task_id), task_rewards in rewards.items()
    }


def differences(
    a: Mapping[tuple[str, str], TaskScores], b: Mapping[tuple[str, str], TaskScores]
) -> ViewedTasks:
    rows = []
    for env, task_id in sorted({*a, *b}):
        scores_a, scores_b = a.get((env, task_id)), b.get((env, task_id))
        row = ViewedTask(
            env=env,
            task_id=task_id,
            mean_a=scores_a.mean if scores_a else None,
            mean_b=scores_b.mean if scores_b else None,
            difference=_difference(scores_a, scores_b) if scores_a and scores_b else None,
            num_a=scores_a.num_scored if scores_a else 0,
            num_b=scores_b.num_scored if scores_b else 0,
            passes_a=scores_a.num_passed if scores_a else None,
            passes_b=scores_b.num_passed if scores_b else None,
            kinds=_kinds(scores_a, scores_b),
        )
        rows.append(row)
    return ViewedTasks(rows, Counter(kind for row in rows for kind in row.kinds))


def _difference(a: TaskScores, b: TaskScores) -> float:
    # Equal means of different rewards may differ in their last digits.
    return 0.0 if math.isclose(a.mean, b.mean, rel_tol=1e-12) else b.mean - a.mean


def _kinds(a: TaskScores | None, b: TaskScores | None) -> list[Kind]:
    if a is None or b is None:
        return ["only_b" if a is None else "only_a"]
    difference = _difference(a, b)
    kinds: list[Kind] = ["unchanged"]
    if difference:
        kinds = ["improved" if difference > 0.0 else "regressed"]
    if a.num_passed is None or b.num_passed is None:
        return kinds
    flaky_a, flaky_b = (side.num_passed not in (0, side.num_scored) for side in (a, b))
    if flaky_a or flaky_b:
        kinds.append("flaky_both" if flaky_a and flaky_b else "flaky_a" if flaky_a else "flaky_b")
    elif bool(a.num_passed) != bool(b.num_passed):
        kinds.append("fixed" if b.num_passed else "broken")
    return kinds


MAX_RECORD_BYTES = 48 << 20
"""A longer record is not readable on a page."""

_MAX_TRIES = 50
"""The most failures of an attempt that are returned, the last ones."""

_DECODER = msgspec.json.Decoder(JSONObject)
_FAILURE = msgspec.json.Decoder(Failure)


def _read_record(index: RunIndex, row: Row) -> Rollout | Failure | JSONObject:
    # Fall back to plain JSON: a line with an unknown role, for example, cannot be scored but can
    # still be shown.
    if row.place.size > MAX_RECORD_BYTES:
        size = row.place.size >> 20
        raise RefusedError(
            413,
            f"this rollout is {size} MB, too much for a page; "
            f"gym show {index.path} {row.task_id}/{row.attempt} prints it",
        )
    try:
        return index.read(row)
    except RunFileError:
        try:
            record: JSONObject = _DECODER.decode(index.line(row))
        except JSON_ERRORS:
            record = {}
        if (record.get("task_id"), record.get("attempt")) == (row.task_id, row.attempt):
            return record
        raise


def failures_of(run: Path, row: Row) -> list[Failure]:
    """Return the failures of an attempt, oldest first, without their conversations."""
    path = run / FAILURES
    failures: deque[Failure] = deque(maxlen=_MAX_TRIES)
    if not (run.is_dir() and path.is_file()):
        return []
    needle = msgspec.json.encode(row.task_id)
    for line in iterate_lines(path):
        if needle not in line.data:  # most lines belong to other tasks and need not be decoded
            continue
        try:
            failure = _FAILURE.decode(line.data)
        except JSON_ERRORS as error:
            if not line.is_complete:  # the run is still writing it
                break
            text = f"{path}:{line.number}: is damaged: {error}; {WAYS_OUT[FAILURES]}"
            raise RunFileError(text) from error
        if (failure.env, failure.task_id, failure.attempt) == (row.env, row.task_id, row.attempt):
            failures.append(msgspec.structs.replace(failure, messages=[]))
    return list(failures)


_REFRESH_AFTER = 1.0
"""Seconds after a refresh before a run is read again."""


class ViewedRun:
    """A run and its lists.

    The index can be used by one thread at a time, so requests to it take turns.

    Raises:
        UsageError: The run does not exist, or one of its lines is wrong.
    """

    def __init__(self, path: Path, env: str | None = None) -> None:
        self.index = index_run(path, env=env)
        self.path = path
        self.env = env
        self.listings = Listings(self.index)
        self.problem: str | None = None
        """Why the rest of the run could not be read."""
        self._refreshed_at = 0.0
        self._turn = asyncio.Lock()

    def close(self) -> None:
        if not self._turn.locked():  # otherwise a search is running; it ends with the process
            self.index.close()

    @property
    def name(self) -> str:
        return self.path.resolve().name or str(self.path)

    def measure_metrics(self) -> RunMetrics:
        return measure(self.path, env=self.env).metrics()

    async def ask(self, question: Callable[[RunIndex, Listings], T]) -> T:
        """Call a function in a thread; one that is cancelled before its turn is never called."""
        await self._turn.acquire()
        asking = asyncio.ensure_future(asyncio.to_thread(question, self.index, self.listings))
        # Released by the thread, not by its caller, which may be cancelled while the thread runs.
        asking.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(asking)

    async def refresh(self) -> None:
        """Read what was written since the last time; an error is stored in `problem`."""
        now = asyncio.get_running_loop().time()
        if self._refreshed_at and now - self._refreshed_at < _REFRESH_AFTER:
            return
        self._refreshed_at = now  # before the refresh, so that concurrent requests skip theirs

        def read(index: RunIndex, listings: Listings) -> str | None:
            num_rows = len(index.rows)
            try:
                listings.take(index.refresh())
            except UsageError as error:
                # The lines before a damaged one are read anyway.
                listings.take(Refreshed(len(index.rows) - num_rows))
                return sendable(str(error))
            return None

        self.problem = await self.ask(read)


_MAX_ROWS = 500
"""The most rows of one answer."""
_MAX_NEARBY = 8
"""How many attempts before and after a rollout its page links to."""
_LEFT_OUT = ("place", "components", "metrics")


class ViewerAnswers:
    """Answers the requests of the page about one run or two."""

    def __init__(self, runs: Sequence[ViewedRun]) -> None:
        self._runs = runs
        self._metrics = [CachedMeasurement(run.measure_metrics) for run in runs]
        self._comparison = CachedMeasurement(self._compare_runs)
        self._differences: tuple[tuple[int, ...], ViewedTasks] | None = None
        self._answers: dict[str, Callable[[ViewerQuery], Awaitable[JSONObject]]] = {
            "runs": self._about,
            "status": self._status,
            "list": self._list,
            "rollout": self._rollout,
            "record": self._record,
            "task": self._task,
            "pair": self._pair,
            "history": self._history,
            "metrics": self._numbers,
            "differences": self._task_differences,
            "comparison": self._compare,
        }

    async def answer(self, name: str, query: ViewerQuery) -> bytes:
        answer = self._answers.get(name)
        if answer is None:
            raise RefusedError(404, f"{name}: no such address")
        try:
            return msgspec.json.encode(await answer(query))
        except (UsageError, RunError) as error:
            raise RefusedError(409, str(error)) from error

    async def close(self) -> None:
        await self._comparison.close()
        for metrics in self._metrics:
            await metrics.close()

    def _run(self, query: ViewerQuery) -> ViewedRun:
        return self._runs[query.number("run", largest=len(self._runs) - 1)]

    def _versions(self) -> tuple[int, ...]:
        return tuple(run.listings.version for run in self._runs)

    async def _about(self, query: ViewerQuery) -> JSONObject:
        del query
        runs = []
        for run in self._runs:
            manifest = run.index.manifest
            runs.append(
                {
                    "name": sendable(run.name),
                    "path": sendable(str(run.path)),
                    "model": manifest.model if manifest is not None else "",
                    "version": run.listings.version,
                }
            )
        names = await self._runs[0].ask(lambda index, _: index.names)
        return {"gymcli": f"gymcli {__version__}", "runs": runs, "names": names}

    async def _status(self, query: ViewerQuery) -> JSONObject:
        del query
        runs = []
        for run in self._runs:
            await run.refresh()
            num_rows = await run.ask(lambda index, _: len(index.rows))
            version = run.listings.version
            runs.append({"version": version, "num_rows": num_rows, "problem": run.problem})
        return {"runs": runs}

    async def _list(self, query: ViewerQuery) -> JSONObject:
        run, listing = self._run(query), _listing(query)
        await run.refresh()

        def page(index: RunIndex, listings: Listings) -> JSONObject:
            numbers, version = listings.rows(listing)
            start, end = _page(query, len(numbers))
            rows = [index.rows[number] for number in numbers[start:end]]
            return {
                "num_rows": len(index.rows),
                "num_matching": len(numbers),
                "offset": start,
                "version": version,
                "expression": listing.expression,
                "rows": [self._row_json(row, run) for row in rows],
                "choices": listings.choices(),
            }

        return await run.ask(page)

    async def _rollout(self, query: ViewerQuery) -> JSONObject:
        run, listing = self._run(query), _listing(query)
        await run.refresh()

        def around(index: RunIndex, listings: Listings) -> JSONObject:
            row = _row(index, query)
            numbers, _ = listings.rows(listing)
            position = numbers.index(row.number) if row.number in numbers else None
            attempts = index.attempts_of(row.env, row.task_id)
            place_of_attempt = attempts.index(row.number)
            attempts_nearby = attempts[
                max(0, place_of_attempt - _MAX_NEARBY) : place_of_attempt + _MAX_NEARBY + 1
            ]

            def row_at(place: int) -> JSONObject | None:
                if not 0 <= place < len(numbers):
                    return None
                return self._row_json(index.rows[numbers[place]], run)

            return {
                "row": self._row_json(row, run),
                "record": _read_record(index, row),
                "position": position,
                "num_matching": len(numbers),
                "previous": None if position is None else row_at(position - 1),
                "next": None if position is None else row_at(position + 1),
                "num_attempts": len(attempts),
                "attempts": [self._row_json(index.rows[number], run) for number in attempts_nearby],
            }

        return await run.ask(around)

    async def _record(self, query: ViewerQuery) -> JSONObject:
        run = self._run(query)
        return {"record": await run.ask(lambda index, _: _read_record(index, _row(index, query)))}

    async def _task(self, query: ViewerQuery) -> JSONObject:
        run = self._run(query)
        rows = await self._attempts(run, query)
        if not rows:
            raise RefusedError(404, f"{run.path}: no task {query.text('task')}")
        offset = query.number("offset")
        end = offset + query.number("limit", default=4, largest=_MAX_ROWS)
        page_rows = [self._row_json(row, run) for row in rows[offset:end]]
        return {"num_rows": len(rows), "mean": rows[0].avg, "rows": page_rows}

    async def _pair(self, query: ViewerQuery) -> JSONObject:
        runs = []
        for run in self._runs:
            rows = await self._attempts(run, query)
            runs.append([self._row_json(row, run) for row in rows[:_MAX_ROWS]])
        if not any(runs):
            raise RefusedError(404, f"no run has task {query.text('task')}")
        return {"runs": runs}

    async def _attempts(self, run: ViewedRun, query: ViewerQuery) -> list[Row]:
        env, task = query.text("env"), query.text("task")

        def attempts(index: RunIndex, _: Listings) -> list[Row]:
            return [index.rows[number] for number in index.attempts_of(env, task)]

        return await run.ask(attempts)

    async def _history(self, query: ViewerQuery) -> JSONObject:
        run = self._run(query)
        failures = await run.ask(lambda index, _: failures_of(run.path, _row(index, query)))
        return {"failures": failures}

    async def _numbers(self, query: ViewerQuery) -> JSONObject:
        number = query.number("run", largest=len(self._runs) - 1)
        run = self._runs[number]
        measurement = await self._metrics[number].of(run.listings.version)
        curves = [
            (metric.name, metric.key) for metric in METRICS.values() if metric.needs_threshold
        ]
        return {"metrics": measurement.value, "version": measurement.version, "curves": curves}

    async def _task_differences(self, query: ViewerQuery) -> JSONObject:
        a, b = self._two_runs()
        versions = self._versions()
        if self._differences is None or self._differences[0] != versions:
            scores_a = await a.ask(lambda index, _: _task_scores(index))
            scores_b = await b.ask(lambda index, _: _task_scores(index))
            self._differences = versions, differences(scores_a, scores_b)
        tasks = self._differences[1]
        rows = tasks.select(query.text("kind"), query.text("sort") or "difference")
        start, end = _page(query, len(rows))
        return {
            "num_tasks": len(tasks.rows),
            "num_matching": len(rows),
            "offset": start,
            "counts": tasks.counts,
            "has_environments": len({row.env for row in tasks.rows}) > 1,
            "rows": rows[start:end],
        }

    async def _compare(self, query: ViewerQuery) -> JSONObject:
        del query
        self._two_runs()
        measurement = await self._comparison.of(self._versions())
        return {"comparison": measurement.value, "version": measurement.version}

    def _compare_runs(self) -> Comparison:
        from gymcli.comparison.paired_runs import compare_runs  # late: heavy, for two runs only

        a, b = self._runs
        return compare_runs(a.path, b.path, env=a.env, allow_drift=True)

    def _two_runs(self) -> Sequence[ViewedRun]:
        if len(self._runs) != 2:
            raise RefusedError(404, "only one run is open; start with two: gym view A B")
        return self._runs

    def _row_json(self, row: Row, run: ViewedRun) -> JSONObject:
        fields = {n: getattr(row, n) for n in row.__struct_fields__ if n not in _LEFT_OUT}
        return {**fields, "run": self._runs.index(run)}


def _page(query: ViewerQuery, num_rows: int) -> tuple[int, int]:
    """Return the start and end of the requested page; past the end, of the last page."""
    limit = query.number("limit", default=100, largest=_MAX_ROWS)
    start = min(query.number("offset"), max(0, (num_rows - 1) // max(limit, 1) * limit))
    return start, start + limit


def _row(index: RunIndex, query: ViewerQuery) -> Row:
    task, attempt = query.text("task"), query.number("attempt")
    row = index.find(query.text("env"), task, attempt)
    if row is None:
        raise RefusedError(404, f"{index.path}: no attempt {attempt} of task {task}")
    return row


_HOST = "127.0.0.1"
_HOSTS = (_HOST, "localhost", "[::1]")
"""Host names of this machine in a browser, also through a tunnel. A request with any other name
comes from a foreign page whose name was made to resolve to this machine (DNS rebinding)."""
_SHUTDOWN = 1.0
"""Seconds that open requests get to end when the server stops."""
_MAX_LINE_BYTES = 1 << 16
"""The longest request line in bytes; it may contain long task ids."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def viewer_runner(
    runs: Sequence[ViewedRun], token: str, *, scrubber: Scrubber = NOTHING_SECRET
) -> web.AppRunner:
    """Return a server for one run or two; it closes them when it ends.

    `token` is the first part of the path of every address.
    """
    answers = ViewerAnswers(runs)
    page_files = _page_files()

    async def close_runs(_: web.Application) -> AsyncIterator[None]:
        yield
        await answers.close()
        for run in runs:
            run.close()

    async def respond(request: web.Request) -> web.Response:
        status, content_type = 200, "application/json"
        try:
            name = _check_request(request, token)
            if name.startswith("api/"):
                query = ViewerQuery(request.query)
                data = scrubber.line(await answers.answer(name.removeprefix("api/"), query))
            elif name in page_files:
                content_type, data = page_files[name]
            else:
                raise RefusedError(404, "no such address")
        except RefusedError as error:
            status = error.status
            error_fields = {"error": scrubber.text(str(error)), "field": error.field}
            data = msgspec.json.encode(error_fields)
        return web.Response(
            body=data, status=status, headers=_HEADERS, content_type=content_type, charset="utf-8"
        )

    application = web.Application()
    application.cleanup_ctx.append(close_runs)
    application.router.add_route("*", "/{path:.*}", respond)
    return web.AppRunner(
        application,
        access_log=None,  # it would contain the token
        handler_cancellation=True,  # do not start a search after its client left
        max_line_size=_MAX_LINE_BYTES,
        shutdown_timeout=_SHUTDOWN,
    )


def _check_request(request: web.Request, token: str) -> str:
    """Return the part of the path after the token, or refuse the request."""
    host = request.headers.get("Host", "").lower()
    name, colon, port = host.rpartition(":")
    if (name if colon and port.isdecimal() else host) not in _HOSTS:
        raise RefusedError(403, "this server only answers as 127.0.0.1 or localhost")
    path_token, slash, name = request.path.removeprefix("/").partition("/")
    # In constant time, so that timing tells nothing; as bytes, since it refuses text beyond ASCII.
    if not secrets.compare_digest(path_token.encode(errors="replace"), token.encode()):
        raise RefusedError(403, "open the address that gym view printed, including its token")
    if request.method not in ("GET", "HEAD"):
        raise RefusedError(405, "this server is read-only")
    if not slash:
        raise RefusedError(404, "the address must end with a slash")
    return name


def _page_files() -> dict[str, tuple[str, bytes]]:
    """Return type and data of the page's files by name; the page itself has an empty name."""
    page_files = {}
    for file in files("gymcli.reporting").joinpath("viewer").iterdir():
        kind = _TYPES.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            name = "" if file.name == "index.html" else file.name
            page_files[name] = kind, file.read_bytes()
    return page_files


async def serve(
    runs: Sequence[ViewedRun],
    *,
    port: int,
    scrubber: Scrubber,
    announce: Callable[[str], None],
) -> None:
    """Serve the page until SIGTERM or SIGINT.

    `announce` is called with the address of the page, including the token, once it listens.

    Raises:
        UsageError: It cannot listen on the port.
    """
    token = secrets.token_urlsafe(24)
    runner = viewer_runner(runs, token, scrubber=scrubber)
    await listen(runner, host=_HOST, port=port, announce=lambda base: announce(f"{base}/{token}/"))
