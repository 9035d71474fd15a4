"""Server-sent events: bytes in pieces become the data payloads of events.

As in https://html.spec.whatwg.org/multipage/server-sent-events.html, but for event names, ids and
retry times, which no dialect needs.
"""

from __future__ import annotations

import re

__all__ = ["EventReader", "is_last"]

_LINE_END = re.compile(rb"\r\n|\n|\r")
_END_OF_RESPONSE = re.compile(rb'"type": ?"response\.(completed|incomplete|failed)"')


class EventReader:
    """Takes the bytes of a stream as they come and gives the events that they complete."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """The pieces of a line that has not ended: none is looked at twice, however long it is."""
        self._held = b""
        """A final `\\r`, which may be the first half of `\\r\\n`."""
        self._data: list[bytes] = []
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Give the data of every event that ends within this chunk."""
        text = self._held + chunk
        self._held = b"\r" if text.endswith(b"\r") else b""
        end, *others = _LINE_END.split(text[:-1] if self._held else text)
        self._line.append(end)
        if not others:
            return []
        *lines, rest = b"".join(self._line), *others
        self._line = [rest]
        if self._at_start:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        return [event for line in lines if (event := self._take(line)) is not None]

    def finish(self) -> list[bytes]:
        """Give an event that the stream ended without the empty line after it."""
        return self.feed(b"\n\n")

    def _take(self, line: bytes) -> bytes | None:
        """Take one line; give the event's data where the line is the empty one that ends it."""
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        data, self._data = self._data, []
        return b"\n".join(data) if data else None


def is_last(event: bytes) -> bool:
    """Return whether nothing comes after an event: `[DONE]`, or the end of a response."""
    return event.strip() == b"[DONE]" or _END_OF_RESPONSE.search(event) is not None
