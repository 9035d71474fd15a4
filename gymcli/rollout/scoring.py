"""Scores a record with its verifier, in a worker process or in the caller's event loop.

A verifier runs in the loop if it awaits something (models of roles, `waits_to_verify`, a server) or
if no other process can import its class.
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
from gymcli.errors import VerifierCrashedError, VerifierError, VerifierTimeoutError, boundary
from gymcli.rollout.isolation import IsolatedProcesses
from gymcli.rollout.verifier_worker import Definition, Method, ScoreReply, as_error
from gymcli.rollout.verify_context import VerifyContext, scores_of
from gymcli.rollout.worker_pool import ProcessPool, RequestKind, code_reference
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import Rollout, Score, Verifier

_LOGGER = logging.getLogger(__name__)
_DECODER = msgspec.json.Decoder(ScoreReply)


class Workers:
    """At most `num_workers` processes for verifiers, and as many for `context.isolated`.

    An async context manager. No process starts before `warm` or the first score.

    Args:
        num_workers: None: one for each core that this process may use.
        scrubber: Removes secrets from the environment variables of isolated functions; verifiers
            receive all variables.
        now: The clock of the limits, such as one that pauses while the event loop is blocked.
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
        """Warm-up calls of a verifier in a new process, when it is compared with itself."""
        self.verifiers = ProcessPool(
            "gymcli.rollout.verifier_worker", num_workers, variables=lambda: os.environ, now=now
        )
        self.isolated = IsolatedProcesses(num_workers, scrubber, now=now)

    def warm(self, environment: type[Environment[Task]], options: EnvironmentOptions) -> None:
        """Start the first process and have it load an environment, without waiting for it."""
        kind = self.request_kind("verify", environment, options)
        if kind is not None:
            self.verifiers.warm(kind)

    def request_kind(
        self, method: Method, environment: type[Environment[Task]], options: EnvironmentOptions
    ) -> RequestKind | None:
        """Return the kind of a verifier's requests; None if processes cannot import its class."""
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
        """End all processes, including busy ones, and wait until they are gone."""
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
    """Return a copy of a record with a new score from its verifier.

    Without `workers`, a process is started for this record only. `save` is called once if a worker
    has returned no score within a second.

    Raises:
        AttemptError: The verifier failed, took too long, or returned something that is not a
            finite number.
    """
    [new_score], seconds = await _scores(
        "verify", environment, [rollout], options, roles or {}, workers, save
    )
    return rollout.scored(new_score, verifier, seconds)


async def score_group(
    environment: type[Environment[Task]],
    rollouts: Sequence[Rollout],
    *,
    verifier: Verifier,
    options: EnvironmentOptions,
    roles: Sequence[Mapping[str, Model]],
    workers: Workers | None = None,
) -> list[Rollout]:
    """Score each record with `verify`, then all of them with `verify_group`; keep their order.

    They are scored concurrently, so `verify_seconds` of each is the time of the whole group.
    `roles` has the models of each record; `verify_group` uses those of the first.

    Raises:
        AttemptError: A verifier failed; the whole group stays unscored.
    """
    started = time.perf_counter()
    scored_alone = await gather_all(
        score(
            environment, rollout, verifier=verifier, options=options, roles=models, workers=workers
        )
        for rollout, models in zip(rollouts, roles, strict=True)
    )
    scores, _ = await _scores(
        "verify_group", environment, scored_alone, options, roles[0], workers, None
    )
    if len(scores) != len(rollouts):
        raise VerifierError(
            f"verify_group returned {len(scores)} scores for {len(rollouts)} attempts"
        )
    seconds = time.perf_counter() - started
    return [
        rollout.scored(group_score, verifier, seconds)
        for rollout, group_score in zip(rollouts, scores, strict=True)
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
    """Call a verifier in a worker or the loop; return its scores and the seconds it took."""
    if workers is None:
        async with Workers(1) as workers:
            return await _scores(method, environment, rollouts, options, roles, workers, save)
    kind = None
    if not (roles or environment.waits_to_verify):
        # Dumping the options may run code of the environment.
        with boundary(VerifierError):
            kind = workers.request_kind(method, environment, options)
            if kind is not None:
                record = msgspec.json.encode(rollouts[0] if method == "verify" else rollouts)
    if kind is None:
        started = time.perf_counter()
        scores = await _scores_in_loop(method, environment, rollouts, options, roles, workers)
        return scores, time.perf_counter() - started
    replies: list[ScoreReply] = []

    def take(lines: list[bytes]) -> None:
        replies.extend(map(_DECODER.decode, lines))

    await workers.verifiers.run(kind, record, take, when_slow=save)
    if len(replies) != 1:
        raise VerifierCrashedError(f"{kind.name}: its process sent {len(replies)} replies")
    [reply] = replies
    if reply.error is not None:
        raise as_error(reply.error)
    return reply.scores, reply.seconds


def verifies_in_loop(environment: type[Environment[Task]], roles: Mapping[str, object]) -> bool:
    """Return whether a verifier runs in the caller's loop, given the roles that have models."""
    if roles or environment.waits_to_verify:
        return True
    if code_reference(environment) is not None:
        return False
    _warn(environment.__qualname__)
    return True


# Cached, so that it warns once for each class.
@functools.cache
def _warn(name: str) -> None:
    _LOGGER.warning(
        "no other process can import %s, so its verifier runs in this one, where code that "
        "computes blocks everything and cannot be stopped; put the class into a module",
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
