"""The flat columns of tables: a row for every attempt, scored or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from gymcli.data.source import Attempt, Source
from gymcli.index import ROW_NAMES
from gymcli.types import Failure, Message, Rollout

__all__ = ["COLUMNS", "JSON_COLUMNS", "Kind", "columns_of", "json_values_of", "values_of"]

Kind = Literal["text", "count", "number", "truth"]

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("num_turns", "num_tool_calls", "num_attempts", "num_passed"), "count"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "attempt"), "count"),
    **dict.fromkeys(("reward", "cost", "seconds", "avg", "best", "worst"), "number"),
    "passed": "truth",
}

COLUMNS: Mapping[str, Kind] = {
    "run": "text",
    **{name: _KINDS.get(name, "text") for name in ROW_NAMES},
    "last_text": "text",
}
"""What every table has; then come `components.NAME` and `metrics.NAME`."""

JSON_COLUMNS = ("messages", "tools", "task", "details")
"""What a Parquet file has besides, as JSON text: its readers skip what is not asked for."""


def columns_of(source: Source) -> dict[str, Kind]:
    """Give the columns of a table: of named numbers those that a run has."""
    for run, _ in source.runs:
        if run.has_more_names:
            source.warnings.append(
                f"{run.path}: has more components and metrics than columns are made of; "
                f"those of {len(run.named_numbers)} names are in the table"
            )
    named = {name: None for run, _ in source.runs for name in run.named_numbers}
    return {**COLUMNS, **dict.fromkeys(sorted(named), "number")}


def values_of(attempt: Attempt, columns: Mapping[str, Kind]) -> dict[str, object]:
    """Give the values of an attempt by column; None for what it lacks."""
    row, record = attempt.row, attempt.record
    values: dict[str, object] = {name: getattr(row, name) for name in ROW_NAMES}
    values["run"] = str(attempt.run.path)
    values["last_text"] = _last_text(record.messages)
    if isinstance(record, Rollout):
        values["answer"] = record.answer
    named = dict(_named(record))
    return {name: values[name] if name in values else named.get(name) for name in columns}


def json_values_of(attempt: Attempt) -> dict[str, object]:
    """Give the values of `JSON_COLUMNS`."""
    record = attempt.record
    found: dict[str, object] = {"messages": record.messages}
    if isinstance(record, Rollout):
        found |= {"tools": record.tools, "task": record.task, "details": record.details}
    return {
        name: msgspec.json.encode(found[name]).decode() if found.get(name) else None
        for name in JSON_COLUMNS
    }


def _named(record: Rollout | Failure) -> Iterator[tuple[str, float]]:
    if isinstance(record, Rollout):
        for kind, numbers in (("components", record.components), ("metrics", record.metrics)):
            for name, number in numbers.items():
                yield f"{kind}.{name}", number


def _last_text(messages: list[Message]) -> str | None:
    said = (message.text for message in reversed(messages) if message.role == "assistant")
    return next(said, None)
