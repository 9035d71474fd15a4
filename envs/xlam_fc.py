"""Asks for a set of function calls, which the model makes in one message and in any order.

Source: the resources server xlam_fc of NVIDIA NeMo Gym (Apache-2.0), reimplemented independently.
Each expected call has to find a call of its own, of the same tool and with every expected argument
equal; the reward is 1 where all do and no call is left over. Without expected calls it is 1 where
none is made; such rows are scored, but not generated, since silence would be right. Leniency kept
from the reference: other arguments than the expected ones are free, values are compared as Python
does (1, 1.0 and true are equal), and text beside the calls is not looked at. Differences from the
reference:

- Calls are paired so that as many as possible fit. The reference gives each expected call the first
  that fits, and so may reward a right set of calls in one order and not in another.
- Arguments that are no JSON object fit nothing; the reference takes them for none at all. An empty
  text counts as no arguments. NaN, Infinity, numbers out of range and half surrogates are no JSON,
  and neither is what is nested deeper than 64 levels or has more than 100,000 characters.
- The calls end the episode. The reference's driver runs them, finds no such tools, and lets the
  model try again.
- A row may write arguments as JSON text too, and null where there are none; one whose arguments
  cannot be read is refused.

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
]


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


class CallSet(Task):
    """The calls that a request asks for."""

    expected_answers: list[ExpectedCall] = []


class XlamFunctionCalls(Environment[CallSet]):
    """Make every function call that a request asks for, and no others."""

    properties = Properties(
        "single-step", "tool use", "everyday services", "function calling", "exact match"
    )
    executes_tools = False

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if expected and predicted calls fit one to one."""
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
            details={"reason": reason, "predicted_calls": shown_calls(predicted)},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Make the expected calls; where there are none, say so."""
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
"""What is kept of the model's calls in `Score.details`."""
MAX_ANSWER_CHARACTERS = 2_000


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
    """Return the calls of a record, their arguments read.

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
    """Return whether a call is of the expected tool and has every expected argument.

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
    """Return calls as text that is the same whatever their order, or None where there are none."""
    texts = [
        msgspec.json.encode(
            [call.name, call.text if call.arguments is None else call.arguments], order="sorted"
        ).decode()
        for call in calls
    ]
    return f"[{','.join(sorted(texts))}]"[:MAX_ANSWER_CHARACTERS] if texts else None


def shown_calls(calls: Sequence[PredictedCall]) -> list[JSONObject]:
    """Return the first calls for `Score.details`, long texts cut."""
    return [
        {
            "name": call.name[:MAX_SHOWN_CHARACTERS],
            "arguments": call.text[:MAX_SHOWN_CHARACTERS],
        }
        for call in calls[:MAX_SHOWN_CALLS]
    ]


def gold_message(calls: Sequence[ExpectedCall]) -> Message:
    """Return the message that makes the expected calls, with ids that no history has."""
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
