"""Rows that a command makes, printed or written to a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.console import message, print_json

__all__ = ["OutOption", "give_rows"]

OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The file to write (.gz, .zst); else rows are printed."),
]


def give_rows(lines: Iterable[bytes], out: Path | None, *, inputs: Iterable[Path] = ()) -> None:
    """Print rows, each a line of JSON, or write them to a file that is none of `inputs`.

    Raises:
        UsageError: The file cannot be written.

    """
    from gymcli.data import whole_file

    if out is None:
        for line in lines:
            print_json(line, indent=0)
        return
    num_rows = 0
    with whole_file(out, inputs=inputs) as written:
        for line in lines:
            written.write(line)
            num_rows += 1
    message(f"wrote {out}: {num_rows} rows")
