"""The process of one worker of a Ray cluster, and the calls that are made to it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from gymcli.errors import GymError

if TYPE_CHECKING:
    from ray.actor import ActorHandle

__all__ = ["Call", "WorkerLostError", "WorkerProcess"]


class WorkerLostError(Exception):
    """Raised when the process of a worker is gone, or cannot be reached."""


class WorkerProcess:
    """One worker in its process."""

    def __init__(self, actor: ActorHandle) -> None:
        self._actor = actor

    def begin(self, method: str, *arguments: object) -> Call:
        """Begin a call; calls are made in their order."""
        return Call(getattr(self._actor, method).remote(*arguments))

    def kill(self) -> None:
        """End the process, whatever it does."""
        import ray  # late: heavy, and optional

        ray.kill(self._actor)


class Call:
    """A call under way."""

    def __init__(self, reference: Awaitable[bytes]) -> None:
        self._reference = reference

    async def result(self) -> bytes:
        """Wait for what it gives.

        Raises:
            WorkerLostError: The process is gone.
            GymError: The call raised something, which is a bug.

        """
        with _errors():
            return await self._reference

    def wait(self, timeout: float | None = None) -> bytes:
        """Wait for what it gives, in a thread without an event loop.

        Raises:
            TimeoutError: It takes longer.
            WorkerLostError: The process is gone.
            GymError: The call raised something, which is a bug.

        """
        import ray  # late: heavy, and optional

        with _errors():
            if not ray.wait([self._reference], timeout=timeout)[0]:
                raise TimeoutError
            return cast("bytes", ray.get(self._reference))


@contextmanager
def _errors() -> Iterator[None]:
    """Raise an error of ours in place of Ray's."""
    import ray  # late: heavy, and optional

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise GymError(f"a Ray worker failed: {error}") from error
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise WorkerLostError(_reason(str(error))) from error


def _reason(text: str) -> str:
    """Give what Ray says of a lost worker in one line: its long texts end with the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"
