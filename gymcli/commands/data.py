"""`gym data`: check, select, render, generate, describe and pull task files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from gymcli.commands.console import message, one_line, print_json, print_table, result, warn
from gymcli.commands.help import HelpGroup
from gymcli.commands.model_options import option_of
from gymcli.commands.options import (
    JsonOption,
    LineEnvOption,
    complete_env,
    complete_run,
    complete_tasks,
    key_values,
)
from gymcli.errors import TasksError, UsageError
from gymcli.reporting.formatting import counted
from gymcli.secrets import REDACTED, scrubber_of
from gymcli.tasks.task_options import TaskOptions

if TYPE_CHECKING:
    from gymcli.data.selection import Selection
    from gymcli.data.statistics import Spread, Statistics

_SPREAD_COLUMNS = ("mean", "standard_deviation", "min", "median", "p90", "p99", "max")
_MAX_TOOLS = 10

_FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="JSONL, CSV, Parquet or Excel files, or an environment to use its own tasks.",
        autocompletion=complete_tasks,
    ),
]
_PromptOption = Annotated[Path | None, option_of(TaskOptions, "prompt")]
_MapOption = Annotated[Path | None, option_of(TaskOptions, "map_file")]
_IdFieldOption = Annotated[str | None, option_of(TaskOptions, "id_field")]
_OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="File to write (.gz, .zst).",
        show_default="print the rows",
    ),
]


def _write_rows(
    lines: Iterable[bytes],
    out: Path | None,
    *,
    inputs: Iterable[Path] = (),
    write: Callable[[Iterable[bytes], BinaryIO], None] | None = None,
) -> None:
    """Print rows as lines of JSON, or write them without keys to a file that is not an input.

    `write` writes the file in place of lines of JSON.
    """
    from gymcli.store.output import whole_file

    if write is None and out is not None and out.suffix == ".parquet":
        raise UsageError(
            f"-o {out}: is written as JSON Lines; only render --to verl writes Parquet"
        )
    if out is None:
        for line in lines:
            print_json(line, indent=0)
        return
    scrubber = scrubber_of((), os.environ)
    num_rows = num_scrubbed = 0

    def scrubbed_lines() -> Iterator[bytes]:
        nonlocal num_rows, num_scrubbed
        for line in lines:
            row = line.rstrip(b"\n")
            scrubbed = scrubber.line(row)
            num_rows += 1
            num_scrubbed += scrubbed is not row  # the same object if nothing was removed
            yield scrubbed + b"\n"

    with whole_file(out, inputs=inputs) as written:
        if write is None:
            written.writelines(scrubbed_lines())
        else:
            write(scrubbed_lines(), written)
    message(f"wrote {out}: {counted(num_rows, 'row')}")
    warn_of_redacted(out, num_scrubbed)


def warn_of_redacted(out: Path, num_rows: int) -> None:
    """Warn of rows from which a key in use was removed."""
    if num_rows:
        warn(f"{out}: {counted(num_rows, 'row')} held a key in use, which is written as {REDACTED}")


def generate(
    envs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENV",
            help="One environment; with --check any number.",
            show_default="all",
            autocompletion=complete_env,
        ),
    ] = None,
    num: Annotated[
        int | None,
        typer.Option(
            "--num",
            "-n",
            min=1,
            help="Number of rows.",
            show_default="as many as ship, or 60",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed; 0 reproduces the shipped rows.", show_default="0"),
    ] = None,
    out: _OutOption = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare with the shipped rows; exit with 3 if they differ."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Generate the data set of an environment from a seed.

    The same seed produces the same rows.
    """
    from gymcli.data.validation import compare_generated, generated_rows
    from gymcli.environment.registry import Registry, shipped_tasks

    if check:
        if num is not None or seed is not None or out is not None:
            raise UsageError("--check compares the shipped rows and takes no -n, --seed or -o")
        names = envs or [name for name in Registry.names() if shipped_tasks(name)]
        comparisons = [compare_generated(name) for name in names]
        if json:
            print_json(comparisons)
        else:
            for item in comparisons:
                status = "ok" if item.difference is None else f"FAILED {one_line(item.difference)}"
                result(
                    f"{item.env}: {counted(item.num_rows, 'row')}: {status}",
                    word=status.partition(" ")[0],
                )
        if any(item.difference is not None for item in comparisons):
            raise typer.Exit(3)
        return
    if json:
        raise UsageError("--json goes with --check; rows are already JSON")
    if envs is None or len(envs) != 1:
        raise UsageError("name one environment (gym envs lists them), or compare with --check")
    _write_rows(generated_rows(envs[0], num, seed=seed or 0), out)
    if out is not None:
        message(f"collect it with --env {one_line(envs[0])}")


