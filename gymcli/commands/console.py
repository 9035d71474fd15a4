"""What reaches the terminal: harmless text, results to stdout and everything else to stderr."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Coroutine, Sequence
from typing import TextIO, TypeVar

from gymcli.commands.streams import UNSAFE, harmless, results, scrubbed

__all__ = [
    "LOGGER",
    "flush_results",
    "harmless",
    "message",
    "one_line",
    "print_json",
    "print_table",
    "result",
    "run_async",
    "warn",
]

LOGGER = logging.getLogger(__name__)
"""Takes what is printed to stderr anyway; --verbose leaves it out."""

T = TypeVar("T")

_NOT_ASCII = re.compile("[^\x00-\x7f]")


def one_line(text: str, max_characters: int = 200) -> str:
    """Give a text fit for a cell of a table: one line, not too long."""
    line = " ".join(scrubbed(text, results()).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def result(text: str = "") -> None:
    """Print a line of results to stdout."""
    _print(text, results())


def flush_results() -> None:
    """Let a reader of stdout have what was printed so far."""
    results().flush()


def message(text: str) -> None:
    """Print a line about the work to stderr."""
    _print(text, sys.stderr)
    sys.stderr.flush()


def warn(text: str) -> None:
    """Print a warning to stderr in one line, and log it."""
    line = " ".join(text.splitlines())
    LOGGER.warning(line)
    message(f"warning: {line}")


def _print(text: str, stream: TextIO) -> None:
    encoding = stream.encoding or "utf-8"
    shown = harmless(scrubbed(text, stream)).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(shown + "\n")


def print_json(data: bytes, *, indent: int = 2) -> None:
    """Print encoded JSON to stdout; what a terminal would obey is escaped as JSON.

    Args:
        data: The encoded value.
        indent: Spaces of each level; 0 gives one line.

    """
    import msgspec  # late: heavy

    text = UNSAFE.sub(_json_escaped, msgspec.json.format(data, indent=indent or -1).decode())
    if "utf" not in (results().encoding or "utf-8").lower():
        text = _NOT_ASCII.sub(_json_escaped, text)
    result(text)


def _json_escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table: the first column to the left, the others to the right."""
    cells = [[harmless(" ".join(cell.split())) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        first = row[0].ljust(widths[0])
        others = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        result("  ".join([first, *others]).rstrip())


def run_async(main: Coroutine[object, object, T]) -> T:
    """Run a command's coroutine, on uvloop where it is installed."""
    from gymcli.commands.signals import TerminatedError  # late: it prints by this module
    from gymcli.rollout.event_loop import run  # late: heavy

    return run(
        main, interrupted_code=lambda error: 143 if isinstance(error, TerminatedError) else 130
    )
