"""The index of a run, with what is known here of its environments."""

from __future__ import annotations

from pathlib import Path

from gymcli.environment.registry import Registry
from gymcli.errors import EnvironmentImportError, UnknownNameError
from gymcli.index import RunIndex, open_index
from gymcli.metrics import EnvironmentFacts

__all__ = ["index_run"]


def index_run(path: Path, *, env: str | None = None) -> RunIndex:
    """Read a run directory, or a rollout file of ours or of NeMo Gym; close it in the end.

    From which reward an attempt passes is what the run's manifest says, else what its environment
    does; of one that is not here it is not known.

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

    return open_index(path, env, facts_of=facts_of)
