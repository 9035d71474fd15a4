"""What is written of a run: its manifest, and outcomes as they come, logged where they failed."""

from __future__ import annotations

import logging
import time

import msgspec

from gymcli.errors import EpisodeError
from gymcli.runner.attempts import Outcome
from gymcli.runner.failing import failure_of
from gymcli.store.manifest import Manifest
from gymcli.store.run import RunDirectory
from gymcli.types import Rollout

__all__ = ["Keeping"]

_LOGGER = logging.getLogger(__name__)


class Keeping:
    """Keeps one run; without a directory nothing is written."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.directory: RunDirectory | None = None
        self.num_scored = 0
        self._is_unfinished = False
        self._opened_at = 0.0
        self._seconds_before = 0.0

    def begin(self, opened_at: float, *, is_unfinished: bool) -> None:
        """Write the manifest as work on the run begins, or goes on.

        Args:
            opened_at: When it began, by `time.monotonic`.
            is_unfinished: Attempts are left; else a run that has its end keeps it.

        Raises:
            RunDirectoryError: It cannot be written.

        """
        self._opened_at = opened_at
        self._seconds_before = self.manifest.seconds
        self._is_unfinished = is_unfinished or self.manifest.ended_at is None
        self._write_manifest()

    def write_time(self) -> None:
        """Write down how long the run was worked on, unless it had its end before.

        Raises:
            RunDirectoryError: It cannot be written.

        """
        if self._is_unfinished:
            seconds = self._seconds_before + time.monotonic() - self._opened_at
            self.manifest = msgspec.structs.replace(self.manifest, seconds=round(seconds, 3))
            self._write_manifest()

    def finish(self, metrics: bytes, ended_at: float | None) -> None:
        """Write the metrics and, where it is given, the end of the run.

        Raises:
            RunDirectoryError: They cannot be written.

        """
        if self.directory is None:
            return
        if self._is_unfinished and ended_at is not None:
            self.manifest = msgspec.structs.replace(self.manifest, ended_at=round(ended_at, 3))
            self.write_time()
            self._is_unfinished = False
        self.directory.write_metrics(metrics)

    def _write_manifest(self) -> None:
        if self.directory is not None:
            self.directory.write_manifest(self.manifest)

    def keep(self, outcome: Outcome) -> Outcome:
        """Write an outcome down and give it as it is on disk; texts of models are not logged.

        Raises:
            RunDirectoryError: It cannot be written.

        """
        record = outcome.record
        if isinstance(record, Rollout) and self.directory is not None:
            try:
                self.directory.append_rollout(record)
            except EpisodeError as too_long:
                record = failure_of(record, too_long)
        if isinstance(record, Rollout):
            self.num_scored += 1
        else:
            where = (record.env, record.task_id, record.attempt)
            what = (record.error.error_class, record.error.message)
            _LOGGER.info("%s %s/%d: %s: %s", *where, *what)
            if self.directory is not None:
                if outcome.generation is not None:
                    self.directory.append_generation(outcome.generation)
                record = self.directory.append_failure(record)
        for name, count in record.retries.items():
            where = (record.env, record.task_id, record.attempt)
            _LOGGER.info("%s %s/%d: %s, tried again %d times", *where, name, count)
        return outcome if record is outcome.record else outcome._replace(record=record)

    def save(self, rollout: Rollout) -> None:
        """Write a conversation down that waits for its score.

        Raises:
            RunDirectoryError: It cannot be written.

        """
        if self.directory is not None:
            self.directory.append_generation(rollout)
