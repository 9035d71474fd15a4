"""What the viewer reads of a run: lists of rollouts, differences between two runs, records.

What takes long to find is kept until the run has grown, and then for a while.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from gymcli.errors import FilterError, RunFileError
from gymcli.metrics.filters import parse_filter
from gymcli.store.lines import iterate_lines
from gymcli.store.rollout_files import FAILURES, WAYS_OUT
from gymcli.store.run_index import Refreshed, Row, RunIndex
from gymcli.types import JSON_ERRORS, Failure, JSONObject, Rollout

__all__ = [
    "KINDS",
    "MAX_RECORD_BYTES",
    "REST",
    "REWARD_CHOICES",
    "CachedMeasurement",
    "Choices",
    "Kind",
    "Listing",
    "Listings",
    "Measurement",
    "RefusedError",
    "TaskScores",
    "ViewedTask",
    "ViewedTasks",
    "ViewerQuery",
    "differences",
    "failures_of",
    "listing_of",
    "quoted",
    "read_record",
    "sendable",
    "task_scores",
]


def sendable(text: str) -> str:
    """Return a text that JSON can hold, with `?` where a path is not UTF-8."""
    return text.encode(errors="replace").decode()


class RefusedError(Exception):
    """Raised when a question has no answer; `field` names the parameter that is wrong."""

    def __init__(self, status: int, message: str, *, field: str | None = None) -> None:
        super().__init__(sendable(message))
        self.status = status
        self.field = field


class ViewerQuery:
    """The parameters of a question, each read as what it is meant to be."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        """Return a text; an empty one where there is none."""
        return self._given.get(name, "")

    def number(self, name: str, *, default: int = 0, most: int | None = None) -> int:
        """Return a whole number from 0 on.

        Raises:
            RefusedError: It is none, or more than `most`.

        """
        text = self._given.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 15):
            raise RefusedError(400, f"{name}: expected a whole number", field=name)
        number = int(text)
        if most is not None and number > most:
            raise RefusedError(400, f"{name}: is at most {most}", field=name)
        return number


REST = 10.0
"""What is of an older version is measured again after this many times the seconds that it took."""

T = TypeVar("T")


class Measurement(NamedTuple, Generic[T]):
    """A result, the version of the run that it is of, and until when it is new enough."""

    value: T
    version: Hashable
    fresh_until: float


class CachedMeasurement(Generic[T]):
    """A measurement that takes long: made once for each version of a run, with pauses.

    Requests at the same time wait for one measurement. It goes on when they are cancelled, for
    the next one.

    Args:
        measure: Called in a thread.
        clock: Returns the time in seconds.

    """

    def __init__(
        self, measure: Callable[[], T], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure = measure
        self._clock = clock
        self._last: Measurement[T] | None = None
        self._running: asyncio.Task[None] | None = None

    async def of(self, version: Hashable) -> Measurement[T]:
        """Return the measurement of a version; for a while after one, that of an older version.

        Raises:
            UsageError: What is measured cannot be read.

        """
        while self._last is None or self._is_old(self._last, version):
            if self._running is None:
                self._running = asyncio.create_task(self._run(version))
            await asyncio.shield(self._running)
        return self._last

    async def close(self) -> None:
        """Cancel a measurement that is under way; its thread ends by itself."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    def _is_old(self, last: Measurement[T], version: Hashable) -> bool:
        return last.version != version and self._clock() >= last.fresh_until

    async def _run(self, version: Hashable) -> None:
        started = self._clock()
        try:
            value = await asyncio.to_thread(self._measure)
            ended = self._clock()
            self._last = Measurement(value, version, ended + REST * (ended - started))
        finally:
            self._running = None


REWARD_CHOICES = {
    "passed": "passed == True",
    "not-passed": "passed == False",
    "zero": "reward == 0",
    "between": "0 < reward < 1",
    "mixed": "0 < avg < 1",
}
"""The expressions of the quick choices, by name."""

_EQUAL = {"only_env": "env", "only_status": "status", "only_stop_reason": "stop_reason"}
"""The names of a row by the quick choices that ask for one value of them."""

_MAX_KEPT = 8
"""Lists that are kept; each takes 8 bytes a rollout."""
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
"""What cannot stand in the quotes of an expression as it is."""

Choices = dict[str, dict[str, int]]
"""By name, how many rollouts have each value."""


class Listing(NamedTuple):
    """Which rollouts, and in which order."""

    expression: str = ""
    """A filter; empty: all."""
    sort: str = ""


class _SearchResult(NamedTuple):
    rows: list[int]
    version: int
    fresh_until: float


