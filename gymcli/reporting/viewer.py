"""`gym view`: the page and its answers on 127.0.0.1, for whoever has the printed address.

The token is the first part of the path. A cookie would be sent to every other server of this
machine, since cookies know hosts and no ports; a path is sent to this one alone.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from aiohttp import web

from gymcli.errors import RunError, UsageError
from gymcli.metrics.at_k import METRICS
from gymcli.metrics.comparison_results import Comparison
from gymcli.metrics.results import RunMetrics
from gymcli.reporting.viewer_lists import (
    CachedMeasurement,
    Listings,
    RefusedError,
    ViewedTasks,
    ViewerQuery,
    differences,
    failures_of,
    listing_of,
    read_record,
    sendable,
    task_scores,
)
from gymcli.runner.listening import listen
from gymcli.runner.measure import index_run, measure
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.run_index import Refreshed, Row, RunIndex
from gymcli.types import JSONObject
from gymcli.version import __version__

__all__ = ["HOST", "ViewedRun", "ViewerAnswers", "ViewerSite", "open_run", "serve"]


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
        """What the page calls it."""
        return self.path.resolve().name or str(self.path)

    async def ask(self, question: Callable[[RunIndex, Listings], T]) -> T:
        """Answer a question in a thread; one that is cancelled before its turn is not begun.

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
        """Read what was written since the last time; an error is kept in `problem`."""
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


_MAX_ROWS = 500
"""Of one answer."""
_MAX_BESIDE = 8
"""Attempts before and after a rollout that its page links to."""
_LEFT_OUT = ("place", "components", "metrics")


class ViewerAnswers:
    """The answers to the requests of the page about one run or two.

    Args:
        runs: The runs.

    """

    def __init__(self, runs: Sequence[ViewedRun]) -> None:
        self._runs = runs
        self._metrics = [CachedMeasurement(functools.partial(_measured, run)) for run in runs]
        self._comparison = CachedMeasurement(functools.partial(_compared, runs))
        self._differences: tuple[tuple[int, ...], ViewedTasks] | None = None
        self._known: dict[str, Callable[[ViewerQuery], Awaitable[JSONObject]]] = {
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
        """Cancel measurements that are under way."""
        await self._comparison.close()
        for metrics in self._metrics:
            await metrics.close()

    def _run(self, query: ViewerQuery) -> ViewedRun:
        return self._runs[query.number("run", most=len(self._runs) - 1)]

    def _versions(self) -> tuple[int, ...]:
        return tuple(run.listings.version for run in self._runs)

    async def _about(self, query: ViewerQuery) -> JSONObject:
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

    async def _status(self, query: ViewerQuery) -> JSONObject:
        del query
        found = []
        for run in self._runs:
            await run.refresh()
            num_rows = await run.ask(lambda index, _: len(index.rows))
            version = run.listings.version
            found.append({"version": version, "num_rows": num_rows, "problem": run.problem})
        return {"runs": found}

    async def _list(self, query: ViewerQuery) -> JSONObject:
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
                "rows": [self._row_json(row, run) for row in rows],
                "choices": listings.choices(),
            }

        return await run.ask(page)

    async def _rollout(self, query: ViewerQuery) -> JSONObject:
        run, listing = self._run(query), listing_of(query)
        await run.refresh()

        def around(index: RunIndex, listings: Listings) -> JSONObject:
            row, numbers = _row(index, query), listings.rows(listing)
            position, near = _around(numbers, row.number)
            beside = index.attempts_of(row.env, row.task_id)
            at = beside.index(row.number)
            shown = beside[max(0, at - _MAX_BESIDE) : at + _MAX_BESIDE + 1]
            told = functools.partial(self._row_json, run=run)
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

    async def _record(self, query: ViewerQuery) -> JSONObject:
        run = self._run(query)
        return {"record": await run.ask(lambda index, _: read_record(index, _row(index, query)))}

    async def _task(self, query: ViewerQuery) -> JSONObject:
        run = self._run(query)
        rows = await self._attempts(run, query)
        if not rows:
            raise RefusedError(404, f"{run.path}: task {query.text('task')} is not there")
        offset, limit = _page(query, 4)
        shown = [self._row_json(row, run) for row in rows[offset : offset + limit]]
        return {"num_rows": len(rows), "mean": rows[0].avg, "rows": shown}

    async def _pair(self, query: ViewerQuery) -> JSONObject:
        found = []
        for run in self._runs:
            rows = await self._attempts(run, query)
            found.append([self._row_json(row, run) for row in rows[:_MAX_ROWS]])
        if not any(found):
            raise RefusedError(404, f"no run has task {query.text('task')}")
        return {"runs": found}

    async def _attempts(self, run: ViewedRun, query: ViewerQuery) -> list[Row]:
        env, task = query.text("env"), query.text("task")

        def attempts(index: RunIndex, _: Listings) -> list[Row]:
            return [index.rows[number] for number in index.attempts_of(env, task)]

        return await run.ask(attempts)

    async def _history(self, query: ViewerQuery) -> JSONObject:
        run = self._run(query)
        return {
            "failures": await run.ask(lambda index, _: failures_of(run.path, _row(index, query)))
        }

    async def _numbers(self, query: ViewerQuery) -> JSONObject:
        number = query.number("run", most=len(self._runs) - 1)
        run = self._runs[number]
        found = await self._metrics[number].of(run.listings.version)
        curves = [
            (metric.name, metric.key) for metric in METRICS.values() if metric.needs_threshold
        ]
        return {"metrics": found.value, "version": found.version, "curves": curves}

    async def _task_differences(self, query: ViewerQuery) -> JSONObject:
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

    async def _both(self) -> ViewedTasks:
        """Return the differences between two runs as they are on record now."""
        a, b = self._two_runs()
        versions = self._versions()
        if self._differences is None or self._differences[0] != versions:
            scores_a = await a.ask(lambda index, _: task_scores(index))
            scores_b = await b.ask(lambda index, _: task_scores(index))
            self._differences = versions, differences(scores_a, scores_b)
        return self._differences[1]

    async def _compare(self, query: ViewerQuery) -> JSONObject:
        del query
        self._two_runs()
        found = await self._comparison.of(self._versions())
        return {"comparison": found.value, "version": found.version}

    def _two_runs(self) -> Sequence[ViewedRun]:
        if len(self._runs) != 2:
            raise RefusedError(404, "there is one run; give two: gym view A B")
        return self._runs

    def _row_json(self, row: Row, run: ViewedRun) -> JSONObject:
        found = {n: getattr(row, n) for n in row.__struct_fields__ if n not in _LEFT_OUT}
        return {**found, "run": self._runs.index(run)}


