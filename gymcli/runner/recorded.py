"""Finds the environments that a record names, which may be code or a server of its user alone."""

from __future__ import annotations

from pathlib import Path

from gymcli.environment.registry import Found, Registry
from gymcli.environment.remote import RemoteEnvironment
from gymcli.errors import UnknownNameError
from gymcli.store.manifest import Manifest

__all__ = ["find_recorded"]


def find_recorded(
    registry: Registry, name: str, run: Path, manifest: Manifest | None = None
) -> Found:
    """Find the environment of a run's record.

    One that is not here, and whose scores the manifest says cannot be had again, is found without
    its code: its records are kept as they are.

    Raises:
        UnknownNameError: There is none of this name; the message says how to give one as code.

    """
    try:
        return registry.find(name)
    except UnknownNameError as error:
        record = None if manifest is None else manifest.environments.get(name)
        if record is not None and record.rescore == "recorded":
            return Found(name, RemoteEnvironment, record.source_hash)
        raise UnknownNameError(
            f"{run}: {error}; where it is code of your own, give --env FILE.py:CLASS, "
            f"where it is a server, --env {name}=http://HOST:PORT"
        ) from error
