"""Reads the tool calls that a row expects and those that a model made, and pairs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from pydantic import BaseModel, BeforeValidator

from gymcli import FunctionCall, JSONObject, Message, Rollout, ToolCall
from gymcli.envs.structured_outputs.formats import UnreadableError, read

__all__ = [
    "ExpectedCall",
    "PredictedCall",
    "answer_of",
    "gold_message",
    "has_arguments",
    "maximum_matching",
    "predicted_calls",
    "shown_calls",
]

MAX_SHOWN_CALLS, MAX_SHOWN_CHARACTERS = 20, 500
"""What is kept of the model's calls in `Score.details`."""
MAX_ANSWER_CHARACTERS = 2_000


def _object(arguments: object) -> object:
    """Read arguments that a row writes as JSON text; null or an empty text says none."""
    if arguments is None:
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        return read("json", arguments.strip() or "{}")
    except UnreadableError as error:
        raise ValueError(f"the arguments are not JSON: {error}") from error


class ExpectedCall(BaseModel):
    """A call that a row expects."""

    name: str
    arguments: Annotated[dict[str, object], BeforeValidator(_object)] = {}
    """An object, its JSON text, or null."""


class PredictedCall(NamedTuple):
    """A call that the model made."""

    name: str
    arguments: JSONObject | None
    """None where the text is no JSON object."""
    is_json: bool
    """The argument text is JSON, whatever it says."""
    text: str
    """The argument text as the model wrote it."""


def predicted_calls(rollout: Rollout) -> list[PredictedCall]:
    """Give the calls of a record, their arguments read.

    An empty text counts as no arguments, as several endpoints write it, and of a key that stands
    twice the last one counts. Not read are NaN, Infinity, numbers out of range, half surrogates,
    texts beyond 100,000 characters, and what is nested deeper than 64 levels. An object that is
    encoded twice is a string, and so is no object.
    """
    return [_predicted(call) for call in rollout.tool_calls]


def _predicted(call: ToolCall) -> PredictedCall:
    # Half a surrogate pair could not be written down with the score.
    name, text = (part.encode(errors="replace").decode() for part in (call.name, call.arguments))
    try:
        value = read("json", call.arguments.strip() or "{}")
    except UnreadableError:
        return PredictedCall(name, None, is_json=False, text=text)
    arguments = value if isinstance(value, dict) else None
    return PredictedCall(name, arguments, is_json=True, text=text)


def has_arguments(predicted: PredictedCall, expected: ExpectedCall) -> bool:
    """Say whether a call is of the expected tool and has every expected argument.

    Other arguments are free. Values are compared as Python does, for which 1, 1.0 and True are
    equal.
    """
    found = predicted.arguments
    return (
        predicted.name == expected.name
        and found is not None
        and all(key in found and found[key] == value for key, value in expected.arguments.items())
    )


def maximum_matching(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """Pair as many left places as can be with one right place each, and give right by left.

    Kuhn's algorithm (1955, "The Hungarian method for the assignment problem"), in time linear in
    the number of candidates for each pair, without recursion.

    Args:
        candidates: For each left place the right places that it may be paired with.

    """
    right_of: dict[int, int] = {}
    left_of: dict[int, int] = {}
    # No free place can be reached from these, and no later pair changes that.
    exhausted: set[int] = set()
    for start in range(len(candidates)):
        reached_from: dict[int, int] = {}
        free = _free_place(start, candidates, left_of, exhausted, reached_from)
        if free is None:
            exhausted |= reached_from.keys()
        while free is not None:
            left = reached_from[free]
            left_of[free] = left
            freed = right_of.get(left)
            right_of[left], free = free, freed
    return right_of


def _free_place(
    start: int,
    candidates: Sequence[Sequence[int]],
    left_of: Mapping[int, int],
    exhausted: set[int],
    reached_from: dict[int, int],
) -> int | None:
    """Find a free right place by way of pairs that can move; note from where each was reached."""
    queue = [start]
    for left in queue:
        for right in candidates[left]:
            if right in exhausted or right in reached_from:
                continue
            reached_from[right] = left
            if right not in left_of:
                return right
            queue.append(left_of[right])
    return None


def answer_of(calls: Sequence[PredictedCall]) -> str | None:
    """Give calls as text that is the same whatever their order, or None where there are none."""
    texts = [
        msgspec.json.encode(
            [call.name, call.text if call.arguments is None else call.arguments], order="sorted"
        ).decode()
        for call in calls
    ]
    return f"[{','.join(sorted(texts))}]"[:MAX_ANSWER_CHARACTERS] if texts else None


def shown_calls(calls: Sequence[PredictedCall]) -> list[JSONObject]:
    """Give the first calls for `Score.details`, long texts cut."""
    return [
        {
            "name": call.name[:MAX_SHOWN_CHARACTERS],
            "arguments": call.text[:MAX_SHOWN_CHARACTERS],
        }
        for call in calls[:MAX_SHOWN_CALLS]
    ]


def gold_message(calls: Sequence[ExpectedCall]) -> Message:
    """Give the message that makes the expected calls, with ids that no history has."""
    return Message(
        role="assistant",
        tool_calls=[
            ToolCall(
                id=f"gold_{number}",
                function=FunctionCall(call.name, msgspec.json.encode(call.arguments).decode()),
            )
            for number, call in enumerate(calls)
        ],
    )
