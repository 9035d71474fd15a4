"""Stands before stdout and stderr: what is written leaves without keys and escape sequences.

Messages, on stderr, leave without the secrets of environment variables, too; results, on stdout,
quote conversations, which may hold these.

That holds for whoever writes there: commands, Typer, tracebacks and warnings of Python, asyncio's
last words on a lost exception, prints of an environment.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO, cast

from gymcli.secrets import NOTHING_SECRET, Scrubber, environment_secrets, scrubber_of

__all__ = [
    "UNSAFE",
    "SafeStream",
    "display_of",
    "harmless",
    "hide",
    "make_safe",
    "results",
    "results_apart",
    "scrubbed",
    "stand_before_display",
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
