"""Asks for products and reads the last number of the answer.

One row: {"id": "3*14", "difficulty": "medium", "prompt": "What is 3 * 14?", "product": 42}
"""

from collections.abc import Iterator
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task


class Product(Task):
    """The fields of a row that the verifier needs."""

    product: int


class NewEnvironment(Environment[Product]):
    """Multiply two numbers from 2 to 30."""

    properties = Properties("single-step", "arithmetic", "mathematics", "short", "exact match")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the last number of the answer is the product."""
        gold = str(cls.parse_task(rollout.task).product)
        last = (context.search(r"\d+", rollout.output_text) or [""])[-1]
        reason = "correct" if last == gold else "wrong_answer" if last else "no_answer"
        details: JSONObject = {"reason": reason, "expected": gold}
        return Score(float(last == gold), answer=last or None, details=details)

    async def oracle(self, rollout: Rollout) -> Message:
        """Answer with the product."""
        return Message(role="assistant", content=str(self.task.product))

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield up to 841 products; a task is harder with each number that has two digits."""
        for a, b in rng.sample([(a, b) for a in range(2, 31) for b in range(2, 31)], num):
            difficulty = ("easy", "medium", "hard")[(a > 9) + (b > 9)]
            prompt = f"What is {a} * {b}? Answer with the number."
            yield {"id": f"{a}*{b}", "difficulty": difficulty, "prompt": prompt, "product": a * b}
