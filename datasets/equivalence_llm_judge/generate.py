"""Generates questions with computed answers that can be worded in more than one way."""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from random import Random

from gymcli import JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield different questions with computed answers, in every form of `FORMS`."""
    prompts: set[str] = set()
    while (number := len(prompts)) < num:
        difficulty = list(QUESTIONS)[number % len(QUESTIONS)]
        request, answer_format, pattern = FORMS[number // len(QUESTIONS) % len(FORMS)]
        question, answer = rng.choice(QUESTIONS[difficulty])(rng)
        prompt = f"{question}\n\n{request}"
        if prompt in prompts:
            continue
        prompts.add(prompt)
        yield {
            "id": f"equivalence-{number}",
            "difficulty": difficulty,
            "prompt": prompt,
            "expected_answer": answer,
            "answer_format": answer_format,
            **({"template_metadata": {"output_regex": pattern}} if pattern else {}),
        }


Question = tuple[str, str]
"""A question and its answer."""

MONTHS = "January February March April May June July August September October November December"
ELEMENTS = (
    "hydrogen helium lithium beryllium boron carbon nitrogen oxygen fluorine neon sodium magnesium "
    "aluminium silicon phosphorus sulfur chlorine argon potassium calcium scandium titanium "
    "vanadium chromium manganese iron cobalt nickel copper zinc gallium germanium arsenic selenium "
    "bromine krypton rubidium strontium yttrium zirconium"
)
"""By their number of protons."""
PEOPLE = ("Amina", "Bruno", "Celia", "Dario", "Edith", "Farid", "Greta", "Hamid", "Irene", "Jonas")


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _dated(day: date) -> str:
    return f"{day.day} {MONTHS.split()[day.month - 1]} {day.year}"


def _distance(rng: Random) -> Question:
    vehicle, pace = rng.choice(("train", "bus", "car", "lorry")), rng.randint(3, 9)
    first, second = rng.sample(range(2, 24), 2)
    text = f"A {vehicle} covers {pace * first} kilometres in {5 * first} minutes. How far does it"
    return f"{text} get in {5 * second} minutes at the same speed?", f"{pace * second} kilometres"


def _end(rng: Random) -> Question:
    event, start = rng.choice(("film", "concert", "play", "lecture")), rng.randint(540, 1199)
    hours, minutes = rng.randint(1, 3), rng.randint(2, 59)
    text = f"A {event} begins at {_clock(start)} and lasts {hours} hour{'s' * (hours > 1)} and"
    question = f"{text} {minutes} minutes. At what time of day does it end?"
    return question, _clock(start + 60 * hours + minutes)


def _later_date(rng: Random) -> Question:
    # Every month has 28 days.
    start = date(rng.randint(1990, 2039), rng.randint(1, 12), rng.randint(1, 28))
    num_days = rng.randint(40, 300)
    question = f"Which date is {num_days} days after {_dated(start)}?"
    return question, _dated(start + timedelta(days=num_days))


def _element(rng: Random) -> Question:
    number, element = rng.choice(list(enumerate(ELEMENTS.split(), start=1))[5:])
    num_neutrons = number + rng.randint(0, number // 4)
    question = f"The nucleus of an atom has {number + num_neutrons} protons and neutrons,"
    question = f"{question} {num_neutrons} of them neutrons. Of which chemical element is the atom?"
    return question, element


def _cheaper(rng: Random) -> Question:
    shops, goods = rng.sample(PEOPLE, 2), rng.choice(("rice", "flour", "coffee", "salt", "lentils"))
    # Cents per kilogram, in steps of 4 so that a quarter of a kilogram costs whole cents.
    prices = rng.sample(range(120, 480, 4), 2)
    quarters = rng.sample(range(2, 16), 2)
    offers = [
        f"{shop} sells {250 * weight} grams of {goods} for {price * weight / 400:.2f} euros"
        for shop, price, weight in zip(shops, prices, quarters, strict=True)
    ]
    question = f"{offers[0]}, {offers[1]}. Whose {goods} is cheaper, and by how much per kilogram?"
    difference = abs(prices[0] - prices[1]) / 100
    return question, f"{shops[prices.index(min(prices))]}'s, by {difference:.2f} euros per kilogram"


def _shares(rng: Random) -> Question:
    people, parts = rng.sample(PEOPLE, 3), rng.sample(range(2, 10), 3)
    part = rng.randint(11, 95)
    ratio = " to ".join(map(str, parts))
    names = "{}, {} and {}".format(*people)
    question = f"{names} share {part * sum(parts)} euros in the ratio {ratio}, in this order. How"
    shares = [f"{name} {part * own} euros" for name, own in zip(people, parts, strict=True)]
    return f"{question} much does each of them get?", "{}, {} and {}".format(*shares)


def _timetable(rng: Random) -> Question:
    start, num_talks = rng.randint(480, 660), rng.randint(5, 7)
    length, pause = rng.randint(21, 49), rng.randint(4, 14)
    question = (
        f"{num_talks} talks follow one another. The first begins at {_clock(start)}, each lasts"
        f" {length} minutes, and between two of them is a break of {pause} minutes. When does each"
        " begin and end?"
    )
    begins = [start + number * (length + pause) for number in range(num_talks)]
    talks = [
        f"talk {number} from {_clock(begin)} to {_clock(begin + length)}"
        for number, begin in enumerate(begins, start=1)
    ]
    return question, ", ".join(talks)


QUESTIONS: dict[str, tuple[Callable[[Random], Question], ...]] = {
    "easy": (_distance, _end),
    "medium": (_later_date, _element),
    "hard": (_cheaper, _shares, _timetable),
}
"""Functions that draw questions; the answers of timetables are longer than 120 characters."""

FORMS = (
    ("Give the answer alone, without any explanation.", "{answer}", None),
    (
        'Think first, then end with a line that begins with "ANSWER:" and gives your answer.',
        "I worked it out step by step.\nANSWER: {answer}",
        r"^ANSWER:(.+?)$",
    ),
    (
        "Explain it in a sentence, and put the answer itself in <<double angle brackets>>.",
        "This is what follows: <<{answer}>>",
        r"<<([^<>]+)>>",
    ),
)
"""How prompts ask for the answer, the form of such an answer, and the pattern that reads it."""
