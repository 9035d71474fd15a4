"""The lines of an author's code in a traceback."""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from pathlib import Path

from gymcli.errors import AttemptError, ModelError, UnfinishedAttemptError

_MAX_FRAMES = 5


_OURS = f"{Path(__file__).parent}{os.sep}"


# The environments in the package are an author's files, like those of a user.
_ENVIRONMENTS = f"{_OURS}_envs{os.sep}"


_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"


_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def frames_of(error: BaseException) -> list[str]:
    """Return where an author's code failed: the last calls in their own files, innermost last.

    Each is `FILE:LINE in FUNCTION`. Files of gymcli, Python and installed packages are left out; if
    nothing remains, those of packages are shown, since an environment may be one. The failure of an
    endpoint, or the end of a run, has no such place.
    """
    if isinstance(error, ModelError | UnfinishedAttemptError):
        return []
    link: BaseException | None = error
    while link is not None:
        # An error from another process has no traceback here, only its frames.
        if isinstance(link, AttemptError) and link.frames:
            return list(link.frames)
        calls = [(f.f_code, line) for f, line in traceback.walk_tb(link.__traceback__)]
        calls = [call for call in calls if _is_foreign(call[0].co_filename)]
        author_calls = [call for call in calls if not _is_installed(call[0].co_filename)]
        # An endpoint's failure passed only through packages that gymcli uses.
        if calls := author_calls or ([] if isinstance(link, ModelError) else calls):
            return [
                f"{shown_place(code.co_filename, line)} in {code.co_qualname}"
                for code, line in calls[-_MAX_FRAMES:]
            ]
        link = link.__cause__
    return []


def shown_place(file: str, line: int) -> str:
    """Return `FILE:LINE`; a path within the working directory is relative to it."""
    with suppress(OSError):  # the working directory was deleted
        file = file.removeprefix(f"{Path.cwd()}{os.sep}")
    return f"{file.encode(errors='backslashreplace').decode()}:{line}"


def _is_foreign(file: str) -> bool:
    """Return whether a file belongs neither to Python nor to gymcli (except its environments)."""
    if file.startswith("<"):
        return False
    if file.startswith(_OURS):
        return file.startswith(_ENVIRONMENTS)
    is_standard = file.startswith(_STANDARD_LIBRARY)
    return not is_standard or any(part in file for part in _PACKAGES)


def _is_installed(file: str) -> bool:
    is_package = any(part in file for part in _PACKAGES)
    return is_package and not file.startswith(_ENVIRONMENTS)
