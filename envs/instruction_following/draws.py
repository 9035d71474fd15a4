"""Draws the arguments of an instruction: words of the subject, and numbers that suit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from gymcli import JSONObject

__all__ = [
    "Draw",
    "capitals",
    "count",
    "end_phrase",
    "excluded",
    "first_word",
    "forbidden",
    "frequency",
    "keyword",
    "keywords",
    "last_word",
    "length",
    "letter",
    "marker",
    "nothing",
    "one_and_two",
    "paragraph_word",
    "phrase",
    "sections",
]

Draw = Callable[[Random, Sequence[str]], JSONObject]
"""Draws arguments; the first three of the words are for this instruction alone."""

END_PHRASES = """
That is all about the {0}
More about the {0} another time
So much for the {0} and the {1}
Now back to the {0}
And the {0} is still there
"""
PHRASES = """
every {0} needs its own patient {1}
behind one {0} waits another curious {1}
between the {0} and that quiet {1}
"""
USUAL_WORDS = "because very really always never great maybe perhaps however simply beautiful nice"


def nothing(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw nothing, for an instruction that says all by itself."""
    return {}


def count(name: str, low: int, high: int) -> Draw:
    """Make what draws a number."""
    return lambda rng, words: {name: rng.randint(low, high)}


def length(name: str, least: tuple[int, int], less: tuple[int, int]) -> Draw:
    """Make what draws a lower bound for a number, or an upper one."""

    def draw(rng: Random, words: Sequence[str]) -> JSONObject:
        if rng.random() < 0.5:
            return {name: rng.randint(*least), "relation": "at least"}
        return {name: rng.randint(*less), "relation": "less than"}

    return draw


def keyword(rng: Random, words: Sequence[str]) -> JSONObject:
    """Give a word."""
    return {"keyword": words[0]}


def keywords(rng: Random, words: Sequence[str]) -> JSONObject:
    """Give two words or three."""
    return {"keywords": list(words[: rng.randint(2, 3)])}


def frequency(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw how often a word has to come: more often than in the prompt."""
    return {"keyword": words[0], "frequency": rng.randint(3, 6), "relation": "at least"}


def one_and_two(rng: Random, words: Sequence[str]) -> JSONObject:
    """Give two words."""
    return {"keyword1": words[0], "keyword2": words[1]}


def first_word(rng: Random, words: Sequence[str]) -> JSONObject:
    """Give a word to begin with."""
    return {"first_word": words[0]}


def last_word(rng: Random, words: Sequence[str]) -> JSONObject:
    """Give a word to end with."""
    return {"last_word": words[0]}


def paragraph_word(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw how many paragraphs there are, and which of them begins with a word."""
    num = rng.randint(2, 5)
    return {"num_paragraphs": num, "nth_paragraph": rng.randint(1, num), "first_word": words[0]}


def phrase(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw a phrase and how often it comes."""
    text = rng.choice(PHRASES.strip().splitlines()).format(*words)
    return {"phrase": text, "small_n": rng.randint(2, 4)}


def end_phrase(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw a phrase to end with."""
    return {"end_phrase": rng.choice(END_PHRASES.strip().splitlines()).format(*words)}


def letter(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw an upper bound for a rare letter, or a lower one for a common one."""
    if rng.random() < 0.5:
        number = rng.randint(2, 3)
        return {"letter": rng.choice("jxz"), "let_frequency": number, "let_relation": "less than"}
    number = rng.randint(20, 40)
    return {"letter": rng.choice("aeinorst"), "let_frequency": number, "let_relation": "at least"}


def forbidden(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw words that come easily."""
    return {"forbidden_words": rng.sample(USUAL_WORDS.split(), rng.randint(2, 4))}


def excluded(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw a word that comes easily."""
    return {"keyword": rng.choice(USUAL_WORDS.split())}


def capitals(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw how many words are in capitals."""
    return {"capital_frequency": rng.randint(2, 6), "capital_relation": "at least"}


def sections(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw how many sections there are and what they are called."""
    splitter = rng.choice(["Section", "Part", "Day"])
    return {"section_spliter": splitter, "num_sections": rng.randint(2, 4)}


def marker(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw how a postscript begins."""
    return {"postscript_marker": rng.choice(["P.S.", "P.P.S"])}
