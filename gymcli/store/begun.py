"""The attempts in flight, on disk until a run ends cleanly: suspects, where its process dies."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import RunDirectoryError
from gymcli.store.durability import open_file, write_error
from gymcli.store.rollout_files import FAILURES, Done
from gymcli.store.supervised import STACK_FILE
from gymcli.types import JSON_ERRORS, AttemptKey

__all__ = ["BEGUN", "BegunFile", "Suspects"]

BEGUN = "begun"


class Suspects(NamedTuple):
    """What may have ended the process of a run."""

    keys: frozenset[AttemptKey] = frozenset()
    """Attempts that were in flight when the process died, and have no outcome since."""
    proved: AttemptKey | None = None
    """The suspect that was in flight alone when the process died again; it is none of the keys."""


class _Header(msgspec.Struct):
    """The first line: what the lines that follow are compared with."""

    num_failure_bytes: int
    """The size of failures.jsonl when this life of the run began."""
    suspects: list[AttemptKey]
    """Of earlier deaths."""


class _BegunLine(msgspec.Struct, omit_defaults=True):
    """An attempt that began, or, without a key, the start of the part that plays one at a time."""

    key: AttemptKey | None = None


_HEADER, _LINE = msgspec.json.Decoder(_Header), msgspec.json.Decoder(_BegunLine)
_KEY = msgspec.json.Decoder(AttemptKey)
_ENCODER = msgspec.json.Encoder()


class BegunFile:
    """Notes each attempt as it begins: one write, and no sync, as only a dead process matters.

    Args:
        folder: The run directory.

    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / BEGUN
        self._place = folder.absolute() / BEGUN
        self._failures = folder.absolute() / FAILURES
        self._descriptor: int | None = None

    def open(self, suspects: Collection[AttemptKey]) -> None:
        """Begin the file of this life of the run.

        Raises:
            RunDirectoryError: It cannot be written.

        """
        size = self._failures.stat().st_size if self._failures.exists() else 0
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC
            self._descriptor = open_file(self._place, flags)
        except OSError as error:
            raise write_error(self._path, error) from error
        self._write(_Header(size, sorted(suspects)))

    def add(self, key: AttemptKey) -> None:
        """Note an attempt that begins; nothing where the file is not open.

        Raises:
            RunDirectoryError: It cannot be written.

        """
        if self._descriptor is not None:
            self._write(_BegunLine(key))

    def begin_alone(self) -> None:
        """Note that attempts are played one at a time from now on."""
        if self._descriptor is not None:
            self._write(_BegunLine())

    def _write(self, line: _Header | _BegunLine) -> None:
        assert self._descriptor is not None, "the file is open"
        try:
            os.write(self._descriptor, _ENCODER.encode(line) + b"\n")
        except OSError as error:
            raise write_error(self._path, error) from error

    def remove(self) -> None:
        """Delete the file and the last stack: the run ended cleanly, or nobody saw how it died."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        for path in (self._place, self._place.with_name(STACK_FILE)):
            with suppress(OSError):  # left behind, it means nothing to another command
                path.unlink()

    def suspects(self, done: Mapping[tuple[str, str], Done]) -> Suspects:
        """Read what was in flight when the process that wrote the file died."""
        try:
            lines = self._place.read_bytes().split(b"\n")[:-1]  # the last one may be torn
            header = _HEADER.decode(lines[0])
        except (OSError, IndexError, *JSON_ERRORS):
            return Suspects()
        failed = set(self._failed_since(header.num_failure_bytes))

        def is_open(key: AttemptKey) -> bool:
            scored = done.get((key.env, key.task_id))
            return key not in failed and not (scored is not None and scored.has(key.attempt))

        before = {key for key in header.suspects if is_open(key)}
        found: set[AttemptKey] = set()
        is_alone = False
        last: AttemptKey | None = None
        for data in lines[1:]:
            try:
                key = _LINE.decode(data).key
            except JSON_ERRORS:
                continue
            if key is None:
                is_alone = True
            elif is_open(key):
                # Played one at a time, all but the last one only wait for others of their group.
                last = key if is_alone else None
                if not is_alone:
                    found.add(key)
        proved = last if last in before else None
        if last is not None:
            found.add(last)
        return Suspects(frozenset(before | found) - {proved}, proved)

    def _failed_since(self, num_bytes: int) -> Iterator[AttemptKey]:
        try:
            with self._failures.open("rb") as file:
                file.seek(num_bytes)
                for line in file:
                    with suppress(*JSON_ERRORS):  # torn, or told of by whoever reads all of it
                        yield _KEY.decode(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunDirectoryError(
                f"{self._path.with_name(FAILURES)}: {error.strerror}"
            ) from error
