"""Generates lists of terms and trails of synonyms whose values are to be looked up."""

import functools
import itertools
from collections.abc import Iterator
from random import Random

from gymcli import JSONObject
from gymcli.envs.example_multi_step import value_of


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield lists of growing length; hard messages only hint at their terms."""
    for number in range(num):
        difficulty = list(LEVELS)[number % len(LEVELS)]
        kind = PLAN[number // len(LEVELS) % len(PLAN)]
        if kind == "trail":
            fields = _trail(rng, difficulty)
        else:
            fields = _list(rng, difficulty, num_asked=2 if kind == "two terms" else 1)
        yield {"id": f"synonyms-{number}", "difficulty": difficulty, **fields}


def _list(rng: Random, difficulty: str, *, num_asked: int) -> JSONObject:
    """Ask for one or two terms of a list."""
    num_terms, num_synonyms = LEVELS[difficulty]
    terms = rng.sample(list(THESAURUS), num_terms)
    while not _have_own_values(terms[:num_asked], num_synonyms):
        terms = rng.sample(list(THESAURUS), num_terms)
    pairs = [(term, s) for term in terms for s in THESAURUS[term][1][:num_synonyms]]
    rng.shuffle(pairs)
    asked = terms[:num_asked]
    # In the order of the list within each term, as the instructions ask.
    expected = [synonym for term in asked for other, synonym in pairs if other == term]
    listing = "\n".join(f"- {term}: {synonym}" for term, synonym in pairs)
    if num_asked == 1:
        return _fields("information dependency", INSTRUCTIONS, listing, asked, expected, difficulty)
    return _fields("multiple intents", FOR_TWO_TERMS, listing, asked, expected, difficulty)


def _have_own_values(terms: list[str], num_synonyms: int) -> bool:
    """Return whether these terms and their synonyms all have different values."""
    words = [word for term in terms for word in (term, *THESAURUS[term][1][:num_synonyms])]
    return len({*map(value_of, words)}) == len(words)


def _trail(rng: Random, difficulty: str) -> JSONObject:
    """Ask for a term whose synonyms form a trail: each value names the group of the next one."""
    length = LEVELS[difficulty][1]
    term, *trail = rng.choice(_trails(length))
    visited = [value_of(word) % 10 for word in (term, *trail)]
    # The last value of the trail leads to a group without a synonym of the term, where it ends.
    places = dict(zip(trail, visited, strict=False))
    others = [synonym for synonym in THESAURUS[term][1] if synonym not in trail]
    unvisited = [place for place in range(10) if place not in visited]
    places |= dict(zip(others, rng.sample(unvisited, len(others)), strict=True))
    lines = [(place, term, synonym) for synonym, place in places.items()]
    for other in rng.sample([name for name in THESAURUS if name != term], NUM_OTHERS):
        synonyms = THESAURUS[other][1]
        groups = rng.sample(range(10), len(synonyms))
        lines += [(place, other, one) for place, one in zip(groups, synonyms, strict=True)]
    rng.shuffle(lines)
    listing = "\n".join(
        "\n".join([f"Group {group}", *(f"- {t}: {s}" for place, t, s in lines if place == group)])
        for group in range(10)
    )
    capability = "information dependency"
    fields = _fields(capability, FOR_TRAILS, listing, [term], trail, difficulty)
    return {**fields, "begins_with_term": True}


@functools.cache
def _trails(length: int) -> list[tuple[str, ...]]:
    """Return each term with this many of its synonyms whose values all end in different digits."""
    return [
        (term, *trail)
        for term, (_, synonyms) in THESAURUS.items()
        for trail in itertools.permutations(synonyms, length)
        if len({value_of(word) % 10 for word in (term, *trail)}) == length + 1
    ]


def _fields(
    capability: str,
    instructions: str,
    listing: str,
    terms: list[str],
    expected: list[str],
    difficulty: str,
) -> JSONObject:
    question = f"What makes a day {', and what makes a day '.join(terms)}?"
    hint = " ".join(THESAURUS[term][0] for term in terms)
    return {
        "capability": capability,
        "messages": [
            {"role": "system", "content": f"{instructions}\n\n{listing}"},
            {"role": "user", "content": hint if difficulty == "hard" else question},
        ],
        "expected_synonyms": expected,
        "expected_synonym_values": [value_of(synonym) for synonym in expected],
        "minefield_label": terms[0],
        "minefield_label_value": value_of(terms[0]),
    }


PLAN = ["one term"] * 20 + ["trail"] * 4 + ["two terms"] * 4
"""The kind of each block of three rows (easy, medium, hard), repeated."""

LEVELS = {"easy": (8, 2), "medium": (10, 3), "hard": (10, 4)}
"""Terms of a list, and synonyms of a term or a trail."""
NUM_OTHERS = 5
"""Other terms in a listing with a trail."""

INSTRUCTIONS = (
    "Each line below gives a term and one of its synonyms. Find the term that the message is "
    "about. Look up the value of each of its synonyms, then hand over all the values in the order "
    "in which the synonyms stand in the list. Leave out the term itself."
)
FOR_TWO_TERMS = (
    "Each line below gives a term and one of its synonyms. The message is about two terms. Look up "
    "the value of each synonym of both, then hand over all the values in one call: first those of "
    "the term that the message speaks of first, then those of the other one, each in the order in "
    "which the synonyms stand in the list. Leave out the terms themselves."
)
FOR_TRAILS = (
    "The lines below give a term and one of its synonyms each, in ten groups. Find the term that "
    "the message is about and look up its value. The last digit of a value is the group to go on "
    "with: look up the synonym that the term has there, and so on, until you come to a group in "
    "which the term has none. Then hand over the values of the synonyms that you came to, in this "
    "order. Leave out the term itself, and its synonyms in all other groups."
)

THESAURUS = {
    "cold": ("My fingers turn blue out here.", ("frosty", "icy", "chilly", "wintry", "nippy")),
    "warm": ("I took off my pullover in the sun.", ("mild", "balmy", "heated", "cosy", "snug")),
    "wet": ("The rain went through my shoes.", ("soaked", "damp", "drenched", "moist", "soggy")),
    "dry": ("Not a drop fell on the desert.", ("arid", "parched", "rainless", "thirsty", "dusty")),
    "quiet": ("You could hear a pin drop.", ("silent", "hushed", "noiseless", "muted", "peaceful")),
    "loud": ("The drums hurt my ears.", ("noisy", "deafening", "booming", "blaring", "thundering")),
    "bright": ("The snow dazzled us.", ("radiant", "glaring", "shining", "luminous", "gleaming")),
    "dark": ("I could not see my hand.", ("gloomy", "unlit", "murky", "shadowy", "lightless")),
    "fast": ("The train shot past us.", ("rapid", "swift", "speedy", "quick", "brisk")),
    "slow": ("A snail overtook our bus.", ("sluggish", "unhurried", "plodding", "tardy", "lazy")),
    "happy": ("She sang all the way home.", ("cheerful", "joyful", "merry", "glad", "jolly")),
    "sad": ("He wept over the letter.", ("sorrowful", "unhappy", "tearful", "mournful", "woeful")),
    "busy": ("Nobody had a minute to spare.", ("hectic", "bustling", "occupied", "active", "full")),
    "dull": ("We yawned through the lecture.", ("boring", "tedious", "dreary", "humdrum", "drab")),
    "short": ("It was over before it began.", ("brief", "fleeting", "curt", "momentary", "terse")),
    "long": (
        "The meeting would not end.",
        ("lengthy", "endless", "extended", "prolonged", "unending"),
    ),
}
"""Terms with a message that hints at them and their synonyms, one more than a task needs."""
