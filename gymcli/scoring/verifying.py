"""Calls `verify` where it may run: in this process under an alarm, else where it can be killed.

A verifier that waits for nobody is called here and may compute for a fifth of a second, so that
trivial ones cost nothing. One that takes longer is called anew in a worker process; it reads
nothing but the record, so it says the same there. A class that was slow in a worker goes there at
once from then on, and so does one that says `verifies_in_worker`.

What stays here: verifiers that wait, for the models of roles or for `Context.isolated`, and classes
that another process does not find, as those of a script or a notebook.
"""

from __future__ import annotations

import asyncio
import importlib
import operator
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal, NamedTuple, cast

import msgspec

from gymcli.boundary import boundary
from gymcli.deadlines import NO_ALARM, Alarm, Limit, OverrunError, limit_of, within
from gymcli.environment import Environment, EnvironmentOptions, Model, Task
from gymcli.errors import AttemptError, VerifierError, VerifierTimeoutError
from gymcli.registry.find import FILE_MODULE_PREFIX, module_of_file
from gymcli.scoring.context import VerifyContext, checked_score
from gymcli.scoring.isolation import Workers
from gymcli.types import Rollout, Score, Verifier

__all__ = ["HERE_SECONDS", "Verifying", "score", "want_of_memory"]

HERE_SECONDS = 0.2
"""Seconds that a verifier may compute in this process where it could run in another."""

_SLOW_SECONDS = 0.1
"""A verifier that takes so long in a worker is slow; others were only held up here."""

_KILL_SECONDS = 2.0
"""Beyond its limit, until a worker that does not end a verifier itself is killed."""

_Method = Literal["verify", "verify_group"]


async def score(
    environment: type[Environment[Task]],
    rollout: Rollout,
    *,
    verifier: Verifier,
    options: EnvironmentOptions,
    roles: Mapping[str, Model] | None = None,
    workers: Workers | None = None,
    alarm: Alarm = NO_ALARM,
    save: Callable[[], None] | None = None,
    is_in_worker: bool = False,
) -> Rollout:
    """Score a record and give it with its score.

    Args:
        environment: The environment of the record.
        rollout: The record.
        verifier: What the score is marked with.
        options: The environment's options.
        roles: The models that the verifier may ask.
        workers: Where slow verifiers and isolated functions run; they stay open. Without, a pool
            that lives for this record.
        alarm: Ends what computes too long in this process; without one that is open, nothing does.
        save: Called before the record goes to a worker because its verifier turned out slow.
        is_in_worker: This process is a worker: the verifier stays here, however slow it is.

    Raises:
        AttemptError: The verifier failed or took too long, or gave something that is not a finite
            number.

    """
    started = time.perf_counter()
    verifying = Verifying(environment, options, roles or {}, workers, alarm, save, is_in_worker)
    [found] = await verifying.checked("verify", [rollout])
    return rollout.scored(found, verifier, time.perf_counter() - started)


