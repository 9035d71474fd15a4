"""One worker of a Ray cluster: runs the ordinary collection over attempts that it receives.

Ray calls the methods of a synchronous actor in its main thread. The event loop runs only during
`step`, which the driver calls repeatedly: the loop pauses just long enough to return a report and
receive the next orders.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import aiohttp
import msgspec

from gymcli.environment.contract import Environment
from gymcli.environment.registry import (
    Registration,
    Registry,
    environment_options,
    prepare,
    split_code,
    split_name,
)
from gymcli.environment.source_code import imported_files
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import AttemptError, GymError, RunError
from gymcli.models.api_errors import is_unreachable
from gymcli.models.client import Client
from gymcli.models.roles import ModelSource
from gymcli.rollout.event_loop import Watchdog, close, drive, new_event_loop
from gymcli.runner.attempts import Attempt, Outcome, Shared, run_attempts
from gymcli.runner.judges import Judges, open_shared
from gymcli.runner.stopping import Stopping
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSONObject, Message, Rollout, TokenSource, Usage
from gymcli.version import __version__

T = TypeVar("T")

_IDLE_SECONDS = 0.25
"""The longest step: an idle worker reports after this time."""
_GATHERING_SECONDS = 0.02
"""The shortest step: attempts that end within it are reported together."""


class SentCode(NamedTuple):
    """The code that `--env` named, and the import path of the driver."""

    spec: str | None
    sources: dict[str, bytes]
    """The file of `FILE.py:CLASS`, and those of its folder that it imports, by relative path."""
    folder: str
    search_path: tuple[str, ...]

    @classmethod
    def of(cls, spec: str | None) -> SentCode:
        """Return the code that `--env` named."""
        search_path = tuple(entry for entry in sys.path if entry)
        name, target = split_name(spec or "")
        place, class_name = split_code(target)
        if not place.endswith(".py"):
            return cls(spec, {}, str(Path.cwd()), search_path)
        path = Path(place).resolve()
        files = [path, *imported_files(path)]
        sources = {str(file.relative_to(path.parent)): file.read_bytes() for file in files}
        return cls(_spec(name, path, class_name), sources, str(Path.cwd()), search_path)

    def unpack(self, folder: Path) -> tuple[str, ...]:
        """Return the specs with which this process finds the environment.

        Files that exist here with the same content are used directly. Otherwise they are written to
        `folder`.
        """
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        sys.path += [entry for entry in self.search_path if entry not in sys.path]
        if self.spec is None or not self.sources:
            return () if self.spec is None else (self.spec,)
        name, target = split_name(self.spec)
        place, class_name = split_code(target)
        path = Path(place)
        source_by_path = {path.parent / place: source for place, source in self.sources.items()}
        if not all(
            file.is_file() and file.read_bytes() == source_by_path[file] for file in source_by_path
        ):
            path = folder / path.name
            for place, source in self.sources.items():
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                (folder / place).write_bytes(source)
        return (_spec(name, path, class_name),)


def _spec(name: str, path: Path, class_name: str) -> str:
    target = f"{path}:{class_name}" if class_name else str(path)
    return f"{name}={target}" if name else target


class Job(NamedTuple):
    """What all attempts of a run share; it contains keys."""

    code: SentCode
    judges: Judges
    policy: ModelSource | None
    concurrency: int
    blocking_timeout: float
    """Seconds without a turn of the event loop after which the worker ends itself."""
    counts_spending: bool
    calls_before: int
    """Warm-up calls of a verifier in a new process before its first score."""
    token_source: TokenSource | None = None
    """Where the policy's token ids come from; None: they are not recorded."""


class SentAttempt(NamedTuple):
    """An attempt as it is sent; the worker finds its environment and models itself."""

    env: str
    options: JSONObject
    attempt: Attempt

    @classmethod
    def of(cls, attempt: Attempt) -> SentAttempt:
        """Return an attempt without the parts that another process cannot import."""
        options = attempt.options.model_dump(mode="json", exclude_defaults=True)
        bare = attempt._replace(environment=Environment, options=EnvironmentOptions())
        if attempt.plan is not None:
            plan = msgspec.structs.replace(
                attempt.plan,
                environment=Environment,
                options=EnvironmentOptions(),
                cost=None,
                spend=None,
            )
            bare = bare._replace(plan=plan)
        return cls(attempt.key.env, options, bare)


