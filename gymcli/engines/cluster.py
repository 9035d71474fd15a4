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
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gymcli.engines.joining import LOOKS_LIKE, Trial, place_of
from gymcli.engines.process import WorkerProcess
from gymcli.errors import EngineError, MissingPackageError, UsageError, described

__all__ = ["Cluster"]

_LOGGER = logging.getLogger(__name__)

_STORE_BYTES = 100 * 2**20
"""Ray keeps messages of more than 100 kB in shared memory; few are as large."""

_START_SECONDS = 600.0
"""A cluster that grows when it is asked for more takes minutes."""

_OWN_START_SECONDS = 120.0
"""One of this machine has its cores at once, or its own processes are gone."""

_LOOK_SECONDS = 1.0
"""So often a cluster looks whether the process ends without having ended it."""

_NUM_DELETIONS = 20
_DELETION_SECONDS = 0.1


class Cluster:
    """Starts or joins Ray, starts workers in it, and leaves it.

    Each is for one run. All that takes seconds, so a thread does it. A cluster of this machine
    alone listens on the loopback address, asks for a token of its own, sends nothing about its use
    to anybody, and keeps its files in a folder that only this user can read and that is deleted at
    the end.

    Args:
        address: Of the cluster that is joined; None: a new one.
        num_workers: Workers that are wanted; None: one for each core of the cluster.
        start_seconds: So long the first worker may take to start; None: as long as is usual.

    Raises:
        MissingPackageError: Ray is not installed.
        UsageError: The address is none.

    """

    def __init__(
        self, address: str | None, num_workers: int | None, *, start_seconds: float | None = None
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingPackageError(
                "--engine ray needs the package ray, which is not installed: "
                "pip install 'gymcli[ray]'"
            )
        self._address = address
        self._trial = None if address is None else _trial_of(address)
        self.num_workers = num_workers or 0
        """Workers that are to be started, from `start` on."""
        usual_seconds = _OWN_START_SECONDS if address is None else _START_SECONDS
        self.start_seconds = start_seconds or usual_seconds
        self._stack = ExitStack()
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._started = _running_future()
        self._stopped = _running_future()

    def start(self) -> Future[None]:
        """Start or join it.

        Raises:
            EngineError: That failed; raised where the result is asked for.
            UsageError: Ray makes nothing of the address; raised there as well.

        """
        self._thread = threading.Thread(target=self._live, name="gymcli-ray")
        self._thread.start()
        return self._started

    def stop(self) -> Future[None]:
        """Leave the cluster, and end it if it is our own; one that lets nobody in is left alone."""
        self._is_over.set()
        if self._trial is not None:
            self._trial.give_up()
        is_left_alone = self._address is not None and not self._started.done()
        return _done() if self._thread is None or is_left_alone else self._stopped

    def _live(self) -> None:
        """Start it and end it: in one thread, with which the processes that Ray starts end."""
        _settle(self._started, self._start)
        main = threading.main_thread()
        while main.is_alive() and not self._is_over.wait(_LOOK_SECONDS):
            pass
        _settle(self._stopped, self._stack.close)

    def _start(self) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            if self._address is None:
                self._start_local()
            else:
                self._join(self._address)
        except (OSError, RuntimeError, ValueError) as error:
            if self._address is None:
                raise EngineError(f"Ray here: {described(error)}") from error
            text = f"Ray at --address {self._address}: {described(error)}"
            if isinstance(error, ValueError):
                raise UsageError(f"{text}; it looks like {LOOKS_LIKE}") from error
            raise EngineError(text) from error

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
        if self._trial is not None:
            self._trial.run()
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


def _running_future() -> Future[None]:
    """Give a future that who waits for it cannot cancel."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _settle(future: Future[None], function: Callable[[], None]) -> None:
    """Call a function and let a future know what came of it."""
    try:
        function()
    except BaseException as error:  # noqa: BLE001  # it belongs to whoever asks for the result
        future.set_exception(error)
    else:
        future.set_result(None)


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def _trial_of(address: str) -> Trial | None:
    """Give what tries an address first; a name other than auto may be one of a cluster to start.

    Raises:
        UsageError: It is no address.

    """
    place = place_of(address)
    return Trial(address, place) if place is not None or address == "auto" else None


@functools.cache
def _token() -> str:
    """Make the token of the clusters of this process; Ray reads one once in a process."""
    return secrets.token_hex(32)


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
