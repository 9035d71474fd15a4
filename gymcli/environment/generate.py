"""The rows that an environment generates."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from gymcli.environment.contract import Environment
from gymcli.environment.find import Found
from gymcli.errors import EpisodeError, boundary

__all__ = ["NUM_GENERATED", "generated_lines", "generates"]

NUM_GENERATED = 60
"""Tasks that are asked of a generator where nobody says how many."""


def generates(found: Found) -> bool:
    """Say whether the environment has a generator."""
    own = found.environment.generate.__func__  # type: ignore[attr-defined]
    return own is not Environment.generate.__func__  # type: ignore[attr-defined]


def generated_lines(found: Found, num: int = NUM_GENERATED, *, seed: int = 0) -> Iterator[bytes]:
    """Give the rows that an environment generates from `Random(seed)`, each a line of JSON.

    Raises:
        EpisodeError: It generates none, or fails.

    """
    with boundary(EpisodeError):
        for row in found.environment.generate(Random(seed), num):
            yield msgspec.json.encode(row) + b"\n"
