"""Ends a run early: starts nothing new, waits for attempts in flight, then cuts them off.

Reasons are a signal, a budget that is used up (`Budget`) and an endpoint that refuses everything
(`FailFast`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import (
    AttemptError,
    BudgetAttemptError,
    BudgetReachedError,
    CancelledAttemptError,
    EndpointGoneError,
    FatalEndpointError,
    GymError,
    InterruptedRunError,
    ModelError,
    Phase,
    RoleError,
    TooManyFailuresError,
    UnfinishedAttemptError,
    UnknownUsageError,
    UsageError,
)
from gymcli.models.api_errors import is_unreachable
from gymcli.models.endpoint import Endpoint
from gymcli.models.roles import ORACLE, RoleSource
from gymcli.rollout.episode import Episode
from gymcli.runner.collect_options import CollectOptions
from gymcli.store.rollout_files import FAILURES, GENERATIONS, ROLLOUTS, read_structs
from gymcli.types import AttemptKey, Failure, RecordNumbers, RoleUse, Rollout, Usage

POLICY = ""
"""The name of the policy among the roles."""

CUT_OFF = frozenset(
    kind.__name__ for kind in (CancelledAttemptError, BudgetAttemptError, EndpointGoneError)
)
"""Errors of attempts that failed because of what ended the run; these are always retried."""

_VERIFY_SECONDS = 5.0
"""How long verifiers may still take when the endpoint is down."""

_MAX_TASKS_IN_A_ROW = 20

_HURRIED_SECONDS = 2.0
"""How long an environment of a cut-off attempt may take to close after a second signal."""


@dataclass(eq=False, slots=True)
class _Work:
    task: asyncio.Task[object]
    phase: Callable[[], Phase]
    phase_at_cut: Phase | None = None


class Stopping:
    """Ends one run early, for a signal, a budget or an endpoint that is down.

    The cause is the error that the run will raise. Once it is set, no attempt starts; attempts in
    flight have `grace` seconds to finish and are then cut off with an UnfinishedAttemptError. Their
    records are written immediately; their environments close afterwards.
    """

    def __init__(self, grace: float = 0.0) -> None:
        self.grace = grace
        self.cause: GymError | None = None
        self.num_elsewhere = 0
        self._is_cut = False
        self._is_hurried = False
        self._in_flight: set[_Work] = set()
        self._closing: set[Episode] = set()
        """Attempts with a record whose environments are still closing."""
        self._cut_at = math.inf
        self._timer: asyncio.Handle | None = None

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight) + self.num_elsewhere

    @property
    def seconds_left(self) -> float:
        """Seconds until attempts in flight are cut off; infinite while the run is not stopped."""
        return 0.0 if self._is_cut else self._cut_at - asyncio.get_running_loop().time()

    def stop(
        self, cause: GymError, *, grace: float | None = None, is_hurried: bool = False
    ) -> None:
        """Start nothing from now on, and cut off attempts in flight after the grace period.

        May be called again: the graver cause and the earlier end win. Must be called in the thread
        of the run's event loop. `grace` defaults to the run's; with `is_hurried`, environments have
        two seconds to close instead of `close_timeout`.
        """
        if is_hurried:
            self._is_hurried = True
            for episode in self._closing:
                episode.limit_close(_HURRIED_SECONDS)
        if self.cause is None or _gravity(cause) > _gravity(self.cause):
            self.cause = cause
        if self._is_cut:
            return
        loop = asyncio.get_running_loop()
        # Not synchronously: the running task would meet the cancellation outside its own work.
        moment = loop.time() + (self.grace if grace is None else grace)
        if moment < self._cut_at:
            self.close()
            self._cut_at = moment
            self._timer = loop.call_at(moment, self._cut)

    def from_thread(self) -> Callable[[GymError], None]:
        """Return a function with which another thread ends the run of this loop, without grace."""
        loop = asyncio.get_running_loop()

        def stop(cause: GymError) -> None:
            with suppress(RuntimeError):  # the loop is closed: the run is over
                loop.call_soon_threadsafe(partial(self.stop, cause, grace=0.0))

        return stop

    @contextmanager
    def in_flight(self, phase: Callable[[], Phase]) -> Iterator[None]:
        """Register the current task's work on one attempt, to be cut off when the run ends.

        `phase` is called at the cut and returns the attempt's phase.

        Raises:
            UnfinishedAttemptError: The work was cut off; replaces the CancelledError. Cancellation
                from elsewhere passes through.
        """
        # The cut reached only what was in flight; nothing would end work that begins after it.
        if self._is_cut:
            raise self.error(phase())
        task = asyncio.current_task()
        assert task is not None, "attempts run in tasks"
        work = _Work(task, phase)
        num_cancellations = task.cancelling()
        self._in_flight.add(work)
        try:
            try:
                yield
            finally:
                self._in_flight.discard(work)
                if work.phase_at_cut is not None:
                    task.uncancel()
        except asyncio.CancelledError as cancelled:
            # Our own cancellation is taken back above; if one remains, somebody else cancelled too.
            if work.phase_at_cut is not None and task.cancelling() <= num_cancellations:
                raise self.error(work.phase_at_cut) from cancelled
            raise

    def error(self, phase: Phase) -> UnfinishedAttemptError:
        is_budget = isinstance(self.cause, BudgetReachedError)
        kind = BudgetAttemptError if is_budget else CancelledAttemptError
        return kind(f"the run was ended first: {self.cause}", phase=phase)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._cut_at = None, math.inf

    def add_closing(self, episode: Episode) -> None:
        """Add an attempt that has its record but whose environment is still closing."""
        self._closing.add(episode)
        if self._is_hurried:
            episode.limit_close(_HURRIED_SECONDS)

    async def closed(self) -> None:
        """Wait until every cut-off attempt has closed its environment or was abandoned."""
        while self._closing:
            episode = next(iter(self._closing))
            await episode.wait_closed()
            self._closing.discard(episode)

    def _cut(self) -> None:
        # An unreachable endpoint is no reason to drop conversations that only need a score.
        spares = isinstance(self.cause, FatalEndpointError) and not self._is_cut
        self._is_cut = True
        self._timer = None
        for work in self._in_flight:
            if work.phase_at_cut is None and not (spares and work.phase() == "verify"):
                work.phase_at_cut = work.phase()
                work.task.cancel()
        if spares and self._in_flight:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_VERIFY_SECONDS, self._cut)


def _gravity(cause: GymError) -> int:
    """Rank causes like exit codes: a signal, a budget, anything else."""
    if isinstance(cause, InterruptedRunError):
        return 3
    return 2 if isinstance(cause, BudgetReachedError) else 1


class Budget:
    """The budgets of the runs of a command, and how much their models have spent of them.

    Every function of `stops` ends one of the runs. They are called for every answer that arrives
    once a budget is used up, or that does not report its token usage, so that the budget cannot be
    enforced; and for every failure once there are `max_failures`.
    """

    def __init__(self, options: CollectOptions, *stops: Callable[[GymError], None]) -> None:
        self._max_tokens = options.max_tokens_total
        self._max_cost = options.max_cost
        self._max_seconds = options.max_run_time
        self._max_failures = options.max_failures
        self.stops = list(stops)
        self.num_failures = 0
        """Attempts that failed for good in this command."""
        self.num_tokens = 0
        self.cost = 0.0
        self.has_unknown = False

    @property
    def is_limited(self) -> bool:
        """Whether tokens or cost are limited; otherwise they need not be counted."""
        return self._max_tokens is not None or self._max_cost is not None

    def add(self, usage: Usage, cost: float | None) -> None:
        num_tokens = _num_tokens(usage)
        self.num_tokens += num_tokens
        self.cost += cost or 0.0
        if num_tokens:
            self.check()
        else:
            # Counted as 0, it would let the run exceed its budget unnoticed.
            self.has_unknown = True
            limits = {"--max-tokens-total": self._max_tokens, "--max-cost": self._max_cost}
            options = " and ".join(name for name, limit in limits.items() if limit is not None)
            text = f"an answer did not report its token usage, so {options} cannot be enforced"
            text += "; leave the option out to continue without the limit"
            self._stop(BudgetReachedError(text))

    def check(self) -> None:
        if self._max_tokens is not None and self.num_tokens >= self._max_tokens:
            text = f"the budget --max-tokens-total {self._max_tokens} is reached"
            self._stop(BudgetReachedError(text))
        elif self._max_cost is not None and self.cost >= self._max_cost:
            self._stop(BudgetReachedError(f"the budget --max-cost {self._max_cost:g} is reached"))

    def add_failure(self) -> None:
        self.num_failures += 1
        if self._max_failures is not None and self.num_failures >= self._max_failures:
            attempts = "1 failed attempt"
            if self._max_failures > 1:
                attempts = f"{self._max_failures} failed attempts"
            self._stop(TooManyFailuresError(f"stopped after {attempts} (--max-failures)"))

    def _stop(self, cause: GymError) -> None:
        for stop in self.stops:
            stop(cause)

    @contextmanager
    def timed(self, started: float) -> Iterator[None]:
        """Stop the run when its time is over; `started` is by `time.monotonic`."""
        seconds = self._max_seconds
        if seconds is None:
            yield
            return
        cause = BudgetReachedError(f"the {seconds:g} seconds of --max-run-time are over")
        left = max(0.0, started + seconds - time.monotonic())
        timer = asyncio.get_running_loop().call_later(left, self._stop, cause)
        try:
            yield
        finally:
            timer.cancel()

    def spent_text(self) -> str:
        parts = []
        if self._max_tokens is not None:
            parts.append(f"{self.num_tokens} tokens")
        if self._max_cost is not None:
            parts.append(f"a cost of {self.cost:.4g}")
        if not parts or self.has_unknown:
            return ""
        return f"{' and '.join(parts)} {'is' if self._max_tokens is None else 'are'} spent"

    def add_record(self, folder: Path, policy: RoleSource, roles: Mapping[str, RoleSource]) -> None:
        """Count what earlier commands of a run spent, at the current prices."""
        spent = spent_on_record(folder)
        sources = [(policy, spent.policy)]
        sources += [(roles[role], usage) for role, usage in spent.roles.items() if role in roles]
        for source, usage in sources:
            self.num_tokens += _num_tokens(usage)
            if isinstance(source, Endpoint):
                self.cost += source.cost(usage) or 0.0


class Spent(NamedTuple):
    """The tokens that a run used."""

    policy: Usage
    roles: dict[str, Usage]


def spent_on_record(folder: Path) -> Spent:
    """Add up the tokens of every conversation of a run, and of every scoring of each.

    A conversation that waited for its score has several lines: one in generations.jsonl, one for
    each failed scoring, one for its score. Each repeats the tokens of the conversation, which are
    counted once.
    """
    spent = Spent(Usage(), {})
    played: dict[tuple[AttemptKey, float], dict[str, RoleUse]] = {}
    decoder = msgspec.json.Decoder(RecordNumbers)
    # In this order: a conversation is read before its scorings, whose lines repeat its tokens.
    for name in (GENERATIONS, FAILURES, ROLLOUTS):
        if not (folder / name).is_file():
            continue
        for line in read_structs(folder / name, decoder):
            role_usage = line.role_usage or {}
            conversation = (line.key, line.timing.started_at)  # an attempt may have several
            before = played.get(conversation)
            if before is None:
                spent.policy.add(line.usage)
            elif name == GENERATIONS:
                continue
            for role, use in role_usage.items():
                counted = before[role].usage if before and role in before else Usage()
                # A scoring adds to the use on record, unless the role has a new model (see `_added`
                # in attempts.py): then its use may be lower.
                more = {
                    field: max(0, getattr(use.usage, field) - getattr(counted, field))
                    for field in counted.__struct_fields__
                }
                spent.roles.setdefault(role, Usage()).add(Usage(**more))
            if name == GENERATIONS:
                played[conversation] = role_usage
    return spent


def _num_tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens


def check_prices(options: CollectOptions, roles: Mapping[str, RoleSource]) -> None:
    """Raise an error if cost is limited and the price of a model is unknown."""
    policy: RoleSource = options.endpoint or options.model
    limited: list[tuple[str, str, RoleSource]] = []
    if options.max_episode_cost is not None:
        limited.append(("--max-episode-cost", "model", policy))
    if options.max_cost is not None:
        limited.append(("--max-cost", "model", policy))
        limited += [("--max-cost", role, source) for role, source in roles.items()]
    for option, who, source in limited:
        if source == ORACLE:
            continue  # it sends no requests
        if isinstance(source, str):
            raise UsageError(
                f"{option}: the embedded model (the {who}) has no prices; limit tokens instead"
            )
        if source.cost(Usage()) is None:
            table = source.name or source.model
            raise UsageError(
                f"{option}: the price of the {who} {source.model} is unknown; add prices per "
                f'million tokens to its table in gym.toml: [models."{table}"] '
                "prices = { prompt = ..., completion = ... }"
            )


def cause_of(error: AttemptError) -> BaseException | None:
    """Return the client's error behind a RoleError, or any other error itself."""
    return error.__cause__ if isinstance(error, RoleError) else error


