"""The index of a run, with the thresholds of environments that are installed here."""

from __future__ import annotations

from pathlib import Path

from gymcli.environment.registry import Registry
from gymcli.errors import EnvironmentImportError, UnknownNameError
from gymcli.metrics.scored_lines import EnvironmentFacts
from gymcli.store.run_index import RunIndex

__all__ = ["index_run"]


def index_run(path: Path, *, env: str | None = None) -> RunIndex:
    """Read a run directory, or a rollout file of ours or of NeMo Gym; close it in the end.

    The reward from which an attempt passes comes from the run's manifest, else from its
    environment; it is unknown for an environment that is not installed here.

    Args:
        path: The directory or file.
        env: The environment of lines that name none.

    Raises:
        UsageError: There is no such run, it is compressed, or a line of it is wrong.

    """
    registry = Registry((env,) if env else ())

    def facts_of(name: str) -> tuple[str, EnvironmentFacts]:
        try:
            found = registry.find(name)
        except (UnknownNameError, EnvironmentImportError):
            if name == env:
                raise
            return name, EnvironmentFacts()
        environment = found.environment
        return found.name, EnvironmentFacts(
            max_reward=environment.max_reward, pass_threshold=environment.pass_threshold
        )

    return RunIndex(path, env, facts_of=facts_of)
