"""Asks for function calls, of which a row lists every argument's possible values.

Source: the Berkeley Function-Calling Leaderboard (Patil et al., ICML 2025): the rules of
`ast_checker` in the package bfcl-eval 2026.3.23 (Apache-2.0), reimplemented independently. The
model makes as many calls as there are possible answers, in any order: each answer, in the order of
the row, takes the first call that matches it. A call matches if it names the function, has all
required arguments and no unknown ones, each of the described type and equal to one of its possible
values, and leaves out only arguments whose possible values include an empty text. Texts are
compared without case, spaces and `,./-_*^`, with single quotes as double ones; so are texts in
lists and objects, one level deep. An integer counts as a float, but not within a list. If the first
possible value has another type than the described one, it names a variable, and a value of either
type must be equal to one. For Java and JavaScript all arguments are texts, which are read as
literals of the described type. With `expects` = `no_call` the reward is 1 unless the model makes
calls, with `any_call` if it makes any, whichever they are; if the arguments of one call cannot be
read, it makes none. Text next to the calls never counts. Executable categories are not covered.
Differences from the reference:

- A dot in a function's name equals an underscore, because endpoints refuse dots. The reference
  compares with the one or the other, by model.
- Arguments are read as in `xlam_fc`: an empty text is no arguments, NaN and Infinity are not JSON.
- Where the reference stops with an exception (a number of more than 4,300 digits, elements that are
  no objects among possible objects) the reward is 0. Java's and JavaScript's literals that take too
  long to read are texts. Rows with types that it cannot read (Java's Set, Hashtable, Queue and
  Stack) are refused.

One row (its tools left out):
{"id": "possible-0", "difficulty": "easy", "messages": [...], "tools": [...], "functions": [{"name":
"order_tea", "parameters": {"properties": {"tea": {"type": "string"}, "cups": {"type": "integer"}},
"required": ["tea"]}}], "possible_answers": [{"order_tea": {"tea": ["mint"], "cups": [1, ""]}}]}
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from pydantic import model_validator

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task
from gymcli.envs import load_generator
from gymcli.envs.possible_calls.possible_values import (
    DescribedFunction,
    Fault,
    Language,
    PossibleArguments,
    call_fault,
    check_types,
    gold_arguments,
)
from gymcli.envs.xlam_fc import (
    ExpectedCall,
    PredictedCall,
    answer_of,
    gold_message,
    predicted_calls,
    shown_calls,
)

__all__ = ["CallTask", "PossibleCalls", "calls_fault"]


class CallTask(Task):
    """The calls that are right."""

    possible_answers: list[dict[str, PossibleArguments]] = []
    """For each call, the function's name and the possible values of its arguments."""
    functions: list[DescribedFunction] = []
    """The functions of the possible answers."""
    expects: Literal["calls", "no_call", "any_call"] = "calls"
    """Whether the possible answers, no call, or any call is right."""
    language: Language = "python"
    """The language whose types the functions have."""

    @model_validator(mode="after")
    def _is_complete(self) -> CallTask:
        if (self.expects == "calls") != bool(self.possible_answers):
            raise ValueError("possible_answers are needed if calls are expected, and only then")
        named = {function.name for function in self.functions}
        for answer in self.possible_answers:
            if len(answer) != 1 or not named.issuperset(answer):
                raise ValueError("each possible answer needs one of the described functions")
        check_types(self.functions, self.language)
        return self

    @property
    def answers(self) -> list[tuple[DescribedFunction, PossibleArguments]]:
        """The function and the possible arguments of each expected call."""
        found = {function.name: function for function in self.functions}
        return [
            (found[name], possible)
            for answer in self.possible_answers
            for name, possible in answer.items()
        ]


class PossibleCalls(Environment[CallTask]):
    """Make the function calls that a request asks for, with one of their possible arguments."""

    properties = Properties(
        "single-step",
        "tool use",
        "functions of many domains",
        "function calling",
        "possible values",
    )
    executes_tools = False
    skipped_checks = {
        "empty": "where no function fits, silence is right",
        "echo": "where no function fits, any text is right",
        "guessing": "where no function fits, any text is right",
        "swapped": "where any call is right, that of another task is too",
    }

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the calls are right."""
        task, predicted = cls.parse_task(rollout.task), predicted_calls(rollout)
        fault = calls_fault(predicted, task)
        return Score(
            float(fault is None),
            metrics={"num_predicted": float(len(predicted))},
            answer=answer_of(predicted) or "[]",
            details={
                "reason": fault or "correct",
                "expected": [*task.possible_answers] or task.expects,
                "predicted_calls": shown_calls(predicted),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Make the calls with the first possible arguments that fit.

        None if no call can be right: if a possible value has not the described type, for instance.
        """
        task = self.task
        if task.expects == "no_call":
            return Message(role="assistant", content="None of these functions can do that.")
        answers = [
            ExpectedCall(
                name=function.name.replace(".", "_"),
                arguments=gold_arguments(function, possible, task.language),
            )
            for function, possible in task.answers
        ]
        message: Message = gold_message(answers or [ExpectedCall(name="any")])
        calls = predicted_calls(Rollout(messages=[message]))
        return message if calls_fault(calls, task) is None else None

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write requests for one to four calls, some of them of Java and JavaScript functions."""
        yield from load_generator("possible_calls").generate(rng, num)


def calls_fault(
    predicted: list[PredictedCall], task: CallTask
) -> Fault | Literal["no_call", "unwanted_call", "wrong_number_of_calls"] | None:
    """Return why the calls of a model are wrong, or None if they are right."""
    if task.expects != "calls":
        # As in the reference: one call that cannot be read makes all of them no calls.
        makes_calls = bool(predicted) and all(call.arguments is not None for call in predicted)
        if task.expects == "any_call":
            return None if makes_calls else "no_call"
        return "unwanted_call" if makes_calls else None
    if len(predicted) != len(task.possible_answers):
        return "wrong_number_of_calls" if predicted else "no_call"
    left = list(predicted)
    for function, possible in task.answers:
        faults: list[Fault] = []
        for place, call in enumerate(left):
            fault = call_fault(call.name, call.arguments, function, possible, task.language)
            if fault is None:
                del left[place]
                break
            faults.append(fault)
        else:
            # The fault of a call to the right function says most.
            return next((one for one in faults if one != "wrong_function"), faults[0])
    return None
