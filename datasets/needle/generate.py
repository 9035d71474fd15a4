"""Generates texts of a given length with facts to find, variables to follow and words to count."""

import math
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from gymcli import JSONObject

MAX_LENGTH = 131_072
"""Tokens; a longer list of words would need more words than there are."""


def generate(
    rng: Random, num: int, *, lengths: Sequence[int] = (1024, 2048, 4096)
) -> Iterator[JSONObject]:
    """Yield tasks of each subset in turn, each subset in all lengths.

    Raises:
        ValueError: A length is too small for every subset, or too large.
    """
    if not lengths or min(lengths) < 1024 or max(lengths) > MAX_LENGTH:
        raise ValueError(f"a length must be from 1,024 to {MAX_LENGTH:,} tokens")
    for number in range(num):
        series, place = divmod(number, len(lengths))
        subset = list(SUBSETS)[series % len(SUBSETS)]
        length = lengths[place]
        prompt, outputs = SUBSETS[subset](rng, length)
        yield {
            "id": f"needle-{number}",
            "difficulty": {1024: "easy", 2048: "medium"}.get(length, "hard"),
            "prompt": prompt,
            "outputs": outputs,
            "length": length,
            "subset": subset,
        }


Made = tuple[str, list[str]]
"""A prompt and the texts that answer it."""
Haystack = Literal["noise", "prose", "needles"]
Kind = Literal["word", "number", "code"]

TOKENS = {"noise": 21.0, "prose": 18.5, "needle": 13.0, "code_needle": 52.6, "coded_word": 3.5}
"""Tokens of one piece of a text, measured with cl100k_base; o200k_base has up to 5 % fewer."""
RESERVED = {"niah": 128 + 60, "vt": 30 + 330, "cwe": 120 + 130, "fwe": 50 + 60}
"""Tokens that the reference leaves for the answer, and those of the prompt around its text."""


@dataclass(frozen=True)
class Needles:
    """What is hidden, and where."""

    haystack: Haystack
    key: Kind = "word"
    value: Kind = "number"
    num_keys: int = 1
    num_values: int = 1
    """Values of each key."""
    num_asked: int = 1
    """Keys that are asked for."""

    def __call__(self, rng: Random, length: int) -> Made:
        """Hide values of keys in a text."""
        keys = _distinct(self.num_keys, lambda: DRAWN[self.key](rng))
        values = _distinct(self.num_keys * self.num_values, lambda: DRAWN[self.value](rng))
        own = {key: values[place :: self.num_keys] for place, key in enumerate(keys)}
        hidden = [self._needle(key, value) for key, values in own.items() for value in values]
        rng.shuffle(hidden)
        size = TOKENS["code_needle" if self.key == self.value else "needle"]
        left = length - RESERVED["niah"] - size * len(hidden)
        if self.haystack == "needles":
            others = (DRAWN[self.key](rng) for _ in range(int(left / size)))
            pieces = [self._needle(key, DRAWN[self.value](rng)) for key in others if key not in own]
        else:
            pieces = HAYSTACKS[self.haystack](rng, int(left / TOKENS[self.haystack]))
        text = ("\n" if self.haystack != "prose" else " ").join(_mixed(rng, pieces, hidden))
        asked = rng.sample(list(own), self.num_asked)
        outputs = [value for key in asked for value in own[key]]
        return self._prompt(text, asked, len(outputs)), outputs

    def _needle(self, key: str, value: str) -> str:
        return f"A secret {self.value} of {key} is {value}."

    def _prompt(self, text: str, asked: list[str], num: int) -> str:
        names = " and ".join(", ".join(asked).rsplit(", ", 1))
        if num == 1:
            what, question = f"a secret {self.value}", f"What is the secret {self.value} of"
        else:
            what, question = f"secret {self.value}s", f"What are all the secret {self.value}s of"
        them = "it" if num == 1 else "them"
        return (
            f"The text below hides {what}. Remember {them}, because you will be asked for {them}.\n"
            f"\n{text}\n\n{question} {names} in the text above? Answer with {them} alone."
        )


def _noise(rng: Random, num: int) -> list[str]:
    return [
        "Grass grows. Rivers run. The wind turns the leaves over. One step, and another one."
    ] * num


