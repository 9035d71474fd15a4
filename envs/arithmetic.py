"""Asks for the sum of two small numbers and reads the last number of the answer.

Written for gymcli; no reference implementation exists.

One row:
{"id": "3+4", "difficulty": "easy", "prompt": "What is 3 + 4? Answer with the number.", "answer": 7}
"""

import re
from collections.abc import Iterator
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task

# A minus after a digit, a letter or a closing bracket is no sign: "10-3", "x-3", "(4)-3".
NUMBER = re.compile(r"(?:(?<![\w)\]])[-\u2212])?\d+(?:\.\d+)?")


class Sum(Task):
    """A sum and its result."""

    answer: int
    """The result of the sum."""


class Arithmetic(Environment[Sum]):
    """Add two numbers from 1 to 19."""

    properties = Properties("single-step", "arithmetic", "mathematics", "short", "exact match")
    version = "2"

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the last number of the answer is the sum."""
        # The last one: many answers repeat the sum first, as in "3 + 4 = 7".
        last = (NUMBER.findall(rollout.output_text) or [""])[-1].replace("\u2212", "-")
        expected = cls.parse_task(rollout.task).answer
        is_right = bool(last) and float(last) == expected
        reason = "correct" if is_right else "wrong_answer" if last else "no_answer"
        details: JSONObject = {"reason": reason, "expected": str(expected)}
        return Score(float(is_right), answer=last or None, details=details)

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the sum."""
        return Message(role="assistant", content=str(self.task.answer))

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield sums, at most the 361 that exist; harder ones have more two-digit numbers."""
        for a, b in rng.sample([(a, b) for a in range(1, 20) for b in range(1, 20)], num):
            difficulty = ("easy", "medium", "hard")[(a > 9) + (b > 9)]
            prompt = f"What is {a} + {b}? Answer with the number."
            yield {"id": f"{a}+{b}", "difficulty": difficulty, "prompt": prompt, "answer": a + b}
