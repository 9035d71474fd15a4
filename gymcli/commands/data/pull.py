"""`gym data pull`: tasks from tables of others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.console import message, warn
from gymcli.commands.data.rows import warn_of_redacted
from gymcli.secrets import scrubber_of

__all__ = ["pull"]


def pull(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="hf:ORG/NAME, or a .parquet, .jsonl, .json or .csv file."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (.gz, .zst).")],
    config: Annotated[str | None, typer.Option(help="Configuration of the data set.")] = None,
    split: Annotated[str | None, typer.Option(help="Split, where there are several.")] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of the data set.")
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", help="YAML file that says how columns become fields."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first rows.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows that cannot become tasks.")
    ] = False,
) -> None:
    """Write the rows of a table as tasks, and OUT.source.json, which says where they are from.

    Data sets of the Hugging Face hub are read as a stream: --limit fetches no more than it needs.
    """
    from gymcli.data.pulling import pull as pull_rows

    pulled = pull_rows(
        source,
        out,
        config=config,
        split=split,
        revision=revision,
        map_file=map_file,
        limit=limit,
        skip_bad=skip_bad,
        scrubber=scrubber_of((), os.environ),
    )
    for line in pulled.problems:
        warn(line)
    record = pulled.provenance
    skipped = f", {record.num_skipped} left out" if record.num_skipped else ""
    message(f"wrote {out}: {record.num_rows} rows{skipped}")
    warn_of_redacted(out, pulled.num_redacted)
