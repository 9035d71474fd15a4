"""A calculator as an aviary environment: one problem, one tool to solve it with, one answer."""

import math

from aviary.core import Environment, Message, Messages, Tool, ToolRequestMessage
from pydantic import BaseModel

from .expressions import evaluate, number_text

__all__ = ["CalculatorEnv", "CalculatorState"]

CORRECT_REWARD = 1.0
WRONG_REWARD = 0.0
FAILURE_REWARD = -1.0

TOLERANCE = 1e-4
"""The relative error at which an answer is wrong, as in aviary's GSM8K environment."""


class CalculatorState(BaseModel):
    """The reward of the current step, and whether it ended the episode."""

    reward: float = 0.0
    is_done: bool = False


class CalculatorEnv(Environment[CalculatorState]):
    """Submit the number that a problem asks for.

    The first answer counts: the reward is +1 if it is right, else 0. If a tool fails, it is -1.
    Each of these ends the episode, and later calls of the same message are not made.

    Args:
        answer: The right number.
        problem: The text that opens the episode; empty if the prompt already shows it.

    """

    def __init__(self, answer: float, problem: str = "") -> None:
        self.answer = float(answer)
        self.problem = problem

    async def reset(self) -> tuple[Messages, list[Tool]]:
        """Return the problem and the tools."""
        self.state = CalculatorState()
        self.tools = [Tool.from_function(self.calculator), Tool.from_function(self.submit_answer)]
        return [Message(content=self.problem)] if self.problem else [], self.tools

    async def step(self, action: Message) -> tuple[Messages, float, bool, bool]:
        """Make the calls in order, up to the end of the episode."""
        if not isinstance(action, ToolRequestMessage) or not action.tool_calls:
            return self.default_no_tool_calls_response
        answers: Messages = []
        for call in action.tool_calls:
            if self.state.is_done:
                break
            # One by one: aviary runs the calls of one request concurrently by default.
            answers += await self.exec_tool_calls(ToolRequestMessage(tool_calls=[call]))
        return answers, self.state.reward, self.state.is_done, False

    async def calculator(self, expr: str) -> str:
        """Work out an arithmetic expression.

        Args:
            expr: Numbers, + - * / // % ** and parentheses, such as (3 + 4) * 2.5

        """
        try:
            return number_text(evaluate(expr))
        except ValueError as error:
            self._end(FAILURE_REWARD)
            return f"The expression cannot be worked out: {error}."

    async def submit_answer(self, answer: str | float) -> str:
        """Hand in the answer to the problem; this can be done once.

        Args:
            answer: The number alone.

        """
        try:
            difference = abs(float(answer) - self.answer)
        except OverflowError:  # an integer too large for a float
            difference = math.inf
        except ValueError:
            self._end(FAILURE_REWARD)
            return "The answer is not a number."
        # aviary's formula; the term added to the divisor makes an expected 0 possible.
        is_right = difference / (abs(self.answer) + TOLERANCE) < TOLERANCE
        self._end(CORRECT_REWARD if is_right else WRONG_REWARD)
        return "The answer is right." if is_right else "The answer is wrong."

    def _end(self, reward: float) -> None:
        self.state = CalculatorState(reward=reward, is_done=True)
