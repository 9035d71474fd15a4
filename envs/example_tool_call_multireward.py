"""Asks for one function call and rewards it by three separate components.

Source: the resources server example_tool_call_multireward of NVIDIA NeMo Gym 0.7 (Apache-2.0),
reimplemented independently, for training on several objectives as in GDPO (arXiv:2601.05242). The
reward is the sum of three components, each 0 or 1: `correctness`, if any call is of the expected
tool with every expected argument; `schema_valid`, if the first call's arguments are an object with
all arguments that its tool requires; `format`, if there is one call and no text. Leniency kept from
the reference: further arguments are allowed; 1, 1.0 and true are equal; and only the names in the
outermost `required` of a schema count. Differences from the reference:

- The calls end the episode. The reference's driver runs them and asks for a final message, so that
  `format` is always 0 there.
- A call of a tool that the row does not declare is never valid; the reference requires no argument
  of it.
- Arguments that are not a JSON object are never correct, and an argument that is expected to be
  null must be present; the reference takes both for absent. xlam_fc describes what counts as JSON.
- White space, which several endpoints put before a call, is not text.
- A row without an expected call is refused; in the reference no answer to it is correct.

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
    shown_gold,
)

__all__ = ["ExampleToolCallMultireward", "SingleCall"]


class SingleCall(Task):
    """The call that a request asks for."""

    expected_call: ExpectedCall
    """The tool and the arguments that the request asks for."""


class ExampleToolCallMultireward(Environment[SingleCall]):
    """Make the one function call that a request asks for, without any text."""

    properties = Properties(
        "single-step", "tool use", "everyday services", "function calling", "three components"
    )
    max_reward = 3.0
    # Results of the calls would lead to a final text, which rules `format` out.
    executes_tools = False
    skipped_checks = {"guessing": "a single call has the component `format`, whatever it calls"}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward with the sum of the three components."""
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
            details={
                "reason": reason,
                "expected": shown_gold([expected]),
                "predicted_calls": shown_calls(predicted),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Make the expected call."""
        message: Message = gold_message([self.task.expected_call])
        return message

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield requests that show one tool, four, or nine with the closest neighbours."""
        yield from load_generator("example_tool_call_multireward").generate(rng, num)


def _has_required(call: PredictedCall, tools: list[JSONObject]) -> bool:
    """Return whether a call is of a declared tool and has all arguments that it requires."""
    functions = [tool.get("function") for tool in tools]
    declared = [f for f in functions if isinstance(f, dict) and f.get("name") == call.name]
    if not declared or call.arguments is None:
        return False
    schema = declared[0].get("parameters")
    # Only these names, as in the reference: neither types nor values are checked.
    required = schema.get("required") if isinstance(schema, dict) else None
    names = required if isinstance(required, list) else []
    return all(name in call.arguments for name in names if isinstance(name, str))


FAULTS = {
    "correctness": "wrong_call",
    "schema_valid": "missing_arguments",
    "format": "not_one_call_alone",
}
"""The recorded reason, by the first component that is 0."""