def pull(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="hf:ORG/NAME, or a .parquet, .jsonl, .json, .csv, .tsv or .xlsx file.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="File to write (.gz, .zst).")
    ],
    config: Annotated[
        str | None, typer.Option(metavar="NAME", help="Configuration of the data set.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Split, if there are several.")
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Branch, tag or commit of the data set."),
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="FILE",
            help="YAML file that maps columns to fields, or FILE.py:FUNCTION.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Read only the first N rows.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip rows that cannot become tasks.")
    ] = False,
) -> None:
    """Convert the rows of a table to tasks.

    Also writes OUT.source.json, which records where the rows come from. Data sets of the Hugging
    Face hub are streamed: --limit fetches no more than it needs.
    """
    from gymcli.tasks.pulling import pull as pull_rows

    _print_notes(source)
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
    message(f"wrote {out}: {counted(record.num_rows, 'row')}{skipped}")
    warn_of_redacted(out, pulled.num_redacted)


def _print_notes(source: str) -> None:
    """Print what a user should know about how a table is read."""
    from gymcli.tasks.table_files import table_notes

    path = Path(source)
    for note in table_notes(path) if path.is_file() else ():
        message(note)


def render(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSONL, CSV, Parquet or Excel file, or an environment to use its own tasks.",
            autocompletion=complete_tasks,
        ),
    ],
    prompt: _PromptOption = None,
    map_file: _MapOption = None,
    id_field: _IdFieldOption = None,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Environment to name in rows that name none.",
            autocompletion=complete_env,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Use only the first N rows.")
    ] = None,
    to: Annotated[
        Literal["plain", "verl"], typer.Option(help="Rows for gym collect, or verl's prompts.")
    ] = "plain",
    out: _OutOption = None,
) -> None:
    """Write rows with their prompts and tools filled in.

    They hold `messages`, `tools`, `params` and fields, so gym collect needs no --prompt. NeMo Gym's
    rows and rows with a plain prompt are accepted too. verl's rows are written as Parquet to a
    .parquet file. A file is written whole or not at all.
    """
    import msgspec

    from gymcli.data.validation import rendered_rows, write_verl_table
    from gymcli.tasks.row_map import map_file_of

    _print_notes(file)
    is_table = to == "verl" and out is not None and out.suffix == ".parquet"
    rows = rendered_rows(
        file, prompt=prompt, map_file=map_file, id_field=id_field, env=env, limit=limit, to=to
    )
    lines = (msgspec.json.encode(row) + b"\n" for row in rows)
    map_path = None if map_file is None else map_file_of(map_file)[0]
    inputs = [Path(file), *filter(None, [prompt, map_path])]
    _write_rows(lines, out, inputs=inputs, write=write_verl_table if is_table else None)