def _role_of(error: AttemptError) -> str:
    """Return the role whose model failed (a RoleError's text begins with it), or `POLICY`."""
    return str(error).partition(":")[0] if isinstance(error, RoleError) else POLICY


class FailFast:
    """Ends a run that cannot succeed: an endpoint refuses all tasks, or rejects the key.

    An endpoint that has not answered yet must refuse two different tasks and `concurrency`
    attempts. One that has answered must report a refused key or an empty account for 20 different
    tasks in a row.
    """

    def __init__(self, concurrency: int, answered: Collection[str] = ()) -> None:
        self._concurrency = concurrency
        self._on_record = answered
        self._answered: set[str] = set()
        self._refused: dict[str, Counter[tuple[str, str]]] = {}
        """Attempts of each task that an endpoint refused since its last answer, by role."""
        self._first: AttemptError | None = None
        """The first refusal, until anything is scored."""
        self._is_scored = False

    def check(
        self,
        record: Rollout | Failure,
        fatal: AttemptError | None,
        *,
        was_answered: bool,
        is_own: bool,
    ) -> FatalEndpointError | None:
        """Count the outcome of an attempt; return why the run cannot succeed any more, or None.

        The arguments are the fields of `Outcome`.
        """
        cause = None if fatal is None else cause_of(fatal)
        answered = {POLICY} if was_answered else set()
        for role, use in record.role_usage.items():
            if use.num_calls:
                answered.add(role)
        self._answered |= answered
        if not isinstance(cause, UnknownUsageError):  # that error comes with an answer
            for role in answered:
                self._refused.pop(role, None)
        self._is_scored = self._is_scored or isinstance(record, Rollout)
        if fatal is None or not is_own:
            return None
        return self._judge((record.env, record.task_id), fatal)

    def _judge(self, task: tuple[str, str], fatal: AttemptError) -> FatalEndpointError | None:
        """Count a refusal; return why the run cannot succeed any more, or None."""
        cause = cause_of(fatal)
        # The client has already waited for it until the outage deadline.
        if isinstance(cause, EndpointGoneError):
            return _ended_by(fatal)
        role = _role_of(fatal)
        # The endpoint has answered an attempt that is still in flight.
        if isinstance(cause, ModelError) and cause.follows_answers and role not in self._answered:
            self._answered.add(role)
            self._refused.pop(role, None)
        # Unreachable from the start: most likely a wrong address. Later it is an outage, during
        # which the client waits.
        if isinstance(cause, ModelError) and is_unreachable(cause):
            return None if role in self._answered else _ended_by(fatal)
        has_answered = role in self._answered or role in self._on_record
        # After an answer, only these concern every task: a refused key, an account without money
        # (402, or a 429 that is fatal), missing token usage.
        is_about_account = isinstance(cause, UnknownUsageError) or (
            isinstance(cause, ModelError) and cause.status in (401, 402, 429)
        )
        if has_answered and not is_about_account:
            return None
        refused = self._refused.setdefault(role, Counter())
        refused[task] += 1
        if not has_answered:
            self._first = self._first or fatal
            # One refused task proves nothing: many endpoints refuse a conversation for its content,
            # with the status of a bad key or model, and faster than they answer.
            is_refused = len(refused) > 1 and refused.total() >= self._concurrency
            return _ended_by(fatal) if is_refused else None
        if len(refused) < _MAX_TASKS_IN_A_ROW:
            return None
        return _ended_by(fatal, f" ({len(refused)} tasks in a row met this)")

    def unanswered(self) -> FatalEndpointError | None:
        """Return why a finished run scored nothing, if refusals were too few to stop it."""
        if self._first is None or self._is_scored or _role_of(self._first) in self._answered:
            return None
        return _ended_by(self._first)


def _ended_by(fatal: AttemptError, addition: str = "") -> FatalEndpointError:
    error = FatalEndpointError(f"{fatal}{addition}")
    error.__cause__ = fatal
    return error
