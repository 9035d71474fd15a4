"""What each address of the page answers; every answer is JSON."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gymcli.errors import RunError, UsageError
from gymcli.index import Row, RunIndex
from gymcli.metrics import RunMetrics
from gymcli.metrics.comparison import Comparison
from gymcli.reporting.viewer_differences import Differences, differences, standings
from gymcli.reporting.viewer_listing import Listings, listing_of
from gymcli.reporting.viewer_numbers import Kept
from gymcli.reporting.viewer_queries import Query, RefusedError, sendable
from gymcli.reporting.viewer_records import failures_of, read_record
from gymcli.reporting.viewer_run import ViewedRun
from gymcli.runner.measure import measure
from gymcli.types import JSONObject
from gymcli.version import __version__

__all__ = ["Answers"]

_MAX_ROWS = 500
"""Of one answer."""
_MAX_BESIDE = 8
"""Attempts before and after a rollout that its page links to."""
_LEFT_OUT = ("place", "components", "metrics")


class Answers:
    """What is asked about one run or two.

    Args:
        runs: The runs.

    """

    def __init__(self, runs: Sequence[ViewedRun]) -> None:
        self._runs = runs
        self._metrics = [Kept(functools.partial(_measured, run)) for run in runs]
        self._comparison = Kept(functools.partial(_compared, runs))
        self._differences: tuple[tuple[int, ...], Differences] | None = None
        self._known: dict[str, Callable[[Query], Awaitable[JSONObject]]] = {
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

    async def answer(self, name: str, query: Query) -> bytes:
        """Answer a question as JSON.

        Raises:
            RefusedError: It has no answer.

        """
        answer = self._known.get(name)
        if answer is None:
            raise RefusedError(404, f"{name}: there is no such address")
        try:
            return msgspec.json.encode(await answer(query))
        except (UsageError, RunError) as error:
            raise RefusedError(409, str(error)) from error

    async def close(self) -> None:
        """Give up what is still measured."""
        await self._comparison.close()
        for metrics in self._metrics:
            await metrics.close()

    def _run(self, query: Query) -> ViewedRun:
        return self._runs[query.number("run", most=len(self._runs) - 1)]

    def _versions(self) -> tuple[int, ...]:
        return tuple(run.listings.version for run in self._runs)

    async def _about(self, query: Query) -> JSONObject:
        del query
        found = []
        for run in self._runs:
            manifest = run.index.manifest
            found.append(
                {
                    "name": sendable(run.name),
                    "path": sendable(str(run.path)),
                    "model": manifest.model if manifest is not None else "",
                    "version": run.listings.version,
                }
            )
        names = await self._runs[0].ask(lambda index, _: index.names)
        return {"gymcli": f"gymcli {__version__}", "runs": found, "names": names}

    async def _status(self, query: Query) -> JSONObject:
        del query
        found = []
        for run in self._runs:
            await run.refresh()
            num_rows = await run.ask(lambda index, _: len(index.rows))
            version = run.listings.version
            found.append({"version": version, "num_rows": num_rows, "problem": run.problem})
        return {"runs": found}

    async def _list(self, query: Query) -> JSONObject:
        run, listing = self._run(query), listing_of(query)
        offset, limit = _page(query, 100)
        await run.refresh()

        def page(index: RunIndex, listings: Listings) -> JSONObject:
            numbers = listings.rows(listing)
            start = _start(offset, limit, len(numbers))
            rows = [index.rows[number] for number in numbers[start : start + limit]]
            return {
                "num_rows": len(index.rows),
                "num_matching": len(numbers),
                "offset": start,
                "version": listings.version_of(listing),
                "expression": listing.expression,
                "rows": [self._told(row, run) for row in rows],
                "choices": listings.choices(),
            }

        return await run.ask(page)

    async def _rollout(self, query: Query) -> JSONObject:
        run, listing = self._run(query), listing_of(query)
        await run.refresh()

        def around(index: RunIndex, listings: Listings) -> JSONObject:
            row, numbers = _row(index, query), listings.rows(listing)
            position, near = _around(numbers, row.number)
            beside = index.attempts(row)
            at = beside.index(row.number)
            shown = beside[max(0, at - _MAX_BESIDE) : at + _MAX_BESIDE + 1]
            told = functools.partial(self._told, run=run)
            previous, following = (
                None if number is None else told(index.rows[number]) for number in near
            )
            return {
                "row": told(row),
                "record": read_record(index, row),
                "position": position,
                "num_matching": len(numbers),
                "previous": previous,
                "next": following,
                "num_attempts": len(beside),
                "attempts": [told(index.rows[number]) for number in shown],
            }

        return await run.ask(around)

    async def _record(self, query: Query) -> JSONObject:
        run = self._run(query)
        return {"record": await run.ask(lambda index, _: read_record(index, _row(index, query)))}

    async def _task(self, query: Query) -> JSONObject:
        run = self._run(query)
        rows = await self._attempts(run, query)
        if not rows:
            raise RefusedError(404, f"{run.path}: task {query.text('task')} is not there")
        offset, limit = _page(query, 4)
        shown = [self._told(row, run) for row in rows[offset : offset + limit]]
        return {"num_rows": len(rows), "mean": rows[0].avg, "rows": shown}

    async def _pair(self, query: Query) -> JSONObject:
        found = []
        for run in self._runs:
            rows = await self._attempts(run, query)
            found.append([self._told(row, run) for row in rows[:_MAX_ROWS]])
        if not any(found):
            raise RefusedError(404, f"no run has task {query.text('task')}")
        return {"runs": found}

    async def _attempts(self, run: ViewedRun, query: Query) -> list[Row]:
        env, task = query.text("env"), query.text("task")

        def attempts(index: RunIndex, _: Listings) -> list[Row]:
            return [index.rows[number] for number in index.attempts_of(env, task)]

        return await run.ask(attempts)

    async def _history(self, query: Query) -> JSONObject:
        run = self._run(query)
        return {
            "failures": await run.ask(lambda index, _: failures_of(run.path, _row(index, query)))
        }

    async def _numbers(self, query: Query) -> JSONObject:
        number = query.number("run", most=len(self._runs) - 1)
        run = self._runs[number]
        found = await self._metrics[number].of(run.listings.version)
        return {"metrics": found.value, "version": found.version}

    async def _task_differences(self, query: Query) -> JSONObject:
        found = await self._both()
        sort = query.text("sort") or "difference"
        rows = found.select(query.text("kind"), sort)
        offset, limit = _page(query, 100)
        start = _start(offset, limit, len(rows))
        return {
            "num_tasks": len(found.rows),
            "num_matching": len(rows),
            "offset": start,
            "counts": found.counts,
            "has_environments": len({row.env for row in found.rows}) > 1,
            "rows": rows[start : start + limit],
        }

    async def _both(self) -> Differences:
        """Give the differences between two runs as they are on record by now."""
        a, b = self._two_runs()
        versions = self._versions()
        if self._differences is None or self._differences[0] != versions:
            standing_a = await a.ask(lambda index, _: standings(index))
            standing_b = await b.ask(lambda index, _: standings(index))
            self._differences = versions, differences(standing_a, standing_b)
        return self._differences[1]

    async def _compare(self, query: Query) -> JSONObject:
        del query
        self._two_runs()
        found = await self._comparison.of(self._versions())
        return {"comparison": found.value, "version": found.version}

    def _two_runs(self) -> Sequence[ViewedRun]:
        if len(self._runs) != 2:
            raise RefusedError(404, "there is one run; give two: gym view A B")
        return self._runs

    def _told(self, row: Row, run: ViewedRun) -> JSONObject:
        found = {n: getattr(row, n) for n in row.__struct_fields__ if n not in _LEFT_OUT}
        return {**found, "run": self._runs.index(run)}


def _page(query: Query, limit: int) -> tuple[int, int]:
    """Give which rows are asked for: from where on, and how many."""
    return query.number("offset"), query.number("limit", default=limit, most=_MAX_ROWS)


def _start(offset: int, limit: int, num_rows: int) -> int:
    """Give where a page begins; one beyond the end, as of a new filter, is the last one."""
    return min(offset, max(0, (num_rows - 1) // max(limit, 1) * limit))


def _row(index: RunIndex, query: Query) -> Row:
    """Give the row that a question names by `env`, `task` and `attempt`.

    Raises:
        RefusedError: It is not on record.

    """
    task, attempt = query.text("task"), query.number("attempt")
    row = index.find(query.text("env"), task, attempt)
    if row is None:
        raise RefusedError(404, f"{index.path}: attempt {attempt} of task {task} is not there")
    return row


def _around(numbers: Sequence[int], number: int) -> tuple[int | None, list[int | None]]:
    """Give where a row stands in a list, if it does, and the rows before and after it."""
    try:
        position = numbers.index(number)
    except ValueError:
        return None, [None, None]
    beside = (position - 1, position + 1)
    return position, [numbers[at] if 0 <= at < len(numbers) else None for at in beside]


def _measured(run: ViewedRun) -> RunMetrics:
    return measure(run.path, env=run.env).metrics()


def _compared(runs: Sequence[ViewedRun]) -> Comparison:
    from gymcli.runner.comparing import compare_runs  # late: heavy, and one run needs none of it

    a, b = runs
    return compare_runs(a.path, b.path, env=a.env, allow_drift=True)
