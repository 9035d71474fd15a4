"""A Ray cluster: one that is joined, or one of this machine alone that lives as long as the run."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gymcli.boundary import described
from gymcli.errors import EngineError, GymError, MissingPackageError

if TYPE_CHECKING:
    from ray.actor import ActorHandle

__all__ = ["Cluster", "WorkerLostError", "WorkerProcess", "check_installed"]

_LOGGER = logging.getLogger(__name__)

_STORE_BYTES = 100 * 2**20
"""Ray keeps messages of more than 100 kB in shared memory; few are as large."""


_NUM_DELETIONS = 20
_DELETION_SECONDS = 0.1


class WorkerLostError(Exception):
    """Raised when the process of a worker is gone, or cannot be reached."""


def check_installed() -> None:
    """See that Ray is there, without importing it.

    Raises:
        MissingPackageError: It is not.

    """
    if importlib.util.find_spec("ray") is None:
        raise MissingPackageError(
            "--engine ray needs the package ray, which is not installed: pip install 'gymcli[ray]'"
        )


class Cluster:
    """Starts or joins Ray, starts workers in it, and leaves it.

    Both take seconds, so a thread does it. A cluster of this machine alone listens on the
    loopback address, asks for a token of its own, sends nothing about its use to anybody,
    and keeps its files in a folder that only this user can read and that is deleted at the end.

    Args:
        address: Of the cluster that is joined; None: a new one.
        num_workers: Workers that are wanted; None: one for each core of the cluster.

    """

    def __init__(self, address: str | None, num_workers: int | None) -> None:
        self._address = address
        self.num_workers = num_workers or 0
        """Workers that are to be started, from `start` on."""
        # One thread for both: the processes that Ray starts are killed when that ends.
        self._thread = ThreadPoolExecutor(1, "gymcli-ray")
        self._stack = ExitStack()

    def start(self) -> Future[None]:
        """Start or join it.

        Raises:
            EngineError: That failed; raised where the result is asked for.

        """
        return self._thread.submit(self._start)

    def stop(self) -> Future[None]:
        """Leave the cluster, and end it if it is our own."""
        stopped = self._thread.submit(self._stack.close)
        self._thread.shutdown(wait=False)
        return stopped

    def _start(self) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            if self._address is None:
                self._start_local()
            else:
                self._join(self._address)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            where = "here" if self._address is None else f"at --address {self._address}"
            raise EngineError(f"Ray {where}: {described(error)}") from error

    def _keep_stdout_clean(self) -> None:
        """Log what Ray says of its processes; it prints that among the results, unasked.

        No setting of Ray turns that off. A version that has no such function prints elsewhere.
        """
        module = importlib.import_module("ray._private.worker")
        name = "print_to_stdstream"
        printing = getattr(module, name, None)
        if printing is not None:
            self._stack.callback(setattr, module, name, printing)
            setattr(module, name, _log)

    def _start_local(self) -> None:
        self.num_workers = self.num_workers or os.cpu_count() or 1
        # The paths of its sockets must be short, and those of macOS's temporary folders are not.
        folder = tempfile.mkdtemp(prefix="gym-ray-", dir="/tmp")
        self._stack.callback(_delete, folder)
        inner = Path(folder) / "ray"  # Ray opens the folder that it is given to everybody
        self._stack.enter_context(
            _environment(
                RAY_USAGE_STATS_ENABLED="0",
                RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # else its processes listen everywhere
                RAY_AUTH_MODE="token",
                RAY_AUTH_TOKEN=_token(),
            )
        )
        import ray  # late: heavy, and optional

        self._keep_stdout_clean()
        self._stack.callback(ray.shutdown)
        ray.init(
            address="local",
            num_cpus=self.num_workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=_STORE_BYTES,
            _temp_dir=str(inner),
            _node_ip_address="127.0.0.1",
        )

    def _join(self, address: str) -> None:
        import ray  # late: heavy, and optional

        self._keep_stdout_clean()
        self._stack.callback(ray.shutdown)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        if not self.num_workers:
            self.num_workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def worker(self, kind: type[object]) -> WorkerProcess:
        """Start a worker of a class; it may wait for a free core."""
        import ray  # late: heavy, and optional

        # Neither a restart nor a second try by Ray: what was lost is handed out anew.
        actor = ray.remote(kind).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        return WorkerProcess(actor.remote())


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


@functools.cache
def _token() -> str:
    """Make the token of the clusters of this process; Ray reads one once in a process."""
    return secrets.token_hex(32)


def _reason(text: str) -> str:
    """Give what Ray says of a lost worker in one line: its long texts end with the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"


def _log(data: Mapping[str, Sequence[str]], *_: object, **__: object) -> None:
    _LOGGER.info("Ray: %s", " ".join(data["lines"]))


def _delete(folder: str) -> None:
    """Delete the files of a cluster; its last processes write some while they end."""
    for _ in range(_NUM_DELETIONS):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        time.sleep(_DELETION_SECONDS)
    _LOGGER.warning("%s: could not be deleted", folder)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables for a block: Ray takes these from nowhere else, and at any time."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
