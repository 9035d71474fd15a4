"""A run that is shown all at once: its directory holds it when it is whole, and not before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gymcli.errors import UsageError
from gymcli.secrets import Scrubber
from gymcli.store.durability import sync_folder, unwritable
from gymcli.store.locking import RunLock
from gymcli.store.manifest import MANIFEST
from gymcli.store.run import FAILURES, GENERATIONS, METRICS, ROLLOUTS, VERDICTS, RunDirectory

__all__ = ["UNFINISHED", "check_unused", "whole_run"]

UNFINISHED = ".unfinished"
"""The folder in the directory where the run is written until it is whole."""

_FILES = (GENERATIONS, FAILURES, METRICS, ROLLOUTS, VERDICTS, MANIFEST)
"""In the order in which they are shown: the last one makes the run."""


def check_unused(path: Path) -> None:
    """Refuse what is there already, unless it is empty or was left before the run was whole.

    Raises:
        UsageError: It holds something else.

    """
    left = path / UNFINISHED
    if left.is_dir() and not left.is_symlink() and not (path / MANIFEST).exists():
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path}: exists already; --out takes a new directory")


@contextmanager
def whole_run(path: Path, scrubber: Scrubber) -> Iterator[RunDirectory]:
    """Give a run to be written, which stands in a directory once the block has ended well.

    What an earlier try left is written anew, but for the answers of judges: they are there.

    Raises:
        RunDirectoryError: The directory cannot be written, or another process writes it.

    """
    lock = RunLock(path)
    lock.take()
    try:
        directory = RunDirectory(path / UNFINISHED, scrubber)
        directory.lock()
        try:
            _clear(directory.path)
            directory.mend((VERDICTS,))
            yield directory
        finally:
            directory.close()
        _show(directory.path, path)
    finally:
        lock.free()


def _clear(folder: Path) -> None:
    try:
        for name in _FILES:
            if name != VERDICTS:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error


def _show(folder: Path, path: Path) -> None:
    """Move the files of a run to where they belong."""
    try:
        for name in _FILES:
            (path / name).unlink(missing_ok=True)  # of a try that ended in the middle of this
            with suppress(FileNotFoundError):
                (folder / name).rename(path / name)
        shutil.rmtree(folder, ignore_errors=True)
        sync_folder(path)
    except OSError as error:
        raise unwritable(path, error) from error
