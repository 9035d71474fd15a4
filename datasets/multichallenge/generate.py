"""Generates chats that end with a choice, some of whose options early turns rule out."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from gymcli import JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield chats that end with a choice for which early turns must be remembered."""
    requests: set[str] = set()
    while (number := len(requests)) < num:
        difficulty = list(DIFFICULTIES)[number % len(DIFFICULTIES)]
        chat = write_chat(rng, difficulty)
        request = chat.turns[-1]
        if request in requests:
            continue
        requests.add(request)
        yield {
            "id": f"memory-{number}",
            "difficulty": difficulty,
            "messages": [
                {"role": ("user", "assistant")[place % 2], "content": text}
                for place, text in enumerate(chat.turns)
            ],
            "rubric": [item._asdict() for item in chat.rubric],
            "gold_reply": chat.gold_reply,
        }


class Item(NamedTuple):
    """An item of a rubric."""

    question: str
    pass_criteria: str
    weight: float = 1.0


class Chat(NamedTuple):
    """A chat, with a rubric and a good reply for its last turn."""

    turns: list[str]
    """Turns of user and assistant; the first and the last are the user's."""
    rubric: list[Item]
    gold_reply: str


class Theme(NamedTuple):
    """A subject with options to choose from."""

    names: str
    features: str
    ban: str
    """The sentence that bans a feature."""
    limit: str
    """The sentence that sets the highest acceptable number."""
    correction: str
    """The sentence that replaces that number."""
    option: str
    request: str
    limits: range
    """Possible limits; numbers of options have the same step."""


class Level(NamedTuple):
    """The difficulty of a chat."""

    num_asides: int
    """Turns about something else."""
    num_banned: int
    """Options with the banned feature."""
    beyond: tuple[int, ...]
    """Features of the options whose number exceeds the limit, as indices; `RIGHT` is the feature
    of the right option."""
    has_manners: bool = False
    """Whether the user wants to be addressed by name, and wants short replies."""
    has_correction: bool = False
    """Whether the limit is corrected later, and every reply must begin with the same words."""


class Manners(NamedTuple):
    """Rules for the form of replies."""

    wishes: list[str]
    rubric: list[Item]
    opening: str
    """The beginning of every reply."""
    address: str
    """The beginning of advice."""


BANNED, RIGHT = 0, 1
"""Indices of the banned feature and of the right option's feature."""

DIFFICULTIES = {
    "easy": Level(1, num_banned=1, beyond=(2,)),
    "medium": Level(2, num_banned=2, beyond=(RIGHT,), has_manners=True),
    "hard": Level(3, num_banned=2, beyond=(RIGHT, 2), has_manners=True, has_correction=True),
}

THEMES = (
    Theme(
        "leek soup, barley stew, pumpkin pie, bean salad, potato gratin, lentil curry, mushroom "
        "pasta, spinach dumplings, carrot risotto, onion tart",
        "walnuts, celery, mustard, sesame, ginger, chestnuts",
        "I am allergic to {}.",
        "I never spend more than {} euros on a meal.",
        "I counted my money again, and the limit I gave is wrong: {} euros is the most for a meal.",
        "{} with {}, {} euros",
        "I am at the inn now. They offer: {}. Which one should I order?",
        range(9, 25),
    ),
    Theme(
        "Heron Path, Mill Trail, Quarry Loop, Abbey Walk, Juniper Ridge, Otter Track, Lantern Way, "
        "Shepherd Round, Beacon Route, Willow Circuit",
        "ladders, tunnels, ledges, stepping stones, fords, hanging bridges",
        "I never walk where there are {}.",
        "More than {} kilometres in a day is too far for me.",
        "The distance that I gave you is wrong, says my doctor: {} kilometres is the most for me.",
        "{} with {}, {} kilometres",
        "For tomorrow the map has: {}. Which one is for me?",
        range(8, 22),
    ),
    Theme(
        "pottery, bookbinding, fencing, juggling, calligraphy, carpentry, weaving, beekeeping, "
        "accordion, glassblowing",
        "Mondays, Tuesdays, Wednesdays, Thursdays, Fridays, Saturdays",
        "I have no time on {}.",
        "A course may cost me {} euros and not more.",
        "My employer pays by another rule now: {} euros is the most for a course.",
        "{} on {}, {} euros",
        "The evening school has courses in: {}. Which one should I take?",
        range(60, 150, 5),
    ),
)

