"""The border to somebody else's code: whatever it raises is attributed to one phase."""

from __future__ import annotations

import asyncio
import functools
import os
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from gymcli.errors import (
    AttemptError,
    ModelError,
    RunError,
    UnfinishedAttemptError,
    UsageError,
)

__all__ = ["boundary", "described", "frames_of", "leave_copy", "shown_place"]

_MAX_FRAMES = 5

_OURS = f"{Path(__file__).parent}{os.sep}"
_ENVIRONMENTS = f"{_OURS}_envs{os.sep}"
_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class _Boundary:
    """Attribute whatever somebody else's code raises in the block to one phase of an attempt.

    `sys.exit` counts, and so does a panic of a Rust extension or the outcome of a test framework,
    which are no `Exception`: each ends the attempt, never the run. What ends a run does so from in
    here as well: a disk that is full where a judge's answer is written down, a missing package.
    A cancellation passes where the task was asked to end; whoever awaits the task knows by whom.

    Raises:
        AttemptError: Ours as they are; all others as `error_class`, in one line.
        RunError, UsageError, KeyboardInterrupt: As they are.

    """

    __slots__ = ("_error_class",)

    def __init__(self, error_class: type[AttemptError]) -> None:
        self._error_class = error_class

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, (AttemptError, RunError, UsageError)):
            return
        if isinstance(error, KeyboardInterrupt) or _was_asked_for(error) or _is_closed(error):
            return
        raise self._error_class(described(error)) from error


boundary = functools.cache(_Boundary)
"""Returns the boundary of a phase, `with boundary(SetupError):`. It holds no state of a block, so
one object serves all."""


def described(error: BaseException) -> str:
    """Name an exception of somebody else's code in one line: its class, and its text if any."""
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except BaseException as failed:  # noqa: BLE001  # its class says how it is put into words
        return f"{name} (its text cannot be read: {type(failed).__name__})"
    return f"{name}: {text}" if text else name


def frames_of(error: BaseException) -> list[str]:
    """Return where an author's code failed: the last calls in their own files, innermost last.

    Each is `FILE:LINE in FUNCTION`. Files of gymcli, of Python and of installed packages are left
    out; those of packages are not where nothing else remains, as of an environment that is one. An
    endpoint that failed, and the end of a run, have no such place.
    """
    link: BaseException | None = error
    while link is not None and not isinstance(link, ModelError | UnfinishedAttemptError):
        if isinstance(link, AttemptError) and link.frames:
            return list(link.frames)
        calls = [(f.f_code, line) for f, line in traceback.walk_tb(link.__traceback__)]
        calls = [call for call in calls if _is_foreign(call[0].co_filename)]
        own = [call for call in calls if not _is_installed(call[0].co_filename)]
        if found := own or calls:
            return [
                f"{shown_place(code.co_filename, line)} in {code.co_qualname}"
                for code, line in found[-_MAX_FRAMES:]
            ]
        link = link.__cause__
    return []


def shown_place(file: str, line: int) -> str:
    """Return a line of a file as it is shown: within the working directory relative to that."""
    with suppress(OSError):  # the directory is gone
        file = file.removeprefix(f"{Path.cwd()}{os.sep}")
    return f"{file.encode(errors='backslashreplace').decode()}:{line}"


def _is_foreign(file: str) -> bool:
    """Return whether a file is neither of gymcli, but for its environments, nor of Python."""
    if file.startswith("<"):
        return False
    if file.startswith(_OURS):
        return file.startswith(_ENVIRONMENTS)
    is_standard = file.startswith(_STANDARD_LIBRARY)
    return not is_standard or any(part in file for part in _PACKAGES)


def _is_installed(file: str) -> bool:
    is_package = any(part in file for part in _PACKAGES)
    return is_package and not file.startswith(_ENVIRONMENTS)


def leave_copy(process: int) -> None:
    """End this process at once if it is a forked copy that came back from somebody else's code.

    A copy that went on would be a second writer of the run.

    Args:
        process: The id of the process that made the call.

    """
    if os.getpid() != process:
        os._exit(0)


def _is_closed(error: BaseException) -> bool:
    """Return whether a coroutine that runs no more is being closed."""
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True


def _was_asked_for(error: BaseException) -> bool:
    """Return whether an error is a cancellation that this task was asked for by anybody."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
