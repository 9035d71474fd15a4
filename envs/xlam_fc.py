"""Asks for a set of function calls, which the model makes in one message and in any order.

Source: the resources server xlam_fc of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. Each expected call must match a different call of the model, of the same tool and
with every expected argument equal; the reward is 1 if all do and no call is left over. Without
expected calls it is 1 if the model makes none; such rows are scored but not generated, because an
empty answer would be right. Leniency kept from the reference: additional arguments are free, values
are compared as Python does (1, 1.0 and true are equal), and text next to the calls does not count.
Differences from the reference:

- Calls are paired so that as many as possible match. The reference takes the first match for each
  expected call, and so may reward a right set of calls in one order and not in another.
- Arguments that are not a JSON object match nothing; the reference takes them for none. An empty
  text counts as no arguments. NaN, Infinity, numbers out of range and half surrogates are not JSON
  here, nor is text nested deeper than 64 levels or longer than 100,000 characters.
- The calls end the episode. The reference's driver runs them, finds no such tools, and lets the
  model try again.
- A row may also write arguments as JSON text, and null for none; a row whose arguments cannot be
  read is refused.

One row (its tools left out):
{"id": "calls-1", "difficulty": "medium", "messages": [{"role": "system", "content": "..."},
{"role": "user", "content": "Please do all of this: ..."}], "tools": [...], "expected_answers":
[{"name": "water_bed", "arguments": {"bed": "bean", "minutes": 12}}, ...]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, NamedTuple

import msgspec
from pydantic import BaseModel, BeforeValidator

from gymcli import (
    Context,
    Environment,
    FunctionCall,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    ToolCall,
)
from gymcli.envs import load_generator
from gymcli.envs.structured_outputs.formats import UnreadableError, read

__all__ = [
    "CallSet",
    "ExpectedCall",
    "PredictedCall",
    "XlamFunctionCalls",
    "answer_of",
    "gold_message",
    "has_arguments",
    "maximum_matching",
    "predicted_calls",
    "shown_calls",
    "shown_gold",
]


def _object(arguments: object) -> object:
    """Read arguments that a row has as JSON text; null or an empty text means none."""
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


class CallSet(Task):
    """The calls that a request asks for."""

    expected_answers: list[ExpectedCall] = []
    """The calls; an empty list: no tool fits the request."""


class XlamFunctionCalls(Environment[CallSet]):
    """Make every function call that a request asks for, and no others."""

    properties = Properties(
        "single-step", "tool use", "everyday services", "function calling", "exact match"
    )
    executes_tools = False

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if expected and predicted calls match one to one."""
        expected = cls.parse_task(rollout.task).expected_answers
        predicted = predicted_calls(rollout)
        fitting = [
            [place for place, call in enumerate(predicted) if has_arguments(call, wanted)]
            for wanted in expected
        ]
        num_correct = len(maximum_matching(fitting))
        reason = _reason(len(expected), len(predicted), num_correct)
        return Score(
            float(reason in ("correct", "correctly_no_call")),
            metrics={
                "num_expected": float(len(expected)),
                "num_predicted": float(len(predicted)),
                "num_correct": float(num_correct),
            },
            answer=answer_of(predicted),
            details={
                "reason": reason,
                "expected": shown_gold(expected),
                "predicted_calls": shown_calls(predicted),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Make the expected calls, or answer that there are none."""
        if not self.task.expected_answers:
            return Message(role="assistant", content="None of these tools can do that.")
        return gold_message(self.task.expected_answers)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write requests for one call, for two of a tool, and for up to four of several tools."""
        yield from load_generator("xlam_fc").generate(rng, num)


def _reason(num_expected: int, num_predicted: int, num_correct: int) -> str:
    if num_predicted == num_expected == num_correct:
        return "correct" if num_expected else "correctly_no_call"
    if not num_predicted:
        return "no_call"
    if num_correct == num_expected:
        return "surplus_calls"
    return "missing_calls" if num_correct == num_predicted else "wrong_calls"


MAX_SHOWN_CALLS, MAX_SHOWN_CHARACTERS = 20, 500
"""The number of calls that `Score.details` keeps, and the length of their texts."""
MAX_ANSWER_CHARACTERS = 2_000


class PredictedCall(NamedTuple):
    """A call that the model made."""

    name: str
    arguments: JSONObject | None
    """None if the text is not a JSON object."""
    is_json: bool
    """Whether the argument text is JSON, of any type."""
    text: str
    """The argument text as the model wrote it."""


def predicted_calls(rollout: Rollout) -> list[PredictedCall]:
    """Return the calls of a record with decoded arguments.

    An empty text counts as no arguments, because several endpoints write it so. If a key occurs
    twice, the last one counts. NaN, Infinity, numbers out of range, half surrogates, texts of more
    than 100,000 characters and those nested deeper than 64 levels are not JSON here. An object that
    is encoded twice is a string, and so not an object.
    """
    return [_predicted(call) for call in rollout.tool_calls]


def _predicted(call: ToolCall) -> PredictedCall:
    # Half a surrogate pair cannot be encoded in the record.
    name, text = (part.encode(errors="replace").decode() for part in (call.name, call.arguments))
    try:
        value = read("json", call.arguments.strip() or "{}")
    except UnreadableError:
        return PredictedCall(name, None, is_json=False, text=text)
    arguments = value if isinstance(value, dict) else None
    return PredictedCall(name, arguments, is_json=True, text=text)


def has_arguments(predicted: PredictedCall, expected: ExpectedCall) -> bool:
    """Return whether a call is of the expected tool and has every expected argument."""
    # As in the reference: other arguments are free, and 1, 1.0 and True are equal.
    found = predicted.arguments
    return (
        predicted.name == expected.name
        and found is not None
        and all(key in found and found[key] == value for key, value in expected.arguments.items())
    )


def maximum_matching(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """Pair as many left places as possible with one right place each; return right by left.

    Kuhn's algorithm (1955, "The Hungarian method for the assignment problem"): each pair takes time
    linear in the number of candidates.

    Args:
        candidates: For each left place, the right places that it may be paired with.

    """
    right_of: dict[int, int] = {}
    left_of: dict[int, int] = {}
    # Right places from which no free one can be reached; later pairs do not change that.
    exhausted: set[int] = set()
    for start in range(len(candidates)):
        reached_from: dict[int, int] = {}
        free = _free_place(start, candidates, left_of, exhausted, reached_from)
        if free is None:
            exhausted |= reached_from.keys()
        # Walk back along the path, moving each left place to the right place that it reached.
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
    """Find a free right place along pairs that can move; record where each was reached from."""
    # Breadth-first: recursion, one level per pair, could overflow with hundreds of calls.
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
    """Return calls as text that does not depend on their order, or None if there are none."""
    texts = [
        msgspec.json.encode(
            [call.name, call.text if call.arguments is None else call.arguments], order="sorted"
        ).decode()
        for call in calls
    ]
    return f"[{','.join(sorted(texts))}]"[:MAX_ANSWER_CHARACTERS] if texts else None


def shown_calls(calls: Sequence[PredictedCall]) -> list[JSONObject]:
    """Return the first calls for `Score.details`, with long texts cut."""
    return [
        {
            "name": call.name[:MAX_SHOWN_CHARACTERS],
            "arguments": call.text[:MAX_SHOWN_CHARACTERS],
        }
        for call in calls[:MAX_SHOWN_CALLS]
    ]


def shown_gold(calls: Sequence[ExpectedCall]) -> list[JSONObject]:
    """Return the expected calls as `shown_calls` returns those of the model."""
    return shown_calls([_predicted(call) for call in gold_message(calls).tool_calls])


def gold_message(calls: Sequence[ExpectedCall]) -> Message:
    """Return a message with the expected calls, whose ids occur in no history."""
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
