"""The names of a run's files, and their lines read as records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from gymcli.errors import RunFileError
from gymcli.store.lines import iterate_lines
from gymcli.types import JSON_ERRORS

__all__ = [
    "FAILURES",
    "GENERATIONS",
    "METRICS",
    "ROLLOUTS",
    "VERDICTS",
    "numbered_structs",
    "read_structs",
]

ROLLOUTS = "rollouts.jsonl"
FAILURES = "failures.jsonl"
GENERATIONS = "generations.jsonl"
VERDICTS = "verdicts.jsonl"
METRICS = "metrics.json"

_WAYS_OUT = {
    ROLLOUTS: "delete the line: its attempt is collected again",
    FAILURES: "delete the line: it only says why an attempt failed",
    GENERATIONS: "delete the line: its attempt is collected again",
    VERDICTS: "delete the line: its answer is asked again",
}

T = TypeVar("T")


def read_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """Decode the lines of a run's file; a torn last line is left out.

    Raises:
        RunFileError: A line that is not the torn last one cannot be decoded.

    """
    for _, struct in numbered_structs(path, decoder):
        yield struct


def numbered_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[int, T]]:
    """Decode the lines as `read_structs` does, each with its number."""
    for line in iterate_lines(path):
        try:
            yield line.number, decoder.decode(line.data)
        except JSON_ERRORS as error:
            if not line.is_complete:
                return
            way_out = _WAYS_OUT.get(path.name, "delete the line")
            raise RunFileError(f"{path}:{line.number}: is damaged: {error}; {way_out}") from error
