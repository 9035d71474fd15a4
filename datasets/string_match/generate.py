"""Generates questions with short computed answers, in every extraction mode."""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from random import Random
from typing import NamedTuple

from gymcli import JSONObject


class Question(NamedTuple):
    """A question and its one right answer."""

    text: str
    answer: str
    case_sensitive: bool = False
    """Whether the text must match exactly; otherwise a number within one percent scores 0.98."""


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield different questions of three difficulties in four modes."""
    found: dict[str, JSONObject] = {}
    while (number := len(found)) < num:
        difficulty = list(KINDS)[number % len(KINDS)]
        mode = list(REQUESTS)[number // len(KINDS) % len(REQUESTS)]
        question = rng.choice(KINDS[difficulty])(rng)
        prompt = f"{question.text}\n\n{rng.choice(REQUESTS[mode])}"
        row: JSONObject = {
            "id": f"string-match-{number}",
            "difficulty": difficulty,
            "prompt": prompt,
            "expected_answer": question.answer,
            "extraction_mode": mode,
            "case_sensitive": question.case_sensitive,
        }
        found.setdefault(prompt, row)
    yield from found.values()


def _sum(rng: Random) -> Question:
    first, second = rng.randint(120, 899), rng.randint(120, 899)
    text = f"What is {first} + {second}? Write it in digits alone, without a comma."
    return Question(text, str(first + second), case_sensitive=True)


def _backwards(rng: Random) -> Question:
    word = "".join(rng.sample(WORDS.split(), 2))
    return Question(f'Write the letters of "{word}" in reverse order, without spaces.', word[::-1])


def _state(rng: Random) -> Question:
    capital, state = rng.choice(CAPITALS.split(", ")).split(": ")
    return Question(f"{capital} is the capital of which state of the USA?", state)


def _percentage(rng: Random) -> Question:
    # Multiples of 20 and of 5, so that the number of seats is whole.
    whole, percent = rng.randint(3, 40) * 20, rng.randint(1, 19) * 5
    text = f"{whole * percent // 100} of {whole} seats are taken. How many percent is that?"
    text = f"{text} Write the number in digits, without a sign."
    return Question(text, str(percent), case_sensitive=True)


def _clock(rng: Random) -> Question:
    start, minutes = rng.randrange(1440), rng.randint(101, 1339)
    text = f"A clock shows {_time(start)}. What does it show {minutes} minutes later?"
    text = f"{text} Write it in the same form, from 00:00 to 23:59."
    return Question(text, _time((start + minutes) % 1440))


def _time(minutes: int) -> str:
    return "{:02}:{:02}".format(*divmod(minutes, 60))


def _multiples(rng: Random) -> Question:
    factor, first = rng.randint(6, 19), rng.randint(100, 900)
    answer = [n for n in range(first + 1, first + 5 * factor) if n % factor == 0]
    text = f"List the multiples of {factor} that are greater than {first} and less than"
    text = f"{text} {first + 5 * factor}, the smallest first, separated by commas."
    return Question(text, ", ".join(map(str, answer)))


def _roman(rng: Random) -> Question:
    number = rng.randint(101, 3999)
    rest, letters = number, ""
    for value, numeral in ROMAN.items():
        letters += numeral * (rest // value)
        rest %= value
    return Question(f"Write {number} in Roman numerals.", letters)


def _camel_case(rng: Random) -> Question:
    first, *others = rng.sample(WORDS.split(), 3)
    answer = first + "".join(word.capitalize() for word in others)
    text = f'Join the words "{" ".join([first, *others])}" in camel case: no spaces, and a capital'
    text = f"{text} at the start of every word but the first."
    return Question(text, answer, case_sensitive=True)


def _product(rng: Random) -> Question:
    first, second = rng.randint(201, 989), rng.randint(101, 999)
    text = f"What is {first} times {second}? Write it in digits alone, without a comma."
    return Question(text, str(first * second), case_sensitive=True)


def _mean(rng: Random) -> Question:
    numbers = [rng.randint(11, 99) for _ in range(8)]  # eighths have at most three decimals
    text = f"What is the arithmetic mean of {', '.join(map(str, numbers))}?"
    text = f"{text} Write it with a decimal point and exactly three digits after it."
    return Question(text, f"{sum(numbers) / 8:.3f}", case_sensitive=True)


def _later(rng: Random) -> Question:
    day = date(rng.randint(1950, 2049), rng.randint(1, 12), rng.randint(1, 28))
    num_days = rng.randint(40, 400)
    text = f"Which date is {num_days} days after {day.isoformat()}? Write it in the same form."
    return Question(text, (day + timedelta(days=num_days)).isoformat())


def _angle(rng: Random) -> Question:
    first, second = rng.randint(21, 79), rng.randint(21, 79)
    text = f"Two angles of a triangle measure {first}° and {second}°, and the third one is halved."
    text = f"{text} How many degrees has each half? Write the number with a decimal point and"
    text = f"{text} exactly one digit after it, without a sign."
    return Question(text, f"{(180 - first - second) / 2:.1f}", case_sensitive=True)


def _primes(rng: Random) -> Question:
    first = rng.randint(100, 900)
    # Numbers below 1,024 that are not prime have a divisor below 32.
    primes = [n for n in range(first, first + 60) if all(n % k for k in range(2, 32))][:3]
    text = f"Which are the first three prime numbers greater than {first - 1}? Give them in rising"
    return Question(f"{text} order, separated by commas.", ", ".join(map(str, primes)))


KINDS: dict[str, tuple[Callable[[Random], Question], ...]] = {
    "easy": (_sum, _backwards, _state, _percentage),
    "medium": (_clock, _multiples, _roman, _camel_case),
    "hard": (_product, _mean, _later, _angle, _primes),
}

REQUESTS = {
    "boxed": (
        "Put your answer in \\boxed{}.",
        "Think it through, then give the answer alone in \\boxed{}.",
    ),
    "final_answer": (
        'End with a line that says "Final answer:" and the answer.',
        'Close with "Answer:", followed by the answer alone.',
    ),
    "last_line": (
        "Give the answer alone on the last line.",
        "Explain as much as you like; the last line is to hold the answer and nothing else.",
    ),
    "full_response": (
        "Reply with the answer alone.",
        "Write nothing but the answer: no sentence, no explanation.",
    ),
}
"""How prompts ask for the answer, by the extraction mode that reads it."""

WORDS = "anchor barrel candle dolphin engine feather garden hammer island jacket kettle"

ROMAN = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL"}

ROMAN |= {10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I"}

CAPITALS = (
    "Sacramento: California, Austin: Texas, Albany: New York, Boise: Idaho, Salem: Oregon, "
    "Denver: Colorado, Phoenix: Arizona, Juneau: Alaska, Honolulu: Hawaii, Helena: Montana, "
    "Pierre: South Dakota, Bismarck: North Dakota, Lansing: Michigan, Madison: Wisconsin, "
    "Columbus: Ohio, Nashville: Tennessee, Raleigh: North Carolina, Richmond: Virginia, "
    "Charleston: West Virginia, Dover: Delaware, Trenton: New Jersey, Augusta: Maine, "
    "Concord: New Hampshire, Topeka: Kansas, Tallahassee: Florida, Atlanta: Georgia"
)
