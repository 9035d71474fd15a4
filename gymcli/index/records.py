"""Lines of a run read where they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from gymcli.errors import RunFileError
from gymcli.index.rows import Place
from gymcli.store.lines import open_bytes, read_errors
from gymcli.store.rollout_files import FAILURES, RolloutReading, decode_rollout
from gymcli.types import JSON_ERRORS, Failure, JSONObject, Message, Rollout

__all__ = ["Fields", "RecordReader"]


class Fields(msgspec.Struct):
    """What of a line filters and sorting look up in the file."""

    schema_version: int = 0
    task: JSONObject = {}
    details: JSONObject = {}
    components: dict[str, float] = {}
    metrics: dict[str, float] = {}
    answer: str | None = None


class _Spoken(msgspec.Struct):
    schema_version: int = 0
    messages: list[Message] = []


class _Head(msgspec.Struct):
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_FIELDS = msgspec.json.Decoder(Fields)
_SPOKEN = msgspec.json.Decoder(_Spoken)
_HEAD = msgspec.json.Decoder(_Head)
_FAILURE = msgspec.json.Decoder(Failure)


class RecordReader:
    """Reads lines by their place; files stay open until it is closed.

    A place is read, not mapped into memory: a file that somebody shortens would end the process.
    """

    def __init__(self, env: str | None) -> None:
        self._env = env
        self._files: dict[str, BinaryIO] = {}

    def line(self, place: Place) -> bytes:
        """Give a line as it is on disk.

        Raises:
            RunFileError: It is no longer there.
            UsageError: The file cannot be read.

        """
        with read_errors(Path(place.file)):
            file = self._files.get(place.file)
            if file is None:
                file = self._files[place.file] = open_bytes(Path(place.file))
            line = os.pread(file.fileno(), place.size, place.offset)
        if len(line) < place.size:
            raise _gone(place, None)
        return line

    def record(self, place: Place) -> Rollout | Failure:
        """Give the record of a line.

        Raises:
            RunFileError: Another line, or none, is there now.
            UsageError: The file cannot be read.

        """
        return self.decoded(place, self.line(place))

    def decoded(self, place: Place, line: bytes) -> Rollout | Failure:
        """Give the record of a line that was read.

        Raises:
            RunFileError: It holds none.

        """
        try:
            if _HEAD.decode(line).error is not msgspec.UNSET:
                failure = _FAILURE.decode(line)
                if failure.schema_version or Path(place.file).name == FAILURES:
                    return failure
        except msgspec.ValidationError:
            pass  # a row of others has an "error" too
        except JSON_ERRORS as error:
            raise _gone(place, error) from error
        try:
            return decode_rollout(1, line, RolloutReading(place.file, self._env))
        except RunFileError as error:
            raise _gone(place, error.__cause__) from error

    def fields(self, place: Place) -> Fields:
        """Give what is looked up in a line."""
        line = self.line(place)
        try:
            fields = _FIELDS.decode(line)
        except JSON_ERRORS:
            fields = Fields()
        if fields.schema_version:
            return fields
        record = self.record(place)
        if isinstance(record, Failure):
            return Fields()
        return Fields(
            task=record.task,
            details=record.details,
            components=record.components,
            metrics=record.metrics,
            answer=record.answer,
        )

    def messages(self, place: Place) -> list[Message]:
        """Give the conversation of a line."""
        line = self.line(place)
        try:
            spoken = _SPOKEN.decode(line)
        except JSON_ERRORS:
            spoken = _Spoken()
        return spoken.messages if spoken.schema_version else self.record(place).messages

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def _gone(place: Place, reason: BaseException | None) -> RunFileError:
    """Give the error of a line: a part that the index needs not is damaged, or all is another."""
    reasons = "" if reason is None else f" ({reason})"
    return RunFileError(
        f"{place.file}: the line at byte {place.offset} is damaged, or was changed{reasons}; "
        "open it again"
    )
