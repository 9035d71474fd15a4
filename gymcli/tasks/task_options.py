"""Which tasks a run has, and how rows become tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gymcli.store.shards import Shard


def _canonical_shard(text: str | None) -> str | None:
    return None if text is None else str(Shard.parse(text))


class TaskOptions(BaseModel):
    """The options that decide which tasks are read, and in which order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str | None = None
    """The environment of rows that do not name one."""
    env_args: dict[str, str] = {}
    """Options of environments: `key` or `env.key`."""
    prompt: Path | None = None
    """A YAML file with templates for raw rows."""
    map_file: Path | None = None
    """For the files that are named by a path; without it, that of a CSV or Parquet file is inferred
    from its columns."""
    repeats: Annotated[int, Field(ge=1)] = 1
    limit: Annotated[int | None, Field(ge=1)] = None
    """Counted after `shuffle`."""
    task_ids: list[str] | None = None
    shuffle: bool = False
    """The order depends on the seed only."""
    shard: Annotated[str | None, AfterValidator(_canonical_shard)] = None
    """A part of the tasks that the other options select."""
    seed: int | None = None
    """Seeds environments and requests; None seeds environments with 0 and requests not at all."""
    id_field: str | None = None
    """Replaces `task_id`, `id` and `uuid`."""
    id_by_file: bool = False
