"""Stands before stdout and stderr: what is written leaves without keys and escape sequences.

Messages, on stderr, leave without the secrets of environment variables, too; results, on stdout,
quote conversations, which may hold these.

That holds for whoever writes there: commands, Typer, tracebacks and warnings of Python, asyncio's
last words on a lost exception, prints of an environment.
"""

from __future__ import annotations

import errno
import fcntl
import io
import logging
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO, TypeVar, cast

from gymcli.errors import OutputError
from gymcli.secrets import NOTHING_SECRET, Scrubber, environment_secrets, scrubber_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "LOGGER",
    "UNSAFE",
    "SafeStream",
    "display_of",
    "flush_results",
    "guard_outputs",
    "harmless",
    "hide",
    "make_safe",
    "message",
    "one_line",
    "print_json",
    "print_table",
    "result",
    "results",
    "results_apart",
    "run_async",
    "scrubbed",
    "stand_before_display",
    "warn",
]


UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but newline and tab, those that reorder what is read, and halves of pairs."""


def harmless(text: str) -> str:
    """Make model text safe for a terminal: escape sequences are shown, not obeyed."""
    return UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class SafeStream:
    """A text stream in front of another one, which gets whole lines, scrubbed and harmless.

    What has no newline yet waits for it, or for a flush, so that a secret that is written piece by
    piece is found too.

    Args:
        beneath: Where the text goes.
        scrubber: Takes the secrets out.
        is_display: Let escape sequences through: for a live display, which writes no model text.

    """

    def __init__(self, beneath: TextIO, scrubber: Scrubber, *, is_display: bool = False) -> None:
        self.beneath = beneath
        self.scrubber = scrubber
        self._is_display = is_display
        self._held = ""
        # A thread may relay what a worker process prints, a signal handler may print at any time.
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Take a text; its whole lines pass."""
        if not isinstance(text, str):
            raise TypeError(f"expected text, not {type(text).__name__}")
        lines, newline, rest = text.rpartition("\n")
        with self._lock:
            if newline:
                whole, self._held = self._held + lines + newline, rest
                self._pass(whole)
            else:
                self._held += text
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Take several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Let everything pass that was taken."""
        with self._lock:
            held, self._held = self._held, ""
            if held:
                self._pass(held)
            self.beneath.flush()

    def close(self) -> None:
        """Flush, and stay open: an environment may close a stream that the whole process needs."""
        self.flush()

    def _pass(self, text: str) -> None:
        text = self.scrubber.text(text)
        self.beneath.write(text if self._is_display else harmless(text))

    def __getattr__(self, name: str) -> object:
        """Give what the stream beneath has, but for the ways around this one."""
        if name in ("buffer", "detach", "reconfigure"):
            raise AttributeError(name)
        return getattr(self.beneath, name)


_RESULTS: ContextVar[TextIO] = ContextVar("gymcli results")
"""Where the results of the running command go; code of environments does not see it."""


def results() -> TextIO:
    """Return the stream of results: the one that was stdout when the command started."""
    return _RESULTS.get(sys.stdout)


@contextmanager
def results_apart() -> Iterator[None]:
    """Let `sys.stdout` lead to stderr within the block; what is printed there is no result."""
    kept = sys.stdout
    token = _RESULTS.set(kept)
    # A stream of its own: whoever closes or replaces it leaves our messages alone.
    own = SafeStream(sys.stderr, NOTHING_SECRET) if sys.stderr is not None else None
    sys.stdout = cast("TextIO", own)
    try:
        yield
    finally:
        if own is not None:
            own.flush()
        sys.stdout = kept
        _RESULTS.reset(token)


def make_safe(environ: Mapping[str, str]) -> None:
    """Stand before stdout and stderr, for the rest of the process."""
    scrubber = scrubber_of((), environ)
    # Either is None where the process was started without it.
    if sys.stdout is not None:
        sys.stdout = cast("TextIO", SafeStream(sys.stdout, scrubber))
    if sys.stderr is not None:
        errors = scrubber.also(environment_secrets(environ))
        sys.stderr = cast("TextIO", SafeStream(sys.stderr, errors))


def hide(secrets: Iterable[str]) -> None:
    """Take these out as well of whatever is written from now on."""
    more = tuple(secrets)
    for stream in {results(), sys.stdout, sys.stderr}:
        if isinstance(stream, SafeStream):
            stream.scrubber = stream.scrubber.also(more)


def scrubbed(text: str, stream: TextIO | None = None) -> str:
    """Return a text without what a stream hides: before it is cut, or goes elsewhere.

    Args:
        text: The text; that of an error where no stream is given.
        stream: Where it goes; None: stderr.

    """
    scrubber = getattr(sys.stderr if stream is None else stream, "scrubber", NOTHING_SECRET)
    assert isinstance(scrubber, Scrubber)
    return scrubber.text(text)


def display_of(stream: TextIO) -> TextIO:
    """Give where a live display writes, which needs escape sequences; secrets stay out."""
    if not isinstance(stream, SafeStream):
        return stream
    return cast("TextIO", SafeStream(stream.beneath, stream.scrubber, is_display=True))


def stand_before_display() -> None:
    """Stand before what a live display has put in place of stdout and stderr.

    It wraps long lines, and a secret could no longer be found in these. When it ends, it puts
    back what was there before.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        scrubber = getattr(stream, "scrubber", None)
        if isinstance(scrubber, Scrubber) and not isinstance(stream, SafeStream):
            setattr(sys, name, SafeStream(stream, scrubber))


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


