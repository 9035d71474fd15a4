"""Writes a run: its manifest, its metrics and its outcomes; failures are logged as well."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import get_args

import msgspec

from gymcli.errors import EpisodeError
from gymcli.runner.attempts import Outcome, failure_of
from gymcli.runner.stopping import CUT_OFF, Budget
from gymcli.store.manifest import Manifest
from gymcli.store.run_directory import RunDirectory
from gymcli.store.supervised import Supervised, Tag
from gymcli.types import Failure, FinishReason, Rollout

_LOGGER = logging.getLogger(__name__)

_FINISH_REASONS = get_args(FinishReason)


class RunWriter:
    """Writes one run; without a directory it only counts.

    A failed write is a RunDirectoryError. The first outcome is reported to the supervisor: it shows
    that the run makes progress and may be restarted if this process dies. Failures are counted in
    the `budget`.
    """

    def __init__(
        self,
        manifest: Manifest,
        supervised: Supervised | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.manifest = manifest
        self.directory: RunDirectory | None = None
        """Set once the directory is locked."""
        self._supervised = supervised
        self._budget = budget
        self._has_recorded = False
        self.num_scored = 0
        self.num_without_logprobs = 0
        """Answers without the log-probabilities that were requested."""
        self._knows_finishes = True
        self._is_unfinished = False
        self._opened_at = 0.0
        self._seconds_before = 0.0

    def begin(self, opened_at: float, *, is_unfinished: bool) -> None:
        """Write the manifest when work on the run begins at `opened_at`, by `time.monotonic`.

        A finished run keeps its recorded end.
        """
        self._opened_at = opened_at
        self._seconds_before = self.manifest.seconds
        self._is_unfinished = is_unfinished or self.manifest.ended_at is None
        self._write_manifest()

    def write_time(self) -> None:
        if self._is_unfinished:
            seconds = self._seconds_before + time.monotonic() - self._opened_at
            self.manifest = msgspec.structs.replace(self.manifest, seconds=round(seconds, 3))
            self._write_manifest()

    def finish(self, metrics: bytes, ended_at: float | None) -> None:
        """Write the metrics and, if known, the end of the run."""
        if self.directory is None:
            return
        if self._is_unfinished and ended_at is not None:
            self.manifest = msgspec.structs.replace(self.manifest, ended_at=round(ended_at, 3))
            self.write_time()
            self._is_unfinished = False
        self.directory.write_metrics(metrics)

    def write(self, outcome: Outcome) -> Outcome:
        """Write an outcome and return it as written; texts of models are not logged."""
        record = outcome.record
        if isinstance(record, Rollout) and self.directory is not None:
            try:
                # A line that is too long would make the whole file unreadable, so the attempt
                # fails.
                self.directory.append_rollout(record)
            except EpisodeError as too_long:
                record = failure_of(record, too_long)
        if isinstance(record, Rollout):
            self.num_scored += 1
        else:
            record = self._write_failure(record, outcome)
        where = (record.env, record.task_id, record.attempt)
        for name, count in record.retries.items():
            _LOGGER.info("%s %s/%d: %s, retried %d times", *where, name, count)
        for call in record.calls:
            # Warned of once, since the records have the finish reason of every answer.
            if self._knows_finishes and call.finish_reason not in _FINISH_REASONS:
                self._knows_finishes = False
                _LOGGER.warning(
                    "an answer ended with the finish reason %r, which gymcli does not know: it "
                    'counts as a normal end; "calls" in the record of each attempt has it',
                    call.finish_reason,
                )
            if call.lacks_logprobs:
                if not self.num_without_logprobs:
                    _LOGGER.warning(
                        "an answer came without the log-probabilities that were requested; the "
                        'summary counts such answers, "calls" in the record has "lacks_logprobs"'
                    )
                self.num_without_logprobs += 1
        if self._supervised is not None and not self._has_recorded:
            self._has_recorded = True
            self._supervised.tell(Tag.RECORDED)
        return outcome if record is outcome.record else outcome._replace(record=record)

    def _write_failure(self, failure: Failure, outcome: Outcome) -> Failure:
        error = failure.error
        where = (failure.env, failure.task_id, failure.attempt)
        _LOGGER.info("%s %s/%d: %s: %s", *where, error.error_class, error.message)
        if self.directory is not None:
            # The conversation first: if this process dies in between, it must not be lost.
            if outcome.generation is not None:
                self.directory.append_generation(outcome.generation)
            failure = self.directory.append_failure(failure)
        # A group that fails together is one failure.
        is_counted = outcome.is_own and error.error_class not in CUT_OFF
        if self._budget is not None and is_counted:
            self._budget.add_failure()
        return failure

    def save(self, rollout: Rollout) -> None:
        if self.directory is not None:
            self.directory.append_generation(rollout)

    def save_tokens(self, lines: Iterable[bytes]) -> None:
        if self.directory is not None:
            for line in lines:
                self.directory.append_tokens(line)

    def _write_manifest(self) -> None:
        if self.directory is not None:
            self.directory.write_manifest(self.manifest)