def listing_of(query: ViewerQuery) -> Listing:
    """Return which rollouts are asked for, by an expression and by quick choices.

    Raises:
        RefusedError: The expression is none, or there is no such choice.

    """
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
            parts.append(f"{name} == {quoted(value)}")
    if reward := query.text("only_reward"):
        if reward not in REWARD_CHOICES:
            known = ", ".join(REWARD_CHOICES)
            raise RefusedError(400, f"only_reward: there are {known}", field="only_reward")
        parts.append(REWARD_CHOICES[reward])
    if text := query.text("containing"):
        parts.append(f"contains(text, {quoted(text)})")
    joined = parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)
    return Listing(joined, query.text("sort"))


def quoted(text: str) -> str:
    """Return a text in quotes, as an expression has it."""
    return f'"{_TO_ESCAPE.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}" if found[0] in '"\\' else f"\\u{ord(found[0]):04x}"


class Listings:
    """The lists of one run; used by one thread at a time.

    Args:
        index: The run.
        clock: Returns the time in seconds.

    """

    def __init__(self, index: RunIndex, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._index = index
        self._clock = clock
        self._version = 0
        self._kept: dict[Listing, _SearchResult] = {}
        self._choices: tuple[int, Choices] | None = None

    @property
    def version(self) -> int:
        """A number that grows with what is on record."""
        return self._version

    def version_of(self, listing: Listing) -> int:
        """Return the version that the rows of a list are of; it may be an older one for a while."""
        found = self._kept.get(listing)
        return self._version if found is None else found.version

    def take(self, refreshed: Refreshed) -> None:
        """Take what a refresh found."""
        if refreshed.is_rebuilt:
            self._kept.clear()
        if refreshed.is_rebuilt or refreshed.num_new or refreshed.num_changed:
            self._version += 1

    def rows(self, listing: Listing) -> Sequence[int]:
        """Return the numbers of the rows that are listed.

        Raises:
            RefusedError: A name is unknown, or a value does not fit.
            UsageError: A line cannot be read.

        """
        if not any(listing):
            return range(len(self._index.rows))
        found = self._kept.pop(listing, None)
        if found is None or (found.version != self._version and self._clock() > found.fresh_until):
            found = self._search(listing)
        self._kept[listing] = found
        while len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return found.rows

    def _search(self, listing: Listing) -> _SearchResult:
        started = self._clock()
        try:
            wanted = parse_filter(listing.expression) if listing.expression else None
            rows = self._index.select(wanted, sort=listing.sort)
        except FilterError as error:
            raise RefusedError(400, str(error), field="where") from error
        ended = self._clock()
        return _SearchResult(rows, self._version, ended + REST * (ended - started))

    def choices(self) -> Choices:
        """Count the rollouts by environment, status and stop reason, as the quick choices show."""
        if self._choices is None or self._choices[0] != self._version:
            names = ("env", "status", "stop_reason")
            found = {name: _counted(self._index.values(name)) for name in names}
            self._choices = self._version, found
        return self._choices[1]


def _counted(values: Iterable[object]) -> dict[str, int]:
    """Count texts, the commonest first; rows that have none are left out."""
    counts = Counter(values)
    return {str(value): count for value, count in counts.most_common() if value is not None}


Kind = Literal["fixed", "broken", "flaky", "better", "worse", "same", "only_a", "only_b"]
"""`fixed`: all attempts failed in A and all pass in B; `broken`: the other way round; `flaky`: in
one of the runs some pass and some fail. Else what the means say."""

KINDS: tuple[Kind, ...] = get_args(Kind)


class TaskScores(NamedTuple):
    """The scored attempts of a task in one run."""

    mean: float
    num_scored: int
    num_passed: int | None
    """None where nothing says from which reward an attempt passes."""


class ViewedTask(msgspec.Struct, kw_only=True):
    """A task in two runs; what one of them has no score for is None."""

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
    kind: Kind


class ViewedTasks(NamedTuple):
    """All tasks that one of two runs has a score for."""

    rows: list[ViewedTask]
    counts: Mapping[Kind, int]

    def select(self, kind: str, sort: str) -> Sequence[ViewedTask]:
        """Return the tasks of a kind, or all; those that lack what is sorted by come last.

        Raises:
            RefusedError: There is no such kind or name.

        """
        name, is_descending = sort.removeprefix("-"), sort.startswith("-")
        if name not in ViewedTask.__struct_fields__:
            known = ", ".join(ViewedTask.__struct_fields__)
            raise RefusedError(400, f"sort: there are {known}", field="sort")
        if kind and kind not in KINDS:
            raise RefusedError(400, f"kind: there are {', '.join(KINDS)}", field="kind")
        rows = [row for row in self.rows if not kind or row.kind == kind]
        known_rows = [row for row in rows if getattr(row, name) is not None]
        known_rows.sort(key=lambda row: getattr(row, name), reverse=is_descending)
        return known_rows + [row for row in rows if getattr(row, name) is None]


def task_scores(index: RunIndex) -> dict[tuple[str, str], TaskScores]:
    """Return the scores of each task of a run, by environment and task id."""
    rewards: dict[tuple[object, object], list[float]] = {}
    passes: dict[tuple[object, object], int] = {}
    names = ("env", "task_id", "reward", "passed", "status")
    columns = [index.values(name) for name in names]
    for env, task_id, reward, passed, status in zip(*columns, strict=True):
        if status != "scored" or not isinstance(reward, float):
            continue
        key = (env, task_id)
        rewards.setdefault(key, []).append(reward)
        if passed is not None:
            passes[key] = passes.get(key, 0) + bool(passed)
    return {
        (str(key[0]), str(key[1])): TaskScores(
            math.fsum(found) / len(found), len(found), passes.get(key)
        )
        for key, found in rewards.items()
    }


def differences(
    a: Mapping[tuple[str, str], TaskScores], b: Mapping[tuple[str, str], TaskScores]
) -> ViewedTasks:
    """Return all tasks of two runs, by environment and task id."""
    rows = [_difference(key, a.get(key), b.get(key)) for key in sorted({*a, *b})]
    return ViewedTasks(rows, Counter(row.kind for row in rows))


def _difference(key: tuple[str, str], a: TaskScores | None, b: TaskScores | None) -> ViewedTask:
    return ViewedTask(
        env=key[0],
        task_id=key[1],
        mean_a=a.mean if a else None,
        mean_b=b.mean if b else None,
        difference=b.mean - a.mean if a and b else None,
        num_a=a.num_scored if a else 0,
        num_b=b.num_scored if b else 0,
        passes_a=a.num_passed if a else None,
        passes_b=b.num_passed if b else None,
        kind=_kind(a, b),
    )


def _kind(a: TaskScores | None, b: TaskScores | None) -> Kind:
    if a is None or b is None:
        return "only_b" if a is None else "only_a"
    if a.num_passed is not None and b.num_passed is not None:
        if not (_is_settled(a) and _is_settled(b)):
            return "flaky"
        if bool(a.num_passed) != bool(b.num_passed):
            return "fixed" if b.num_passed else "broken"
    if b.mean == a.mean:
        return "same"
    return "better" if b.mean > a.mean else "worse"


def _is_settled(scores: TaskScores) -> bool:
    return scores.num_passed in (0, scores.num_scored)


MAX_RECORD_BYTES = 48 << 20
"""A longer record is no longer readable in a page."""

_MAX_TRIES = 50
"""Of more tries the last ones are given."""

_DECODER = msgspec.json.Decoder(JSONObject)
_FAILURE = msgspec.json.Decoder(Failure)


def read_record(index: RunIndex, row: Row) -> Rollout | Failure | JSONObject:
    """Return the record of a row; as plain JSON where not all its fields are ours.

    An unknown role, for example, makes a line unfit to be scored, but not to be looked at.

    Raises:
        RefusedError: It is too long.
        UsageError: It is no longer where it was, or the file cannot be read.

    """
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
            found: JSONObject = _DECODER.decode(index.line(row))
        except JSON_ERRORS:
            found = {}
        if (found.get("task_id"), found.get("attempt")) == (row.task_id, row.attempt):
            return found
        raise


def failures_of(run: Path, row: Row) -> list[Failure]:
    """Return the failures of an attempt without their conversations, in the order they came.

    Raises:
        UsageError: The file cannot be read, or a line is damaged.

    """
    path = run / FAILURES
    found: deque[Failure] = deque(maxlen=_MAX_TRIES)
    if not (run.is_dir() and path.is_file()):
        return []
    needle = msgspec.json.encode(row.task_id)
    for line in iterate_lines(path):
        if needle not in line.data:  # most lines are of other tasks, and need not be decoded
            continue
        try:
            failure = _FAILURE.decode(line.data)
        except JSON_ERRORS as error:
            if not line.is_complete:
                break
            text = f"{path}:{line.number}: is damaged: {error}; {WAYS_OUT[FAILURES]}"
            raise RunFileError(text) from error
        if (failure.env, failure.task_id, failure.attempt) == (row.env, row.task_id, row.attempt):
            found.append(msgspec.structs.replace(failure, messages=[]))
    return list(found)