def guard_outputs() -> None:
    """Stand beneath stdout and stderr for the rest of the process, also where they are closed.

    A descriptor that is closed would otherwise be given to the next file that is opened, which
    then gets what is meant for the terminal. Results go to a copy of descriptor 1, which no child
    inherits, and 1 leads to stderr from now on: libraries and children print there what a reader of
    results must not get. Streams that somebody has put in their place stay.
    """
    is_closed = [_fill(number) for number in range(3)]
    if sys.stdout is sys.__stdout__:
        kept = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
        os.dup2(2, 1)
        sys.stdout = _text(_Descriptor(kept, _end, is_closed=is_closed[1]), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Descriptor(2, _go_on, is_closed=is_closed[2]), sys.stderr)


def _fill(number: int) -> bool:
    """Say whether a standard descriptor is closed; it leads nowhere then."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)
        return True
    return False


def _text(raw: _Descriptor, before: TextIO | None) -> TextIO:
    """Give a text stream like the one before, which is None where its descriptor was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=before.errors if before else "backslashreplace",
        line_buffering=bool(getattr(before, "line_buffering", False)),
        write_through=bool(getattr(before, "write_through", False)),
    )


class _Descriptor(io.FileIO):
    """A descriptor that takes everything once it has failed, so that it fails but once.

    Args:
        number: The descriptor's.
        lose: Takes the failure.
        is_closed: It was closed before it could be used.

    """

    def __init__(self, number: int, lose: Callable[[OSError], None], *, is_closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._lose = lose
        self._is_closed = is_closed
        self._is_lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as much as goes; where the other end is slow and does not block, wait for it."""
        if self._is_lost:
            return memoryview(data).nbytes
        try:
            if self._is_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            while (written := self._written(data)) is None:
                select.select((), (self,), ())
        except OSError as error:
            self._is_lost = True
            self._lose(error)
            return memoryview(data).nbytes
        return written

    def _written(self, data: ReadableBuffer) -> int | None:
        return super().write(data)


def _end(error: OSError) -> None:
    """End the command: its results cannot be written."""
    if isinstance(error, BrokenPipeError):
        raise error
    raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def _go_on(error: OSError) -> None:
    """Go on: nobody could be told that messages cannot be written."""
