"""Asks a question and scripted follow-ups, and looks for a text in the last answer.

Source: the resources server example_multi_turn_gymnasium of NVIDIA NeMo Gym 0.7 (Apache-2.0),
reimplemented independently: the reward is 1 if the answer to the last follow-up contains
`expected_answer` anywhere, in upper or lower case; an episode that ends before that has reward 0.
Differences from the reference:

- The follow-ups sent so far are counted in the conversation, not in a separate counter.

One row:
{"id": "turns-0", "difficulty": "easy", "messages": [{"role": "user", "content": "Which month comes
after April?"}], "follow_ups": ["How many days does it have?"], "expected_answer": "31",
"earlier_answers": ["May"]}
"""

from collections.abc import Callable, Iterator
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task

__all__ = ["ExampleMultiTurn", "ScriptedTask"]

Script = list[tuple[str, str]]
"""The user's turns, with the gold answers."""


class ScriptedTask(Task):
    """The follow-ups, and the text that the last answer must contain."""

    follow_ups: list[str]
    """The user turns after the prompt."""
    expected_answer: str
    """The text that the last answer must contain."""
    earlier_answers: list[str] = []
    """Gold answers of the turns before the last, for the oracle."""


class ExampleMultiTurn(Environment[ScriptedTask]):
    """Answer a question and its follow-ups; the last answer counts."""

    properties = Properties("multi-turn", "context", "general", "follow-up questions", "substring")

    async def reply(self, rollout: Rollout) -> str | None:
        """Ask the next follow-up, if any is left."""
        return next(iter(self.task.follow_ups[_num_sent(rollout) :]), None)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the answer to the last follow-up contains the expected text."""
        task = cls.parse_task(rollout.task)
        answers = [
            message
            for message in rollout.responses
            if message.role == "assistant" and not (message.tool_calls or message.is_reasoning_only)
        ]
        # The opening question has an answer too.
        details: JSONObject = {"reason": "unfinished", "expected": task.expected_answer}
        if len(answers) <= len(task.follow_ups):
            return Score(0.0, details=details)
        text = answers[-1].text
        is_right = task.expected_answer.lower() in text.lower()
        wrong = "wrong_answer" if text.strip() else "no_answer"
        return Score(
            float(is_right), details={**details, "reason": "correct" if is_right else wrong}
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the gold answer to the current question."""
        # Rows of the reference have no earlier answers.
        answers = dict(enumerate(self.task.earlier_answers))
        num_sent = _num_sent(rollout)
        is_last = num_sent == len(self.task.follow_ups)
        text = self.task.expected_answer if is_last else answers.get(num_sent, "Go on, please.")
        return Message(role="assistant", content=text)

    @classmethod
    def choices(cls, task: ScriptedTask) -> list[str]:
        """Return the lengths of months if the last question asks for one."""
        return ["28", "30", "31"] if task.follow_ups[-1:] == [HOW_LONG] else []

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield questions about the length of a month, sums in steps, and sums that look back."""
        for number in range(num):
            difficulty = list(SCRIPTS)[number % len(SCRIPTS)]
            (opening, _), *follow_ups = script = SCRIPTS[difficulty](rng)
            *earlier_answers, expected_answer = [answer for _, answer in script]
            yield {
                "id": f"turns-{number}",
                "difficulty": difficulty,
                "messages": [{"role": "user", "content": opening}],
                "follow_ups": [text for text, _ in follow_ups],
                "expected_answer": expected_answer,
                "earlier_answers": earlier_answers,
            }


def _num_sent(rollout: Rollout) -> int:
    """Count the follow-ups that were sent."""
    # `responses` leaves out the prompt, with its own user messages.
    return sum(message.role == "user" for message in rollout.responses)


def _month(rng: Random) -> Script:
    start, distance = rng.randrange(12), rng.randint(2, 30)
    direction, side = rng.choice([(1, "after"), (-1, "before")])
    name, days = MONTHS[(start + direction * distance) % 12]
    opening = f"Which month comes {distance} months {side} {MONTHS[start][0]}?"
    return [(opening, name), (HOW_LONG, str(days))]


def _sums(rng: Random, num_additions: int) -> Script:
    first, second = rng.randint(11, 60), rng.randint(11, 39)
    total = first + second
    script = [(f"What is {first} plus {second}?", str(total))]
    for number in rng.sample(range(2, 30), num_additions):
        total += number
        script.append((f"Add {number} to that.", str(total)))
    return script


def _look_back(rng: Random) -> Script:
    script = _sums(rng, 3)
    growth = int(script[-1][1]) - int(script[0][1])
    return [*script, ("By how much has the first result grown?", str(growth))]


HOW_LONG = "How many days does it have in a common year?"
MONTHS = [("January", 31), ("February", 28), ("March", 31), ("April", 30), ("May", 31)]
MONTHS += [("June", 30), ("July", 31), ("August", 31), ("September", 30), ("October", 31)]
MONTHS += [("November", 30), ("December", 31)]

SCRIPTS: dict[str, Callable[[Random], Script]] = {
    "easy": _month,
    "medium": lambda rng: _sums(rng, 2),
    "hard": _look_back,
}
