"""Generates short texts about ships, with questions for both rules of the environment qa_f1."""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from gymcli import JSON, JSONObject


class Ship(NamedTuple):
    """A ship of a text."""

    name: str
    town: str
    day: int
    month: str
    year: int
    passengers: int

    @property
    def launched(self) -> str:
        """The date of its launch."""
        return f"{self.day} {self.month} {self.year}"


class Question(NamedTuple):
    """A question with its gold answers."""

    text: str
    answers: list[JSON]


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield different questions of three difficulties."""
    found: dict[str, JSONObject] = {}
    while (number := len(found)) < num:
        difficulty = list(KINDS)[number % len(KINDS)]
        rule = "drop" if difficulty == "hard" else "squad"
        ships = _ships(rng)
        question = rng.choice(KINDS[difficulty])(rng, ships)
        text = " ".join(rng.choice(SENTENCES).format(ship=ship) for ship in ships)
        row: JSONObject = {
            "id": f"qa-f1-{number}",
            "difficulty": difficulty,
            "prompt": f"{text}\n\nQuestion: {question.text}\n\n{REQUESTS[rule]}",
            "answers": question.answers,
            "rule": rule,
            "extraction_mode": "answer_line" if rule == "drop" else "full_response",
        }
        found.setdefault(text, row)
    yield from found.values()


def _ships(rng: Random) -> list[Ship]:
    """Return four ships that share no name, town, year or number of passengers."""
    names, towns = (rng.sample(words.split(), 4) for words in (NAMES, TOWNS))
    years, numbers = rng.sample(range(1850, 1950), 4), rng.sample(range(120, 990), 4)
    days = [(rng.randint(1, 28), rng.choice(MONTHS.split())) for _ in names]
    return [
        Ship(name, town, *day, year, number)
        for name, town, day, year, number in zip(names, towns, days, years, numbers, strict=True)
    ]


def _town(rng: Random, ships: list[Ship]) -> Question:
    ship = rng.choice(ships)
    return Question(f"Where was the {ship.name} built?", [ship.town, f"in {ship.town}"])


def _launch(rng: Random, ships: list[Ship]) -> Question:
    ship = rng.choice(ships)
    return Question(f"When was the {ship.name} launched?", [ship.launched, f"on {ship.launched}"])


def _carrier(rng: Random, ships: list[Ship]) -> Question:
    ship = rng.choice(ships)
    return Question(
        f"Which ship could carry {ship.passengers} passengers?", [ship.name, f"The {ship.name}"]
    )


def _unknown(rng: Random, ships: list[Ship]) -> Question:
    asked = ("Who was the captain of the {}?", "How long was the {}?", "When did the {} sink?")
    return Question(rng.choice(asked).format(rng.choice(ships).name), [])


def _difference(rng: Random, ships: list[Ship]) -> Question:
    more, fewer = sorted(rng.sample(ships, 2), key=lambda ship: -ship.passengers)
    text = f"How many more passengers could the {more.name} carry than the {fewer.name}?"
    return Question(text, [str(more.passengers - fewer.passengers)])


def _years(rng: Random, ships: list[Ship]) -> Question:
    first, *_, last = sorted(ships, key=lambda ship: ship.year)
    return Question(
        "How many years lie between the years of the first and the last launch?",
        [str(last.year - first.year)],
    )


def _earlier(rng: Random, ships: list[Ship]) -> Question:
    *earlier, last = sorted(ships, key=lambda ship: ship.year)[: rng.randint(3, 4)]
    names: list[JSON] = [ship.name for ship in earlier]
    with_article: list[JSON] = [f"the {ship.name}" for ship in earlier]
    return Question(f"Which ships were launched before {last.year}?", [names, with_article])


def _oldest(rng: Random, ships: list[Ship]) -> Question:
    ship = min(ships, key=lambda ship: ship.year)
    return Question("On which day was the oldest of the ships launched?", [ship.launched])


KINDS: dict[str, tuple[Callable[[Random, list[Ship]], Question], ...]] = {
    "easy": (_town, _launch),
    "medium": (_carrier, _unknown),
    "hard": (_difference, _years, _earlier, _oldest),
}

SENTENCES = (
    "The {ship.name}, built in {ship.town} and launched on {ship.launched}, could carry"
    " {ship.passengers} passengers.",
    "On {ship.launched} the yard in {ship.town} launched the {ship.name}, with room for"
    " {ship.passengers} passengers.",
    "{ship.town} built the {ship.name} for {ship.passengers} passengers and launched her on"
    " {ship.launched}.",
)

REQUESTS = {
    "squad": "Answer in as few words as possible, using only this text. If the text does not say, "
    'write "unanswerable" and nothing else.',
    "drop": 'Think it through, then end with a line that begins with "Answer:", followed by the '
    "answer alone. Separate several answers by semicolons.",
}
"""How prompts ask for the answer, by the rule."""

NAMES = (
    "Albatross Borealis Corona Delphine Esperance Fulmar Gannet Halcyon Ibis Juno Kittiwake Lark"
)
TOWNS = "Aberdeen Belfast Cork Dundee Elsinore Flensburg Genoa Hamburg Imatra Kiel Leith Malmo"
MONTHS = "January March April May June July August September October November"
