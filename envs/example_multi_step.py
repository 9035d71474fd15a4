"""Asks for the values of a term's synonyms in a given order, which takes several calls.

Source: the resources server example_multi_step of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The reward is 1 if the last call of `extract_synonym_values` has exactly the expected
values in their order. `set_overlap` is the number of distinct expected values that were submitted,
divided by the number expected; `order_instruction_following_failure` is 1 if it is 1 and the reward
is 0; `original_term_minefield_hit` is 1 if the value of the term itself was submitted. Differences
from the reference:

- A last call whose arguments are not JSON, or have no list, scores 0 with a reason; in the
  reference it fails the rollout.
- If nothing is expected, `set_overlap` is 1 if nothing was submitted, else 0; the reference divides
  by zero.

One row (its system message shortened):
{"id": "synonyms-0", "difficulty": "easy", "capability": "information dependency", "messages":
[{"role": "system", "content": "cold: icy"}, {"role": "user", "content": "What makes a day cold?"}],
"expected_synonyms": ["icy"], "expected_synonym_values": [325], "minefield_label": "cold",
"minefield_label_value": 418}
"""

from collections.abc import Iterator
from random import Random
from typing import Annotated

import msgspec
from pydantic import Field

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
    tool,
)
from gymcli.envs import load_generator

__all__ = ["ExampleMultiStep", "SynonymTask"]


class SynonymTask(Task):
    """The synonyms to find, and the term itself, which is not one of them."""

    expected_synonyms: list[str]
    """The synonyms to look up, in order."""
    expected_synonym_values: list[int]
    """The value of each synonym."""
    minefield_label: str
    """The term itself; the first one if a message is about two."""
    minefield_label_value: int
    """The value of the term itself, which is not to be extracted."""
    begins_with_term: bool = False
    """Whether the value of the term tells the position of its first synonym."""

    @property
    def words(self) -> list[str]:
        """The words to look up, in order."""
        return [self.minefield_label] * self.begins_with_term + self.expected_synonyms


class Extraction(msgspec.Struct):
    """The arguments of `extract_synonym_values`, with anything in the list."""

    synonym_values: list[object]


class ExampleMultiStep(Environment[SynonymTask]):
    """Look up the values of a term's synonyms and submit them in order."""

    properties = Properties(
        "multi-step", "information dependency", "language", "extraction", "exact match"
    )

    @tool(reads_only=True)
    def get_synonym_value(
        self, synonym: Annotated[str, Field(description="The synonym as the list has it.")]
    ) -> JSONObject:
        """Look up the value of one synonym."""
        return {"synonym_value": value_of(synonym)}

    @tool(reads_only=True)
    def extract_synonym_values(
        self,
        synonym_values: Annotated[
            list[int], Field(description="The values of all synonyms of the term, in order.")
        ],
    ) -> JSONObject:
        """Hand over the values of the synonyms; call this once you have all of them."""
        return {"success": True}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the values submitted last are the expected ones in their order."""
        task = cls.parse_task(rollout.task)
        values, fault = _handed_over(rollout)
        expected = task.expected_synonym_values
        is_right = not fault and values == expected
        overlap = 0.0 if fault else _overlap(expected, values)
        reason = "correct" if is_right else fault or ("wrong_values" if values else "no_values")
        return Score(
            float(is_right),
            metrics={
                "accuracy": float(is_right),
                "set_overlap": overlap,
                "original_term_minefield_hit": float(task.minefield_label_value in values),
                "order_instruction_following_failure": float(not is_right and overlap == 1),
            },
            answer=str(values) if values else None,
            details={"reason": reason, "expected": expected, "parsed_synonym_values": values},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Look up one word per turn, submit the values, then report that."""
        task, num_calls = self.task, len(rollout.tool_calls)
        if num_calls > len(task.words):
            return Message(role="assistant", content="I have handed over the values.")
        if num_calls < len(task.words):
            call = _call(num_calls, "get_synonym_value", synonym=task.words[num_calls])
        else:
            values = task.expected_synonym_values
            call = _call(num_calls, "extract_synonym_values", synonym_values=values)
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield lists of growing length; the messages of hard rows only hint at their terms."""
        yield from load_generator("example_multi_step").generate(rng, num)


def value_of(synonym: str) -> int:
    """Return the sum of a text's code points, as the reference's tool does."""
    return sum(ord(character) for character in synonym)


def _call(number: int, name: str, **arguments: object) -> ToolCall:
    text = msgspec.json.encode(arguments).decode()
    return ToolCall(id=f"call_{number}", function=FunctionCall(name, text))


def _handed_over(rollout: Rollout) -> tuple[list[object], str]:
    """Return the values that were submitted last, and what is wrong with the call."""
    calls = [call for call in rollout.tool_calls if call.name == "extract_synonym_values"]
    if not calls:
        return [], ""
    try:
        return msgspec.json.decode(calls[-1].arguments, type=Extraction).synonym_values, ""
    # Before DecodeError, of which it is a kind.
    except msgspec.ValidationError:
        return [], "no_list_of_values"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return [], "arguments_not_json"


def _overlap(expected: list[int], values: list[object]) -> float:
    """Return the share of the expected values that was submitted."""
    if not expected:
        return float(not values)
    # As in the reference, equal expected values count once here and twice in the divisor.
    return sum(value in values for value in {*expected}) / len(expected)
