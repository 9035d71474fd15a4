"""All words of a recorded conversation: read from their line only where they have to be."""

from __future__ import annotations

import functools
import re
from collections import UserString
from collections.abc import Callable, Iterable, Iterator

from gymcli.types import Message

__all__ = ["LazyText", "text_of_messages"]

_PLAIN = re.compile(r"[A-Za-z0-9 !#$%()*+,.:;=?@\[\]^_`{|}~-]+")
"""Characters that JSON text has as they are, whoever wrote it: others may stand there escaped."""
_LOWERED_TO = {
    b"k": ("\u212a".encode(), b"\\u212a"),  # the sign of Kelvin
    b"i": ("\u0130".encode(), b"\\u0130"),  # a capital with its dot
}
"""By letters of ASCII, how others stand on a line of which `lower` makes the same."""


def text_of_messages(messages: Iterable[Message]) -> str:
    """Give all that was said, thought, called and answered, each text on a line of its own."""
    return "\n".join(text for message in messages for text in _texts(message))


def _texts(message: Message) -> Iterator[str]:
    if message.reasoning:
        yield message.reasoning
    if isinstance(message.content, str):
        yield message.content
    else:
        texts = (part.get("text") for part in message.content or ())
        yield from (text for text in texts if isinstance(text, str))
    if message.refusal:
        yield message.refusal
    for call in message.tool_calls:
        yield call.name
        yield call.arguments


class LazyText(UserString):
    """The text of a line: what the line's bytes do not hold, it does not either.

    Looking through the bytes takes a tenth of the time of decoding them, and most lines have
    nothing of what is looked for.

    Args:
        line: The line as it is on disk; empty where its text may be in it in another form.
        read: Gives the text.
        is_lowered: Give it in small letters.

    """

    def __init__(self, line: bytes, read: Callable[[], str], *, is_lowered: bool = False) -> None:
        self._line = line
        self._read = read
        self._is_lowered = is_lowered

    @functools.cached_property
    def data(self) -> str:  # type: ignore[override]  # UserString has it as an attribute
        """The text."""
        return self._read().lower() if self._is_lowered else self._read()

    def lower(self) -> LazyText:
        """Give it in small letters."""
        return LazyText(self._line, self._read, is_lowered=True)

    def __contains__(self, part: object) -> bool:
        """Say whether a text is a part of this one."""
        if not isinstance(part, str | UserString):
            raise TypeError(f"text holds no {type(part).__name__}")
        wanted = str(part)
        return self._may_hold(_plain_run(wanted)) and wanted in self.data

    def _may_hold(self, run: bytes) -> bool:
        if not self._line:
            return True
        if not self._is_lowered:
            return run in self._line
        line = self._line.lower()
        if run in line:
            return True
        others = (other for letter in _LOWERED_TO if letter in run for other in _LOWERED_TO[letter])
        return any(other in line for other in others)


@functools.lru_cache(maxsize=64)
def _plain_run(text: str) -> bytes:
    """Give the longest part of a text that stands on a line as it is."""
    return max(_PLAIN.findall(text), key=len, default="").encode()
