"""What is known of the environments of a run: what its manifest says, else what is known here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gymcli.metrics import EnvironmentFacts
from gymcli.store.manifest import Manifest

__all__ = ["Facts", "FactsOf"]

FactsOf: TypeAlias = Callable[[str], tuple[str, EnvironmentFacts]]
"""Gives the name that an environment has here, and what is known of it."""


class Facts:
    """The environments that lines name.

    Args:
        manifest: What the run says of itself; None for a bare file.
        facts_of: Is asked once of each environment that the manifest does not tell of.

    """

    def __init__(self, manifest: Manifest | None, facts_of: FactsOf | None) -> None:
        self._manifest = manifest
        self._facts_of = facts_of
        self._known: dict[str, tuple[str, EnvironmentFacts]] = {}

    def named(self, name: str) -> tuple[str, EnvironmentFacts]:
        """Give the name here of an environment that a line names, and what is known of it."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def of(self, env: str) -> EnvironmentFacts:
        """Give what is known of an environment by its name here."""
        facts = (facts for name, facts in self._known.values() if name == env)
        return next(facts, EnvironmentFacts())

    def _found(self, name: str) -> tuple[str, EnvironmentFacts]:
        record = None if self._manifest is None else self._manifest.environments.get(name)
        if record is not None:
            known = EnvironmentFacts(
                max_reward=record.max_reward, pass_threshold=record.pass_threshold
            )
            return name, known
        return (name, EnvironmentFacts()) if self._facts_of is None else self._facts_of(name)
