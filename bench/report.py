"""Measured results as JSON, and as the tables of docs/performance.md and bench/README.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.figures import Figure, cells

__all__ = ["Machine", "Measured", "read_report", "summary", "table", "write_page", "write_report"]

START = "<!-- figures -->\n"
END = "<!-- end -->\n"
USER_FIGURES: dict[str, str] = {
    "CPU of a rollout, single-turn, against the barest loop": (
        "CPU of a single-turn rollout, against the shortest loop that sends the same requests"
    ),
    "rollouts a second, 2,048 in flight at 200 ms": (
        "rollouts a second in one process, 2,048 in flight, answers after 200 ms"
    ),
    "16,000 in flight at once: peak memory": "memory with 16,000 requests in flight",
    "peak memory of gym collect, 200,000 tasks against 2,000": (
        "memory of `gym collect` with 200,000 tasks, against 2,000"
    ),
    "gym metrics, peak memory over 1,000,000 rollouts": (
        "memory of `gym metrics` over 1,000,000 rollouts"
    ),
    "gym collect of one task, wall time on an idle machine": "`gym collect` of one task",
    "CPU of a rollout that records token ids, 4 tool calls, against one that does not": (
        "CPU of a rollout of five requests with `--record-tokens`, against one without"
    ),
    "recorded bytes a token, 4 tool calls": "`tokens.jsonl` for each id of a prompt or an answer",
}
"""The figures of docs/performance.md, with their names there."""
_LIBRARIES = ("aiohttp", "uvloop", "msgspec", "orjson", "pydantic", "typer")


class Machine(msgspec.Struct, kw_only=True):
    """The machine of a measurement, without its host name."""

    num_cores: int
    load_average: float
    """Average over the minute before the measurement."""
    system: str
    python: str
    libraries: dict[str, str]
    """Versions by name."""

    @classmethod
    def here(cls) -> Machine:
        """Describe this machine now."""
        return cls(
            num_cores=len(os.sched_getaffinity(0)),  # that this process may use
            load_average=round(os.getloadavg()[0], 2),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            libraries={name: version(name) for name in _LIBRARIES},
        )


class Measured(msgspec.Struct, kw_only=True):
    """The result of one measurement."""

    machine: Machine
    seconds: float
    """How long it took."""
    figures: list[Figure] = []
    problem: str = ""
    """Why there are no figures."""


def read_report(path: Path) -> dict[str, Measured]:
    """Return earlier results by the measurement's name; none if the file is missing."""
    if not path.is_file():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])


def write_report(path: Path, report: Mapping[str, Measured]) -> None:
    """Write results as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def write_page(path: Path, text: str) -> None:
    """Replace the text between the marks of a page.

    Raises:
        SystemExit: The page has no marks.
    """
    before, start, rest = path.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise SystemExit(f"{path}: has no lines {START.strip()} and {END.strip()}")
    path.write_text(before + start + "\n" + text + "\n" + end + after, encoding="utf-8")


def summary(report: Mapping[str, Measured]) -> str:
    """Return a table of the figures that matter to users, and a line with every missed goal."""
    figures = [figure for measured in report.values() for figure in measured.figures]
    lines = ["| what | value | goal | met |", "| --- | --- | --- | --- |"]
    for figure in figures:
        if figure.what in USER_FIGURES:
            _, value, _, goal, met = cells(figure)
            lines.append(f"| {USER_FIGURES[figure.what]} | {value} | {goal} | {met} |")
    missed = [
        f"{figure.what}: {cells(figure)[1]} (goal {figure.goal})"
        for figure in figures
        if not figure.is_met
    ]
    missed += [f"{name}: not measured" for name, measured in report.items() if measured.problem]
    return "\n".join([*lines, "", f"Missed goals: {'; '.join(missed) or 'none'}."]) + "\n"


def table(report: Mapping[str, Measured]) -> str:
    """Return a Markdown table of every figure, and below it the machines."""
    lines = ["| what | value | spread | goal | met |", "| --- | --- | --- | --- | --- |"]
    for measured in report.values():
        lines += ["| " + " | ".join(cells(figure)) + " |" for figure in measured.figures]
    lines += [
        f"| {name}: not measured | {measured.problem} |  |  | NO |"
        for name, measured in report.items()
        if measured.problem
    ]
    return "\n".join([*lines, "", *_places(report)]) + "\n"


def _places(report: Mapping[str, Measured]) -> list[str]:
    """Return lines about the machines and their load."""
    if not report:
        return ["Nothing was measured yet."]
    loads = ", ".join(f"{name} {one.machine.load_average}" for name, one in report.items())
    machines = {
        f"{one.machine.num_cores} cores, {one.machine.system}, Python {one.machine.python}, "
        + ", ".join(f"{name} {number}" for name, number in one.machine.libraries.items())
        for one in report.values()
    }
    return [f"Measured on: {'; '.join(sorted(machines))}.", f"Load average before each: {loads}."]