def _page(query: ViewerQuery, limit: int) -> tuple[int, int]:
    """Return the first row that is asked for, and how many."""
    return query.number("offset"), query.number("limit", default=limit, most=_MAX_ROWS)


def _start(offset: int, limit: int, num_rows: int) -> int:
    """Return where a page begins; one beyond the end, as after a new filter, is the last page."""
    return min(offset, max(0, (num_rows - 1) // max(limit, 1) * limit))


def _row(index: RunIndex, query: ViewerQuery) -> Row:
    """Return the row that a question names by `env`, `task` and `attempt`.

    Raises:
        RefusedError: It is not on record.

    """
    task, attempt = query.text("task"), query.number("attempt")
    row = index.find(query.text("env"), task, attempt)
    if row is None:
        raise RefusedError(404, f"{index.path}: attempt {attempt} of task {task} is not there")
    return row


def _around(numbers: Sequence[int], number: int) -> tuple[int | None, list[int | None]]:
    """Return the position of a row in a list, if it is there, and the rows before and after it."""
    try:
        position = numbers.index(number)
    except ValueError:
        return None, [None, None]
    beside = (position - 1, position + 1)
    return position, [numbers[at] if 0 <= at < len(numbers) else None for at in beside]


def _measured(run: ViewedRun) -> RunMetrics:
    return measure(run.path, env=run.env).metrics()


def _compared(runs: Sequence[ViewedRun]) -> Comparison:
    from gymcli.runner.paired_runs import compare_runs  # late: heavy, and one run needs none of it

    a, b = runs
    return compare_runs(a.path, b.path, env=a.env, allow_drift=True)


HOST = "127.0.0.1"

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""What a browser may take this machine for, through a tunnel too; any other name in a request is
that of a page of others, which had its name lead here (DNS rebinding)."""
_SHUTDOWN = 1.0
_MAX_LINE_BYTES = 1 << 16
"""Of a request: ids of tasks stand in it, whatever their length."""
_API = "api/"
_JSON = "application/json"
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


class ViewerSite:
    """One run or two behind a token.

    Args:
        runs: What is shown.
        token: The first part of the path of every address.
        scrubber: Takes secrets out of all that is sent.

    """

    def __init__(
        self, runs: Sequence[ViewedRun], token: str, *, scrubber: Scrubber = NOTHING_SECRET
    ) -> None:
        self._runs = runs
        self._token = token
        self._scrubber = scrubber
        self._answers = ViewerAnswers(runs)
        self._files = _page_files()

    def runner(self) -> web.AppRunner:
        """Return what runs the site, which closes the runs when it ends."""

        async def opened(_: web.Application) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                for run in self._runs:
                    await stack.enter_async_context(run)
                stack.push_async_callback(self._answers.close)
                yield

        application = web.Application()
        application.cleanup_ctx.append(opened)
        application.router.add_route("*", "/{path:.*}", self._respond)
        return web.AppRunner(
            application,
            access_log=None,  # it would tell the token
            handler_cancellation=True,  # a search that nobody waits for is not begun
            max_line_size=_MAX_LINE_BYTES,
            shutdown_timeout=_SHUTDOWN,
        )

    async def _respond(self, request: web.Request) -> web.Response:
        try:
            response = await self._answer(request)
        except RefusedError as error:
            response = self._refusal(error)
        response.headers.update(_HEADERS)
        return response

    async def _answer(self, request: web.Request) -> web.Response:
        name = self._checked(request)
        if name.startswith(_API):
            given: Mapping[str, str] = request.query
            data = await self._answers.answer(name.removeprefix(_API), ViewerQuery(given))
            return _sent(self._scrubber.line(data), _JSON)
        if name not in self._files:
            raise RefusedError(404, "there is no such address")
        content_type, data = self._files[name]
        return _sent(data, content_type)

    def _checked(self, request: web.Request) -> str:
        """Return the part of the path behind the token.

        Raises:
            RefusedError: The request came by another name or without the token.

        """
        host = request.headers.get("Host", "").lower()
        name, colon, port = host.rpartition(":")
        if (name if colon and port.isdecimal() else host) not in _HOSTS:
            raise RefusedError(403, "this server is asked as 127.0.0.1 or localhost alone")
        token, slash, rest = request.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(errors="replace"), self._token.encode()):
            raise RefusedError(403, "open the address that gym view printed, with its token")
        if request.method not in ("GET", "HEAD"):
            raise RefusedError(405, "there is nothing to change here")
        if not slash:
            raise RefusedError(404, "the address ends with a slash")
        return rest

    def _refusal(self, error: RefusedError) -> web.Response:
        told = {"error": self._scrubber.text(str(error)), "field": error.field}
        return _sent(msgspec.json.encode(told), _JSON, status=error.status)


def _page_files() -> dict[str, tuple[str, bytes]]:
    """Return type and data of the page's files by name; the page itself has the empty name."""
    found = {}
    for file in files("gymcli.reporting").joinpath("viewer").iterdir():
        kind = _TYPES.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            name = "" if file.name == "index.html" else file.name
            found[name] = kind, file.read_bytes()
    return found


def _sent(data: bytes, content_type: str, *, status: int = 200) -> web.Response:
    return web.Response(body=data, status=status, content_type=content_type, charset="utf-8")


async def serve(
    runs: Sequence[ViewedRun],
    *,
    port: int,
    scrubber: Scrubber,
    announce: Callable[[str], None],
) -> None:
    """Serve the page until SIGTERM or SIGINT.

    Args:
        runs: What is shown.
        port: 0 picks a free one.
        scrubber: Takes secrets out of all that is sent.
        announce: Called with the address of the page, token and all, once it listens.

    Raises:
        UsageError: It cannot listen there.

    """
    token = secrets.token_urlsafe(24)
    runner = ViewerSite(runs, token, scrubber=scrubber).runner()

    def tell(base_url: str) -> None:
        announce(f"{base_url}/{token}/")

    await listen(runner, host=HOST, port=port, announce=tell)