def select(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Run directories; or tasks files and names of environments.",
            autocompletion=complete_run,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="File to write (.gz, .zst).")
    ],
    where: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Select tasks by their attempts, such as '0.1 < avg < 0.9'."
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Tasks file of the runs, if it was moved.",
            show_default="as in run.json",
            autocompletion=complete_tasks,
        ),
    ] = None,
    env: LineEnvOption = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENV=NUMBER",
            help="Share of an environment among the rows; 1 for those that are not named.",
        ),
    ] = None,
    num: Annotated[
        int | None,
        typer.Option(
            "--num", "-n", min=1, help="Draw N rows.", show_default="as many as the weights allow"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    json: JsonOption = False,
) -> None:
    """Write the task rows of runs that are worth training on.

    A task is selected if an attempt of it is, and its row is written as it stands. Names such as
    avg are the same for all attempts of a task; `gym docs filters` explains them. With --weight or
    --num the rows are drawn, in random order. Rows of several environments name theirs.
    """
    from gymcli.data.selection import select_rows

    selection = select_rows(
        sources,
        where=where,
        tasks=tasks or (),
        env=env,
        weights=_weights(weight or ()),
        num=num,
        seed=seed,
    )
    runs = [Path(source) for source in sources if Path(source).is_dir()]
    inputs = [*selection.files, *(file for run in runs for file in run.iterdir())]
    _write_rows((line + b"\n" for line in selection.lines), out, inputs=inputs)
    _print_selection(selection, out, json=json)


def _print_selection(selection: Selection, out: Path, *, json: bool) -> None:
    if selection.options:
        message(f"collect it with {' '.join(map(one_line, selection.options))}")
    counts = {
        name: {
            "num_tasks": num_tasks,
            "num_selected": selection.num_selected.get(name, 0),
            "num_rows": selection.num_rows.get(name, 0),
        }
        for name, num_tasks in selection.num_tasks.items()
    }
    if json:
        report = {"num_rows": len(selection.lines), "options": selection.options}
        print_json({**report, "environments": counts, "file": str(out)})
        return
    head = ("environment", "tasks", "selected", "rows")
    print_table(head, [(name, *map(str, row.values())) for name, row in counts.items()])


def _weights(texts: Iterable[str]) -> dict[str, float]:
    weights = {}
    for env, text in key_values("--weight", texts).items():
        try:
            weights[env] = float(text)
        except ValueError as error:
            raise UsageError(f"--weight {env}={text}: is not a number") from error
    return weights


def stats(
    files: _FilesArgument,
    prompt: _PromptOption = None,
    map_file: _MapOption = None,
    json: JsonOption = False,
) -> None:
    """Describe task files: rows, lengths, tools, images, values."""
    from gymcli.data.statistics import describe_tasks

    statistics = describe_tasks(files, prompt=prompt, map_file=map_file)
    if not statistics.num_rows:
        raise TasksError(f"{', '.join(statistics.files)}: no row is a task; run gym data validate")
    if statistics.num_wrong:
        warn(f"{statistics.num_wrong} rows are wrong and not counted; run gym data validate")
    if json:
        print_json(statistics)
        return
    _print_statistics(statistics)


def _print_statistics(statistics: Statistics) -> None:
    result(f"rows          {statistics.num_rows}, of {statistics.num_tasks} tasks")
    texts = f"{statistics.num_unique_user_texts} different texts of users"
    result(f"prompts       {statistics.num_unique_prompts} different, {texts}")
    if statistics.num_without_id:
        result(f"without id    {statistics.num_without_id}")
    if statistics.num_images:
        result(f"images        {statistics.num_images}")
    result(f"environments  {_counts(statistics.environments)}")
    if statistics.tool_names:
        tools = dict(list(statistics.tool_names.items())[:_MAX_TOOLS])
        more = ", ..." if len(statistics.tool_names) > _MAX_TOOLS else ""
        result(f"tools         {len(statistics.tool_names)} different: {_counts(tools)}{more}")
    for name, values in statistics.fields.items():
        result(f"{one_line(name, 40)}: {_counts(values)}")
    result()
    head = ("", "rows", *(name.replace("_", " ") for name in _SPREAD_COLUMNS))
    print_table(head, [_row(name, spread) for name, spread in statistics.spreads.items()])


def _row(name: str, spread: Spread) -> tuple[str, ...]:
    means = (f"{spread.mean:.2f}", f"{spread.standard_deviation:.2f}")
    numbers = (f"{getattr(spread, key):.10g}" for key in _SPREAD_COLUMNS[2:])
    return (name.replace("_", " "), str(spread.num), *means, *numbers)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{one_line(name) or 'none'} {count}" for name, count in counts.items())


def validate(
    files: _FilesArgument,
    *,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Environment of rows that name none.",
            autocompletion=complete_env,
        ),
    ] = None,
    env_arg: Annotated[list[str] | None, option_of(TaskOptions, "env_args")] = None,
    prompt: _PromptOption = None,
    map_file: _MapOption = None,
    id_field: _IdFieldOption = None,
    id_by_file: Annotated[bool, option_of(TaskOptions, "id_by_file")] = False,
    json: JsonOption = False,
) -> None:
    """List what is wrong with rows, and where; exit with 2 if anything is.

    Report everything that `gym collect` would refuse. Of rows that name no environment, only the
    shape is checked unless --env names one.
    """
    import msgspec

    from gymcli.data.validation import validate as validate_files
    from gymcli.tasks.task_source import Problems

    env_args = key_values("--env-arg", env_arg or ())
    validation = validate_files(
        files,
        env=env,
        env_args=env_args,
        prompt=prompt,
        map_file=map_file,
        id_field=id_field,
        id_by_file=id_by_file,
    )
    for text in validation.notes:
        message(text)
    for text in validation.warnings:
        warn(text)
    if json:
        problems = [
            {"place": item.place, **_location(item.place, validation.files), "reason": item.reason}
            for item in validation.problems
        ]
        report = {**msgspec.to_builtins(validation), "problems": problems}
        print_json(report)
    else:
        problems_of_rows = Problems(max_listed=sys.maxsize)
        for problem in validation.problems:
            problems_of_rows.add(problem)
        for line in problems_of_rows.lines():
            result(line)
        num, looked = validation.num_unchecked, "fields and tools checked"
        if num and num == validation.num_rows - validation.num_wrong:
            looked = "shape only; --env checks fields"
        elif num:
            looked += f", except in {counted(num, 'row')} without an environment; --env checks them"
        counts = f"{counted(validation.num_rows, 'row')}, {counted(validation.num_tasks, 'task')}"
        result(f"{counts}, {validation.num_wrong} wrong ({looked})")
    if validation.problems:
        raise typer.Exit(2)


def _location(place: str, files: list[str]) -> dict[str, str | int | None]:
    if place in files:
        return {"file": place, "line": None}
    file, _, line = place.rpartition(":")
    return {"file": file, "line": int(line)}


app = typer.Typer(
    name="data",
    help="Check, select, render, generate, describe and pull task files.",
    cls=HelpGroup,
    rich_markup_mode=None,
)
for command in (validate, select, render, generate, stats, pull):
    app.command()(command)
