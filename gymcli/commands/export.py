"""`gym export`: write the rollouts of runs in the format of another program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from gymcli.commands.console import print_json, result, warn
from gymcli.commands.data import warn_of_redacted
from gymcli.commands.options import JsonOption, LineEnvOption, RunsArgument
from gymcli.errors import FilterError, UsageError
from gymcli.reporting.formatting import counted
from gymcli.secrets import scrubber_of

if TYPE_CHECKING:
    from gymcli.store.run_index import RunIndex

_NOTHING = "no attempt is selected; nothing was written"


def export(
    runs: RunsArgument,
    to: Annotated[
        Literal["sft", "dpo", "kto", "tokens", "openenv", "jsonl", "parquet", "csv", "nemo-gym"],
        typer.Option(help="Output format."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write: .jsonl, .csv (.gz, .zst) or .parquet.",
        ),
    ],
    where: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help='Export only these, such as "passed and num_turns < 8".'),
    ] = None,
    loss: Annotated[
        Literal["conversation", "completion", "assistant"] | None,
        typer.Option(help="What TRL trains on (sft only; default: conversation)."),
    ] = None,
    completion: Annotated[
        bool, typer.Option("--completion", help="The same as --loss completion.")
    ] = False,
    advantage: Annotated[
        Literal["mean", "zscore", "loo"] | None,
        typer.Option(help="Add each reward's advantage over its task's attempts (tokens only)."),
    ] = None,
    env: LineEnvOption = None,
    json: JsonOption = False,
) -> None:
    """Export rollouts for training or analysis.

    sft: one conversation per rollout. dpo: the best attempt of each task against the worst. kto:
    every attempt, labelled by whether it passed. tokens: sequences of recorded token ids. openenv:
    OpenEnv's training traces. csv, parquet: tables. jsonl: the lines unchanged, with their token
    ids. nemo-gym: NeMo Gym's rollouts and its aggregate file. A file is written whole or not at
    all. `gym docs export` shows a row of each format; `gym docs filters` explains --where.
    """
    from gymcli.data.export_source import ExportSource
    from gymcli.data.exporters import EXPORTERS
    from gymcli.store.output import whole_file
    from gymcli.store.tokens import tokens_file

    if completion and to != "sft":
        raise UsageError(f"--completion goes with --to sft, not with --to {to}")
    if completion and loss not in (None, "completion"):
        raise UsageError(f"--completion and --loss {loss} exclude each other")
    choices = {"loss": "completion" if completion else loss, "advantage": advantage}
    options = {name: value for name, value in choices.items() if value is not None}
    exporter = EXPORTERS[to]
    for name in options:
        if name != exporter.option:
            owner = next(key for key, other in EXPORTERS.items() if other.option == name)
            raise UsageError(f"--{name} goes with --to {owner}, not with --to {to}")
    if not out.name.endswith(exporter.endings):
        raise UsageError(f"-o {out}: --to {to} writes {', '.join(exporter.endings)}")
    files = [out]
    with ExitStack() as stack:
        selected = list(_selected(runs, where, env, stack))
        source = stack.enter_context(ExportSource(selected, scrubber_of((), os.environ)))
        inputs = [file for run in runs for file in (run.iterdir() if run.is_dir() else [run])]
        inputs += map(tokens_file, runs)

        def open_second() -> BinaryIO:
            assert exporter.second_file is not None
            files.append(exporter.second_file(out))
            return stack.enter_context(whole_file(files[-1], inputs=inputs))

        opened = stack.enter_context(whole_file(out, inputs=inputs))
        second = [open_second] if exporter.second_file else []
        num_rows = exporter.write(source, opened, *second, **options)
        left_out = ", ".join(f"{reason}: {n}" for reason, n in source.left_out.most_common())
        if not num_rows:  # raised within the block, which then leaves no empty file
            names = ", ".join(str(run.path) for run, _ in source.runs)
            why = f"nothing was written; left out: {left_out}" if left_out else _NOTHING
            raise UsageError(f"{names}: {why}")
    for text in source.warnings:
        warn(text)
    if source.num_skipped_calls:
        skipped = counted(source.num_skipped_calls, "call")
        warn(f"skipped {skipped} that cannot be trained on; gym metrics says why")
    warn_of_redacted(out, source.num_redacted)
    if json:
        report = {"format": to, "num_rows": num_rows, "left_out": source.left_out}
        print_json({**report, "files": [str(path) for path in files]})
        return
    result(f"rows          {num_rows}")
    if left_out:
        result(f"left out      {left_out}")
    result(f"files         {', '.join(map(str, files))}")


def _selected(
    runs: Sequence[Path], where: str | None, env: str | None, stack: ExitStack
) -> Iterator[tuple[RunIndex, list[int]]]:
    from gymcli.metrics.measure import index_run
    from gymcli.store.filters import parse_filter
    from gymcli.store.rollout_files import ROLLOUTS, torn_line_warning

    row_filter = None if where is None else parse_filter(where)
    seen = set()
    for run in runs:
        file = (run / ROLLOUTS if run.is_dir() else run).resolve()
        if file in seen:
            raise UsageError(f"{run}: is named twice; name each run once")
        seen.add(file)
        index = stack.enter_context(index_run(run, env=env))
        if unfinished := torn_line_warning(run):
            warn(unfinished)
        try:
            yield index, index.select(row_filter)
        except FilterError as error:
            raise FilterError(f"{run}: {error}") from error
