"""Asks for numbers in words; a judge decides whether the words mean the number.

One row: {"id": "words-0", "difficulty": "easy", "prompt": "Write 48 in words.", "number": 48}
"""

from collections.abc import Iterator, Mapping
from random import Random

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Judge,
    Message,
    Model,
    Properties,
    Rollout,
    Score,
    StandIn,
    Task,
)

JUDGE = Judge(
    """Do these two texts name the same number? Spelling, hyphens and "and" do not matter.

<first>{answer}</first>
<second>{gold}</second>

Think first. Your verdict is [[SAME]] or [[DIFFERENT]].""",
    labels={"same": "[[SAME]]", "different": "[[DIFFERENT]]"},
    rule="tagged",
)


class Number(Task):
    """The number to write in words."""

    number: int


class NewEnvironment(Environment[Number]):
    """Write numbers in words."""

    required_roles = ("judge",)
    properties = Properties("single-step", "language", "numbers", "short", "judge")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the judge finds that the answer means the number."""
        gold = in_words(cls.parse_task(rollout.task).number)
        verdict = await JUDGE.ask(context.roles["judge"], answer=rollout.last_text, gold=gold)
        details: JSONObject = {
            "reason": verdict.label,
            "expected": gold,
            "verdict": verdict.record(),
        }
        return Score(float(verdict.label == "same"), details=details)

    @classmethod
    def stand_ins(cls, task: Number) -> Mapping[str, Model]:
        """Return a scripted judge that compares the words."""
        return {"judge": StandIn(compare_words)}

    async def oracle(self, rollout: Rollout) -> Message:
        """Write the number."""
        return Message(role="assistant", content=in_words(self.task.number))

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield numbers of two and three digits, the hard ones without a zero."""
        numbers = {
            "easy": rng.sample(range(21, 100), num // 3 + 1),
            "medium": rng.sample(range(100, 1000, 10), num // 3 + 1),
            "hard": rng.sample([n for n in range(111, 1000) if "0" not in str(n)], num // 3 + 1),
        }
        for place in range(num):
            difficulty = list(numbers)[place % len(numbers)]
            number = numbers[difficulty][place // len(numbers)]
            yield {
                "id": f"words-{number}",
                "difficulty": difficulty,
                "prompt": f"Write {number} in words.",
                "number": number,
            }


def compare_words(messages: list[Message]) -> str:
    """Judge without a model: extract both texts from the prompt and compare their words."""
    prompt = messages[-1].text
    first, second = (words(between(prompt, name)) for name in ("first", "second"))
    return "[[SAME]]" if first == second else "[[DIFFERENT]]"


def between(text: str, name: str) -> str:
    """Return the content of an element: from the first opening tag to the last closing tag."""
    return text.partition(f"<{name}>")[2].rpartition(f"</{name}>")[0]


def words(text: str) -> list[str]:
    """Split a text into words, without hyphens and "and"."""
    return [word for word in text.lower().replace("-", " ").split() if word != "and"]


def in_words(number: int) -> str:
    """Write a number from 1 to 999."""
    hundreds, below_hundred = divmod(number, 100)
    tens, ones = divmod(below_hundred, 10)
    parts = [f"{SMALL[hundreds]} hundred"] if hundreds else []
    if below_hundred >= 20:
        parts.append(f"{TENS[tens]}-{SMALL[ones]}" if ones else TENS[tens])
    elif below_hundred:
        parts.append(SMALL[below_hundred])
    return " and ".join(parts)


SMALL = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
SMALL += ["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"]
SMALL += ["eighteen", "nineteen"]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
