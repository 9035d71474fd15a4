"""`gym runs`: list the runs in a folder; the table of several runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from gymcli.commands.console import (
    harmless,
    message,
    one_line,
    print_json,
    print_table,
    result,
    warn,
)
from gymcli.commands.options import JsonOption
from gymcli.errors import GymError, RunDirectoryError, UsageError
from gymcli.reporting.formatting import between, number, signed

if TYPE_CHECKING:
    from gymcli.metrics.results import Metrics, RunMetrics
    from gymcli.store.manifest import Manifest
    from gymcli.types import JSONObject

_MAX_ENVIRONMENTS = 4
"""Columns of environments; runs of more have a column with the number of the others."""
_MAX_SETTINGS = 60
_MAX_PROBLEM = 300
_NOT_SAMPLING = ("model", "params", "environments", "roles", "params_of_rows")


class RunSummary(NamedTuple):
    """One run of a table."""

    run: str
    state: Literal["finished", "stopped", "running", "damaged", ""]
    """Empty for a rollout file, which does not record how its run ended."""
    manifest: Manifest | None = None
    metrics: RunMetrics | None = None
    problem: str = ""
    """Why the run cannot be read."""

    @property
    def num_expected(self) -> int | None:
        """Planned attempts; the manifest knows of tasks that were added since the last metrics."""
        if self.manifest is not None and self.manifest.num_expected:
            return self.manifest.num_expected
        return None if self.metrics is None else self.metrics.num_expected

    @property
    def benchmark(self) -> str:
        """Its name; empty if the run is not one of a benchmark."""
        record = None if self.manifest is None else self.manifest.benchmark
        return "" if record is None else record.name

    @property
    def environments(self) -> Mapping[str, Metrics]:
        """The numbers of each environment."""
        return {} if self.metrics is None else self.metrics.environments

    @property
    def sampling(self) -> JSONObject:
        """Request parameters, seed and other settings that are set and affect answers."""
        identity = {} if self.manifest is None else self.manifest.identity
        params = identity.get("params")
        # Without unset ones: `seed`, if unset, leaves that of the parameters.
        others = {k: v for k, v in identity.items() if k not in _NOT_SAMPLING and v is not None}
        return {**params, **others} if isinstance(params, dict) else others

    def as_json(self) -> JSONObject:
        """Return what `gym runs --json` prints."""
        import msgspec

        manifest, metrics = self.manifest, self.metrics
        return {
            "run": harmless(self.run),
            "state": self.state,
            "problem": self.problem or None,
            "model": manifest.model if manifest is not None else None,
            "sampling": self.sampling,
            "started_at": manifest.started_at if manifest is not None else None,
            "ended_at": manifest.ended_at if manifest is not None else None,
            "num_expected": self.num_expected,
            "num_scored": metrics.num_scored if metrics is not None else None,
            "environments": {
                name: {
                    "mean_reward": found.mean_reward,
                    "interval": msgspec.to_builtins(found.interval),
                }
                for name, found in self.environments.items()
            },
        }


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with runs, at any depth.")
    ] = Path("runs"),
    *,
    json: JsonOption = False,
) -> None:
    """List the runs in a folder, the newest last.

    A run is a folder with a run.json. Its numbers come from its metrics.json, or from its rollouts
    if these are newer. A run that cannot be read is listed with the reason.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "there is no such folder"
        raise UsageError(f"{folder}: {what}; name one that holds runs: gym runs DIR")
    found = []
    num_counted = 0
    for path in _run_folders(folder):
        summary, is_counted = _read(path)
        found.append(summary)
        num_counted += is_counted
    found.sort(key=lambda one: (one.manifest.started_at if one.manifest else 0.0, one.run))
    if json:
        print_json({"runs": [one.as_json() for one in found]})
    elif found:
        print_runs(found)
    else:
        message(f"{folder}: no run is here; gym collect --out {folder / 'NAME'} makes one")
    if num_counted:
        many = "1 run was" if num_counted == 1 else f"{num_counted} runs were"
        message(
            f"{many} counted line by line, because metrics.json is missing or older than the "
            "rollouts; gym metrics RUN writes it"
        )


def _run_folders(folder: Path) -> Iterator[Path]:
    """Yield the run folders in a folder, or the folder itself if it is a run."""
    from gymcli.store.manifest import MANIFEST

    def warn_of(error: OSError) -> None:
        warn(f"{error.filename}: cannot be read: {error.strerror}")

    if (folder / MANIFEST).exists():
        yield folder
        return
    for place, folders, _ in os.walk(folder, onerror=warn_of):
        below = []
        for name in sorted(folders):
            path = Path(place, name)
            if name.startswith("."):  # such as the rest of a run that was not finished
                continue
            if os.path.lexists(path / MANIFEST):
                yield path
            else:
                below.append(name)
        folders[:] = below  # nothing lies below a run


def _read(path: Path) -> tuple[RunSummary, bool]:
    """Read a run; the flag says whether its rollouts had to be counted."""
    from gymcli.metrics.measure import measure
    from gymcli.store.manifest import read_manifest

    manifest = None
    try:
        manifest = read_manifest(path)
        metrics = _current_metrics(path)
        is_counted = metrics is None
        if metrics is None:
            metrics = measure(path).metrics()
        return summary_of(path, manifest, metrics), is_counted
    except GymError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{path}: cannot be read: {error.strerror or error}"
    return RunSummary(str(path), "damaged", manifest, problem=problem), False


