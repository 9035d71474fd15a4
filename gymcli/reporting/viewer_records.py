"""The record of one attempt as far as a page can show it, and its tries that failed."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from gymcli.errors import RunFileError
from gymcli.index import Row, RunIndex
from gymcli.reporting.viewer_queries import RefusedError
from gymcli.store.lines import iterate_lines
from gymcli.store.rollout_files import FAILURES, WAYS_OUT
from gymcli.types import JSON_ERRORS, Failure, JSONObject, Rollout

__all__ = ["MAX_RECORD_BYTES", "failures_of", "read_record"]

MAX_RECORD_BYTES = 48 << 20
"""A longer record is no longer readable in a page."""

_MAX_TRIES = 50
"""Of more tries the last ones are given."""

_DECODER = msgspec.json.Decoder(JSONObject)
_FAILURE = msgspec.json.Decoder(Failure)


def read_record(index: RunIndex, row: Row) -> Rollout | Failure | JSONObject:
    """Give the record of a row; one that is none of ours in all its fields as the JSON that it is.

    A role that there is not, for example, makes a line unfit to be scored, but not to be looked at.

    Raises:
        RefusedError: It is too long.
        UsageError: It is no longer where it was, or the file cannot be read.

    """
    if row.place.size > MAX_RECORD_BYTES:
        size = row.place.size >> 20
        raise RefusedError(
            413,
            f"this rollout is {size} MB, too much for a page; "
            f"gym show {index.path} {row.task_id}/{row.attempt} prints it",
        )
    try:
        return index.read(row)
    except RunFileError:
        try:
            found: JSONObject = _DECODER.decode(index.line(row))
        except JSON_ERRORS:
            found = {}
        if (found.get("task_id"), found.get("attempt")) == (row.task_id, row.attempt):
            return found
        raise


def failures_of(run: Path, row: Row) -> list[Failure]:
    """Give the failures of an attempt without their conversations, in the order they came.

    Raises:
        UsageError: The file cannot be read, or a line is damaged.

    """
    path = run / FAILURES
    found: deque[Failure] = deque(maxlen=_MAX_TRIES)
    if not (run.is_dir() and path.is_file()):
        return []
    needle = msgspec.json.encode(row.task_id)
    for line in iterate_lines(path):
        if needle not in line.data:  # most lines are of other tasks, and need not be decoded
            continue
        try:
            failure = _FAILURE.decode(line.data)
        except JSON_ERRORS as error:
            if not line.is_complete:
                break
            text = f"{path}:{line.number}: is damaged: {error}; {WAYS_OUT[FAILURES]}"
            raise RunFileError(text) from error
        if (failure.env, failure.task_id, failure.attempt) == (row.env, row.task_id, row.attempt):
            found.append(msgspec.structs.replace(failure, messages=[]))
    return list(found)
