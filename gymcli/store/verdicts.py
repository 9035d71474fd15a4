"""verdicts.jsonl: what judges answered, so that scoring again asks them nothing twice."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gymcli.store.lines import LineAppender
from gymcli.store.run import VERDICTS, read_structs
from gymcli.types import JSONObject, Message, digest

__all__ = ["Verdicts", "verdict_key"]


class _Line(msgspec.Struct, omit_defaults=True, kw_only=True):
    key: str
    role: str = ""
    model: str = ""
    message: Message


def verdict_key(
    model: str,
    messages: list[Message],
    *,
    schema: JSONObject | None,
    params: JSONObject,
    cache: str,
) -> str:
    """Give what names an answer: everything that it depends on."""
    return digest([model, messages, schema, params, cache])


class Verdicts:
    """The answers of one run's judges by key; failed calls are never among them.

    Args:
        folder: The run directory, whose verdicts are read; None keeps them in memory.
        is_kept: New answers are appended to the file.

    Raises:
        RunFileError: A line of the file is damaged.

    """

    def __init__(self, folder: Path | None = None, *, is_kept: bool = True) -> None:
        self._answers: dict[str, Message] = {}
        self._file = LineAppender(folder / VERDICTS) if folder is not None and is_kept else None
        if folder is not None and (folder / VERDICTS).is_file():
            for line in read_structs(folder / VERDICTS, msgspec.json.Decoder(_Line)):
                self._answers[line.key] = line.message

    def get(self, key: str) -> Message | None:
        """Give an answer that is on record."""
        return self._answers.get(key)

    def add(self, key: str, message: Message, *, role: str, model: str) -> None:
        """Keep an answer, on disk before it is used.

        Raises:
            RunDirectoryError: The file cannot be written.

        """
        if self._file is not None:
            line = _Line(key=key, role=role, model=model, message=message)
            self._file.append(msgspec.json.encode(line))
        self._answers[key] = message

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