def _current_metrics(path: Path) -> RunMetrics | None:
    """Read the metrics.json of a run; None if it is missing, damaged or older than a record."""
    import msgspec

    from gymcli.metrics.results import RunMetrics
    from gymcli.store.rollout_files import FAILURES, METRICS, ROLLOUTS
    from gymcli.types import JSON_ERRORS

    try:
        written = (path / METRICS).stat().st_mtime_ns
        for name in (ROLLOUTS, FAILURES):
            if (path / name).exists() and (path / name).stat().st_mtime_ns > written:
                return None
        return msgspec.json.decode((path / METRICS).read_bytes(), type=RunMetrics)
    except (OSError, *JSON_ERRORS):  # `measure` reports what is wrong with the run itself
        return None


def summary_of(path: Path, manifest: Manifest | None, metrics: RunMetrics) -> RunSummary:
    """Return the row of a run or a rollout file."""
    if manifest is None:
        return RunSummary(str(path), "", None, metrics)
    if _is_written(path):
        return RunSummary(str(path), "running", manifest, metrics)
    state: Literal["finished", "stopped"] = "stopped" if manifest.ended_at is None else "finished"
    return RunSummary(str(path), state, manifest, metrics)


def _is_written(path: Path) -> bool:
    """Return whether a process is writing a run."""
    from gymcli.store.locking import LOCK, shared_run_lock

    if not (path / LOCK).exists():  # do not disturb a process that is about to lock the run
        return False
    try:
        with shared_run_lock(path):
            return False
    except RunDirectoryError:
        return True


def print_runs(rows: Sequence[RunSummary], *, with_differences: bool = False) -> None:
    """Print a table of runs, with the means of their environments.

    `with_differences` adds each mean's difference to that of the first run.
    """
    counts = Counter(name for row in rows for name in row.environments)
    shown = [name for name, _ in counts.most_common(_MAX_ENVIRONMENTS)]
    columns = [
        ("run", *(one_line(row.run) for row in rows)),
        ("date", *map(_date, rows)),
        ("model", *(one_line(row.manifest.model) if row.manifest else "-" for row in rows)),
    ]
    settings = _differing(rows)
    if any(settings):
        columns.append(("sampling", *(setting or "-" for setting in settings)))
    columns.append(("scored", *map(_scored, rows)))
    for name in shown:
        found = [row.environments.get(name) for row in rows]
        columns.append((f"{one_line(name)}, 95 %", *map(_mean, found)))
        if with_differences:
            columns.append(("diff", "", *(_difference(found[0], one) for one in found[1:])))
    if len(shown) < len(counts):
        numbers = (len(row.environments.keys() - set(shown)) for row in rows)
        columns.append(("others", *(str(num or "") for num in numbers)))
    if not with_differences or any(row.state not in ("finished", "") for row in rows):
        columns.append(("state", *(row.state or "-" for row in rows)))
    head, *cells = zip(*columns, strict=True)
    optional = [name for name in ("sampling", "date", "model") if name in head]
    print_table(head, cells, optional=optional)
    for row in rows:
        if row.problem:
            result(f"damaged: {one_line(row.problem, _MAX_PROBLEM)}")
    if with_differences:
        result("diff: to the mean of the first run; gym compare A B tests it task by task")


def _mean(found: Metrics | None) -> str:
    if found is None or found.mean_reward is None:
        return "-"
    return f"{number(found.mean_reward)} {between(found.interval, separator='..')}"


def _difference(first: Metrics | None, found: Metrics | None) -> str:
    if first is None or found is None or first.mean_reward is None or found.mean_reward is None:
        return "-"
    return signed(found.mean_reward - first.mean_reward)


def _scored(row: RunSummary) -> str:
    if row.metrics is None:
        return "-"
    num_scored = str(row.metrics.num_scored)
    return num_scored if row.num_expected is None else f"{num_scored}/{row.num_expected}"


def _date(row: RunSummary) -> str:
    if row.manifest is None or not row.manifest.started_at:
        return "-"
    try:
        return f"{datetime.fromtimestamp(row.manifest.started_at).astimezone():%Y-%m-%d %H:%M}"
    except (OSError, OverflowError, ValueError):  # no clock ever showed it
        return "-"


def _differing(rows: Sequence[RunSummary]) -> list[str]:
    """Return for each run the settings that are not the same in all runs of a model."""
    asked = [row for row in rows if row.manifest is not None and row.manifest.model != "oracle"]
    samplings = [row.sampling for row in asked]
    names = dict.fromkeys(name for sampling in samplings for name in sampling)
    differing = [name for name in names if len({_shown(one.get(name)) for one in samplings}) > 1]
    return [
        one_line(
            ", ".join(f"{k} {_shown(v)}" for k, v in row.sampling.items() if k in differing),
            _MAX_SETTINGS,
        )
        for row in rows
    ]


def _shown(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