def _prose(rng: Random, num: int) -> list[str]:
    return [
        f"{rng.choice(TIMES)} the {rng.choice(PEOPLE)} {rng.choice(ACTS)} the {rng.choice(NOUNS)} "
        f"{rng.choice(PLACES)}, {rng.choice(REASONS)}."
        for _ in range(num)
    ]


HAYSTACKS: Mapping[str, Callable[[Random, int], list[str]]] = {"noise": _noise, "prose": _prose}


def _mixed(rng: Random, pieces: list[str], hidden: list[str]) -> list[str]:
    """Insert texts at random places, in their order."""
    places = sorted(rng.sample(range(len(pieces) + 1), len(hidden)), reverse=True)
    for place, text in zip(places, reversed(hidden), strict=True):
        pieces.insert(place, text)
    return pieces


def _distinct(num: int, draw: Callable[[], str]) -> list[str]:
    drawn: dict[str, None] = {}
    while len(drawn) < num:
        drawn[draw()] = None
    return list(drawn)


def _word(rng: Random) -> str:
    return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"


def _code(rng: Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return "-".join(digits[i:j] for i, j in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


DRAWN: Mapping[Kind, Callable[[Random], str]] = {
    "word": _word,
    "number": lambda rng: str(rng.randint(1_000_000, 9_999_999)),
    "code": _code,
}


def _variables(rng: Random, length: int) -> Made:
    """Hide a chain of five variables with the same value, after a worked example."""
    example, _, names = _chain(rng, 5, num_letters=3)
    num_noise = int((length - RESERVED["vt"]) / TOKENS["noise"])
    question, _, outputs = _chain(rng, num_noise, num_letters=5)
    return f"{example} {', '.join(names)}\n\n{question}", outputs


def _chain(rng: Random, num_noise: int, *, num_letters: int) -> tuple[str, str, list[str]]:
    letters = string.ascii_uppercase
    names = _distinct(5, lambda: "".join(rng.choices(letters, k=num_letters)))
    value = str(rng.randint(10_000, 99_999))
    steps = [value, *(f"VAR {name}" for name in names[:-1])]
    hidden = [f"VAR {name} = {step}" for name, step in zip(names, steps, strict=True)]
    text = "\n".join(_mixed(rng, _noise(rng, num_noise), hidden))
    prompt = (
        "The text below hides a chain of assignments to variables. Remember and follow it.\n\n"
        f"{text}\n\nWhich variables have the value {value} in the end? There are 5 of them. Answer "
        "with their names alone.\nAnswer:"
    )
    return prompt, value, names


def _common_words(rng: Random, length: int) -> Made:
    """Ask for the ten most frequent words of a numbered list, after a worked example."""
    often, seldom, example = (30, 3, (10, 3, 40)) if length >= 4096 else (6, 1, (3, 1, 20))
    shown, names = _word_list(rng, *example)
    left = length - RESERVED["cwe"]
    # An entry takes 5.85 tokens, and one more from number 1000 on.
    num_entries = int(min(left / 5.85, (left + 1000) / 6.85)) - shown.count(". ")
    num_words = min(10 + max(1, (num_entries - 10 * often) // seldom), len(ADJECTIVES) * len(NOUNS))
    asked, outputs = _word_list(rng, often, seldom, num_words)
    answer = " ".join(f"{place}. {name}" for place, name in enumerate(names, start=1))
    return f"{shown} {answer}\n\n{asked}", outputs


def _word_list(rng: Random, often: int, seldom: int, num_words: int) -> Made:
    drawn = rng.sample(range(len(ADJECTIVES) * len(NOUNS)), num_words)
    words = [f"{ADJECTIVES[n // len(NOUNS)]}-{NOUNS[n % len(NOUNS)]}" for n in drawn]
    listed = words[:10] * often + words[10:] * seldom
    rng.shuffle(listed)
    text = " ".join(f"{place}. {word}" for place, word in enumerate(listed, start=1))
    prompt = (
        "Some words of the numbered list below occur more often than the others. Remember those.\n"
        f"\n{text}\n\nWhich are the 10 most frequent words of the list? Answer with them alone.\n"
        "Answer:"
    )
    return prompt, words[:10]


def _frequent_words(rng: Random, length: int) -> Made:
    """Ask for the three most frequent words of a text whose frequencies follow a zeta law."""
    letters = string.ascii_lowercase
    words = _distinct(length // 50, lambda: "".join(rng.choices(letters, k=6)))
    # The most frequent one is dots, which the question leaves out, as in the reference.
    words[0] = "..."
    # The share of rank k is 1 / (k² ζ(2)), and ζ(2) is π²/6.
    shares = [6 / (math.pi * rank) ** 2 for rank in range(1, len(words) + 1)]
    sizes = [1.0] + [TOKENS["coded_word"]] * (len(words) - 1)
    size = sum(share * size for share, size in zip(shares, sizes, strict=True))
    num_words = (length - RESERVED["fwe"]) / size
    text: list[str] = []
    for word, share in zip(words, shares, strict=True):
        text += [word] * int(share * num_words)
    rng.shuffle(text)
    prompt = (
        "The text below is written in code words. Keep count of how often each of them occurs.\n\n"
        f"{' '.join(text)}\n\nWhich are the three most frequent code words of the text, apart from "
        "the dots? Answer with them alone, without an explanation."
    )
    return prompt, words[1:4]


SUBSETS: Mapping[str, Callable[[Random, int], Made]] = {
    "niah_single_1": Needles("noise"),
    "niah_single_2": Needles("prose"),
    "niah_single_3": Needles("prose", value="code"),
    "niah_multikey_1": Needles("prose", num_keys=4),
    "niah_multikey_2": Needles("needles"),
    "niah_multikey_3": Needles("needles", key="code", value="code"),
    "niah_multivalue": Needles("prose", num_values=4),
    "niah_multiquery": Needles("prose", num_keys=4, num_asked=4),
    "vt": _variables,
    "cwe": _common_words,
    "fwe": _frequent_words,
}
"""RULER's synthetic subsets by name, with the sizes of its `synthetic.yaml`."""

_ADJECTIVES = (
    "amber ancient blue brass bright broad brown calm careful clean clear clever cloudy coastal "
    "cold copper curious damp dark dear deep distant dry dusty eager early empty faint fair "
    "famous fast fine firm flat fresh gentle glad golden grand green grey happy heavy hidden "
    "hollow humble idle inner iron kind large late light little lively long loud lucky mellow "
    "merry mild modern narrow neat noble northern old orange pale patient plain polite proud "
    "purple quick quiet rapid rare red rich"
)
_NOUNS = (
    "acorn anchor apple arrow barrel basket beacon bell bench boat book bottle bowl bridge broom "
    "bucket button candle canvas carpet castle cellar chain chair chest clock cloud coat compass "
    "corner cradle crown cup curtain desk door drum engine fence ferry field flag flute forest "
    "fountain garden gate glass glove hammer harbor harp hat hedge helmet hill horn island jacket "
    "kettle key kite ladder lake lamp lantern ledger letter lighthouse map market meadow mill "
    "mirror mountain needle oven paddle palace pencil piano pillow pipe plate pocket pond quilt "
    "river road rope saddle sail scarf shelf ship spoon stair stone table tower valley wagon "
    "window"
)
_TIMES = (
    "In spring|In the evening|On Mondays|Before breakfast|After the rain|At noon|Every "
    "other day|Late in the year|While the kettle boils|During the fair|Now and then|On quiet "
    "nights"
)
_PEOPLE = (
    "baker carpenter clerk cook doctor farmer fisher gardener innkeeper librarian miller painter "
    "porter postman sailor shepherd singer tailor teacher watchman"
)
_ACTS = (
    "admires borrows carries cleans describes draws forgets guards hides inspects lends measures "
    "mends moves paints polishes praises repairs sells weighs"
)
_PLACES = (
    "behind the church|by the canal|in the courtyard|near the old wall|next to the station|"
    "on the upper floor|under the arches|at the crossroads|beside the school|in front of the "
    "inn|on the way to town|at the end of the lane"
)
_REASONS = (
    "because nobody else does|as the neighbours expect|without a word|which takes all day|"
    "just to be sure|with great care|although it is late|so that others can rest|as a favour|"
    "out of habit|and thinks no more of it|to everybody's surprise"
)
ADJECTIVES, NOUNS = _ADJECTIVES.split(), _NOUNS.split()
PEOPLE, ACTS = _PEOPLE.split(), _ACTS.split()
TIMES, PLACES, REASONS = _TIMES.split("|"), _PLACES.split("|"), _REASONS.split("|")
