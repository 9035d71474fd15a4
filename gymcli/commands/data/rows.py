"""Rows that a command makes, printed or written to a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.console import message, print_json, warn
from gymcli.secrets import REDACTED, scrubber_of

__all__ = ["OutOption", "give_rows", "warn_of_redacted"]

OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The file to write (.gz, .zst); else rows are printed."),
]


def give_rows(lines: Iterable[bytes], out: Path | None, *, inputs: Iterable[Path] = ()) -> None:
    """Print rows, each a line of JSON, or write them to a file that is none of `inputs`.

    Keys in use are taken out, and it is said of how many rows.

    Raises:
        UsageError: The file cannot be written.

    """
    from gymcli.data.output import whole_file

    if out is None:
        for line in lines:
            print_json(line, indent=0)
        return
    scrubber = scrubber_of((), os.environ)
    num_rows = num_scrubbed = 0
    with whole_file(out, inputs=inputs) as written:
        for line in lines:
            row = line.rstrip(b"\n")
            scrubbed = scrubber.line(row)
            written.write(scrubbed + b"\n")
            num_rows += 1
            num_scrubbed += scrubbed is not row
    message(f"wrote {out}: {num_rows} rows")
    warn_of_redacted(out, num_scrubbed)


def warn_of_redacted(out: Path, num_rows: int) -> None:
    """Say in how many rows something else stands than was read."""
    if num_rows:
        warn(f"{out}: {num_rows} rows held a key in use, which is written as {REDACTED}")
