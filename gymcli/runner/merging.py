"""Merges several runs into one: shards of a set of tasks, or parts that ran separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import msgspec

from gymcli.errors import RunDirectoryError, RunFileError, UsageError
from gymcli.metrics.measure import measure
from gymcli.metrics.results import RunMetrics
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.durability import LineAppender
from gymcli.store.locking import shared_run_lock
from gymcli.store.manifest import MANIFEST, read_manifest
from gymcli.store.merged_runs import (
    MergedLines,
    RunRecord,
    check_mergeable,
    merged_manifest,
    missing_shards,
    named_shards,
    version_warnings,
)
from gymcli.store.rollout_files import ROLLOUTS, TOKENS
from gymcli.store.run_directory import check_unused, new_run_directory
from gymcli.store.shards import Shard


class Merging:
    """Runs to merge, in this order; the constructor reads and compares them.

    Raises:
        UsageError: A path is not a run, or is named twice.
        RunMismatchError: They are not parts of one run.
        RunFileError: The manifest of one is damaged.
        RunDirectoryError: Another process is writing one.
    """

    def __init__(
        self,
        runs: Sequence[Path],
        *,
        warn: Callable[[str], None],
        scrubber: Scrubber = NOTHING_SECRET,
    ) -> None:
        self._warn = warn
        self._scrubber = scrubber
        self._paths = list(runs)
        seen: dict[Path, Path] = {}
        for path in runs:
            # Resolved, since two paths may lead to one directory.
            if seen.setdefault(path.resolve(), path) is not path:
                raise UsageError(f"{path}: is given twice; name each run once")
        self._runs = [_record(path) for path in runs]
        check_mergeable(self._runs)
        for text in version_warnings(self._runs):
            warn(text)
        if missing := missing_shards(self._runs):
            subject = "shard is" if len(missing) == 1 else "shards are"
            named = named_shards(missing)
            warn(f"{len(missing)} {subject} missing, whose attempts are expected: {named}")

    def write_run(self, out: Path, *, env: str | None = None) -> RunMetrics:
        """Write all of them as one run, which appears at `out` when complete; return its numbers.

        Raises:
            UsageError: `out` exists, there is no `env`, or a line of a run is wrong.
            RunMismatchError: Two runs have the same attempt.
            RunDirectoryError: `out` cannot be written, or another process is writing a run.
        """
        check_unused(out)
        # Nothing is kept if it fails: another merge costs nothing.
        with new_run_directory(out, self._scrubber, keeps_unfinished=False) as directory:
            files: dict[str, LineAppender] = {}
            lines = MergedLines(self._paths)
            with ExitStack() as stack:
                for name, data in lines.read():
                    if name not in files:
                        files[name] = LineAppender(directory.path / name, self._scrubber)
                        stack.callback(files[name].close)
                    files[name].append(data)
            for text in lines.warnings:
                self._warn(text)
            for run in self._runs:
                # A run is locked only while it is read, so it may have grown after its manifest was
                # read.
                if _record(run.path) != run:
                    raise RunDirectoryError(
                        f"{run.path}: was changed during the merge; merge again"
                    )
            directory.write_manifest(merged_manifest(self._runs))
            aggregator = measure(directory.path, env=env)
            metrics = aggregator.metrics()
            directory.write_metrics(msgspec.json.encode(metrics))
        for text in aggregator.warnings:
            self._warn(text)
        num_unscored = (metrics.num_expected or 0) - metrics.num_scored
        if num_unscored > 0:
            self._warn(
                f"{num_unscored} of {metrics.num_expected} attempts are not scored; run them with "
                f"gym collect, the same options without --shard, and --out {out}"
            )
        return metrics

    @property
    def has_tokens(self) -> bool:
        return any((path / TOKENS).is_file() for path in self._paths)

    def write_lines(self, file: BinaryIO, name: str = ROLLOUTS) -> int:
        num_lines = 0
        lines = MergedLines(self._paths)
        for line in lines.read((name,)):
            file.write(self._scrubber.line(line.data) + b"\n")
            num_lines += 1
        for text in lines.warnings:
            self._warn(text)
        return num_lines


def _record(path: Path) -> RunRecord:
    if not path.is_dir():
        raise UsageError(f"{path}: is not a run directory; gym merge takes runs of gym collect")
    with shared_run_lock(path):
        manifest = read_manifest(path)
    if manifest is None:
        raise UsageError(f"{path}: holds no {MANIFEST}; gym merge takes runs of gym collect")
    try:
        if manifest.shard:
            Shard.parse(manifest.shard)
    except ValueError as error:
        raise RunFileError(f"{path / MANIFEST}: shard {error}") from error
    return RunRecord(path, manifest)
