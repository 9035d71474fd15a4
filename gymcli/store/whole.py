"""A run that is shown all at once: its directory holds it when it is whole, and not before."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
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
def whole_run(
    path: Path, scrubber: Scrubber, *, keeps_unfinished: bool = True
) -> Iterator[RunDirectory]:
    """Give a run to be written, which stands in a directory once the block has ended well.

    What an earlier try left is written anew, but for the answers of judges: they are there. A run
    that cost nothing need not be kept unfinished: then nothing is left where the block fails.

    Raises:
        RunDirectoryError: The directory cannot be written, or another process writes it.

    """
    is_new = not path.exists()
    lock = RunLock(path)
    lock.take()
    try:
        try:
            with _unfinished(path / UNFINISHED, scrubber, keeps_unfinished) as directory:
                yield directory
        except BaseException:
            if not keeps_unfinished:
                shutil.rmtree(path / UNFINISHED, ignore_errors=True)
            raise
        _show(path / UNFINISHED, path)
    finally:
        lock.free()
        if is_new:
            with suppress(OSError):  # something is in it
                path.rmdir()


@contextmanager
def _unfinished(folder: Path, scrubber: Scrubber, keeps_verdicts: bool) -> Iterator[RunDirectory]:
    """Give the folder where the run is written, without what an earlier try left."""
    directory = RunDirectory(folder, scrubber)
    directory.lock()
    try:
        _clear(folder, [name for name in _FILES if name != VERDICTS or not keeps_verdicts])
        directory.mend((VERDICTS,))
        yield directory
    finally:
        directory.close()


def _clear(folder: Path, names: Iterable[str]) -> None:
    try:
        for name in names:
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
