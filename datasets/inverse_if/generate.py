"""Generates exercises against habit: an instruction, the only right response, and criteria."""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from gymcli import JSONObject
from gymcli.envs.inverse_if.judging import WORDINGS, Kind


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield instructions with one right response; every fourth row has its own judge prompt."""
    seen: set[str] = set()
    for number in range(num):
        difficulty, made = exercise(rng, number)
        while made.prompt in seen:
            _, made = exercise(rng, number)
        seen.add(made.prompt)
        rubric = [
            {"id": f"C{place}", "criteria": text} for place, text in enumerate(made.criteria, 1)
        ]
        row: JSONObject = {
            "id": f"inverse-{number}",
            "difficulty": difficulty,
            "prompt": made.prompt,
            "rubric": [*rubric],
            "reference_response": made.response,
        }
        if number % 4 == 3:
            row["judge_prompt_template"] = JUDGE_TEMPLATE
            row["judge_system_prompt"] = JUDGE_SYSTEM
        yield row


def criterion(kind: Kind, **given: str | int) -> str:
    """Return a criterion in its fixed wording, which the environment's scripted judge can read."""
    wording: str = WORDINGS[kind]
    return wording.format(**given)


class Exercise(NamedTuple):
    """A request, the right response, and the criteria that check it."""

    prompt: str
    response: str
    criteria: list[str]


class Change(NamedTuple):
    """A change to a sequence of words."""

    instruction: str
    apply: Callable[[list[str]], list[str]]


JUDGE_TEMPLATE = """One point of somebody's homework is to be checked. The task was odd, and it \
was to be done as it says.

Task:
<task>
{prompt}
</task>

Handed in:
<homework>
{model_response}
</homework>

As the teacher would do it:
<solution>
{standard_response}
</solution>

Point to check:
<point>
{criteria}
</point>

Say {{"explanation": "...", "result": "PASS"}} if it holds for what was handed in, and "FAIL" in \
place of "PASS" if it does not.
"""
JUDGE_SYSTEM = "You are a teacher who takes every word of a task seriously. Answer in JSON."
"""The judge prompt of some rows."""

CHANGES = (
    Change("Put the words in the opposite order, the last one first.", lambda ws: ws[::-1]),
    Change(
        "Leave out every third word: the third, the sixth, and so on.",
        lambda ws: [word for place, word in enumerate(ws, 1) if place % 3],
    ),
    Change(
        "Make the last letter of every word a capital, and leave the other letters as they are.",
        lambda ws: [word[:-1] + word[-1].upper() for word in ws],
    ),
    Change("Misspell every word: write its first letter twice.", lambda ws: [w[0] + w for w in ws]),
    Change(
        "Take the first letter of every word away and put it at the word's end.",
        lambda ws: [word[1:] + word[0] for word in ws],
    ),
)

NUMBERS = "three four five six seven eight nine ten eleven twelve"
QUALITIES = "tired young cheerful famous quiet hungry clever brave polite proud"
PEOPLE = "bakers sailors farmers painters singers doctors pilots judges miners weavers"
DEEDS = "carried painted counted borrowed hid repaired polished dropped sold washed"
COLOURS = "red blue green yellow purple silver orange black white golden"
THINGS = "lanterns baskets ladders kettles blankets buckets mirrors saddles bottles drums"
NAMES = "Ada Bruno Clara Dario Edith Felix Greta Hugo Irma Jonas Karla Leo Mona Nils"
CHORES = (
    "wash the cups",
    "sweep the floor",
    "water the plants",
    "feed the cat",
    "open the windows",
    "air the beds",
    "fold the towels",
    "wipe the table",
    "empty the bin",
    "sort the letters",
    "polish the shoes",
    "dust the shelves",
    "wind the clock",
    "lock the shed",
)


def exercise(rng: Random, number: int) -> tuple[str, Exercise]:
    """Return an exercise and its difficulty, which depends on its number."""
    difficulty = list(EXERCISES)[number % len(EXERCISES)]
    return difficulty, rng.choice(EXERCISES[difficulty])(rng)


def _one_change(rng: Random) -> Exercise:
    return _changed(_clause(rng), rng.sample(CHANGES, 1))


def _two_changes(rng: Random) -> Exercise:
    return _changed([*_clause(rng), "and", *_clause(rng)], rng.sample(CHANGES, 2))


def _four_changes(rng: Random) -> Exercise:
    words = [*_clause(rng), "while", *_clause(rng), "and", *_clause(rng)]
    return _changed(words, rng.sample(CHANGES, 4))


