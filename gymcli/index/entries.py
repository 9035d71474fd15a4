"""A line of a run as far as the index needs it: everything else of it stays undecoded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from gymcli.errors import RunFileError
from gymcli.index.following import PlacedLine
from gymcli.index.rows import Status
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    WAYS_OUT,
    RolloutReading,
    decode_rollout,
)
from gymcli.types import JSON_ERRORS, ErrorRecord, Rollout, Timing, Usage

__all__ = ["Entry", "read_entry"]

_MAX_ATTEMPT = 1_000_000
"""A number beyond this is damage."""
_OURS_ALONE = (FAILURES, GENERATIONS)
"""Files that no other program writes."""


class _Call(msgspec.Struct, gc=False):
    """A tool call, of which there is one."""


class _Spoken(msgspec.Struct, gc=False):
    """A message, as far as it is counted."""

    role: str
    tool_calls: list[_Call] = []


class Entry(msgspec.Struct, kw_only=True):
    """A line of rollouts.jsonl, generations.jsonl or failures.jsonl."""

    schema_version: int = 0
    """0 for a rollout of another program."""
    env: str = ""
    task_id: str = ""
    attempt: Annotated[int, msgspec.Meta(ge=-1, le=_MAX_ATTEMPT)] = -1
    messages: list[_Spoken] = []
    num_prompt_messages: int = 0
    model: str = ""
    stop_reason: str | None = None
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: float | None = None
    timing: Timing = msgspec.field(default_factory=Timing)
    reward: float | None = None
    components: dict[str, float] = {}
    metrics: dict[str, float] = {}
    answer: str | None = None
    error: ErrorRecord | None = None

    @property
    def status(self) -> Status:
        """What became of the attempt."""
        if self.error is not None:
            return "failed"
        return "waiting" if self.reward is None else "scored"

    @property
    def num_turns(self) -> int:
        """Messages of the model after the prompt."""
        return sum([m.role == "assistant" for m in self.messages[self.num_prompt_messages :]])

    @property
    def num_tool_calls(self) -> int:
        """Tool calls after the prompt."""
        return sum([len(m.tool_calls) for m in self.messages[self.num_prompt_messages :]])


_DECODER = msgspec.json.Decoder(Entry)


def read_entry(line: PlacedLine, reading: RolloutReading) -> Entry:
    """Read a line of ours, or a rollout of NeMo Gym's.

    Raises:
        RunFileError: It is neither; the message names file, line and reason.

    """
    try:
        entry = _DECODER.decode(line.data)
    except JSON_ERRORS as error:
        _check_other(line, reading, error)
        entry = Entry()
    if entry.schema_version and entry.env and entry.task_id and entry.attempt >= 0:
        return entry
    if entry.error is not None and entry.task_id and Path(reading.path).name == FAILURES:
        return msgspec.structs.replace(entry, attempt=max(entry.attempt, 0))
    return _of_rollout(decode_rollout(line.number, line.data, reading), line, reading)


def _check_other(line: PlacedLine, reading: RolloutReading, error: Exception) -> None:
    """Refuse a line that is not of this shape where no other program writes any."""
    name = Path(reading.path).name
    if name in _OURS_ALONE:
        text = f"{reading.path}:{line.number}: is damaged: {error}; {WAYS_OUT[name]}"
        raise RunFileError(text) from error


def _of_rollout(rollout: Rollout, line: PlacedLine, reading: RolloutReading) -> Entry:
    """Give the entry of a rollout of others; where their verifier failed it failed."""
    if rollout.attempt > _MAX_ATTEMPT:
        place = f"{reading.path}:{line.number}"
        raise RunFileError(f"{place}: attempt {rollout.attempt} is more than {_MAX_ATTEMPT}")
    reason = rollout.details.get("reason")
    error = None
    if rollout.reward is None and isinstance(reason, str):
        error = ErrorRecord(error_class=reason, phase="verify")
    return Entry(
        schema_version=0,
        env=rollout.env,
        task_id=rollout.task_id,
        attempt=rollout.attempt,
        messages=[_Spoken(m.role, [_Call() for _ in m.tool_calls]) for m in rollout.messages],
        num_prompt_messages=rollout.num_prompt_messages,
        model=rollout.model,
        stop_reason=rollout.stop_reason,
        usage=rollout.usage,
        reward=rollout.reward,
        components=rollout.components,
        answer=rollout.answer,
        error=error,
    )
