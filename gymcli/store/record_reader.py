"""Reads the lines of a run: new lines as it grows, and any earlier line by its place."""

from __future__ import annotations

import functools
import os
import re
from collections import UserString
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple, TypeVar, get_args

import msgspec

from gymcli.errors import RunFileError, UsageError
from gymcli.store.lines import BYTE_ORDER_MARK, MAX_LINE_BYTES, TOO_LONG, open_bytes, read_errors
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    MAX_ATTEMPT,
    WAYS_OUT,
    RolloutReading,
    decode_rollout,
    is_json,
)
from gymcli.types import (
    JSON_ERRORS,
    ErrorRecord,
    Failure,
    JSONObject,
    Message,
    RecordHead,
    RecordNumbers,
    Rollout,
)


class Place(NamedTuple):
    """The place of an attempt's line."""

    file: str
    offset: int
    """The offset of the first byte."""
    size: int
    """Bytes without the newline."""


_TAIL_BYTES = 1 << 12
"""Bytes of the last line to remember, to notice that a file was overwritten in place."""


class PlacedLine(NamedTuple):
    """One line of a file, without its newline."""

    number: int
    """Counted from 1."""
    offset: int
    data: bytes


Status = Literal["failed", "waiting", "scored"]
"""The status of an attempt; `waiting`: its conversation is complete but has no score yet."""
STATUSES: tuple[Status, ...] = get_args(Status)
"""In ascending precedence: a score replaces failures."""


class _ToolCall(msgspec.Struct, gc=False):
    """A tool call, which is only counted."""


class _Message(msgspec.Struct, gc=False):
    role: str
    tool_calls: list[_ToolCall] = []


class Entry(RecordNumbers, kw_only=True):
    """The fields of a line of any file that a row needs."""

    attempt: Annotated[int, msgspec.Meta(ge=-1, le=MAX_ATTEMPT)] = -1
    messages: list[_Message] = []
    num_prompt_messages: int = 0
    model: str = ""

    @property
    def status(self) -> Status:
        if self.error is not None:
            return "failed"
        return "waiting" if self.reward is None else "scored"


_ENTRY = msgspec.json.Decoder(Entry)


def read_entry(line: PlacedLine, reading: RolloutReading) -> Entry:
    """Read a line of gymcli or a rollout of NeMo Gym; RunFileError if it is neither."""
    place = f"{reading.path}:{line.number}"
    try:
        entry = _ENTRY.decode(line.data)
    except JSON_ERRORS as error:
        name = Path(reading.path).name
        if name in (FAILURES, GENERATIONS):  # no other program writes these
            raise RunFileError(f"{place}: is damaged: {error}; {WAYS_OUT[name]}") from error
        entry = Entry()
    if entry.schema_version and entry.env and entry.task_id and entry.attempt >= 0:
        return entry
    if entry.error is not None and entry.task_id and Path(reading.path).name == FAILURES:
        entry.attempt = max(entry.attempt, 0)
        return entry
    # Another program wrote the line, and its fields have other names.
    rollout = decode_rollout(line.number, line.data, reading)
    if rollout.attempt > MAX_ATTEMPT:
        raise RunFileError(f"{place}: attempt {rollout.attempt} exceeds {MAX_ATTEMPT}")
    entry = _ENTRY.decode(msgspec.json.encode(rollout))
    entry.schema_version = 0
    reason = rollout.details.get("reason")
    if rollout.reward is None and isinstance(reason, str):  # NeMo Gym's verifier failed
        entry.error = ErrorRecord(error_class=reason, phase="verify")
    return entry