def _clause(rng: Random) -> list[str]:
    return [
        rng.choice(kind.split()) for kind in (NUMBERS, QUALITIES, PEOPLE, DEEDS, COLOURS, THINGS)
    ]


def _changed(words: list[str], changes: list[Change]) -> Exercise:
    """Ask for changes to a sequence of words, one after another."""
    result = words
    for change in changes:
        result = change.apply(result)
    steps = "\n".join(f"{place}. {change.instruction}" for place, change in enumerate(changes, 1))
    how = ", each step with what the one before it gave" if len(changes) > 1 else ""
    prompt = (
        f"Here are some words: {' '.join(words)}\n\nRewrite them like this{how}:\n{steps}\n\nGive "
        "the outcome in one line, with a space between words, and write nothing else, not even to "
        "explain."
    )
    middle = len(result) // 2
    places = [1, middle + 1, len(result)]
    return Exercise(
        prompt,
        " ".join(result),
        [
            criterion("num_words", number=len(result)),
            *(criterion("word", number=place, text=result[place - 1]) for place in places),
            criterion("num_lines", number=1),
            criterion("line", number=1, text=" ".join(result)),
        ],
    )


def _count_down(rng: Random) -> Exercise:
    low, step = rng.randint(1, 400), rng.randint(2, 9)
    numbers = range(low, low + step * rng.randint(5, 9), step)
    prompt = (
        f"List the numbers {', '.join(map(str, numbers))} in the order in which nobody would: from "
        "the largest to the smallest. One number in each line, and nothing else."
    )
    return _in_lines(prompt, [str(number) for number in reversed(numbers)])


def _letter(rng: Random) -> Exercise:
    sender, receiver = rng.sample(NAMES.split(), 2)
    message = f"The {rng.choice(COLOURS.split())} {rng.choice(THINGS.split())} have arrived."
    lines = [f"Yours, {sender}", message, f"Dear {receiver},"]
    prompt = (
        f'Write a letter of three lines that is upside down. It greets with "{lines[2]}", says '
        f'"{message}", and is signed "{lines[0]}"; but the signature is the first line, and the '
        "greeting is the last. Write only these three lines, without the quotation marks."
    )
    return _in_lines(prompt, lines)


def _answer_first(rng: Random) -> Exercise:
    first, second = rng.randint(12, 89), rng.randint(12, 89)
    question = f"How much is {first} plus {second}?"
    prompt = (
        f'Here is a question: "{question}" Give your answer before it was asked: the first line '
        "of what you write is the number alone, and the second line is the question, word for "
        "word. Write nothing else."
    )
    return _in_lines(prompt, [str(first + second), question])


def _steps_upwards(rng: Random) -> Exercise:
    chores = rng.sample(CHORES, rng.randint(5, 7))
    numbered = [f"{place}. {chore}" for place, chore in enumerate(chores, 1)]
    prompt = (
        f"These chores are done in this order: {'; '.join(chores)}. Write them as a numbered list "
        "that is to be read from the bottom: the chore that is done first is number 1 and stands "
        "in the last line, the one that is done last has the highest number and stands on top. "
        'Each line is like "3. sing a song". Write nothing else.'
    )
    return _in_lines(prompt, numbered[::-1])


def _wrong_sums(rng: Random) -> Exercise:
    sums = [(rng.randint(101, 899), rng.randint(101, 899)) for _ in range(rng.randint(5, 7))]
    listed = "\n".join(f"{first} + {second}" for first, second in sums)
    right = [first + second for first, second in sums]
    wrong = [str(total + 1) for total in reversed(right)]
    prompt = (
        f"Add up:\n{listed}\n\nGet every one of them wrong, by exactly one too many, and begin "
        "with the sum that stands last. One wrong result in each line, without the numbers that "
        "were added, and nothing else."
    )
    made = _in_lines(prompt, wrong)
    # A right sum may happen to be one of the wrong ones, and must then be in the answer.
    avoided = [str(total) for total in right if str(total) not in wrong]
    made.criteria.extend(criterion("absent", text=total) for total in avoided[:2])
    return made


def _in_lines(prompt: str, lines: list[str]) -> Exercise:
    """Return the exercise whose response has these lines in this order."""
    criteria = [criterion("num_lines", number=len(lines))]
    criteria += [criterion("line", number=place, text=text) for place, text in enumerate(lines, 1)]
    return Exercise(prompt, "\n".join(lines), criteria)


EXERCISES = {
    "easy": (_one_change, _count_down, _letter),
    "medium": (_two_changes, _answer_first, _steps_upwards),
    "hard": (_four_changes, _wrong_sums),
}
