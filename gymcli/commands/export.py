"""`gym export`: write the rollouts of runs in the format of another program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gymcli.commands.console import print_json, result, warn
from gymcli.commands.data import warn_of_redacted
from gymcli.commands.options import JsonOption
from gymcli.errors import FilterError, UsageError
from gymcli.secrets import scrubber_of

if TYPE_CHECKING:
    from gymcli.data.exporters import Exporter, ExportSource
    from gymcli.store.run_index import RunIndex

__all__ = ["export"]


def export(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run directories or rollout files.")
    ],
    to: Annotated[
        Literal["sft", "dpo", "jsonl", "parquet", "csv", "nemo-gym"],
        typer.Option(help="The format."),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file: .jsonl, .csv (.gz, .zst) or .parquet."),
    ],
    where: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help='Which attempts, such as "passed and num_turns < 8".'),
    ] = None,
    completion: Annotated[
        bool, typer.Option("--completion", help="sft: prompt and completion apart.")
    ] = False,
    env: Annotated[
        str | None, typer.Option(help="Environment of lines that name none (NeMo Gym's).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write rollouts to train on (sft, dpo), to look through (csv, parquet) or to go on with.

    sft: a conversation for each rollout. dpo: of each task the best attempt against the worst.
    jsonl: the lines as they are. nemo-gym: NeMo Gym's rollouts, with its aggregate file beside. A
    file is written whole or not at all. docs/export.md shows a row of each format, docs/filters.md
    what --where takes.
    """
    import msgspec

    from gymcli.data.exporters import COMPLETIONS, EXPORTERS, ExportSource

    if completion and to != "sft":
        raise UsageError(f"--completion goes with --to sft, not with --to {to}")
    exporter = COMPLETIONS if completion else EXPORTERS[to]
    if not out.name.endswith(exporter.endings):
        raise UsageError(f"-o {out}: --to {to} writes {', '.join(exporter.endings)}")
    with ExitStack() as stack:
        selected = list(_selected(runs, where, env, stack))
        source = ExportSource(selected, scrubber_of((), os.environ))
        inputs = [file for run in runs for file in (run.iterdir() if run.is_dir() else [run])]
        num_rows, files = _write(exporter, source, out, inputs)
    for text in source.warnings:
        warn(text)
    warn_of_redacted(out, source.num_redacted)
    if json:
        report = {"format": to, "num_rows": num_rows, "left_out": source.left_out, "files": files}
        print_json(msgspec.json.encode(report))
        return
    result(f"rows          {num_rows}")
    if source.left_out:
        result(f"left out      {_left_out(source)}")
    result(f"files         {', '.join(files)}")


def _selected(
    runs: Sequence[Path], where: str | None, env: str | None, stack: ExitStack
) -> Iterator[tuple[RunIndex, list[int]]]:
    """Open each run, and yield it with its selected rows."""
    from gymcli.metrics.filters import parse_filter
    from gymcli.runner.measure import index_run
    from gymcli.store.rollout_files import ROLLOUTS, torn_line_warning

    wanted = None if where is None else parse_filter(where)
    seen = set()
    for run in runs:
        file = (run / ROLLOUTS if run.is_dir() else run).resolve()
        if file in seen:
            raise UsageError(f"{run}: is given twice; give each run once")
        seen.add(file)
        index = stack.enter_context(index_run(run, env=env))
        if unfinished := torn_line_warning(run):
            warn(unfinished)
        try:
            yield index, index.select(wanted)
        except FilterError as error:
            raise FilterError(f"{run}: {error}") from error


def _write(
    exporter: Exporter, source: ExportSource, out: Path, inputs: Sequence[Path]
) -> tuple[int, list[str]]:
    """Write all files of a format, all or none; return the number of rows, and the names."""
    from gymcli.data.output import whole_file

    paths = [out]
    if exporter.second_ending:
        ending = next(ending for ending in exporter.endings if out.name.endswith(ending))
        paths.append(out.with_name(out.name.removesuffix(ending) + exporter.second_ending))
    with ExitStack() as files:
        opened = [files.enter_context(whole_file(path, inputs=inputs)) for path in paths]
        num_rows = exporter.write(source, *opened)
        if not num_rows:
            raise _nothing(source)
    return num_rows, [str(path) for path in paths]


def _nothing(source: ExportSource) -> UsageError:
    names = ", ".join(str(run.path) for run, _ in source.runs)
    if not source.left_out:
        return UsageError(f"{names}: nothing is selected; nothing was written")
    return UsageError(f"{names}: nothing was written; left out: {_left_out(source)}")


def _left_out(source: ExportSource) -> str:
    return ", ".join(f"{reason}: {count}" for reason, count in source.left_out.most_common())
