"""`gym runs`: list the runs in a folder; the table of several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import (
    harmless,
    message,
    one_line,
    print_json,
    print_table,
    result,
    warn,
)
from gymcli.commands.options import JsonOption
from gymcli.reporting.formatting import between, number, signed

if TYPE_CHECKING:
    from gymcli.library.run_list import ListedMean, ListedRun

_MAX_ENVIRONMENTS = 4
"""Columns of environments; runs of more have a column with the number of the others."""
_MAX_SETTINGS = 60
_MAX_PROBLEM = 300


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with runs, at any depth.")
    ] = Path("runs"),
    *,
    json: JsonOption = False,
) -> None:
    """List the runs in a folder, the newest last.

    A run is a folder with a run.json. Its numbers come from its metrics.json, or from its rollouts
    if these are newer. A run that cannot be read is listed with the reason.
    """
    from gymcli.library import run_list

    notes: list[str] = []
    listed = run_list.runs(folder, warn=warn, notify=notes.append)
    if json:
        for run in listed.runs:
            run.run = harmless(run.run)  # JSON cannot hold a name that is not Unicode
        print_json(listed)
    elif listed.runs:
        print_runs(listed.runs)
    else:
        message(f"{folder}: no run is here; gym collect --out {folder / 'NAME'} makes one")
    for note in notes:
        message(note)


def print_runs(rows: Sequence[ListedRun], *, with_differences: bool = False) -> None:
    """Print a table of runs, with the means of their environments.

    `with_differences` adds each mean's difference to that of the first run.
    """
    counts = Counter(name for row in rows for name in row.environments)
    names = [name for name, _ in counts.most_common(_MAX_ENVIRONMENTS)]
    columns = [
        ("run", *(one_line(row.run) for row in rows)),
        ("date", *map(_date, rows)),
        ("model", *(one_line(row.model) if row.model is not None else "-" for row in rows)),
    ]
    settings = _differing(rows)
    if any(settings):
        columns.append(("sampling", *(setting or "-" for setting in settings)))
    columns.append(("scored", *map(_scored, rows)))
    for name in names:
        parts = [row.environments.get(name) for row in rows]
        columns.append((f"{one_line(name)}, 95 %", *map(_mean, parts)))
        if with_differences:
            columns.append(("diff", "", *(_difference(parts[0], part) for part in parts[1:])))
    if len(names) < len(counts):
        numbers = (len(row.environments.keys() - set(names)) for row in rows)
        columns.append(("others", *(str(num or "") for num in numbers)))
    if not with_differences or any(row.state not in ("finished", "") for row in rows):
        columns.append(("state", *(row.state or "-" for row in rows)))
    head, *cells = zip(*columns, strict=True)
    optional = [name for name in ("sampling", "date", "model") if name in head]
    print_table(head, cells, optional=optional)
    for row in rows:
        if row.problem:
            result(f"damaged: {one_line(row.problem, _MAX_PROBLEM)}")
    if with_differences:
        result("diff: to the mean of the first run; gym compare A B tests it task by task")


def _mean(mean: ListedMean | None) -> str:
    if mean is None or mean.mean_reward is None:
        return "-"
    return f"{number(mean.mean_reward)} {between(mean.interval, separator='..')}"


def _difference(first: ListedMean | None, mean: ListedMean | None) -> str:
    if first is None or mean is None or first.mean_reward is None or mean.mean_reward is None:
        return "-"
    return signed(mean.mean_reward - first.mean_reward)


def _scored(row: ListedRun) -> str:
    if row.num_scored is None:
        return "-"
    num_scored = str(row.num_scored)
    return num_scored if row.num_expected is None else f"{num_scored}/{row.num_expected}"


def _date(row: ListedRun) -> str:
    if not row.started_at:
        return "-"
    try:
        return f"{datetime.fromtimestamp(row.started_at).astimezone():%Y-%m-%d %H:%M}"
    except (OSError, OverflowError, ValueError):  # no clock ever showed it
        return "-"


def _differing(rows: Sequence[ListedRun]) -> list[str]:
    """Return for each run the settings that are not the same in all runs of a model."""
    samplings = [row.sampling for row in rows if row.model not in (None, "oracle")]
    names = dict.fromkeys(name for sampling in samplings for name in sampling)
    differing = [name for name in names if len({_shown(item.get(name)) for item in samplings}) > 1]
    return [
        one_line(
            ", ".join(f"{k} {_shown(v)}" for k, v in row.sampling.items() if k in differing),
            _MAX_SETTINGS,
        )
        for row in rows
    ]


def _shown(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
