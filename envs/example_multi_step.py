"""Asks for the values of a term's synonyms in a given order, which takes several calls.

Source: the resources server example_multi_step of NVIDIA NeMo Gym (Apache-2.0), its rules written
anew. The reward is 1 where the last call of `extract_synonym_values` has exactly the expected
values in their order. `set_overlap` is the number of expected values that were given, by the number
expected; `order_instruction_following_failure` is 1 where all were given and the reward is 0;
`original_term_minefield_hit` is 1 where the value of the term itself is among them. Where this
differs:

- A last call whose arguments are not JSON, or carry no list, scores 0 with a reason.
- Where nothing is expected, `set_overlap` is 1 if nothing was given, else 0.

One row (its system message shortened):
{"id": "synonyms-0", "difficulty": "easy", "capability": "information dependency", "messages":
[{"role": "system", "content": "cold: icy"}, {"role": "user", "content": "What makes a day cold?"}],
"expected_synonyms": ["icy"], "expected_synonym_values": [325], "minefield_label": "cold",
"minefield_label_value": 418}
"""

import functools
import itertools
from collections.abc import Iterator
from random import Random
from typing import Annotated

import msgspec
from pydantic import Field

from gymcli import (
    Context,
    Environment,
    FunctionCall,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    ToolCall,
    tool,
)

__all__ = ["ExampleMultiStep", "SynonymTask"]


class SynonymTask(Task):
    """The synonyms to find and the term that must not be taken for one."""

    expected_synonyms: list[str]
    expected_synonym_values: list[int]
    minefield_label: str
    """The term itself, the first one where a message is about two."""
    minefield_label_value: int
    begins_with_term: bool = False
    """Whether the value of the term says where its first synonym stands."""

    @property
    def words(self) -> list[str]:
        """What has to be looked up, in this order."""
        return [self.minefield_label] * self.begins_with_term + self.expected_synonyms


class Extraction(msgspec.Struct):
    """The arguments of `extract_synonym_values`, whatever a model put into the list."""

    synonym_values: list[object]


class ExampleMultiStep(Environment[SynonymTask]):
    """Look up the values of a term's synonyms and hand them over in order."""

    properties = Properties(
        "multi-step", "information dependency", "language", "extraction", "exact match"
    )

    @tool(reads_only=True)
    def get_synonym_value(
        self, synonym: Annotated[str, Field(description="The synonym as the list has it.")]
    ) -> JSONObject:
        """Look up the value of one synonym."""
        return {"synonym_value": value_of(synonym)}

    @tool(reads_only=True)
    def extract_synonym_values(
        self,
        synonym_values: Annotated[
            list[int], Field(description="The values of all synonyms of the term, in order.")
        ],
    ) -> JSONObject:
        """Hand over the values of the synonyms; call this once you have all of them."""
        return {"success": True}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 where the values handed over last are the expected ones in their order."""
        task = cls.parse_task(rollout.task)
        values, fault = _handed_over(rollout)
        expected = task.expected_synonym_values
        is_right = not fault and values == expected
        overlap = 0.0 if fault else _overlap(expected, values)
        reason = "correct" if is_right else fault or ("wrong_values" if values else "no_values")
        return Score(
            float(is_right),
            metrics={
                "accuracy": float(is_right),
                "set_overlap": overlap,
                "original_term_minefield_hit": float(task.minefield_label_value in values),
                "order_instruction_following_failure": float(not is_right and overlap == 1),
            },
            answer=str(values) if values else None,
            details={"reason": reason, "parsed_synonym_values": values},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Look up one word a turn, hand over the values, and say so."""
        task, num_calls = self.task, len(rollout.tool_calls)
        if num_calls > len(task.words):
            return Message(role="assistant", content="I have handed over the values.")
        if num_calls < len(task.words):
            call = _call(num_calls, "get_synonym_value", synonym=task.words[num_calls])
        else:
            values = task.expected_synonym_values
            call = _call(num_calls, "extract_synonym_values", synonym_values=values)
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write lists of growing length; the hard messages only hint at what they are about."""
        for number in range(num):
            difficulty = list(LEVELS)[number % len(LEVELS)]
            kind = PLAN[number // len(LEVELS) % len(PLAN)]
            if kind == "trail":
                fields = _trail(rng, difficulty)
            else:
                fields = _list(rng, difficulty, num_asked=2 if kind == "two terms" else 1)
            yield {"id": f"synonyms-{number}", "difficulty": difficulty, **fields}


def value_of(synonym: str) -> int:
    """Add up the code points of a text."""
    return sum(ord(character) for character in synonym)


def _call(number: int, name: str, **arguments: object) -> ToolCall:
    text = msgspec.json.encode(arguments).decode()
    return ToolCall(id=f"call_{number}", function=FunctionCall(name, text))


def _handed_over(rollout: Rollout) -> tuple[list[object], str]:
    """Give the values of the last extraction, and what is wrong with it."""
    calls = [call for call in rollout.tool_calls if call.name == "extract_synonym_values"]
    if not calls:
        return [], ""
    try:
        return msgspec.json.decode(calls[-1].arguments, type=Extraction).synonym_values, ""
    except msgspec.ValidationError:
        return [], "no_list_of_values"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return [], "arguments_not_json"


def _overlap(expected: list[int], values: list[object]) -> float:
    """Give the part of the expected values that was handed over."""
    if not expected:
        return float(not values)
    return sum(value in values for value in {*expected}) / len(expected)


def _list(rng: Random, difficulty: str, *, num_asked: int) -> JSONObject:
    """Ask for one or two terms of a list."""
    num_terms, num_synonyms = LEVELS[difficulty]
    terms = rng.sample(list(THESAURUS), num_terms)
    while not _have_own_values(terms[:num_asked], num_synonyms):
        terms = rng.sample(list(THESAURUS), num_terms)
    pairs = [(term, s) for term in terms for s in THESAURUS[term][1][:num_synonyms]]
    rng.shuffle(pairs)
    asked = terms[:num_asked]
    expected = [synonym for term in asked for other, synonym in pairs if other == term]
    listing = "\n".join(f"- {term}: {synonym}" for term, synonym in pairs)
    if num_asked == 1:
        return _fields("information dependency", INSTRUCTIONS, listing, asked, expected, difficulty)
    return _fields("multiple intents", FOR_TWO_TERMS, listing, asked, expected, difficulty)


def _have_own_values(terms: list[str], num_synonyms: int) -> bool:
    """Say whether no value of these terms and their synonyms is also that of another."""
    words = [word for term in terms for word in (term, *THESAURUS[term][1][:num_synonyms])]
    return len({*map(value_of, words)}) == len(words)


def _trail(rng: Random, difficulty: str) -> JSONObject:
    """Ask for a term whose synonyms stand where the value of the one before says."""
    length = LEVELS[difficulty][1]
    term, *trail = rng.choice(_trails(length))
    visited = [value_of(word) % 10 for word in (term, *trail)]
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
    """Give each term with so many of its synonyms, where all values end in different digits."""
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
"""What each three rows are of, one after another and then anew."""

LEVELS = {"easy": (8, 2), "medium": (10, 3), "hard": (10, 4)}
"""Terms of a list, and synonyms of a term or of a trail."""
NUM_OTHERS = 5
"""Terms beside the one that is asked for, where there is a trail."""

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
"""A message that hints at a term, and its synonyms: one more than a list has or a trail visits."""
