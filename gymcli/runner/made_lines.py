"""Scored lines of a run, ours or others', with what says how they were made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from gymcli.metrics import FailureLine, ScoredLine
from gymcli.runner.measure import measured
from gymcli.store.lines import Block, decode_block, iterate_blocks
from gymcli.store.rollout_files import RolloutReading, decode_rollout, without_torn
from gymcli.types import JSON_ERRORS, Rollout

__all__ = ["MadeLine", "ScoredBy", "made_lines"]

_BLOCK_BYTES = 1 << 20
"""Read at a time: some hundred lines, which are counted together."""
_SCORING_ROLES = frozenset({"judge", "reward"})
"""Roles that have no hand in the prompt."""

_NOTHING = msgspec.Raw(b"")


class ScoredBy(msgspec.Struct, frozen=True, order=True, gc=False):
    """A rollout's `verifier`, to be counted."""

    version: str = ""
    source_hash: str = ""


_NOBODY = ScoredBy()


class MadeLine(ScoredLine, kw_only=True, gc=False):
    """A scored line of ours, and how it came to be; what is seldom looked at stays undecoded."""

    schema_version: Annotated[int, msgspec.Meta(ge=1)]
    task_hash: str = ""
    """Empty on rollouts of others: theirs does not tell what is the task from what is not."""
    seed: int = 0
    group_size: int = 0
    env_version: str = ""
    env_options: msgspec.Raw = _NOTHING
    task: msgspec.Raw = _NOTHING
    messages: list[msgspec.Raw] = []
    num_prompt_messages: int = 0
    tools: msgspec.Raw = _NOTHING
    model: str = ""
    sampling: msgspec.Raw = _NOTHING
    verifier: ScoredBy = _NOBODY

    @property
    def prompt_hash(self) -> int:
        """A number for prompt and tools in this process; 0 where a model had a hand in them."""
        if self.role_usage and not _SCORING_ROLES.issuperset(self.role_usage):
            return 0
        prompt = [*map(bytes, self.messages[: self.num_prompt_messages]), bytes(self.tools)]
        return hash(tuple(prompt)) or 1


def made_lines(file: Path, reading: RolloutReading) -> Iterator[list[MadeLine | FailureLine]]:
    """Give the lines of a rollout file, some hundred at a time; they are there until the next.

    Raises:
        UsageError: The file cannot be read, or a line is no rollout with a score.

    """
    decoder = msgspec.json.Decoder(MadeLine)
    for block in iterate_blocks(file, size=_BLOCK_BYTES):
        decoded = decode_block(block, decoder)
        yield list(_one_by_one(block, file, reading, decoder) if decoded is None else decoded)


def _one_by_one(
    block: Block, file: Path, reading: RolloutReading, decoder: msgspec.json.Decoder[MadeLine]
) -> Iterator[MadeLine | FailureLine]:
    for line in without_torn(block.lines(file)):
        try:
            yield decoder.decode(line.data)
        except JSON_ERRORS:
            rollout = decode_rollout(line.number, line.data, reading)
            yield _of_others(rollout, f"{file}:{line.number}")


def _of_others(rollout: Rollout, place: str) -> MadeLine | FailureLine:
    """Give what a rollout of another program says."""
    found = measured(rollout, place)
    if isinstance(found, FailureLine):
        return found
    return MadeLine(
        **msgspec.structs.asdict(found),
        schema_version=rollout.schema_version,
        task=_raw(rollout.task),
        messages=[_raw(message) for message in rollout.messages],
        num_prompt_messages=rollout.num_prompt_messages,
        tools=_raw(rollout.tools),
        model=rollout.model,
        sampling=_raw(rollout.sampling),
    )


def _raw(value: object) -> msgspec.Raw:
    """Encode as the line of a run would have it; what is empty is left out there."""
    return msgspec.Raw(msgspec.json.encode(value)) if value else _NOTHING
