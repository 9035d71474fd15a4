"""What an index says of one attempt."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

__all__ = ["MAX_ANSWER_CHARACTERS", "OPEN_NAMES", "ROW_NAMES", "Place", "Row", "Status"]

Status = Literal["scored", "waiting", "failed"]
"""`waiting`: the conversation is whole, and has no score yet."""

MAX_ANSWER_CHARACTERS = 200
"""Of a longer answer the beginning is held, and `…`."""


class Place(NamedTuple):
    """Where the line of an attempt is."""

    file: str
    offset: int
    """The first byte."""
    size: int
    """Bytes, without the newline."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as far as lists show it; what it lacks is None."""

    number: int
    """Its place among the rows, from 0; the same until the index is built anew."""
    place: Place
    env: str
    task_id: str
    attempt: int
    status: Status
    reward: float | None
    passed: bool | None
    """None without a reward, or where nothing says from which reward an attempt passes."""
    stop_reason: str | None
    error: str | None
    """The class of the error that left it without a score."""
    phase: str | None
    model: str | None
    num_turns: int
    """Messages of the model after the prompt."""
    num_tool_calls: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost: float | None
    seconds: float | None
    answer: str | None
    components: dict[str, float]
    metrics: dict[str, float]
    avg: float | None
    """The mean reward of the scored attempts of its task; so with `best` and `worst`."""
    best: float | None
    worst: float | None
    num_attempts: int
    """Attempts of its task that are on record."""
    num_passed: int | None
    """Those that passed; None where nothing says from which reward an attempt passes."""


ROW_NAMES = tuple(
    name
    for name in Row.__struct_fields__
    if name not in ("number", "place", "components", "metrics")
)
"""The names of a row that a filter knows and rows can be sorted by."""

OPEN_NAMES = ("components", "metrics", "task", "details")
"""First parts of the dotted names of a filter."""
