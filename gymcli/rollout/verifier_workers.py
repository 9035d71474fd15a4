"""The processes that verifiers and isolated functions run in, for one run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from gymcli import errors
from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import AttemptError, GymError, VerifierError
from gymcli.rollout.isolation import IsolatedProcesses
from gymcli.rollout.verifier_worker import Definition, ErrorReply, Method
from gymcli.rollout.worker_pool import ProcessPool, Subject, find_place
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["Workers", "as_error"]


T = TypeVar("T")


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
        num_workers = num_workers or _usable_cores()
        self.now = now
        self.calls_before = 0
        """How often a new process calls a verifier in vain before its first score, where verifiers
        are compared with themselves."""
        self.verifiers = ProcessPool(
            "gymcli.rollout.verifier_worker", num_workers, variables=lambda: os.environ, now=now
        )
        self.isolated = IsolatedProcesses(num_workers, scrubber, now=now)

    def warm(self, environment: type[Environment[Task]], options: EnvironmentOptions) -> None:
        """Start the first process and let it load an environment; return at once."""
        if find_place(environment) is not None:
            self.verifiers.warm(self.subject("verify", environment, options))

    def subject(
        self, method: Method, environment: type[Environment[Task]], options: EnvironmentOptions
    ) -> Subject:
        """Return what a verifier is to the processes."""
        definition = Definition(
            method,
            find_place(environment),
            options.model_dump_json(),
            calls_before=self.calls_before,
        )
        return Subject(
            msgspec.json.encode(definition),
            f"{method} of {environment.__name__}",
            environment.verify_timeout,
            environment.verify_memory_mb,
            "(verify_timeout)",
        )

    async def call(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int,
        imports: tuple[str, ...] = (),
    ) -> T:
        """Call a function as `IsolatedProcesses.call` does."""
        return await self.isolated.call(
            function, *args, timeout=timeout, memory_mb=memory_mb, imports=imports
        )

    async def close(self) -> None:
        """End all processes, busy ones in the middle of their call, and wait for that."""
        await asyncio.gather(self.isolated.close(), self.verifiers.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def as_error(reply: ErrorReply) -> GymError:
    """Return the error of a reply, to be raised here."""
    kind = getattr(errors, reply.error_class, VerifierError)
    error: GymError = kind(reply.text)
    if isinstance(error, AttemptError):
        error.frames = reply.frames
    return error


def _usable_cores() -> int:
    """Count the cores that this process may use, where the system says that (Linux)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
