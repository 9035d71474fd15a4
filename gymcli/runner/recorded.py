"""Finds the environments that a record names, which may be code that only its user has."""

from __future__ import annotations

from pathlib import Path

from gymcli.errors import UnknownNameError
from gymcli.registry import Found, Registry

__all__ = ["find_recorded"]


def find_recorded(registry: Registry, name: str, run: Path) -> Found:
    """Find the environment of a run's record.

    Raises:
        UnknownNameError: There is none of this name; the message says how to give one as code.

    """
    try:
        return registry.find(name)
    except UnknownNameError as error:
        raise UnknownNameError(
            f"{run}: {error}; where it is code of your own, give --env FILE.py:CLASS"
        ) from error
