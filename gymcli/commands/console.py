"""Print results to stdout and everything else to stderr, without control characters."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO, cast

from gymcli.errors import OutputError
from gymcli.secrets import NOTHING_SECRET, Scrubber, environment_secrets, scrubber_of

LOGGER = logging.getLogger(__name__)
"""Logs the messages that are also printed to stderr; --verbose leaves them out."""
TYPED = "gymcli.typed"
"""The key in a command's context of the arguments as they were typed."""
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except newline and tab, those that reorder text, and lone surrogates."""
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN = range(31, 37)
_COLOURS = {
    **dict.fromkeys(("error:", "FAIL", "FAILED", "not reproduced"), _RED),
    **dict.fromkeys(("warning:", "INCONCLUSIVE", "skipped", "cannot tell"), _YELLOW),
    **dict.fromkeys(("PASS", "ok", "reproduced"), _GREEN),
    "system": _MAGENTA,
    "developer": _MAGENTA,
    "user": _CYAN,
    "assistant": _BLUE,
    "tool": _YELLOW,
}
"""The words of gymcli that have a colour on a terminal, with its number in an escape sequence."""
_VERDICT_COLUMNS = ("verdict", "result")
_PIPE_WIDTH = 120
"""Columns of a table in a file or pipe, if its last column is cut."""
_MIN_CUT = 20
"""The least width to which the last column of a table is cut."""
_FIELD = re.compile(r"(?=.{13} \S)[a-z].{0,11}  +")
"""The name of a value that `result` prints in the columns before the 15th."""


def harmless(text: str) -> str:
    """Return the text with control characters escaped, so that a terminal obeys none of them."""
    return UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class SafeStream:
    """A text stream that writes whole lines, scrubbed and harmless, to another stream.

    A line waits for its newline or a flush, so that a secret written in pieces is found too.
    `is_display` lets escape sequences through for a live display, which writes no model text. After
    a failure nothing more is written; `is_needed` raises that failure.
    """

    def __init__(
        self,
        beneath: TextIO,
        scrubber: Scrubber,
        *,
        is_display: bool = False,
        is_needed: bool = False,
    ) -> None:
        self.beneath = beneath
        self.scrubber = scrubber
        self.is_needed = is_needed
        self._is_display = is_display
        self._has_failed = False
        self._held = ""
        # A thread may relay a worker's output, and a signal handler may print at any time.
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Write the whole lines of a text and hold back the rest."""
        if not isinstance(text, str):
            raise TypeError(f"expected text, not {type(text).__name__}")
        lines, newline, last_line = text.rpartition("\n")
        with self._lock:
            if newline:
                complete_lines, self._held = self._held + lines + newline, last_line
                self._write(complete_lines)
            else:
                self._held += text
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write the text that was held back and flush the stream beneath."""
        with self._lock:
            held, self._held = self._held, ""
            self._write(held, flushes=True)

    def close(self) -> None:
        """Flush only: an environment may close a stream that the whole process needs."""
        self.flush()

    def _write(self, text: str, *, flushes: bool = False) -> None:
        if self._has_failed:
            return
        text = self.scrubber.text(text)
        try:
            if text:
                self.beneath.write(text if self._is_display else harmless(text))
            if flushes:
                self.beneath.flush()
        except OSError as error:
            self._has_failed = True
            if self.is_needed:
                if isinstance(error, BrokenPipeError):
                    raise
                reason = f"standard output cannot be written: {error.strerror}"
                raise OutputError(reason) from error

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the stream beneath, except those that would bypass this one."""
        if name in ("buffer", "detach", "reconfigure"):
            raise AttributeError(name)
        return getattr(self.beneath, name)


_RESULTS: ContextVar[TextIO] = ContextVar("gymcli results")
"""The stream for results of the running command, which an environment's code does not see."""


def results() -> TextIO:
    """Return the stream for results: stdout as it was when the command started."""
    return _RESULTS.get(sys.stdout)


@contextmanager
def results_apart() -> Iterator[None]:
    """Redirect `sys.stdout` to stderr within the block: only `result` prints results."""
    stdout = sys.stdout
    token = _RESULTS.set(stdout)
    # A separate stream: code that closes or replaces it does not affect our messages.
    stream = SafeStream(sys.stderr, NOTHING_SECRET)
    sys.stdout = cast("TextIO", stream)
    try:
        yield
    finally:
        stream.flush()
        sys.stdout = stdout
        _RESULTS.reset(token)


