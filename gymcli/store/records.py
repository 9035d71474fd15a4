"""The names of a run's files, and their lines read as records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from gymcli.errors import RunFileError
from gymcli.secrets import Scrubber
from gymcli.store.lines import Line, iterate_lines
from gymcli.types import JSON_ERRORS, Failure, Rollout

__all__ = [
    "FAILURES",
    "GENERATIONS",
    "METRICS",
    "ROLLOUTS",
    "VERDICTS",
    "WAYS_OUT",
    "lines_with_structs",
    "numbered_structs",
    "read_structs",
    "redacted",
    "structs_of",
]

ROLLOUTS = "rollouts.jsonl"
FAILURES = "failures.jsonl"
GENERATIONS = "generations.jsonl"
VERDICTS = "verdicts.jsonl"
METRICS = "metrics.json"

WAYS_OUT = {
    ROLLOUTS: "delete the line: its attempt is collected again",
    FAILURES: "delete the line: it only says why an attempt failed",
    GENERATIONS: "delete the line: its attempt is collected again",
    VERDICTS: "delete the line: its answer is asked again",
}
"""What to do about a line that is damaged, by the name of its file."""

T = TypeVar("T")
Record = TypeVar("Record", Rollout, Failure)


def redacted(record: Record, scrubber: Scrubber) -> Record:
    """Return a record as it will be read back: without keys in use, and marked where it held one.

    A record without a key is returned as it is.
    """
    if not scrubber:
        return record
    line = msgspec.json.encode(record)
    clean = scrubber.line(line)
    if clean is line:
        return record
    found = msgspec.json.decode(clean, type=type(record))
    found.redacted = True
    return found


def read_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """Decode the lines of a run's file; a torn last line is left out.

    Raises:
        RunFileError: A line that is not the torn last one cannot be decoded.

    """
    for _, struct in numbered_structs(path, decoder):
        yield struct


def numbered_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[int, T]]:
    """Decode the lines as `read_structs` does, each with its number."""
    return ((line.number, struct) for line, struct in lines_with_structs(path, decoder))


def lines_with_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[Line, T]]:
    """Decode the lines as `read_structs` does, each with the line itself."""
    return structs_of(iterate_lines(path), path, decoder)


def structs_of(
    lines: Iterable[Line], path: Path, decoder: msgspec.json.Decoder[T]
) -> Iterator[tuple[Line, T]]:
    """Decode lines of a run's file as `read_structs` does."""
    for line in lines:
        try:
            yield line, decoder.decode(line.data)
        except JSON_ERRORS as error:
            if not line.is_complete:
                return
            way_out = WAYS_OUT.get(path.name, "delete the line")
            raise RunFileError(f"{path}:{line.number}: is damaged: {error}; {way_out}") from error
