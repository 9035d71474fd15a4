r"""Asks for the next step of an expert: a text, a function call, or several calls at once.

Source: the resources server single_step_tool_use_with_argument_comparison of NVIDIA NeMo Gym 0.7
(Apache-2.0), reimplemented independently. The prompt is the conversation so far. If the model makes
calls, its text does not count. If the expert wrote a text, any text is right. If the expert called
tools, calls are compared by name and by arguments, recursively: values by type (the expert's or a
subtype), objects by their keys, lists by length and order, numbers with a decimal point with a
tolerance of 1e-6, everything else for equality. Texts of two words or more match if the number of
words that they share, in any case and order, divided by the number of words of both together, is at
least `word_count_similarity_threshold`; equal texts reach 0.5. Several calls are paired so that as
many as possible match. By default, calls beyond the expected ones are free. With
`parallel_tool_call_rewarding` the number of calls must be right, or allowed by `allow_subset` or
`allow_superset`, and the reward is `binary_strict`, `fractional` or `f1`. Leniency kept from the
reference: the content of a text is never compared, true is an integer, 1 and 1.0 are different, and
shared words are enough whatever the rest of a text. Differences from the reference:

- `word_count_similarity_threshold` has a default, 0.1, from the reference's configuration of the
  same name. Values above 0.5 are refused; the reference then finds equal texts different.
- A text of only white space is no action.
- Empty arguments count as none. Arguments with NaN, Infinity, numbers out of range or half
  surrogates cannot be read, nor can those nested deeper than 64 levels or longer than 100,000
  characters.
- A row whose expected arguments are not a JSON object is refused; the reference fails on it.

One row (shortened):
{"id": "step-0", "difficulty": "easy", "messages": [{"role": "system", ...}, {"role": "user", ...},
{"role": "assistant", "reasoning": "...", "tool_calls": [...]}, {"role": "tool", ...}], "tools":
[...], "expected_action": {"type": "function_call", "name": "reserve_book", "arguments":
"{\"book_id\":\"B4711\",\"days\":9}"}}
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field, model_validator

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator
from gymcli.envs.xlam_fc import (
    MAX_SHOWN_CHARACTERS,
    ExpectedCall,
    PredictedCall,
    answer_of,
    gold_message,
    maximum_matching,
    predicted_calls,
    shown_calls,
    shown_gold,
)

__all__ = [
    "ExpectedAction",
    "NextStep",
    "Reason",
    "Result",
    "SingleStepToolUse",
    "compared_calls",
]


class ExpectedAction(BaseModel):
    """The expert's action; a single call is read as a batch of one."""

    type: Literal["message", "function_call", "function_call_batch"]
    content: str = ""
    """The expert's text; never compared."""
    calls: list[ExpectedCall] = []

    @model_validator(mode="before")
    @classmethod
    def _with_calls(cls, fields: object) -> object:
        if isinstance(fields, dict) and fields.get("type") == "function_call":
            return {**fields, "calls": [fields]}
        return fields

    @model_validator(mode="after")
    def _is_complete(self) -> ExpectedAction:
        if self.type != "message" and not self.calls:
            raise ValueError("there are no calls")
        return self


class NextStep(Task):
    """The expert's next action."""

    expected_action: ExpectedAction
    """The tool calls, or the message, of the expert."""


class SingleStepToolUse(Environment[NextStep]):
    """Take an expert's next step: call the right tools, or reply with text."""

    properties = Properties(
        "single-step", "tool use", "everyday services", "next action", "argument comparison"
    )
    executes_tools = False
    skipped_checks = {"echo": "where the expert wrote a text, any text is right"}

    class Options(EnvironmentOptions):
        """How calls are compared, and whether their number counts."""

        word_count_similarity_threshold: float = Field(default=0.1, ge=0.0, le=0.5)
        """The minimum similarity of texts of two words or more; equal texts have 0.5."""
        floating_point_comparison_threshold: float = Field(
            default=1e-6, gt=0.0, allow_inf_nan=False
        )
        """Numbers with a decimal point that differ by less are equal."""
        parallel_tool_call_rewarding: bool = False
        """Whether the number of calls counts; the options below apply only if it does."""
        allow_subset: bool = False
        """Whether fewer calls than expected are compared, instead of a reward of 0."""
        allow_superset: bool = False
        """Whether more calls than expected are compared, instead of a reward of 0."""
        parallel_tool_call_reward_mode: Literal["binary_strict", "fractional", "f1"] = (
            "binary_strict"
        )
        """All or nothing, the share of the required calls that match, or the F1 of expected and
        predicted calls."""

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Compare the model's action with the expert's."""
        expected = cls.parse_task(rollout.task).expected_action
        predicted = predicted_calls(rollout)
        result = _compared(expected, predicted, rollout.output_text, cls.options_of(context))
        return Score(
            result.reward,
            answer=answer_of(predicted),
            details={
                "reason": result.reason,
                "expected": expected.content[:MAX_SHOWN_CHARACTERS] or shown_gold(expected.calls),
                "predicted_calls": shown_calls(predicted),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Repeat the expert's step."""
        action = self.task.expected_action
        if action.type == "message":
            return Message(role="assistant", content=action.content)
        message: Message = gold_message(action.calls)
        return message

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write half-finished errands: look things up, then use the ids."""
        yield from load_generator("single_step_tool_use_with_argument_comparison").generate(
            rng, num
        )


def _compared(
    expected: ExpectedAction,
    predicted: list[PredictedCall],
    text: str,
    options: SingleStepToolUse.Options,
) -> Result:
    if not predicted and not text.strip():
        return Result(0.0, "no_answer")
    if expected.type == "message":
        if predicted:
            return Result(0.0, "no_expected_chat_message")
        return Result(1.0, "expected_chat_message_found")
    if not predicted:
        return Result(0.0, "no_expected_tool_call")
    return compared_calls(expected.calls, predicted, options)


Reason = Literal[
    "no_answer",
    "no_expected_tool_call",
    "expected_chat_message_found",
    "no_expected_chat_message",
    "unexpected_tool",
    "arguments_decode_error",
    "argument_value_type_different",
    "argument_object_keys_different",
    "argument_list_length_different",
    "argument_value_different",
    "expected_tool_call",
    "function_call_batch_length_different",
    "expected_tool_call_batch",
]


class Result(NamedTuple):
    """The reward of an action, and the reason."""

    reward: float
    reason: Reason


def compared_calls(
    expected: Sequence[ExpectedCall],
    predicted: Sequence[PredictedCall],
    options: SingleStepToolUse.Options,
) -> Result:
    """Score the calls of the model, at least one, against the expert's."""
    comparison = _Comparison(options)
    if len(expected) == len(predicted) == 1:
        fault = comparison.fault_of_call(expected[0], predicted[0])
        return Result(0.0, fault) if fault else Result(1.0, "expected_tool_call")
    if not _is_admissible(len(expected), len(predicted), options):
        return Result(0.0, "function_call_batch_length_different")
    faults = [[comparison.fault_of_call(e, p) for p in predicted] for e in expected]
    fitting = [[place for place, fault in enumerate(row) if fault is None] for row in faults]
    matched = maximum_matching(fitting)
    reward = _reward(len(matched), len(expected), len(predicted), options)
    if reward == 1.0:
        found_one = len(expected) == 1
        return Result(1.0, "expected_tool_call" if found_one else "expected_tool_call_batch")
    unmatched = [row for place, row in enumerate(faults) if place not in matched]
    if not unmatched or len(matched) == len(predicted):
        return Result(reward, "function_call_batch_length_different")
    return Result(reward, _nearest_fault(unmatched[0]))