def guard_descriptors() -> None:
    """Keep descriptor 1 for results, and open standard descriptors that are closed.

    Results go to a copy of descriptor 1 that no child inherits, and descriptor 1 leads to stderr
    for the rest of the process, so that output of libraries and children does not mix with results.
    The system would assign a closed descriptor to the next file that is opened, which would then
    receive output meant for the terminal. Replaced `sys.stdout` and `sys.stderr` are not touched.
    """
    # A read-only /dev/null makes results fail with EBADF, as a closed descriptor does.
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, flags)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
    for number in (1, 2):  # a full non-blocking pipe would lose output
        os.set_blocking(number, True)
    if sys.stdout is sys.__stdout__:
        descriptor = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(  # for the rest of the process
            descriptor,
            "w",
            encoding=sys.stdout.encoding if sys.stdout else "utf-8",
            errors=sys.stdout.errors if sys.stdout else "backslashreplace",
        )
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")


def make_safe(environ: Mapping[str, str]) -> None:
    """Wrap stdout and stderr in a SafeStream for the rest of the process."""
    scrubber = scrubber_of((), environ)
    sys.stdout = cast("TextIO", SafeStream(sys.stdout, scrubber, is_needed=True))
    errors = scrubber.also(environment_secrets(environ))
    sys.stderr = cast("TextIO", SafeStream(sys.stderr, errors))


def drop_unwritten() -> None:
    """Send to /dev/null what stdout did not take: from 3.13 on, Python complains of it at exit."""
    stream = sys.stdout.beneath if isinstance(sys.stdout, SafeStream) else sys.stdout
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno(), inheritable=False)
            os.close(nowhere)


def hide(secrets: Iterable[str]) -> None:
    """Also remove these secrets from everything written from now on."""
    more = tuple(secrets)
    for stream in {results(), sys.stdout, sys.stderr}:
        if isinstance(stream, SafeStream):
            stream.scrubber = stream.scrubber.also(more)


def scrubbed(text: str, stream: TextIO | None = None) -> str:
    """Return a text without the secrets that a stream (default: stderr) hides.

    Scrub a text before cutting it, because a part of a secret is not found.
    """
    scrubber = getattr(sys.stderr if stream is None else stream, "scrubber", NOTHING_SECRET)
    assert isinstance(scrubber, Scrubber)
    return scrubber.text(text)


def display_of(stream: TextIO) -> TextIO:
    """Return the stream for a live display or colours: it passes escape sequences, no secrets."""
    if not isinstance(stream, SafeStream):
        return stream
    beneath, scrubber, is_needed = stream.beneath, stream.scrubber, stream.is_needed
    return cast("TextIO", SafeStream(beneath, scrubber, is_display=True, is_needed=is_needed))


def scrub_display() -> None:
    """Wrap the streams that a live display put in place of stdout and stderr in a SafeStream.

    The display wraps long lines, and a secret that is split over two lines is not found. When it
    ends, it restores the streams that it found.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        scrubber = getattr(stream, "scrubber", None)
        if isinstance(scrubber, Scrubber) and not isinstance(stream, SafeStream):
            setattr(sys, name, SafeStream(stream, scrubber))


def one_line(text: str, max_characters: int = 200) -> str:
    """Return a text as one scrubbed line of limited length, such as for a table cell."""
    line = " ".join(scrubbed(text, results()).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def result(text: str = "", *, word: str = "") -> None:
    """Print a line of results to stdout.

    On a terminal, `word`, which is part of the line, has its colour, and the value of a field that
    is too wide (`name          value`) continues below its start.
    """
    _print(folded(text, 14) if _FIELD.match(text) else text, results(), word)


def announce(address: str) -> None:
    """Print the address of a server to stdout and flush it."""
    result(address)
    results().flush()


def message(text: str, *, word: str = "") -> None:
    """Print a message to stderr; on a terminal, `word`, which is part of it, has its colour."""
    _print(text, sys.stderr, word)
    sys.stderr.flush()


def paced_message(seconds: float = 5.0) -> Callable[[str], None]:
    """Return a function that prints a message to stderr at most once in `seconds`."""
    printed_at = time.monotonic()

    def print_sometimes(text: str) -> None:
        nonlocal printed_at
        now = time.monotonic()
        if now - printed_at >= seconds:
            printed_at = now
            message(text)

    return print_sometimes


def warn(text: str) -> None:
    """Print a warning on one line of stderr, and log it."""
    line = " ".join(text.splitlines())
    LOGGER.warning(line)
    message(f"warning: {line}", word="warning:")


def terminal_width() -> int | None:
    """Return how many columns results may take: None in a file or pipe, unless COLUMNS is set."""
    with suppress(ValueError):
        return int(os.environ.get("COLUMNS", "")) or None
    with suppress(OSError):
        if results().isatty():
            return os.get_terminal_size(results().fileno()).columns or None
    return None


def folded(text: str, indent: int) -> str:
    """Return a line broken at spaces to the width of the terminal, the rest indented."""
    width = terminal_width()
    if width is None or len(text) <= width:
        return text
    lines = textwrap.wrap(
        text[indent:], max(width - indent, 20), break_long_words=False, break_on_hyphens=False
    )
    return text[:indent] + f"\n{' ' * indent}".join(lines)


def _print(text: str, stream: TextIO, word: str = "") -> None:
    encoding = stream.encoding or "utf-8"
    # A character that the encoding lacks is escaped, since printing it would raise an error.
    line = harmless(scrubbed(text, stream)).encode(encoding, "backslashreplace").decode(encoding)
    if word in _COLOURS and _has_colours(stream):
        at_end, anywhere = rf"{re.escape(word)}$", rf"(?<!\w){re.escape(word)}(?!\w)"
        if match := re.search(at_end, line) or re.search(anywhere, line):
            before, after = line[: match.start()], line[match.end() :]
            line = f"{before}\x1b[{_COLOURS[word]}m{word}\x1b[0m{after}"
            stream.flush()  # before this line come those that it holds back
            # Only here are escape sequences let through: the text itself held none.
            stream = display_of(stream)
    stream.write(line + "\n")


def _has_colours(stream: TextIO) -> bool:
    """Return whether colours are shown, by https://no-color.org and the kind of terminal."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not is_plain and stream.isatty()


