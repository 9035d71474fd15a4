"""Asks for one function call, and rewards what is right about it by three separate components.

Source: the resources server example_tool_call_multireward of NVIDIA NeMo Gym (Apache-2.0),
reimplemented independently, for training on several objectives as in GDPO (arXiv:2601.05242). The
reward is the sum of three components, each 0 or 1: `correctness`, any call is of the expected tool
and has every expected argument equal; `schema_valid`, the first call's arguments are an object with
all that its tool requires; `format`, there is one call and no text. Leniency kept from the
reference: arguments beyond the expected ones are free, 1, 1.0 and true are equal, and of a schema
nothing but the names in its outermost `required` counts. Differences from the reference:

- The calls end the episode. The reference's driver runs them and asks for a final message, so that
  `format` is always 0 there.
- A tool that the row does not declare makes no valid call; the reference requires nothing of it.
- Arguments that are no JSON object are never correct, and an argument that is expected to be null
  has to be there; the reference takes both for absent. What counts as JSON is told in xlam_fc.
- Text of white space alone, which several endpoints put before a call, is no text.
- A row without an expected call is refused; the reference lets nothing be correct there.

One row (its tools left out):
{"id": "call-0", "difficulty": "easy", "messages": [{"role": "system", "content": "..."},
{"role": "user", "content": "Please buy 250 grams of oats."}], "tools": [...],
"expected_call": {"name": "buy_ingredient", "arguments": {"item": "oats", "grams": 250}}}
"""

from collections.abc import Iterator
from random import Random

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator

from .xlam_fc import (
    ExpectedCall,
    PredictedCall,
    answer_of,
    gold_message,
    has_arguments,
    predicted_calls,
    shown_calls,
)

__all__ = ["ExampleToolCallMultireward", "SingleCall"]


class SingleCall(Task):
    """The call that a request asks for."""

    expected_call: ExpectedCall


class ExampleToolCallMultireward(Environment[SingleCall]):
    """Make the one function call that a request asks for, and say nothing."""

    properties = Properties(
        "single-step", "tool use", "everyday services", "function calling", "three components"
    )
    max_reward = 3.0
    executes_tools = False
    skipped_checks = {"guessing": "a single call has the component `format`, whatever it calls"}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the sum of the three components."""
        expected = cls.parse_task(rollout.task).expected_call
        predicted = predicted_calls(rollout)
        is_valid = bool(predicted) and _has_required(predicted[0], rollout.tools)
        components = {
            "correctness": float(any(has_arguments(call, expected) for call in predicted)),
            "schema_valid": float(is_valid),
            "format": float(len(predicted) == 1 and not rollout.output_text.strip()),
        }
        missed = [FAULTS[name] for name, value in components.items() if not value]
        reason = "correct" if not missed else missed[0] if predicted else "no_call"
        return Score(
            sum(components.values()),
            components=components,
            answer=answer_of(predicted),
            details={"reason": reason, "predicted_calls": shown_calls(predicted)},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Make the expected call."""
        message: Message = gold_message([self.task.expected_call])
        return message

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write requests for one tool of one, of four, and of nine with its closest neighbours."""
        yield from load_generator("example_tool_call_multireward").generate(rng, num)


def _has_required(call: PredictedCall, tools: list[JSONObject]) -> bool:
    """Return whether a call is of a declared tool and has every argument that this one requires."""
    functions = [tool.get("function") for tool in tools]
    declared = [f for f in functions if isinstance(f, dict) and f.get("name") == call.name]
    if not declared or call.arguments is None:
        return False
    schema = declared[0].get("parameters")
    required = schema.get("required") if isinstance(schema, dict) else None
    names = required if isinstance(required, list) else []
    return all(name in call.arguments for name in names if isinstance(name, str))


FAULTS = {
    "correctness": "wrong_call",
    "schema_valid": "missing_arguments",
    "format": "not_one_call_alone",
}
"""What is said of the first component that is 0."""
