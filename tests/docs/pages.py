"""Reads a page of docs/: its blocks, the commands that it shows, and their output."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.builders import gym_line

CHECKOUT = Path(__file__).parents[2]


def page(name: str) -> str:
    """Return the text of a page of docs/."""
    return (CHECKOUT / "docs" / name).read_text(encoding="utf-8")


def blocks(language: str, text: str) -> list[re.Match[str]]:
    """Return the fenced blocks of a language."""
    return list(re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def table_rows(head: str, text: str) -> list[list[str]]:
    """Return the cells of a table that is identified by the beginning of its head."""
    lines = text.split(f"\n| {head}")[1].splitlines()[2:]
    rows = [line.strip("|").split(" | ") for line in lines[: lines.index("")]]
    return [[cell.strip() for cell in row] for row in rows]


def table_names(head: str, text: str) -> list[str]:
    """Return the code in the first column of a table."""
    return [name for row in table_rows(head, text) for name in re.findall(r"`([^`]+)`", row[0])]


def write_blocks(text: str, language: str, suffix: str, folder: Path) -> list[str]:
    """Write every block of a language to the last file that the text before it names."""
    names = []
    for block in blocks(language, text):
        named = re.findall(rf"`([\w./-]+\.{suffix})`", text[: block.start()])
        names.append(named[-1])
        (folder / names[-1]).parent.mkdir(exist_ok=True)
        (folder / names[-1]).write_text(block[1], encoding="utf-8")
    return names


def shown_commands(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of the console blocks, each with the output that the page shows."""
    commands: list[tuple[str, list[str]]] = []
    for block in blocks("console", text):
        for line in block[1].splitlines():
            if line.startswith("$ "):
                commands.append((line.removeprefix("$ "), []))
            elif line != "...":
                commands[-1][1].append(line)
    return commands


def output_of(line: str, folder: Path) -> str:
    """Run a command that must succeed: `gym` in this process, others as processes."""
    program, *arguments = shlex.split(line)
    if program == "gym":
        result = gym_line(line.removeprefix("gym "), exit_code=0)
        return result.stdout
    if arguments[:2] == ["-m", "pytest"]:
        arguments[2:2] = ["-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(CHECKOUT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_gym(folder: Path) -> None:
    """Write a program `gym` that runs the commands of this checkout."""
    folder.mkdir(exist_ok=True)
    start = "from gymcli.cli import main; main()"
    (folder / "gym").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    (folder / "gym").chmod(0o755)


def check_commands(commands: list[tuple[str, list[str]]], folder: Path) -> None:
    """Run the commands of a page; each must print what the page shows of it, in this order."""
    for line, shown in commands:
        printed = iter(output_of(line, folder).splitlines())
        assert not [expected for expected in shown if expected not in printed], f"$ {line}"