def print_json(value: object, *, indent: int = 2) -> None:
    """Print a value, or bytes that already hold JSON; `indent` 0 prints one line.

    Control characters are escaped as in JSON.
    """
    import msgspec  # late: heavy

    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    text = UNSAFE.sub(_json_escaped, msgspec.json.format(data, indent=indent or -1).decode())
    if "utf" not in (results().encoding or "utf-8").lower():
        text = _NOT_ASCII.sub(_json_escaped, text)
    result(text)


def _json_escaped(match: re.Match[str]) -> str:
    # An escape of JSON is a unit of UTF-16: characters beyond 0xffff take two.
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[str] = (),
    optional: Sequence[str] = (),
    is_last_cut: bool = False,
) -> None:
    """Print an aligned table: the first column and those of `left` are left-aligned.

    If the terminal is too narrow, the words of the head are stacked, then the `optional` columns
    are left out, the first of them first; if that is not enough, each row becomes a few lines of
    names and values. With `is_last_cut` the last column is first cut to the room that there is.
    """
    table = [[harmless(" ".join(cell.split())) for cell in row] for row in (head, *rows)]
    width = terminal_width()
    if is_last_cut:
        used_width = max(map(len, _aligned([row[:-1] for row in table], left))) + 2
        room = max((width or _PIPE_WIDTH) - used_width, _MIN_CUT)
        table = [[*row[:-1], one_line(row[-1], room)] for row in table]
    layouts = _layouts(table, left, optional)
    fitting = (lines for lines in layouts if width is None or max(map(len, lines)) <= width)
    lines = next(fitting, None) or _as_pairs(table, width or 0)
    for line in lines:
        last = line.rsplit(maxsplit=1)[-1:]
        result(line, word=last[0] if last and head[-1] in _VERDICT_COLUMNS else "")


def _layouts(
    table: list[list[str]], left: Sequence[str], optional: Sequence[str]
) -> Iterator[list[str]]:
    """Yield the lines of a table in ever narrower layouts."""
    yield _aligned(table, left)
    yield _aligned(table, left, is_stacked=True)
    for name in optional:
        place = table[0].index(name)
        table = [row[:place] + row[place + 1 :] for row in table]
        yield _aligned(table, left, is_stacked=True)


def _aligned(table: list[list[str]], left: Sequence[str], *, is_stacked: bool = False) -> list[str]:
    head, *rows = table
    columns = []
    heads = _stacked(head) if is_stacked else [head]
    for place, column in enumerate(zip(*heads, *rows, strict=True)):
        width = max(map(len, column))
        is_left = place == 0 or head[place] in left
        columns.append([cell.ljust(width) if is_left else cell.rjust(width) for cell in column])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _stacked(head: Sequence[str]) -> list[list[str]]:
    """Return the head as several rows, a word in each; units and signs stay with their word."""
    words = [re.split(" (?=[a-z])", name) for name in head]
    height = max(map(len, words))
    padded = [[""] * (height - len(parts)) + parts for parts in words]
    return [list(row) for row in zip(*padded, strict=True)]


def _as_pairs(table: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a row as its first cell and, below it, the names and values of the others."""
    head, *rows = table
    lines = [head[0]] if head[0] else []
    for row in rows:
        lines += [row[0]] if row[0] else []
        pairs = [f"{name} {cell}".strip() for name, cell in zip(head[1:], row[1:], strict=True)]
        # A pair is not broken: its spaces become characters at which no line is.
        text = "   ".join(pair.replace(" ", "\0") for pair in pairs if pair)
        wrapped = textwrap.wrap(
            text, max(width - 2, 20), break_long_words=False, break_on_hyphens=False
        )
        lines += [f"  {line}".replace("\0", " ") for line in wrapped]
    return lines
