"""Names numbers one message at a time, then asks for their sum.

One row: {"id": "sum-0", "difficulty": "easy", "prompt": "I will name 2 numbers, one at a time. The
first is 14.", "numbers": [14, 31]}
"""

from collections.abc import Iterator
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task


class Numbers(Task):
    """The numbers that are named; the first is in the prompt."""

    numbers: list[int]


class NewEnvironment(Environment[Numbers]):
    """Keep numbers in mind over several turns and add them up."""

    properties = Properties("multi-turn", "context", "mathematics", "follow-up", "exact match")

    async def reply(self, rollout: Rollout) -> str | None:
        """Name the next number; after the last one, ask for the sum."""
        num_answers = count_answers(rollout)
        if num_answers < len(self.task.numbers):
            return f"The next is {self.task.numbers[num_answers]}."
        if num_answers == len(self.task.numbers):
            return "What do they add up to? Answer with the number."
        return None

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the last number of the answer to the question is the sum."""
        numbers = cls.parse_task(rollout.task).numbers
        if count_answers(rollout) <= len(numbers):
            return Score(0.0, details={"reason": "unfinished"})
        gold = str(sum(numbers))
        last = (context.search(r"\d+", rollout.last_text) or [""])[-1]
        reason = "correct" if last == gold else "wrong_answer" if last else "no_answer"
        details: JSONObject = {"reason": reason, "expected": gold}
        return Score(float(last == gold), answer=last or None, details=details)

    async def oracle(self, rollout: Rollout) -> Message:
        """Wait for the question, then answer with the sum."""
        is_asked = count_answers(rollout) == len(self.task.numbers)
        text = str(sum(self.task.numbers)) if is_asked else "Go on."
        return Message(role="assistant", content=text)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield tasks of one to six numbers; no two have the same first message."""
        rows: dict[str, JSONObject] = {}
        while (number := len(rows)) < num:
            difficulty, max_numbers = list(LEVELS.items())[number % len(LEVELS)]
            numbers = [
                rng.randint(11, 99) for _ in range(rng.randint(max_numbers - 1, max_numbers))
            ]
            opening = f"I will name {len(numbers)} numbers, one at a time. The first is"
            prompt = f"{opening} {numbers[0]}."
            rows[prompt] = rows.get(prompt) or {
                "id": f"sum-{number}",
                "difficulty": difficulty,
                "prompt": prompt,
                "numbers": numbers,
            }
        yield from rows.values()


def count_answers(rollout: Rollout) -> int:
    """Count the messages of the model."""
    return sum(message.role == "assistant" for message in rollout.responses)


LEVELS = {"easy": 2, "medium": 4, "hard": 6}
"""The largest count of numbers by difficulty."""
