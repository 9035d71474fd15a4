"""Lists the runs in a folder, each with its settings and its numbers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from gymcli.errors import GymError, RunDirectoryError, UsageError
from gymcli.library.calls import run_path
from gymcli.library.result import Result
from gymcli.metrics.measure import measure
from gymcli.metrics.results import Interval, RunMetrics
from gymcli.store.locking import LOCK, shared_run_lock
from gymcli.store.manifest import MANIFEST, Manifest, read_manifest
from gymcli.store.rollout_files import FAILURES, METRICS_FILE, ROLLOUTS
from gymcli.types import JSON_ERRORS, JSONObject

_LOGGER = logging.getLogger(__name__)
_NOT_SAMPLING = ("model", "params", "environments", "roles", "params_of_rows")

RunState = Literal["finished", "stopped", "running", "damaged", ""]


class ListedMean(msgspec.Struct, kw_only=True):
    """The mean reward of one environment."""

    mean_reward: float | None
    interval: Interval | None


class ListedRun(msgspec.Struct, kw_only=True):
    """One run of a table."""

    run: str
    """Its path, as given."""
    state: RunState
    """Empty for a rollout file, which does not record how its run ended."""
    problem: str | None = None
    """Why the run cannot be read."""
    model: str | None = None
    sampling: JSONObject = {}
    """Request parameters, seed and other settings that are set and affect answers."""
    started_at: float | None = None
    """Seconds since 1970."""
    ended_at: float | None = None
    num_expected: int | None = None
    """Planned attempts, of tasks too that were added since the last metrics."""
    num_scored: int | None = None
    environments: dict[str, ListedMean] = {}


class RunList(msgspec.Struct, Result, kw_only=True):
    """The runs in a folder, as `gym runs --json` prints them."""

    runs: list[ListedRun]

    table: ClassVar[str] = "runs"


def runs(
    folder: str | Path = "runs",
    *,
    warn: Callable[[str], None] = _LOGGER.warning,
    notify: Callable[[str], None] = _LOGGER.info,
) -> RunList:
    """List the runs in a folder, at any depth, the newest last.

    A run is a folder with a run.json. Its numbers come from its metrics.json, or from its rollouts
    if these are newer. A run that cannot be read is listed with the reason.

    Args:
        folder: The folder, or a run.
        warn: Called with the folders that cannot be read.
        notify: Called with how many runs had to be counted line by line.

    Raises:
        UsageError: There is no such folder.
    """
    folder = run_path("runs", folder)
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "there is no such folder"
        raise UsageError(f"{folder}: {problem}; name one that holds runs: gym runs DIR")
    readings = [_read(path) for path in _run_folders(folder, warn)]
    if num_counted := sum(is_counted for _, is_counted in readings):
        num_runs = "1 run was" if num_counted == 1 else f"{num_counted} runs were"
        notify(
            f"{num_runs} counted line by line, because metrics.json is missing or older than the "
            "rollouts; gym metrics RUN writes it"
        )
    listed = (run for run, _ in readings)
    return RunList(runs=sorted(listed, key=lambda run: (run.started_at or 0.0, run.run)))


def list_run(path: Path, manifest: Manifest | None, metrics: RunMetrics | None) -> ListedRun:
    """Return the row of a run or a rollout file."""
    run = _ended_run(path, manifest, metrics)
    if manifest is not None and _is_being_written(path):
        run.state = "running"
    return run


def _ended_run(path: Path, manifest: Manifest | None, metrics: RunMetrics | None) -> ListedRun:
    num_expected = None if metrics is None else metrics.num_expected
    run = ListedRun(run=str(path), state="", num_expected=num_expected)
    if metrics is not None:
        run.num_scored = metrics.num_scored
        run.environments = {
            name: ListedMean(mean_reward=numbers.mean_reward, interval=numbers.interval)
            for name, numbers in metrics.environments.items()
        }
    if manifest is None:
        return run
    run.state = "stopped" if manifest.ended_at is None else "finished"
    run.model = manifest.model
    run.started_at, run.ended_at = manifest.started_at, manifest.ended_at
    run.num_expected = manifest.num_expected or num_expected
    params = manifest.identity.get("params")
    run.sampling = dict(params) if isinstance(params, dict) else {}
    # Without unset ones: `seed`, if unset, leaves that of the parameters.
    run.sampling |= {
        name: value
        for name, value in manifest.identity.items()
        if name not in _NOT_SAMPLING and value is not None
    }
    return run


def _run_folders(folder: Path, warn: Callable[[str], None]) -> Iterator[Path]:
    """Yield the run folders in a folder, or the folder itself if it is a run."""

    def warn_of(error: OSError) -> None:
        warn(f"{error.filename}: cannot be read: {error.strerror}")

    if (folder / MANIFEST).exists():
        yield folder
        return
    for parent, folders, _ in os.walk(folder, onerror=warn_of):
        folders_of_runs = []
        for name in sorted(folders):
            path = Path(parent, name)
            if name.startswith("."):  # such as the rest of a run that was not finished
                continue
            if os.path.lexists(path / MANIFEST):
                yield path
            else:
                folders_of_runs.append(name)
        folders[:] = folders_of_runs  # nothing lies below a run


def _read(path: Path) -> tuple[ListedRun, bool]:
    """Read a run; the flag says whether its rollouts had to be counted."""
    manifest = None
    try:
        manifest = read_manifest(path)
        metrics = _current_metrics(path)
        is_counted = metrics is None
        return list_run(path, manifest, metrics or measure(path).metrics()), is_counted
    except GymError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{path}: cannot be read: {error.strerror or error}"
    run = _ended_run(path, manifest, None)
    run.state, run.problem = "damaged", problem
    return run, False


def _current_metrics(path: Path) -> RunMetrics | None:
    """Read the metrics.json of a run; None if it is missing, damaged or older than a record."""
    try:
        written = (path / METRICS_FILE).stat().st_mtime_ns
        for name in (ROLLOUTS, FAILURES):
            if (path / name).exists() and (path / name).stat().st_mtime_ns > written:
                return None
        return msgspec.json.decode((path / METRICS_FILE).read_bytes(), type=RunMetrics)
    except (OSError, *JSON_ERRORS):  # `measure` reports what is wrong with the run itself
        return None


def _is_being_written(path: Path) -> bool:
    """Return whether a process is writing a run."""
    if not (path / LOCK).exists():  # do not disturb a process that is about to lock the run
        return False
    try:
        with shared_run_lock(path):
            return False
    except RunDirectoryError:
        return True