class GrowingFile:
    """The lines of a file that grows; a file that does not exist yet has none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        """Device and inode, once the file exists."""
        self._end = 0
        """The offset after the last line that was read."""
        self._tail = b""
        """The bytes before `_end`."""
        self._num_lines = 0

    def is_replaced(self) -> bool:
        """Return whether the lines that were read have gone or changed."""
        if self._identity is None:
            return False
        try:
            with self.path.open("rb") as file:
                return not self._is_same(file)
        except OSError:
            return True

    def has_grown(self) -> bool:
        try:
            return self.path.stat().st_size > self._end
        except OSError:
            return False

    def new_lines(self) -> Iterator[PlacedLine]:
        """Yield the new lines that are not blank; none if the file was replaced.

        A last line is yielded once it is complete. If the caller stops at a line, it is yielded
        again next time.
        """
        if not self.path.is_file():
            return
        with open_bytes(self.path) as file, read_errors(self.path):
            if self._identity is None:
                self._identity = _identity(file)
            if not self._is_same(file):
                return
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise UsageError(f"{self.path}:{self._num_lines + 1}: {TOO_LONG}")
                is_marked = not self._end and line.startswith(BYTE_ORDER_MARK)
                start = len(BYTE_ORDER_MARK) if is_marked else 0
                data = line[start:].strip()
                if not line.endswith(b"\n") and data and not is_json(data):
                    return  # its writer has not finished it, or died
                if data:
                    offset = self._end + line.find(data[:1], start)
                    yield PlacedLine(self._num_lines + 1, offset, data)
                # After the yield: a line that the caller refuses is read again next time.
                self._end += len(line)
                self._num_lines += line.endswith(b"\n")
                self._tail = line[-_TAIL_BYTES:]

    def _is_same(self, file: BinaryIO) -> bool:
        """Return whether a file still has the last line that was read; seek to its end."""
        file.seek(self._end - len(self._tail))
        return _identity(file) == self._identity and file.read(len(self._tail)) == self._tail


def _identity(file: BinaryIO) -> tuple[int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino


class LineFields(RecordHead, kw_only=True):
    """The fields of a line that filters and sorting read from the file."""

    task: JSONObject = {}
    components: dict[str, float] = {}
    metrics: dict[str, float] = {}
    answer: str | None = None
    details: JSONObject = {}


class _LineMessages(RecordHead, kw_only=True):
    messages: list[Message] = []


_FIELDS = msgspec.json.Decoder(LineFields)
_MESSAGES = msgspec.json.Decoder(_LineMessages)
_FAILURE = msgspec.json.Decoder(Failure)

_Part = TypeVar("_Part", bound=RecordHead)


class RecordReader:
    """Reads lines by their place; its files stay open until it is closed.

    Files are not mapped into memory: truncating a mapped file would kill the process. `env` is the
    environment of lines that do not name one.
    """

    def __init__(self, env: str | None) -> None:
        self._env = env
        self._files: dict[str, tuple[Path, BinaryIO]] = {}

    def line(self, place: Place) -> bytes:
        """Return a line as it is on disk, without its newline; RunFileError if it is gone."""
        if place.file not in self._files:
            path = Path(place.file)
            with read_errors(path):
                self._files[place.file] = path, open_bytes(path)
        path, file = self._files[place.file]
        with read_errors(path):
            line = os.pread(file.fileno(), place.size, place.offset)
        if len(line) < place.size:
            raise _changed(place, None)
        return line

    def decoded(self, place: Place, line: bytes) -> Rollout | Failure:
        """Return the record of a line that was read; RunFileError if it holds none."""
        if b'"error"' in line:  # most lines are decoded only once
            with suppress(*JSON_ERRORS):  # another program's row may have an "error" too
                failure = _FAILURE.decode(line)
                if failure.schema_version or Path(place.file).name == FAILURES:
                    return failure
        try:
            return decode_rollout(1, line, RolloutReading(place.file, self._env))
        except RunFileError as error:
            raise _changed(place, error.__cause__) from error

    def fields(self, place: Place) -> LineFields | Rollout | Failure:
        """Return the fields of a line that filters read; a failure has none of them."""
        return self._part(place, _FIELDS)

    def messages(self, place: Place) -> list[Message]:
        return self._part(place, _MESSAGES).messages

    def _part(
        self, place: Place, decoder: msgspec.json.Decoder[_Part]
    ) -> _Part | Rollout | Failure:
        """Decode a few fields of a line, or all of it if another program wrote it."""
        line = self.line(place)
        with suppress(*JSON_ERRORS):
            fields = decoder.decode(line)
            if fields.schema_version:
                return fields
        return self.decoded(place, line)

    def close(self) -> None:
        for _, file in self._files.values():
            file.close()
        self._files.clear()


def _changed(place: Place, reason: BaseException | None) -> RunFileError:
    """Return the error for a line that has changed, or is damaged where the index did not look."""
    reasons = "" if reason is None else f" ({reason})"
    return RunFileError(
        f"{place.file}: the line at byte {place.offset} is damaged or was changed{reasons}; "
        "open the run again"
    )


def text_of_messages(messages: Iterable[Message]) -> str:
    """Return all contents, reasoning, refusals and tool calls of messages, one text per line."""
    texts: list[str] = []
    for message in messages:
        if message.reasoning:
            texts.append(message.reasoning)
        content = message.content
        parts = [content] if isinstance(content, str) else [p.get("text") for p in content or ()]
        texts += (part for part in parts if isinstance(part, str))
        if message.refusal:
            texts.append(message.refusal)
        for call in message.tool_calls:
            texts += (call.name, call.arguments)
    return "\n".join(texts)


_PLAIN = re.compile(r"[A-Za-z0-9 !#$%()*+,.:;=?@\[\]^_`{|}~-]+")
"""Characters that no writer of JSON escapes."""
_LOWERED_TO = {
    b"k": ("\u212a".encode(), b"\\u212a"),  # the Kelvin sign
    b"i": ("\u0130".encode(), b"\\u0130"),  # capital I with a dot
}
"""By ASCII letter, how a line may spell other characters that `lower` turns into it."""


class LazyText(UserString):
    """The text of a conversation, decoded only where the bytes of its line may match.

    Searching the bytes takes a tenth of the time of decoding them, and most lines do not match.

    `line` is empty if another program may have escaped its text.
    """

    def __init__(self, line: bytes, read: Callable[[], str], *, is_lowered: bool = False) -> None:
        self._line = line
        self._read = read
        self._is_lowered = is_lowered

    @functools.cached_property
    def data(self) -> str:  # type: ignore[override]  # UserString has it as an attribute
        return self._read().lower() if self._is_lowered else self._read()

    def lower(self) -> LazyText:
        """Return the text in lower case, still undecoded."""
        return LazyText(self._line, self._read, is_lowered=True)

    def __contains__(self, part: object) -> bool:
        if not isinstance(part, str | UserString):
            raise TypeError(f"text holds no {type(part).__name__}")
        text = str(part)
        return self._may_hold(_plain_run(text)) and text in self.data

    def _may_hold(self, run: bytes) -> bool:
        if not self._line:
            return True
        if not self._is_lowered:
            return run in self._line
        line = self._line.lower()  # of bytes: ASCII letters only
        if run in line:
            return True
        return any(
            spelling in line
            for letter, spellings in _LOWERED_TO.items()
            if letter in run
            for spelling in spellings
        )


@functools.lru_cache(maxsize=64)
def _plain_run(text: str) -> bytes:
    """Return the longest part of a text that appears on a line without escapes."""
    return max(_PLAIN.findall(text), key=len, default="").encode()
