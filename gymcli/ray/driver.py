"""Runs attempts in the workers of a Ray cluster, while only this process writes.

A worker receives as many attempts as it may run concurrently and a few more, and reports each when
it ends. The attempts of a worker that dies are run last, by another one; of a conversation that it
had saved, only the scoring is repeated. Ray is imported when the first attempt is run.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar, cast

import msgspec

from gymcli.errors import (
    EngineError,
    EpisodeError,
    GymError,
    MissingPackageError,
    UsageError,
    VerifierError,
    described,
)
from gymcli.models.endpoint import Endpoint
from gymcli.models.roles import ModelSource
from gymcli.ray.actor import (
    Job,
    Orders,
    RayActor,
    Report,
    SentAttempt,
    SentCode,
    restore_causes,
)
from gymcli.runner.attempts import Attempt, Outcome, RunOutcomes, Shared, failure_of, run_together
from gymcli.runner.judges import Judges
from gymcli.types import AttemptKey, Failure, Rollout, TokenSource
from gymcli.version import __version__

if TYPE_CHECKING:
    from ray.actor import ActorHandle

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

JOIN_SECONDS = 30
"""How long joining a cluster may take. Ray itself would try for a quarter of an hour."""

_ADDRESS = re.compile(r"(ray://)?(\[[^]\s/@]+\]|[^]\[\s/@:]+):(?P<port>\d{1,5})")

_START_SECONDS = 600.0
"""For the first worker: an autoscaling cluster takes minutes to add a node."""
_OWN_START_SECONDS = 120.0
_POLL_SECONDS = 0.25
_CLOSE_SECONDS = 5.0

_STORE_BYTES = 100 * 2**20
"""The size of Ray's shared memory, where it puts messages above 100 kB; few are as large."""

_MIN_RESERVE = 2
"""The minimum of attempts queued at a worker beyond those that run."""

_MAX_DEATHS = 3
"""How many workers must die while they hold an attempt before it fails."""
_MIN_DEATHS_IN_A_ROW = 5

_JOIN = """
import signal, socket, sys
address, seconds = sys.argv[1:]
signal.alarm(int(seconds))  # the parent may be gone
import ray, ray.util
def fail(reason):
    print(*reason.split())
    sys.exit(1)
host, _, port = address.removeprefix("ray://").rpartition(":")
host = host.strip("[]")
if host in ("localhost", "127.0.0.1", "::1") and not address.startswith("ray://"):
    host = ray.util.get_node_ip_address()  # as Ray does
try:
    if host:
        socket.create_connection((host, int(port))).close()
except socket.gaierror as error:
    fail(f"the host {host} is unknown ({error.strerror})")
except OSError as error:
    fail(f"nothing listens at {host}:{port} ({error.strerror})")
try:
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
except Exception as error:
    fail(f"{type(error).__name__}: {error}")
ray.shutdown()
"""
"""Joins and leaves a cluster, or prints why it cannot. It is a process because a thread that hangs
in Ray cannot be ended, and Ray's logging to stderr cannot be turned off."""


def check_address(address: str) -> None:
    """Raise UsageError unless it is HOST:PORT, ray://HOST:PORT or `auto`."""
    address_match = _ADDRESS.fullmatch(address)
    if address != "auto" and (
        address_match is None or not 0 < int(address_match["port"]) < 1 << 16
    ):
        raise UsageError(
            f"--address {address}: is not the address of a Ray cluster, such as HOST:6379, "
            "[IPV6]:6379, ray://HOST:10001 or auto"
        )


