r"""Asks for the next step of an expert: a text, a function call, or several calls at once.

Source: the resources server single_step_tool_use_with_argument_comparison of NVIDIA NeMo Gym
(Apache-2.0), its rules written anew. The conversation so far is the prompt; calls count before
text. Where the expert wrote a text, any text is right. Where the expert called tools, calls are
compared by name and by arguments, recursively: the type of each value (that of the expert's or a
subtype), the keys of objects, the length and order of lists, numbers with a decimal point up to
1e-6, all else exactly. Texts of two words or more are alike where the words that they share
(whatever their case and order) are at least `word_count_similarity_threshold` of both their
numbers of words together, which is 0.5 for equal ones. Of several calls the largest pairing
counts. By default calls beyond the expected ones are free; with `parallel_tool_call_rewarding`
their number has to be right, or is admitted by `allow_subset` and `allow_superset`, and the
reward is one of `binary_strict`, `fractional` and `f1`. Looseness that is kept: what a text says
is never looked at, true is an integer, 1 and 1.0 are different, and shared words are enough
whatever they say. Where this differs:

- `word_count_similarity_threshold` has a default, 0.1, the value of the reference's configuration
  of the same name, and is refused above 0.5, where the reference takes equal texts for different.
- A text of white space alone is no action.
- An empty argument text counts as no arguments. NaN, Infinity, numbers out of range, half
  surrogates, arguments nested deeper than 64 levels and those of more than 100,000 characters are
  not read.
- A row whose expected arguments are no JSON object is refused; the reference fails at it.

One row (shortened):
{"id": "step-0", "difficulty": "easy", "messages": [{"role": "system", ...}, {"role": "user", ...},
{"role": "assistant", "reasoning": "...", "tool_calls": [...]}, {"role": "tool", ...}], "tools":
[...], "expected_action": {"type": "function_call", "name": "reserve_book", "arguments":
"{\"book_id\":\"B4711\",\"days\":9}"}}
"""

from collections.abc import Iterator
from random import Random
from typing import Literal

from pydantic import BaseModel, model_validator

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task
from gymcli.envs.xlam_fc import (
    ExpectedCall,
    PredictedCall,
    answer_of,
    gold_message,
    predicted_calls,
    shown_calls,
)

from .comparison import ComparisonOptions, Result, compared_calls
from .histories import rows

__all__ = ["ExpectedAction", "NextStep", "SingleStepToolUse"]


class ExpectedAction(BaseModel):
    """What the expert did; a single call is read as a batch of one."""

    type: Literal["message", "function_call", "function_call_batch"]
    content: str = ""
    """What the expert wrote; never compared."""
    calls: list[ExpectedCall] = []

    @model_validator(mode="before")
    @classmethod
    def _with_calls(cls, fields: object) -> object:
        if isinstance(fields, dict) and fields.get("type") == "function_call":
            return {**fields, "calls": [fields]}
        return fields

    @model_validator(mode="after")
    def _is_complete(self) -> "ExpectedAction":
        if self.type != "message" and not self.calls:
            raise ValueError("there are no calls")
        return self


class NextStep(Task):
    """What the expert did at the end of the conversation."""

    expected_action: ExpectedAction


class SingleStepToolUse(Environment[NextStep]):
    """Do what an expert would do next: call the right tools, or say something."""

    properties = Properties(
        "single-step", "tool use", "everyday services", "next action", "argument comparison"
    )
    executes_tools = False
    skipped_checks = {"echo": "where the expert wrote a text, any text is right"}

    Options = ComparisonOptions  # type: ignore[assignment]  # a class from another module

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Compare the model's action with the expert's."""
        assert isinstance(context.options, ComparisonOptions)
        expected = cls.parse_task(rollout.task).expected_action
        predicted = predicted_calls(rollout)
        result = _compared(expected, predicted, rollout.output_text, context.options)
        return Score(
            result.reward,
            answer=answer_of(predicted),
            details={"reason": result.reason, "predicted_calls": shown_calls(predicted)},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Do what the expert did."""
        action = self.task.expected_action
        if action.type == "message":
            return Message(role="assistant", content=action.content)
        message: Message = gold_message(action.calls)
        return message

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write errands that are partly done: look things up, then use the ids."""
        return rows(rng, num)


def _compared(
    expected: ExpectedAction,
    predicted: list[PredictedCall],
    text: str,
    options: ComparisonOptions,
) -> Result:
    if not predicted and not text.strip():
        return Result(0.0, "no_action_found")
    if expected.type == "message":
        if predicted:
            return Result(0.0, "no_expected_chat_message")
        return Result(1.0, "expected_chat_message_found")
    if not predicted:
        return Result(0.0, "no_expected_tool_call")
    return compared_calls(expected.calls, predicted, options)