def causes_of(fatal: AttemptError | None) -> list[BaseException]:
    """Return the errors behind a fatal one, each the cause of the one before it.

    Pickle drops causes, and the driver needs them to decide whether the whole run can succeed.
    """
    causes: list[BaseException] = []
    error: BaseException | None = fatal
    while isinstance(error, GymError):
        if is_unreachable(error):
            return [*causes, aiohttp.ConnectionTimeoutError()]  # others cannot be pickled
        error = error.__cause__
        if isinstance(error, GymError):
            causes.append(error)
    return causes


def restore_causes(fatal: AttemptError | None, causes: Sequence[BaseException]) -> None:
    error: BaseException | None = fatal
    for cause in causes:
        assert error is not None, "causes follow an error"
        error.__cause__ = cause
        error = cause


@dataclass
class Orders:
    """What the driver sends to a worker with each step."""

    attempts: list[SentAttempt] = field(default_factory=list)
    is_last: bool = False
    """No attempts follow: the worker ends with the attempts that it has."""
    num_written: int = 0
    """How many of the conversations that this worker saved are on disk."""
    stop: tuple[GymError, float] | None = None
    """Why the run ends early, and for how many seconds attempts in flight may go on."""


@dataclass
class Report:
    """What happened in a worker during a step."""

    token_lines: list[bytes] = field(default_factory=list)
    """The token ids of conversations that were saved, or have an outcome, since then."""
    saved: list[bytes] = field(default_factory=list)
    """Conversations saved while they wait for their score."""
    verdicts: list[tuple[str, Message, str, str]] = field(default_factory=list)
    """Answers of judges: the key, the answer, the role and the model."""
    spent: list[tuple[Usage, float | None]] = field(default_factory=list)
    """The tokens of each answer, and their cost."""
    outcomes: list[tuple[Outcome, list[BaseException]]] = field(default_factory=list)
    """Each with the causes of its fatal error."""
    num_in_flight: int = 0
    num_outages: int = 0
    outage_seconds: float = 0.0
    retries: Counter[str] = field(default_factory=Counter)
    """All failed requests of this worker that are sent again, by error class."""
    is_over: bool = False


class RayActor:
    """Plays and scores attempts in its own process.

    Its methods are not async, otherwise Ray would run them in its own event loop.
    """

    def __init__(self) -> None:
        self._loop = new_event_loop()

    def identify(self) -> tuple[str, str]:
        return __version__, f"{socket.gethostname()}:{os.getpid()}"

    def open(self, job: Job, verdicts: Sequence[tuple[str, Message]]) -> None:
        """Open the models and wait for attempts; `verdicts` are known answers of judges."""
        self._session = _Session(job, verdicts)
        self._run(self._session.open())

    def step(self, orders: Orders) -> Report:
        return self._run(self._session.step(orders))

    def close(self) -> None:
        self._run(self._session.close())
        close(self._loop)

    def _run(self, work: Coroutine[object, object, T]) -> T:
        session = self._session
        if session.watchdog is not None:
            session.watchdog.arm()
        try:
            return drive(self._loop, self._loop.create_task(work))
        finally:
            if session.watchdog is not None:
                session.watchdog.disarm()  # the loop pauses until the next call


class _SentVerdicts(Verdicts):
    def __init__(self, verdicts: Sequence[tuple[str, Message]]) -> None:
        super().__init__()
        self.new: list[tuple[str, Message, str, str]] = []
        for key, message in verdicts:
            super().add(key, message, role="", model="")

    def add(self, key: str, message: Message, *, role: str, model: str) -> None:
        super().add(key, message, role=role, model=model)
        self.new.append((key, message, role, model))


