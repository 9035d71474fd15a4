"""Requests with several wishes that have nothing to do with each other."""

from random import Random

from .drafts import MULTIPLE_INTENTS, TODAY, Draft, Family, Levels
from .easy_tasks import EASY
from .medium_tasks import SHORT

__all__ = ["INTENT_LEVELS"]

NUMBERS = {2: "Two", 3: "Three"}
NEXT_YEAR = str(TODAY.year + 1)


def _unrelated(rng: Random, families: tuple[Family, ...], num: int) -> Draft:
    """Put wishes together that change different tables, so that their order never counts."""
    wishes: dict[str, Draft] = {}
    for family in rng.sample(families, len(families)):
        wish = family(rng)
        # A day of the next year would look like a slip beside days that have no year.
        if NEXT_YEAR not in wish.text:
            wishes.setdefault(wish.category, wish)
    chosen = list(wishes.values())[:num]
    listing = "\n".join(f"{number}. {wish.text}" for number, wish in enumerate(chosen, start=1))
    calls = [call for wish in chosen for call in wish.calls]
    return Draft("multiple", f"{NUMBERS[num]} things:\n{listing}", calls, MULTIPLE_INTENTS)


def _two_named(rng: Random) -> Draft:
    return _unrelated(rng, EASY, 2)


def _two_looked_up(rng: Random) -> Draft:
    return _unrelated(rng, SHORT, 2)


def _three_looked_up(rng: Random) -> Draft:
    return _unrelated(rng, SHORT, 3)


INTENT_LEVELS: Levels = (
    ("easy", (_two_named,)),
    ("medium", (_two_looked_up,)),
    ("hard", (_three_looked_up,)),
)