class Verifying(msgspec.Struct, frozen=True):
    """What calls of one environment's verifiers share; the arguments are those of `score`."""

    environment: type[Environment[Task]]
    options: EnvironmentOptions
    roles: Mapping[str, Model]
    workers: Workers | None
    alarm: Alarm
    save: Callable[[], None] | None = None
    is_in_worker: bool = False

    async def checked(self, method: _Method, rollouts: Sequence[Rollout]) -> list[Score]:
        """Give what a verifier says: of the only record, or of all attempts of a task.

        Raises:
            AttemptError: It failed, took too long, or gave what is no score.

        """
        environment = self.environment
        if self.roles or environment.waits_to_verify:
            seconds, computing = environment.scoring_timeout, environment.blocking_timeout
            limit = limit_of(method, seconds, computing, VerifierTimeoutError, "scoring_timeout")
            return await self.here(method, rollouts, limit, self.alarm)
        if self.is_in_worker:
            return await self.here(method, rollouts, _alone(environment, method), self.alarm)
        is_slow = self.workers is not None and environment in self.workers.slow
        if not (environment.verifies_in_worker or is_slow):
            limit = _alone(environment, method, HERE_SECONDS)
            try:
                # A replay is not paused for: its tools count as the verifier's own time.
                return await self.here(method, rollouts, limit, NO_ALARM)
            except VerifierTimeoutError as error:
                if not isinstance(error.__cause__, OverrunError):
                    raise
            if self.save is not None:
                self.save()
        place = _place_of(environment)
        if place is None:
            return await self.here(method, rollouts, _alone(environment, method), self.alarm)
        return await self._there(method, rollouts, place)

    async def here(
        self, method: _Method, rollouts: Sequence[Rollout], limit: Limit, replay_alarm: Alarm
    ) -> list[Score]:
        """Call a verifier in this process.

        Raises:
            AttemptError: It failed, took too long, or gave what is no score.

        """
        environment = self.environment
        with boundary(VerifierError):
            context = VerifyContext(
                environment,
                options=self.options,
                roles=self.roles,
                workers=self.workers,
                alarm=replay_alarm,
            )
            try:
                if method == "verify":
                    verify = environment.verify
                    score = await within(self.alarm, limit, verify, rollouts[0], context)
                    scores = [checked_score(score)]
                else:
                    verify_group = environment.verify_group
                    found = await within(self.alarm, limit, verify_group, list(rollouts), context)
                    scores = [checked_score(score) for score in found]
            except BaseException:
                with suppress(Exception, SystemExit):  # what failed before says more
                    await context.close()
                raise
            if context.is_used:
                await context.close()
        return scores

    async def _there(
        self, method: _Method, rollouts: Sequence[Rollout], place: _Place
    ) -> list[Score]:
        """Call a verifier in a worker."""
        environment = self.environment
        records = [msgspec.json.encode(rollout) for rollout in rollouts]
        with ExitStack() as stack:
            workers = self.workers or stack.enter_context(Workers(1))
            seconds = _SLOW_SECONDS
            try:
                with boundary(VerifierError):
                    scores, seconds = await workers.call(
                        _verified,
                        place,
                        method,
                        pickle.dumps(self.options),
                        records,
                        timeout=environment.verify_timeout + _KILL_SECONDS,
                        memory_mb=environment.verify_memory_mb,
                        imports=(place.file or place.module,),
                        name=f"{method} of {environment.__name__}",
                    )
            finally:
                if seconds >= _SLOW_SECONDS:
                    workers.slow.add(environment)
        return scores


def want_of_memory(error: AttemptError) -> MemoryError | None:
    """Give the MemoryError of a verifier, for which a worker is replaced and says its limit."""
    return error.__cause__ if isinstance(error.__cause__, MemoryError) else None


def _alone(
    environment: type[Environment[Task]], method: _Method, computing: float | None = None
) -> Limit:
    """Give the limit of a verifier that waits for nobody."""
    seconds = environment.verify_timeout
    computing = seconds if computing is None else min(seconds, computing)
    name = "verify_timeout"
    return limit_of(method, seconds, computing, VerifierTimeoutError, name, name)


class _Place(NamedTuple):
    """Where another process finds a class."""

    module: str
    file: str
    """Where the module was loaded from, if that was a file that no import finds; else empty."""
    qualname: str

    def environment(self) -> type[Environment[Task]]:
        """Find the class, in any process."""
        if self.file:
            module = module_of_file(Path(self.file), self.file)
        else:
            module = importlib.import_module(self.module)
        return cast("type[Environment[Task]]", operator.attrgetter(self.qualname)(module))


def _place_of(environment: type[Environment[Task]]) -> _Place | None:
    """Say where another process finds a class; None where it cannot."""
    name = environment.__module__
    found: object = sys.modules.get(name)
    for part in environment.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not environment or name == "__main__":
        return None
    is_file = name.startswith(FILE_MODULE_PREFIX)
    file = str(sys.modules[name].__file__) if is_file else ""
    return _Place(name, file, environment.__qualname__)


def _verified(
    place: _Place, method: _Method, options: bytes, records: list[bytes]
) -> tuple[list[Score], float]:
    """Call a verifier in the process of a worker; give its scores, and how long it took."""
    environment = place.environment()
    rollouts = [msgspec.json.decode(record, type=Rollout) for record in records]
    started = time.perf_counter()
    with Alarm() as alarm:
        verifying = Verifying(
            environment,
            pickle.loads(options),  # noqa: S301  # both ends are ours
            {},
            None,
            alarm,
            is_in_worker=True,
        )
        limit = _alone(environment, method)
        try:
            scores = asyncio.run(verifying.here(method, rollouts, limit, alarm))
        except VerifierError as error:
            raise want_of_memory(error) or error from None
    return scores, time.perf_counter() - started