def _is_admissible(
    num_expected: int, num_predicted: int, options: SingleStepToolUse.Options
) -> bool:
    if not options.parallel_tool_call_rewarding or num_predicted == num_expected:
        return True
    return options.allow_subset if num_predicted < num_expected else options.allow_superset


def _reward(
    num_matched: int, num_expected: int, num_predicted: int, options: SingleStepToolUse.Options
) -> float:
    if not options.parallel_tool_call_rewarding:
        return float(num_matched == num_expected)
    if options.parallel_tool_call_reward_mode == "f1":
        return 2 * num_matched / (num_expected + num_predicted)
    # With `allow_subset`, all calls of a shorter batch must match; with `allow_superset`, all
    # expected ones.
    num_required = min(num_expected, num_predicted)
    if options.parallel_tool_call_reward_mode == "fractional":
        return num_matched / num_required
    return float(num_matched == num_required)


def _nearest_fault(faults: Sequence[Reason | None]) -> Reason:
    """Return the first fault of a call to the right tool, if there is such a call."""
    near = (fault for fault in faults if fault not in (None, "unexpected_tool"))
    return next(near, None) or "unexpected_tool"


class _Comparison:
    """Compares values; counts the words of each text only once."""

    def __init__(self, options: SingleStepToolUse.Options) -> None:
        self._options = options
        self._words = functools.cache(_counted_words)

    def fault_of_call(self, expected: ExpectedCall, predicted: PredictedCall) -> Reason | None:
        """Return the fault of a call; None if it matches."""
        if predicted.name != expected.name:
            return "unexpected_tool"
        if not predicted.is_json:
            return "arguments_decode_error"
        return self._fault(expected.arguments, predicted.arguments)

    def _fault(self, expected: object, actual: object) -> Reason | None:
        """Compare recursively; `read` has refused arguments nested deeper than 64 levels."""
        # As in the reference: bool is a subtype of int, so true passes for 1, but 1.0 does not.
        if not isinstance(actual, type(expected)):
            return "argument_value_type_different"
        if isinstance(expected, dict) and isinstance(actual, dict):
            if expected.keys() != actual.keys():
                return "argument_object_keys_different"
            return self._first_fault([(expected[key], actual[key]) for key in expected])
        if isinstance(expected, list) and isinstance(actual, list):
            if len(expected) != len(actual):
                return "argument_list_length_different"
            return self._first_fault(list(zip(expected, actual, strict=True)))
        return None if self._is_alike(expected, actual) else "argument_value_different"

    def _first_fault(self, pairs: Sequence[tuple[object, object]]) -> Reason | None:
        faults = (self._fault(expected, actual) for expected, actual in pairs)
        return next((fault for fault in faults if fault is not None), None)

    def _is_alike(self, expected: object, actual: object) -> bool:
        if isinstance(expected, float) and isinstance(actual, float):
            return abs(actual - expected) < self._options.floating_point_comparison_threshold
        if isinstance(expected, str) and isinstance(actual, str):
            return self._are_texts_alike(expected, actual)
        return expected == actual

    def _are_texts_alike(self, expected: str, actual: str) -> bool:
        words, found = self._words(expected), self._words(actual)
        num_words, num_found = words.total(), found.total()
        # As in the reference, single words, such as ids, must be equal.
        if num_words < 2 or num_found < 2:
            return expected == actual
        num_shared = sum(min(count, words[word]) for word, count in found.items())
        # Over the words of both texts, not of one, as in the reference: equal texts have 0.5.
        similarity = num_shared / (num_words + num_found)
        return similarity >= self._options.word_count_similarity_threshold


def _counted_words(text: str) -> Counter[str]:
    return Counter(text.lower().split())