class _Session:
    """One collection over the attempts of this worker, and what happened since the last report."""

    def __init__(self, job: Job, verdicts: Sequence[tuple[str, Message]]) -> None:
        self._job = job
        self._stack = AsyncExitStack()
        self._stopping = Stopping()
        self._attempts: asyncio.Queue[Attempt | None] = asyncio.Queue()
        self._verdicts = _SentVerdicts(verdicts)
        self._environments: dict[tuple[str, bytes], tuple[Registration, EnvironmentOptions]] = {}
        self._report = Report()
        self._has_news = asyncio.Event()
        self._num_saved = 0
        self._num_written = 0
        self._is_written = asyncio.Condition()
        self.watchdog: Watchdog | None = None

    async def open(self) -> None:
        job = self._job
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self._registry = Registry(job.code.unpack(Path(folder)))
        # A copy of stderr, since leaving the stack closes it.
        stack_file = self._stack.enter_context(os.fdopen(os.dup(2), "w"))
        self.watchdog = Watchdog(blocking_timeout=job.blocking_timeout, stack_file=stack_file)
        await self._stack.enter_async_context(self.watchdog)
        shared = await self._stack.enter_async_context(
            open_shared(
                job.judges,
                self._verdicts,
                save=self._save,
                save_tokens=self._save_tokens,
                stopping=self._stopping,
                watchdog=self.watchdog,
                spend=self._spend if job.counts_spending else None,
            )
        )
        shared.workers.calls_before = job.calls_before
        policy = None if job.policy is None else await shared.roles.pool.client(job.policy)
        if policy is not None:
            policy.token_source = job.token_source
        self._shared = shared._replace(policy=policy, written=self._written)
        self._working = asyncio.create_task(self._work(self._shared))
        self._working.add_done_callback(lambda _: self._has_news.set())

    async def _work(self, shared: Shared) -> None:
        concurrency = self._job.concurrency
        try:
            async for _ in run_attempts(
                self._attempts, shared, concurrency=concurrency, write=self._keep, gives_up=False
            ):
                pass  # `_keep` reports it
        except GymError:
            if self._stopping.cause is None:  # else the driver said so
                raise

    async def close(self) -> None:
        self._working.cancel()
        # `wait` raises nothing: neither the cancellation nor an error of the work.
        await asyncio.wait([self._working])
        await self._stack.aclose()

    async def step(self, orders: Orders) -> Report:
        await self._take(orders)
        if not self._working.done():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), _IDLE_SECONDS)
        await asyncio.sleep(_GATHERING_SECONDS)
        self._has_news.clear()
        report, self._report = self._report, Report()
        if self._working.done():
            self._working.result()
            report.is_over = True
        report.verdicts, self._verdicts.new = self._verdicts.new, []
        report.retries = self._shared.roles.pool.retries
        report.num_in_flight = self._stopping.num_in_flight
        report.num_outages = self._shared.roles.pool.num_outages
        report.outage_seconds = self._shared.roles.pool.outage_seconds
        return report

    async def _take(self, orders: Orders) -> None:
        for sent in orders.attempts:
            self._attempts.put_nowait(self._received(sent))
        if orders.stop is not None:
            cause, seconds = orders.stop
            self._stopping.stop(cause, grace=seconds)
            # Attempts that have not begun have no record, and a resume runs them.
            while not self._attempts.empty():
                self._attempts.get_nowait()
        if orders.stop is not None or orders.is_last:
            self._attempts.put_nowait(None)
        async with self._is_written:
            self._num_written = orders.num_written
            self._is_written.notify_all()

    def _received(self, sent: SentAttempt) -> Attempt:
        attempt = sent.attempt
        if attempt.keeps_score:  # its environment may not exist here
            return attempt
        registration, options = self._find(sent)
        plan = attempt.plan
        if plan is not None:
            policy = self._shared.policy if isinstance(self._shared.policy, Client) else None
            has_prices = policy is not None and policy.endpoint.cost(Usage()) is not None
            plan = msgspec.structs.replace(
                plan,
                environment=registration.environment,
                options=options,
                cost=policy.endpoint.cost if policy is not None and has_prices else None,
                spend=self._spend if self._job.counts_spending else None,
            )
        return attempt._replace(environment=registration.environment, options=options, plan=plan)

    def _find(self, sent: SentAttempt) -> tuple[Registration, EnvironmentOptions]:
        key = (sent.env, msgspec.json.encode(sent.options))
        if key not in self._environments:
            registration = self._registry.find(sent.env)
            if registration.source_hash != sent.attempt.verifier.source_hash:
                raise RunError(
                    f'environment "{registration.name}" has different code on the Ray worker '
                    f"{socket.gethostname()} than here; install the same version on all nodes"
                )
            options = environment_options(
                registration.environment, registration.name, {}, sent.options
            )
            prepare(registration, options)
            self._environments[key] = registration, options
        return self._environments[key]

    def _keep(self, outcome: Outcome) -> Outcome:
        self._report.outcomes.append((outcome, causes_of(outcome.fatal)))
        self._has_news.set()
        return outcome

    def _save(self, rollout: Rollout) -> None:
        self._num_saved += 1
        self._report.saved.append(msgspec.json.encode(rollout))
        self._has_news.set()

    def _save_tokens(self, lines: Sequence[bytes]) -> None:
        # Reported with its conversation or earlier, since that is saved later.
        self._report.token_lines += lines

    async def _written(self) -> None:
        """Wait until the driver has written the conversations that were saved so far."""
        number = self._num_saved
        async with self._is_written:
            await self._is_written.wait_for(lambda: self._num_written >= number)

    def _spend(self, usage: Usage, cost: float | None) -> None:
        # A copy: an episode adds its later answers to its own.
        self._report.spent.append((msgspec.structs.replace(usage), cost))
        self._has_news.set()