NAMES = ("Mr Okafor", "Mrs Lindqvist", "Dr Moreau", "Ms Tanaka", "Mr Petrov", "Mrs Alvarez")
OPENINGS = ("Ahoy!", "Gladly!", "At once!", "Here goes!", "With joy!", "Of course!")
ASIDES = (
    ("How long does an egg have to boil until it is hard?", "About nine minutes."),
    ("What is the capital of Estonia?", "It is Tallinn."),
    ("How many minutes does a day have?", "A day has 1440 minutes."),
    ("What do you call a young swan?", "A young swan is a cygnet."),
    ("Which planet is closest to the sun?", "That is Mercury."),
    ("What is the opposite of transparent?", "The opposite is opaque."),
    ("How many strings does a violin have?", "A violin has four strings."),
    ("What is 17 times 6?", "That makes 102."),
)


def write_chat(rng: Random, difficulty: str) -> Chat:
    """Draw a chat; exactly one of its options meets everything that the user said."""
    level, theme = DIFFICULTIES[difficulty], rng.choice(THEMES)
    limits = rng.sample(theme.limits, 2 if level.has_correction else 1)
    features = rng.sample(theme.features.split(", "), 3)
    options = _options(rng, theme.limits.step, limits, level)
    right, *wrong = names = rng.sample(theme.names.split(", "), len(options))
    listed = [
        theme.option.format(name, features[place], number)
        for name, (place, number) in zip(names, options, strict=True)
    ]
    facts = [theme.ban.format(features[BANNED]), theme.limit.format(limits[0])]
    manners = _manners(rng, level, right)
    told = " ".join(["Hello!", *rng.sample(facts, 2), *manners.wishes, "Please remember that."])
    pairs = [(told, "I will."), *rng.sample(ASIDES, level.num_asides)]
    if level.has_correction:
        # Never before the first turn, which sets the limit.
        correction = theme.correction.format(limits[-1])
        pairs.insert(rng.randrange(1, len(pairs)), (correction, "I will go by that from now on."))
    others = ", ".join(f'"{name}"' for name in sorted(wrong))
    return Chat(
        [text for user, reply in pairs for text in (user, manners.opening + reply)]
        + [theme.request.format("; ".join(rng.sample(listed, len(listed))))],
        [
            Item(f'Does the reply recommend "{right}" and none of {others}?', "YES", 2.0),
            *manners.rubric,
        ],
        f"{manners.opening}{manners.address}I recommend {right}.",
    )


def _options(rng: Random, step: int, limits: list[int], level: Level) -> list[tuple[int, int]]:
    """Return the feature and the number of every option; the right one comes first.

    The list alone does not reveal it: an allowed feature may occur twice, like the banned one, and
    options with the banned feature have any number.
    """
    # After a correction, the old limit excludes the right option or admits a wrong one.
    old, limit = limits[0], limits[-1]
    low, high = limit - 4 * step, limit + 6 * step

    def number(above: int, most: int) -> int:
        return rng.randrange(above + step, most + step, step)

    right = (RIGHT, number(old if old < limit else low, limit))
    banned = [(BANNED, number(low, high)) for _ in range(level.num_banned)]
    beyond = [(place, number(limit, old if old > limit else high)) for place in level.beyond]
    return [right, *banned, *beyond]


def _manners(rng: Random, level: Level, right: str) -> Manners:
    """Draw rules for replies; every item of the rubric fails for an empty reply."""
    opening, name = rng.choice(OPENINGS), rng.choice(NAMES)
    max_words = rng.choice((20, 25, 30, 40))
    wishes = [
        f"Call me {name} whenever you advise me.",
        f"No reply may have more than {max_words} words.",
        f'Begin every reply with "{opening}"',
    ]
    rubric = [
        Item(f'Is the name "{name}" missing from the reply?', "NO"),
        Item(f'Does the reply recommend "{right}" in no more than {max_words} words?', "YES"),
        Item(f'Does the reply begin with "{opening}"?', "YES"),
    ]
    num_wishes = 2 * level.has_manners + level.has_correction
    return Manners(
        wishes[:num_wishes],
        rubric[:num_wishes],
        opening=f"{opening} " if level.has_correction else "",
        address=f"{name}, " if level.has_manners else "",
    )
