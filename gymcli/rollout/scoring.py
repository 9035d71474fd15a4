"""Scores a record with its verifier, in a worker process or in the caller's event loop.

A verifier runs in the loop where it waits: for the models of roles, with `waits_to_verify`, or for
a server; and where no other process can import its class.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec

from gymcli.environment.contract import Environment, Model
from gymcli.environment.time_limit import LateError, gather_all, within
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import VerifierError, VerifierTimeoutError, boundary
from gymcli.rollout.isolation import IsolatedProcesses
from gymcli.rollout.verifier_worker import Definition, Method, ScoreReply, as_error
from gymcli.rollout.verify_context import VerifyContext, scores_of
from gymcli.rollout.worker_pool import ProcessPool, RequestKind, code_reference
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import Rollout, Score, Verifier

__all__ = ["Workers", "score", "score_group", "verifies_in_loop"]

_LOGGER = logging.getLogger(__name__)


class Workers:
    """At most `num_workers` processes for verifiers, and as many for `context.isolated`.

    An async context manager. Nothing is started before `warm` or the first score.

    Args:
        num_workers: None: one for each core that this process may use.
        scrubber: Knows the secrets that isolated functions do not get; verifiers get all variables.
        now: The clock of the limits; one that stands still while the event loop is blocked.
    """

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        scrubber: Scrubber = NOTHING_SECRET,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if num_workers is None:
            try:
                num_workers = len(os.sched_getaffinity(0))
            except AttributeError:  # macOS
                num_workers = os.cpu_count() or 1
        self.now = now
        self.calls_before = 0
        """How often a new process calls a verifier for nothing before its first score, where
        verifiers are compared with themselves."""
        self.verifiers = ProcessPool(
            "gymcli.rollout.verifier_worker", num_workers, variables=lambda: os.environ, now=now
        )
        self.isolated = IsolatedProcesses(num_workers, scrubber, now=now)

    def warm(self, environment: type[Environment[Task]], options: EnvironmentOptions) -> None:
        """Start the first process and let it load an environment; return at once."""
        kind = self.request_kind("verify", environment, options)
        if kind is not None:
            self.verifiers.warm(kind)

    def request_kind(
        self, method: Method, environment: type[Environment[Task]], options: EnvironmentOptions
    ) -> RequestKind | None:
        """Return what a verifier is to the processes; None where they cannot import its class."""
        code = code_reference(environment)
        if code is None:
            _warn(environment.__qualname__)
            return None
        definition = Definition(
            method, code, options.model_dump_json(), calls_before=self.calls_before
        )
        return RequestKind(
            msgspec.json.encode(definition),
            f"{method} of {environment.__name__}",
            environment.verify_timeout,
            environment.verify_memory_mb,
            "(verify_timeout)",
        )

    async def close(self) -> None:
        """End all processes, busy ones in the middle of their call, and wait for that."""
        await asyncio.gather(self.isolated.close(), self.verifiers.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def score(
    environment: type[Environment[Task]],
    rollout: Rollout,
    *,
    verifier: Verifier,
    options: EnvironmentOptions,
    roles: Mapping[str, Model] | None = None,
    workers: Workers | None = None,
    save: Callable[[], None] | None = None,
) -> Rollout:
    """Return a copy of a record with the score that its verifier returns, in place of any other.

    Without `workers` a process is started and ended for this record. `save` is called once where
    no score has come from a worker within a second.

    Raises:
        AttemptError: The verifier failed, took too long, or returned something that is not a
            finite number.
    """
    [found], seconds = await _scores(
        "verify", environment, [rollout], options, roles or {}, workers, save
    )
    return rollout.scored(found, verifier, seconds)


async def score_group(
    environment: type[Environment[Task]],
    rollouts: Sequence[Rollout],
    *,
    verifier: Verifier,
    options: EnvironmentOptions,
    roles: Sequence[Mapping[str, Model]],
    workers: Workers | None = None,
) -> list[Rollout]:
    """Score each record by itself, then all of them together; return them in their order.

    They are scored at once, so `verify_seconds` of each is the time of the whole group. Each
    record has its own models to ask in `roles`; the group asks those of the first.

    Raises:
        AttemptError: A verifier failed; none of the group is scored then.
    """
    started = time.perf_counter()
    alone = await gather_all(
        score(environment, rollout, verifier=verifier, options=options, roles=own, workers=workers)
        for rollout, own in zip(rollouts, roles, strict=True)
    )
    scores, _ = await _scores("verify_group", environment, alone, options, roles[0], workers, None)
    if len(scores) != len(rollouts):
        raise VerifierError(
            f"verify_group returned {len(scores)} scores for {len(rollouts)} attempts"
        )
    seconds = time.perf_counter() - started
    return [
        rollout.scored(one, verifier, seconds)
        for rollout, one in zip(rollouts, scores, strict=True)
    ]


async def _scores(
    method: Method,
    environment: type[Environment[Task]],
    rollouts: Sequence[Rollout],
    options: EnvironmentOptions,
    roles: Mapping[str, Model],
    workers: Workers | None,
    save: Callable[[], None] | None,
) -> tuple[list[Score], float]:
    """Call a verifier where it runs; return what it says and the seconds that it took."""
    if workers is None:
        async with Workers(1) as own:
            return await _scores(method, environment, rollouts, options, roles, own, save)
    kind = None
    if not (roles or environment.waits_to_verify):
        with boundary(VerifierError):
            kind = workers.request_kind(method, environment, options)
            if kind is not None:
                record = msgspec.json.encode(rollouts[0] if method == "verify" else rollouts)
    if kind is None:
        started = time.perf_counter()
        scores = await _scores_in_loop(method, environment, rollouts, options, roles, workers)
        return scores, time.perf_counter() - started
    replies: list[bytes] = []
    await workers.verifiers.run(kind, record, replies.extend, when_slow=save)
    reply = msgspec.json.decode(replies[0], type=ScoreReply)
    if reply.error is not None:
        raise as_error(reply.error)
    return reply.scores, reply.seconds


def verifies_in_loop(environment: type[Environment[Task]], roles: Mapping[str, object]) -> bool:
    """Return whether a verifier runs in the caller's loop, with models for these roles."""
    if roles or environment.waits_to_verify:
        return True
    if code_reference(environment) is not None:
        return False
    _warn(environment.__qualname__)
    return True


@functools.cache
def _warn(name: str) -> None:
    _LOGGER.warning(
        "%s can be imported by no other process, so that its verifier runs in this one: what "
        "computes there holds everything up, and cannot be ended; put the class into a module",
        name,
    )


async def _scores_in_loop(
    method: Method,
    environment: type[Environment[Task]],
    rollouts: Sequence[Rollout],
    options: EnvironmentOptions,
    roles: Mapping[str, Model],
    workers: Workers,
) -> list[Score]:
    seconds = environment.scoring_timeout
    context = VerifyContext(environment, options=options, roles=roles, processes=workers.isolated)
    records = rollouts[0] if method == "verify" else list(rollouts)
    with boundary(VerifierError):
        try:
            return await within(
                seconds,
                scores_of(environment, records, context),
                close_timeout=environment.close_timeout,
                now=workers.now,
            )
        except LateError as error:
            text = f"{method} took longer than {seconds:g} seconds (scoring_timeout)"
            raise VerifierTimeoutError(text) from error
