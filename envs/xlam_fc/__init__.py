"""Asks for a set of function calls, which the model makes in one message and in any order.

Source: the resources server xlam_fc of NVIDIA NeMo Gym (Apache-2.0), its rules written anew. Each
expected call has to find a call of its own, of the same tool and with every expected argument
equal; the reward is 1 where all do and no call is left over. Without expected calls it is 1 where
none is made; such rows are scored, but not generated, since silence would be right. Looseness that
is kept: other arguments than the expected ones are free, values are compared as Python does (1, 1.0
and true are equal), and text beside the calls is not looked at. Where this differs:

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

from collections.abc import Iterator
from functools import partial
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task

from .calls import (
    ExpectedCall,
    PredictedCall,
    answer_of,
    gold_message,
    has_arguments,
    maximum_matching,
    predicted_calls,
    shown_calls,
)
from .catalogue import ACTIONS
from .requests import DIFFICULTIES, Difficulty, Wish, asked_anew, drawn_apart, shown_tools

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
        """Reward 1 where expected and predicted calls fit one to one."""
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
        seen: set[str] = set()
        for number in range(num):
            difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
            wishes, text = asked_anew(rng, partial(_wishes, rng, difficulty), seen)
            yield {
                "id": f"calls-{number}",
                "difficulty": difficulty,
                "messages": [
                    {"role": "system", "content": INSTRUCTIONS},
                    {"role": "user", "content": text},
                ],
                "tools": shown_tools(
                    rng,
                    [one.action for one in wishes],
                    num_others=NUM_OTHERS[difficulty],
                    has_siblings=difficulty == "hard",
                ),
                "expected_answers": [one.call for one in wishes],
            }


def _reason(num_expected: int, num_predicted: int, num_correct: int) -> str:
    if num_predicted == num_expected == num_correct:
        return "correct" if num_expected else "correctly_no_call"
    if not num_predicted:
        return "no_call"
    if num_correct == num_expected:
        return "surplus_calls"
    return "missing_calls" if num_correct == num_predicted else "wrong_calls"


def _wishes(rng: Random, difficulty: Difficulty) -> list[Wish]:
    """Draw the calls; from medium on two are of one tool."""
    if difficulty == "easy":
        actions = [rng.choice(ACTIONS)]
    elif difficulty == "medium":
        actions = [rng.choice(ACTIONS)] * 2
    else:
        actions = rng.sample(ACTIONS, rng.randint(2, 3))
        actions.append(actions[0])
    return drawn_apart(rng, actions)


INSTRUCTIONS = (
    "You have tools for what people ask of you. Make every call that the request needs, each once "
    "and all in one message. Take names, words and numbers as they stand in the request, and leave "
    "out arguments that it says nothing of."
)
NUM_OTHERS: dict[Difficulty, int] = {"easy": 2, "medium": 4, "hard": 8}