class RayEngine:
    """Runs attempts on a Ray cluster: the one at `address`, or a new one on this machine only.

    The first run starts or joins the cluster; leaving this context manager leaves it. Slow calls of
    Ray run in one thread that lives as long, since processes that Ray starts end with their thread.

    By default there is one worker for each core. `env` is what `--env` named; `start_seconds` is
    how long the first worker may take to start, `join_seconds` how long joining may take.

    Raises:
        MissingPackageError: Ray is not installed.
        UsageError: The address is malformed.
    """

    def __init__(
        self,
        address: str | None,
        num_workers: int | None,
        *,
        env: str | None = None,
        policy: ModelSource | None = None,
        start_seconds: float | None = None,
        join_seconds: int = JOIN_SECONDS,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingPackageError(
                "--engine ray needs the package ray, which is not installed: "
                "pip install 'gymcli[ray]'"
            )
        if address is not None:
            check_address(address)
        self._address = address
        self.num_workers = num_workers or 0
        self.env = env
        self.policy = policy
        self.token_source: TokenSource | None = None
        """Where the policy's token ids come from, if they are recorded."""
        usual_seconds = _OWN_START_SECONDS if address is None else _START_SECONDS
        self.start_seconds = start_seconds or usual_seconds
        self._join_seconds = join_seconds
        self.num_outages = 0
        """How often an endpoint was down: the maximum over the workers."""
        self.outage_seconds = 0.0
        """How long endpoints were down: the maximum over the workers."""
        self.retries: Counter[str] = Counter()
        """Failed requests that workers sent again, by error class."""
        self._stack = ExitStack()
        self._thread = ThreadPoolExecutor(1, "gymcli-ray")
        self._starting: Future[None] | None = None
        self._joining: subprocess.Popen[str] | None = None
        self._is_closed = threading.Event()

    def run(
        self,
        attempts: Iterator[Attempt],
        shared: Shared,
        *,
        concurrency: int,
        write: Callable[[Outcome], Outcome],
    ) -> AsyncGenerator[Rollout | Failure]:
        """Run attempts as `run_attempts` does; raise EngineError if workers die or never start."""
        outcomes = RunOutcomes(shared, concurrency=concurrency, write=write)
        run = _RayRun(self, attempts, shared, outcomes, concurrency)
        return outcomes.records(run.do_all)

    def start(self) -> Future[None]:
        """Start or join the cluster, once; the future may raise an EngineError."""
        if self._starting is None:
            self._starting = self._thread.submit(self._start)
        return self._starting

    def close(self) -> None:
        self._is_closed.set()
        # A join that hangs would hold up the thread that closes the cluster.
        if self._joining is not None:
            self._joining.kill()
        if self._starting is not None:
            self._thread.submit(self._stack.close).result()
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        where = "here" if self._address is None else f"at --address {self._address}"
        try:
            if self._address is None:
                self._start_own()
            else:
                self._join(self._address)
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineError(f"Ray {where}: {described(error)}") from error

    def _start_own(self) -> None:
        self.num_workers = self.num_workers or os.cpu_count() or 1
        # Paths of Unix sockets must be short, and macOS's temporary folders have long ones.
        folder = tempfile.mkdtemp(prefix="gym-ray-", dir="/tmp")
        self._stack.callback(_delete, folder)
        # Ray reads these from the environment only, and at any time.
        variables = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else its processes listen on all interfaces
            # Without a token, any local user could run code in the cluster.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": _token(),
        }
        self._stack.callback(
            os.environ.update, {n: os.environ[n] for n in variables.keys() & os.environ.keys()}
        )
        for name in variables.keys() - os.environ.keys():
            self._stack.callback(os.environ.pop, name, None)
        os.environ.update(variables)
        import ray  # late: heavy, and optional

        self._stack.callback(ray.shutdown)
        ray.init(
            address="local",
            num_cpus=self.num_workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=_STORE_BYTES,
            _temp_dir=f"{folder}/ray",  # Ray makes this folder accessible to all users
            _node_ip_address="127.0.0.1",
        )

    def _join(self, address: str) -> None:
        self._try_to_join(address)
        import ray  # late: heavy, and optional

        self._stack.callback(ray.shutdown)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        if not self.num_workers:
            self.num_workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def _try_to_join(self, address: str) -> None:
        with subprocess.Popen(  # noqa: S603  # a constant program and an address
            # -P: the working directory may hold a file that hides a module, such as ray.py.
            [sys.executable, "-P", "-c", _JOIN, address, str(self._join_seconds)],
            # Otherwise Ray sends a wrong token 20 times.
            env={"RAY_NUM_REDIS_GET_RETRIES": "3", **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the parent only
        ) as process:
            self._joining = process
            if self._is_closed.is_set():
                process.kill()
            try:
                printed, logged = process.communicate(timeout=self._join_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                printed, logged = process.communicate()
        for line in logged.splitlines():
            _LOGGER.info("Ray: %s", line)
        if not process.returncode:
            return
        # The last line is that of `fail`; imported code may have printed others.
        reason = printed.strip().rpartition("\n")[2].rstrip(".")
        # Killed here at the timeout, or ended by the alarm of _JOIN.
        if process.returncode in (-signal.SIGKILL, -signal.SIGALRM):
            reason = f"joining took longer than {self._join_seconds} seconds"
        way_out = "use the HOST:PORT that `ray start --head` printed"
        if "authentic" in f"{reason}{logged}".lower():
            way_out = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token of the cluster"
        reason = reason or f"Ray ended with code {process.returncode}"
        raise EngineError(f"Ray at --address {address}: {reason}; {way_out}")

    def worker(self) -> ActorHandle:
        """Start a worker; it may wait for a free core."""
        import ray  # late: heavy, and optional

        # No restarts or retries by Ray: the driver reassigns lost attempts itself.
        actor = ray.remote(RayActor).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        return cast("ActorHandle", actor.remote())


@functools.cache
def _token() -> str:
    # Ray reads the token once per process, which may start several clusters.
    return secrets.token_hex(32)


def _delete(folder: str) -> None:
    """Delete the files of a cluster, whose processes may still write some while they end."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        time.sleep(0.1)
    _LOGGER.warning("%s: could not be deleted", folder)


def _share_of(source: T, num_workers: int) -> T:
    if not isinstance(source, Endpoint):
        return source
    # Each worker limits its own requests, so it gets an equal share of what the endpoint allows.
    limits = source.limits
    update: dict[str, float | None] = {
        name: None if (rate := getattr(limits, name)) is None else rate / num_workers
        for name in ("requests_per_minute", "tokens_per_minute")
    }
    if limits.max_concurrency is not None:
        update["max_concurrency"] = max(1, limits.max_concurrency // num_workers)
    return source.model_copy(update={"limits": limits.model_copy(update=update)})


class WorkerLostError(Exception):
    """Raised when the process of a worker has died or cannot be reached."""


class Assignment:
    """Attempts that one worker runs: one attempt, or the group of a task."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self.attempts = {attempt.key: attempt for attempt in attempts}
        self.outcomes: list[Outcome] = []
        """Written only when complete: if a worker dies, its group is run again as a whole."""
        self.num_deaths = 0

    @property
    def is_group(self) -> bool:
        return any(attempt.group_size for attempt in self.attempts.values())

    @property
    def runs_alone(self) -> bool:
        """Whether its worker must hold nothing else, to identify attempts that kill workers."""
        return self.num_deaths >= _MAX_DEATHS - 1

    @property
    def num_left(self) -> int:
        return sum(not attempt.is_done for attempt in self.attempts.values()) - len(self.outcomes)

    def given_up(self, error: WorkerLostError) -> list[Outcome]:
        """Return failures for attempts that too many workers held when they died."""
        text = f"{_MAX_DEATHS} Ray workers died while they had this attempt, the last one with: "
        failures = []
        for attempt in self.attempts.values():
            if attempt.plan is not None:
                record = attempt.plan.new_record()
                failures.append(failure_of(record, EpisodeError(f"{text}{error}")))
            elif attempt.generation is not None and not attempt.is_done:
                failures.append(failure_of(attempt.generation, VerifierError(f"{text}{error}")))
        return [Outcome(failure) for failure in failures]


def assignments_of(attempts: Iterable[Attempt]) -> Iterator[Assignment]:
    """Yield assignments; incomplete groups come last."""
    groups: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        if not attempt.group_size:
            yield Assignment([attempt])
            continue
        task = (attempt.key.env, attempt.key.task_id)
        members = groups.setdefault(task, [])
        members.append(attempt)
        if len(members) == attempt.group_size:
            yield Assignment(groups.pop(task))
    yield from map(Assignment, groups.values())


class Assignments:
    """The remaining assignments: new ones first, then those of workers that died."""

    def __init__(self, attempts: Iterable[Attempt]) -> None:
        self._new = assignments_of(attempts)
        self._next: Assignment | None = None
        self._returned: deque[Assignment] = deque()
        self._alone: deque[Assignment] = deque()

    def put_back(self, assignment: Assignment) -> None:
        assignment.outcomes.clear()
        (self._alone if assignment.runs_alone else self._returned).append(assignment)

    def take(self) -> Assignment | None:
        if not self.has_ordinary:
            return None
        assignment, self._next = self._next, None
        return assignment or self._returned.popleft()

    def take_alone(self) -> Assignment | None:
        return self._alone.popleft() if self._alone else None

    @property
    def has_ordinary(self) -> bool:
        self._next = self._next or next(self._new, None)
        return self._next is not None or bool(self._returned)

    @property
    def is_empty(self) -> bool:
        return not (self.has_ordinary or self._alone)


class _Worker:
    def __init__(self, actor: ActorHandle) -> None:
        self._actor = actor
        self.place = "?"
        self.assignments: dict[Assignment, None] = {}
        self.is_last = False
        self.num_in_flight = 0
        self.num_ended = 0
        self.num_written = 0
        self.retries: Counter[str] = Counter()

    async def call(self, method: str, *arguments: object) -> object:
        import ray  # late: heavy, and optional

        try:
            return await getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, GymError):
                raise error.cause from None
            raise GymError(f"a Ray worker failed: {error}") from error
        except (ray.exceptions.RayError, ConnectionError) as error:
            # Its texts are long; the first line says what, and the last one why.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise WorkerLostError(" ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))) from error

    def kill(self) -> None:
        import ray  # late: heavy, and optional

        ray.kill(self._actor)

    def num_wanted(self, concurrency: int) -> int:
        # Twice what ended in the last step: a worker with quick attempts must not run dry until the
        # next one.
        num_held = sum(assignment.num_left for assignment in self.assignments)
        return concurrency + max(_MIN_RESERVE, 2 * self.num_ended) - num_held

    def add(self, assignment: Assignment) -> list[SentAttempt]:
        self.assignments[assignment] = None
        return [SentAttempt.of(attempt) for attempt in assignment.attempts.values()]

    def save(self, rollout: Rollout) -> None:
        # If this worker dies, another one only scores the conversation.
        attempts = self._holder(rollout.key).attempts
        attempts[rollout.key] = attempts[rollout.key]._replace(plan=None, generation=rollout)
        self.num_written += 1

    def _holder(self, key: AttemptKey) -> Assignment:
        # A rescored file may hold a key twice: either assignment will do.
        return next(assignment for assignment in self.assignments if key in assignment.attempts)

    def end(self, outcome: Outcome) -> list[Outcome]:
        assignment = self._holder(outcome.record.key)
        assignment.outcomes.append(outcome)
        if assignment.num_left:
            return []
        del self.assignments[assignment]
        return assignment.outcomes


class _RayRun:
    def __init__(
        self,
        engine: RayEngine,
        attempts: Iterator[Attempt],
        shared: Shared,
        outcomes: RunOutcomes,
        concurrency: int,
    ) -> None:
        self._engine = engine
        self._assignments = Assignments(attempts)
        self._shared = shared
        self._outcomes = outcomes
        self._concurrency = concurrency
        self._open: set[_Worker] = set()
        self._num_deaths = 0
        """Workers that died since the last result of any worker."""

    async def do_all(self) -> None:
        starting = asyncio.wrap_future(self._engine.start())
        try:
            # Polled, since a signal only sets the cause in `stopping`, which cannot be awaited.
            while not (await asyncio.wait([starting], timeout=_POLL_SECONDS))[0]:
                if self._shared.stopping.cause is not None:
                    return
            starting.result()
        finally:
            starting.cancel()  # else asyncio logs its later exception
        # Each worker has an equal share of the allowed concurrency.
        num_workers = self._engine.num_workers
        share = -(-self._concurrency // num_workers)
        roles, shared = self._shared.roles, self._shared
        sources = {role: _share_of(source, num_workers) for role, source in roles.sources.items()}
        self._job = Job(
            code=SentCode.of(self._engine.env),
            judges=Judges(sources, roles.params, share, base_scrubber=shared.scrubber),
            policy=_share_of(self._engine.policy, num_workers),
            token_source=self._engine.token_source,
            concurrency=share,
            blocking_timeout=shared.watchdog.blocking_timeout,
            counts_spending=roles.spend is not None,
            calls_before=shared.workers.calls_before,
        )
        await run_together(self._do() for _ in range(num_workers))

    @property
    def _is_done(self) -> bool:
        """Whether nothing is left to assign; assignments of other workers may still come back."""
        return self._shared.stopping.cause is not None or self._assignments.is_empty

    async def _do(self) -> None:
        # A worker that dies is replaced as long as there is work.
        while not self._is_done:
            worker = _Worker(self._engine.worker())
            try:
                if await self._is_ready(worker):
                    self._open.add(worker)
                    is_over = False
                    while not is_over:
                        report = cast("Report", await worker.call("step", self._orders(worker)))
                        await self._take(report, worker)
                        is_over = report.is_over
                    with suppress(TimeoutError):
                        await asyncio.wait_for(worker.call("close"), _CLOSE_SECONDS)
            except WorkerLostError as error:
                await self._lose(worker, error)
            finally:
                self._open.discard(worker)
                worker.kill()

    async def _is_ready(self, worker: _Worker) -> bool:
        """Wait until a worker is ready; return False if no work is left by then."""
        opening = asyncio.create_task(self._opened(worker))
        seconds = self._engine.start_seconds
        ends = time.monotonic() + seconds
        try:
            while not (await asyncio.wait([opening], timeout=_POLL_SECONDS))[0]:
                if self._is_done:
                    return False
                # Without this worker, others that are open can still finish the run.
                if time.monotonic() > ends and not self._open:
                    raise EngineError(
                        f"no Ray worker was started within {seconds:g} seconds: each needs a free "
                        "core; use fewer --workers, or wait until the cluster has room"
                    )
            opening.result()
        finally:
            opening.cancel()
        return True

    async def _opened(self, worker: _Worker) -> None:
        version, worker.place = cast("tuple[str, str]", await worker.call("identify"))
        if version != __version__:
            raise EngineError(
                f"the Ray worker {worker.place} has gymcli {version}, not {__version__}; install "
                "the same version on all nodes"
            )
        verdicts = list(self._shared.roles.verdicts.items())
        await worker.call("open", self._job, verdicts)
        _LOGGER.info("Ray worker %s is ready", worker.place)

    def _orders(self, worker: _Worker) -> Orders:
        orders = Orders(num_written=worker.num_written)
        stopping = self._shared.stopping
        if stopping.cause is not None:
            seconds = stopping.seconds_left
            if seconds < float("inf"):  # else a signal came, and the loop is about to handle it
                orders.stop = stopping.cause, max(0.0, seconds)
            return orders
        # An attempt that may kill its worker must be the only one there.
        if worker.is_last or any(assignment.runs_alone for assignment in worker.assignments):
            return orders
        num_wanted = worker.num_wanted(self._job.concurrency)
        while num_wanted > 0 and (assignment := self._assignments.take()) is not None:
            orders.attempts += worker.add(assignment)
            num_wanted -= assignment.num_left
        if not self._assignments.has_ordinary:
            alone = None if worker.assignments else self._assignments.take_alone()
            if alone is not None:
                orders.attempts += worker.add(alone)
            # An incomplete group has ended only if no further attempts can arrive.
            orders.is_last = alone is None or alone.is_group or self._assignments.is_empty
            worker.is_last = orders.is_last
        return orders

    async def _take(self, report: Report, worker: _Worker) -> None:
        """Write what a worker reports, in an order that loses nothing if this process dies."""
        shared = self._shared
        shared.save_tokens(report.token_lines)
        for data in report.saved:
            rollout = msgspec.json.decode(data, type=Rollout)
            shared.save(rollout)
            worker.save(rollout)
        for key, message, role, model in report.verdicts:
            if shared.roles.verdicts.get(key) is None:  # else another worker asked the same
                shared.roles.verdicts.add(key, message, role=role, model=model)
        for usage, cost in report.spent:
            if shared.roles.spend is not None:
                shared.roles.spend(usage, cost)
        engine = self._engine
        engine.num_outages = max(engine.num_outages, report.num_outages)
        engine.outage_seconds = max(engine.outage_seconds, report.outage_seconds)
        engine.retries += report.retries - worker.retries
        worker.retries = report.retries
        worker.num_in_flight = report.num_in_flight
        worker.num_ended = len(report.outcomes)
        self._count_in_flight()
        if report.outcomes:
            self._num_deaths = 0
        ended = []
        for outcome, causes in report.outcomes:
            restore_causes(outcome.fatal, causes)
            ended += worker.end(outcome)
        if report.is_over:  # a run that is stopped may leave a group incomplete
            ended += [
                outcome for assignment in worker.assignments for outcome in assignment.outcomes
            ]
        await self._outcomes.add(ended)

    def _count_in_flight(self) -> None:
        self._shared.stopping.num_elsewhere = sum(worker.num_in_flight for worker in self._open)

    async def _lose(self, worker: _Worker, error: WorkerLostError) -> None:
        """Take back a dead worker's assignments; give up attempts that killed too many workers."""
        _LOGGER.warning("the Ray worker %s is lost: %s", worker.place, error)
        self._open.discard(worker)
        self._count_in_flight()
        self._num_deaths += 1
        # Most likely the cluster is at fault, for example for lack of memory, and no attempt.
        if self._num_deaths > max(_MIN_DEATHS_IN_A_ROW, 2 * self._engine.num_workers):
            text = f"{self._num_deaths} Ray workers died in a row without a result"
            cause = EngineError(f"{text}, the last one with: {error}")
            self._shared.stopping.stop(cause)
        for assignment in worker.assignments:
            assignment.num_deaths += 1
            if assignment.num_deaths < _MAX_DEATHS:
                self._assignments.put_back(assignment)
            else:
                await self._outcomes.add(assignment.given_up(error))
