"""Appends lines of JSON to a file, without the secrets in them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gymcli.errors import UsageError
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["LineFile"]


class LineFile:
    """An open file, to which lines are appended.

    What cannot be written ends no request: nothing more is written then, and `close` says so.

    Args:
        path: The file.
        option: What named it, for messages.
        secrets: Taken out of what is written, wherever they come from.
        is_new: Whether it must not hold anything yet.

    Raises:
        UsageError: It cannot be opened, or holds something.

    """

    def __init__(
        self, path: Path, *, option: str, secrets: Scrubber = NOTHING_SECRET, is_new: bool = False
    ) -> None:
        self._name = f"{option} {path}"
        self._secrets = secrets
        self.failure: UsageError | None = None
        """Why nothing more is written."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise UsageError(f"{self._name}: {error.strerror}") from error
        if is_new and os.fstat(self._file).st_size:
            os.close(self._file)
            raise UsageError(f"{self._name}: is there already; name a new file")

    def append(self, value: object) -> None:
        """Append one line."""
        if self.failure is not None:
            return
        line = self._secrets.line(msgspec.json.encode(value)) + b"\n"
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            self.failure = UsageError(f"{self._name}: cannot be written: {error.strerror}")

    def close(self) -> None:
        """Close the file.

        Raises:
            UsageError: A line could not be written.

        """
        os.close(self._file)
        if self.failure is not None:
            raise self.failure
