"""Rollouts as they are: the lines of their file, those that were selected."""

from __future__ import annotations

from typing import BinaryIO

from gymcli.data.source import Source

__all__ = ["write_jsonl"]


def write_jsonl(source: Source, file: BinaryIO) -> int:
    """Write the lines of scored rollouts; give how many.

    Raises:
        UsageError: A line cannot be read.

    """
    num_rows = 0
    for scored in source.scored():
        file.write(scored.line + b"\n")
        num_rows += 1
    return num_rows
