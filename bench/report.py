"""All results and the machine, as JSON and as the table of docs/performance.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.figures import Figure, cells

__all__ = ["Machine", "Measured", "read_report", "write_page", "write_report"]

START = "<!-- figures -->\n"
END = "<!-- end -->\n"
_LIBRARIES = ("aiohttp", "uvloop", "msgspec", "orjson", "pydantic", "typer")


class Machine(msgspec.Struct, kw_only=True):
    """Where and when something was measured; nothing that names the machine."""

    num_cores: int
    load_average: float
    """Over the last minute, when the measurement began."""
    system: str
    python: str
    libraries: dict[str, str]
    """Versions."""

    @classmethod
    def here(cls) -> Machine:
        """Describe this machine now."""
        return cls(
            num_cores=len(os.sched_getaffinity(0)),
            load_average=round(os.getloadavg()[0], 2),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            libraries={name: version(name) for name in _LIBRARIES},
        )


class Measured(msgspec.Struct, kw_only=True):
    """The result of one measurement."""

    machine: Machine
    seconds: float
    """That it took."""
    figures: list[Figure] = []
    problem: str = ""
    """Why there are no figures."""


def read_report(path: Path) -> dict[str, Measured]:
    """Read what was measured before, by the measurement's name; a missing file holds nothing."""
    if not path.is_file():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])


def write_report(path: Path, report: Mapping[str, Measured]) -> None:
    """Write what was measured as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def write_page(path: Path, report: Mapping[str, Measured]) -> None:
    """Put the table of a report between the marks of a page.

    Raises:
        SystemExit: The page has no marks.
    """
    text = path.read_text()
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise SystemExit(f"{path}: has no lines {START.strip()} and {END.strip()}")
    path.write_text(before + start + "\n" + table(report) + "\n" + end + after)


def table(report: Mapping[str, Measured]) -> str:
    """Return the figures as a Markdown table, with the machine below it."""
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
    """Say on what machines, and how busy these were."""
    if not report:
        return ["Nothing was measured yet."]
    loads = ", ".join(f"{name} {one.machine.load_average}" for name, one in report.items())
    machines = {
        f"{one.machine.num_cores} cores, {one.machine.system}, Python {one.machine.python}, "
        + ", ".join(f"{name} {number}" for name, number in one.machine.libraries.items())
        for one in report.values()
    }
    return [f"Measured on: {'; '.join(sorted(machines))}.", f"Load average before each: {loads}."]
