"""Takes the code of an environment that was given by its file to where it runs."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from gymcli.environment.registry import split_name

__all__ = ["Code", "code_of"]


class Code(NamedTuple):
    """What `--env` named, with the source where that is a file, and where its process looks."""

    spec: str | None
    source: bytes | None
    """Of `FILE.py:CLASS` that file alone."""
    folder: str
    """The working directory."""
    search_path: tuple[str, ...]

    def specs(self, stack: ExitStack) -> tuple[str, ...]:
        """Give what a worker finds the environment by; `stack` deletes what was written for that.

        A file that is there, with the same content, is used as it is, with all that is beside it.
        Elsewhere its source is written down anew.
        """
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        sys.path += [entry for entry in self.search_path if entry not in sys.path]
        if self.spec is None:
            return ()
        if self.source is None:
            return (self.spec,)
        name, target = split_name(self.spec)
        place, _, class_name = target.rpartition(":")
        path = Path(place)
        if not (path.is_file() and path.read_bytes() == self.source):
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            path.write_bytes(self.source)
        return (_named(name, f"{path}:{class_name}"),)


def code_of(spec: str | None) -> Code:
    """Give the code of what `--env` named, to be sent."""
    here = (str(Path.cwd()), tuple(entry for entry in sys.path if entry))
    name, target = split_name(spec or "")
    place, _, class_name = target.rpartition(":")
    if not place.endswith(".py"):
        return Code(spec, None, *here)
    path = Path(place).resolve()
    return Code(_named(name, f"{path}:{class_name}"), path.read_bytes(), *here)


def _named(name: str, target: str) -> str:
    return f"{name}={target}" if name else target
