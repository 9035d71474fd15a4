"""Offers one tool, the weather of a city, and rewards its use: a test of the tool loop.

Source: the resources server example_single_tool_call of NVIDIA NeMo Gym 0.7 (Apache-2.0),
reimplemented independently: the reward is 1 if the tool was called at all, with whatever arguments,
else 0. Until 0.5 the reference rewarded every episode.

One row:
{"id": "weather-0", "difficulty": "easy", "messages": [{"role": "system", "content": "Help people
plan their day."}, {"role": "user", "content": "How is the weather in Lima?"}], "cities": ["Lima"]}
"""

from collections.abc import Iterator
from random import Random

import msgspec

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

__all__ = ["ExampleSingleToolCall", "WeatherQuestion"]


class WeatherQuestion(Task):
    """A question about the weather; the verifier reads none of it."""

    cities: list[str] = []
    """The cities that the question names, for the oracle."""


class ExampleSingleToolCall(Environment[WeatherQuestion]):
    """Ask a tool for the weather; every episode that does is rewarded."""

    version = "2"
    skipped_checks = dict.fromkeys(("swapped", "guessing"), "any call of the only tool is right")
    properties = Properties("multi-step", "tool use", "weather", "question", "tool called")

    @tool(reads_only=True)
    def get_weather(self, city: str) -> JSONObject:
        """Look up the weather of a city."""
        # The reference's answer for every city.
        return {"city": city, "weather_description": f"The weather in {city} is cold."}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the tool was called."""
        has_called = any(call.name == "get_weather" for call in rollout.tool_calls)
        return Score(float(has_called), details={"reason": "called" if has_called else "no_call"})

    async def oracle(self, rollout: Rollout) -> Message:
        """Look up all cities in one message, then answer."""
        if rollout.tool_calls or not self.task.cities:
            return Message(role="assistant", content="It is cold, so take a coat.")
        calls = [
            ToolCall(
                id=f"call_{number}",
                function=FunctionCall("get_weather", msgspec.json.encode({"city": city}).decode()),
            )
            for number, city in enumerate(self.task.cities)
        ]
        return Message(role="assistant", tool_calls=calls)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield questions that ask directly, that hint, and that name two cities."""
        for number in range(num):
            difficulty = list(QUESTIONS)[number % len(QUESTIONS)]
            cities = rng.sample(CITIES, 2 if difficulty == "hard" else 1)
            text = rng.choice(QUESTIONS[difficulty]).format(*cities, day=rng.choice(DAYS))
            yield {
                "id": f"weather-{number}",
                "difficulty": difficulty,
                "messages": [
                    {"role": "system", "content": "Help people plan their day."},
                    {"role": "user", "content": text},
                ],
                "cities": cities,
            }


CITIES = ["Accra", "Bergen", "Cusco", "Dakar", "Eger", "Faro", "Galway", "Hanoi", "Izmir", "Jaipur"]
CITIES += ["Kazan", "Lima", "Minsk", "Nantes", "Oulu", "Porto", "Quito", "Riga", "Sofia", "Turin"]
DAYS = ["today", "tonight", "tomorrow", "on Monday", "on Friday", "this weekend", "next week"]
QUESTIONS = {
    "easy": ["How is the weather in {} {day}?", "Tell me the weather in {} {day}."],
    "medium": ["I am going to {} {day}: do I need a coat?", "Is {} fit for a picnic {day}?"],
    "hard": ["Which is warmer {day}, {} or {}?", "We drive from {} to {} {day}: what do we wear?"],
}
