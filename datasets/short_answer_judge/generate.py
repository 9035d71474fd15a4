"""Generates short questions whose one answer is computed."""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from random import Random

from gymcli import JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield different questions, of each difficulty in turn."""
    prompts: set[str] = set()
    while (number := len(prompts)) < num:
        difficulty = list(QUESTIONS)[number % len(QUESTIONS)]
        prompt, answer = QUESTIONS[difficulty](rng)
        if prompt in prompts:
            continue
        prompts.add(prompt)
        yield {
            "id": f"short-{number}",
            "difficulty": difficulty,
            "prompt": prompt,
            "expected_answer": answer,
        }


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMERALS = {
    "M": 1000,
    "CM": 900,
    "D": 500,
    "CD": 400,
    "C": 100,
    "XC": 90,
    "L": 50,
    "XL": 40,
    "X": 10,
    "IX": 9,
    "V": 5,
    "IV": 4,
    "I": 1,
}


def _roman(rng: Random) -> tuple[str, str]:
    number = rest = rng.randint(200, 2999)
    written = ""
    for numeral, value in NUMERALS.items():
        written += numeral * (rest // value)
        rest %= value
    return f"Which number is {written} in Roman numerals?", str(number)


def _weekday(rng: Random) -> tuple[str, str]:
    day = date(1900, 1, 1) + timedelta(days=rng.randrange(50_000))
    return f"Which day of the week was or is {day} (year, month, day)?", WEEKDAYS[day.weekday()]


def _span(rng: Random) -> tuple[str, str]:
    first = date(1900, 1, 1) + timedelta(days=rng.randrange(40_000))
    num_days = rng.randint(1000, 20_000)
    question = f"How many days after {first} is {first + timedelta(days=num_days)}?"
    return f"{question} The dates are year, month and day.", f"{num_days} days"


QUESTIONS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "easy": _roman,
    "medium": _weekday,
    "hard": _span,
}
"""A function for each difficulty, which draws a question and its answer."""
