"""Thinks of a number and answers each guess with "too low" or "too high".

One row: {"id": "number-0", "difficulty": "easy", "prompt": "I think of a number between 40 and 56.
You have 4 guesses; each message is a number.", "secret": 47, "num_guesses": 4}
"""

import math
import re
from collections.abc import Iterator
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Step, Task


class Secret(Task):
    """The number to guess, and how many guesses the model has."""

    secret: int
    num_guesses: int


class NewEnvironment(Environment[Secret]):
    """Find a number by guessing."""

    properties = Properties("multi-turn", "search", "games", "guessing", "replayed rewards")

    num_left: int

    async def setup(self) -> list[Message]:
        """Begin the game."""
        self.num_left = self.task.num_guesses
        return []

    async def step(self, message: Message) -> Step:
        """Answer a guess; a message without a number costs a guess too."""
        self.num_left -= 1
        number_match = re.search(r"-?\d+", message.text)
        guess = int(number_match[0]) if number_match and len(number_match[0]) < 10 else None
        if guess == self.task.secret:
            return Step([user("That is it.")], reward=1.0, stop_reason="env_done")
        if guess is None:
            text = "I found no number in your message."
        else:
            text = f"{guess} is too {'low' if guess < self.task.secret else 'high'}."
        if self.num_left == 0:
            return Step([user(f"{text} The game is over.")], reward=0.0, stop_reason="env_done")
        return Step([user(f"{text} Guesses left: {self.num_left}.")], reward=0.0)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Replay the record and add up the rewards of its steps."""
        world = await context.replay(rollout)
        reward = math.fsum(step or 0.0 for step in world.rollout.step_rewards)
        return Score(reward, details={"reason": "found" if reward else "not_found"})

    async def oracle(self, rollout: Rollout) -> Message:
        """Answer with the number, which only the oracle knows."""
        return Message(role="assistant", content=str(self.task.secret))

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield games over ranges that binary search always solves; harder ones are wider."""
        rows: dict[str, JSONObject] = {}
        while (number := len(rows)) < num:
            difficulty, num_guesses = list(LEVELS.items())[number % len(LEVELS)]
            low = rng.randint(1, 900)
            high = low + 2**num_guesses
            limits = f"I think of a number between {low} and {high}."
            prompt = f"{limits} You have {num_guesses} guesses; each message is a number."
            rows[prompt] = rows.get(prompt) or {
                "id": f"number-{number}",
                "difficulty": difficulty,
                "prompt": prompt,
                "secret": rng.randint(low + 1, high - 1),
                "num_guesses": num_guesses,
            }
        yield from rows.values()


def user(text: str) -> Message:
    """Return a message from the environment to the model."""
    return Message(role="user", content=text)


LEVELS = {"easy": 4, "medium": 6, "hard": 8}
"""The number of guesses by difficulty."""
