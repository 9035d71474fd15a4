"""Generates multiple-choice questions with computed answers."""

from collections.abc import Iterator
from datetime import date
from random import Random

from gymcli import JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield different questions with computed answers, in every form of `FORMS`."""
    rows: dict[str, JSONObject] = {}
    while (number := len(rows)) < num:
        difficulty = list(PROBLEMS)[number % len(PROBLEMS)]
        request, fields = list(FORMS.items())[number // len(PROBLEMS) % len(FORMS)]
        text, right, pool = rng.choice(PROBLEMS[difficulty])(rng)
        wrong = rng.sample(pool, min(rng.randint(3, 9), len(pool)))
        texts = rng.sample([right, *wrong], len(wrong) + 1)
        options = list(zip(LETTERS, texts, strict=False))
        listing = "\n".join(f"{letter}: {option}" for letter, option in options)
        prompt = f"{text}\n\n{listing}\n\n{request}"
        # A repeated prompt keeps its row, and the loop draws again.
        rows[prompt] = rows.get(prompt) or {
            "id": f"mcqa-{number}",
            "difficulty": difficulty,
            "prompt": prompt,
            "options": [{letter: option} for letter, option in options],
            "expected_answer": LETTERS[texts.index(right)],
            **fields,
        }
    yield from rows.values()


Problem = tuple[str, str, list[str]]
"""A question, its right option, and wrong options to draw from."""

LETTERS = "ABCDEFGHIJ"


def _largest(rng: Random) -> Problem:
    wrong = rng.sample(range(10, 900), 9)
    right = rng.randint(max(wrong) + 1, 999)
    return "Which of these numbers is the largest?", str(right), [str(n) for n in wrong]


def _first_word(rng: Random) -> Problem:
    right, *wrong = sorted(rng.sample(WORDS.split(), 10))
    return "Which of these words comes first in a dictionary?", right, wrong


def _letter_count(rng: Random) -> Problem:
    words = " ".join(rng.sample(WORDS.split(), 3))
    letter = rng.choice(sorted({*words} - {" "}))
    right = words.count(letter)
    text = f'How many times does the letter "{letter}" occur in "{words}"?'
    return text, str(right), [str(n) for n in range(right + 7) if n != right]


def _weekday(rng: Random) -> Problem:
    day = date(rng.randint(1950, 2049), rng.randint(1, 12), rng.randint(1, 28))
    right = DAYS[day.weekday()]
    return f"Which day of the week is {day.isoformat()}?", right, [d for d in DAYS if d != right]


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WORDS = "anchor barrel candle dolphin engine feather garden hammer island jacket kettle lantern"

PROBLEMS = {"easy": (_largest, _first_word), "medium": (_letter_count,), "hard": (_weekday,)}
FORMS: dict[str, JSONObject] = {
    "Put the letter in \\boxed{}.": {"grading_mode": "strict_single_letter_boxed"},
    "Think first, then give the letter of your choice in \\boxed{}.": {},
    "Give the option, by letter or text, in \\boxed{}.": {"grading_mode": "lenient_boxed"},
    'Reply with "Answer:" and the letter.': {"grading_mode": "lenient_answer_colon"},
    'End with "I pick" and the letter.': {"template_metadata": {"output_regex": r"I pick (\w)\b"}},
    "Put its text in <pick></pick>.": {"template_metadata": {"output_regex": ["<pick>(.+?)<"]}},
}
"""How prompts ask for the answer, and the fields of the row that set how it is read."""
