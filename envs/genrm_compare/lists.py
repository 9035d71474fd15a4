"""Packing lists: conversations that ask for them, whether one is as wanted, and one that is."""

import json
import re
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from pydantic import BaseModel, Field

from gymcli import JSONObject, Message, RoleError, StandIn

__all__ = ["PackingList", "comparing", "conversation", "written"]

SHOWN_ANSWERS = re.compile(
    r"<response_1>\n(.*)\n</response_1>\n\n<response_2>\n(.*)\n</response_2>", re.DOTALL
)
LATEST_COUNTS = "What the user wants may change. What counts is how it stands in the last message."


class PackingList(BaseModel):
    """What a list has to be like in the end."""

    theme: str
    include: list[str] = Field(min_length=1)
    exclude: list[str] = []
    num_items: int = Field(ge=1)
    top: str = ""
    """The item to begin with."""
    closing: str = ""
    """The line after the list."""

    def fulfilled(self, text: str) -> list[bool]:
        """Say of each wish whether a text fulfils it; one without list items fulfils none."""
        lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
        items = [line[2:].strip().casefold() for line in lines if line.startswith("- ")]
        others = [line for line in lines if not line.startswith("- ")]
        found = [any(wish.casefold() in item for item in items) for wish in self.include]
        found += [all(wish.casefold() not in item for item in items) for wish in self.exclude]
        found += [len(items) == self.num_items, others == [self.closing] * bool(self.closing)]
        if self.top:
            found.append(items[:1] == [self.top.casefold()])
        return [is_fulfilled and bool(items) for is_fulfilled in found]


def comparing(wanted: PackingList) -> StandIn:
    """Give a judge of pairs without a model: the better list is the one that fulfils more wishes.

    It raises RoleError where the prompt shows no two answers.
    """

    def compare(messages: list[Message]) -> str:
        shown = SHOWN_ANSWERS.search(messages[-1].text)
        if shown is None:
            raise RoleError("the prompt shows no two answers")
        wishes = [wanted.fulfilled(answer) for answer in shown.groups()]
        first, second = (sum(found) / len(found) for found in wishes)
        verdict = {
            "score_1": 1.0 + 4.0 * first,
            "score_2": 1.0 + 4.0 * second,
            "ranking": 3.5 + 2.5 * (second - first),
        }
        return json.dumps(verdict)

    return StandIn(compare)


class Conversation(NamedTuple):
    """The prompt of a task, and what is wanted in the end."""

    messages: list[JSONObject]
    principle: str
    wanted: PackingList


def written(wanted: PackingList) -> str:
    """Write a list that is as wanted, of those that `conversation` asks for."""
    kept = [wanted.top, *wanted.include] if wanted.top else wanted.include
    items = list(dict.fromkeys(kept))
    spare = [item for item in THEMES[wanted.theme] if item not in (*items, *wanted.exclude)]
    return _text(items + spare[: wanted.num_items - len(items)], wanted.closing)


def conversation(rng: Random, difficulty: str) -> Conversation:
    """Make up a conversation of one (easy), two (medium) or three (hard) wishes of a user."""
    theme = rng.choice(list(THEMES))
    first, second, third, fourth, fifth, *others = rng.sample(THEMES[theme], len(THEMES[theme]))
    wanted = PackingList(theme=theme, include=[first, second], num_items=rng.randint(5, 6))
    messages = _says(
        "user", FIRST.format(num=wanted.num_items, first=first, second=second, theme=theme)
    )
    if difficulty == "easy":
        return Conversation(messages, "", wanted)
    draft = [first, third, second, *others[: wanted.num_items - 3]]
    wanted = PackingList(
        theme=theme,
        include=[first, second, fourth],
        exclude=[third],
        num_items=wanted.num_items + 1,
    )
    messages += _says("assistant", _text(draft))
    messages += _says("user", SECOND.format(num=wanted.num_items, third=third, fourth=fourth))
    if difficulty == "medium":
        return Conversation(messages, LATEST_COUNTS, wanted)
    draft = [first, second, fourth, *others[: wanted.num_items - 3]]
    wanted = PackingList(
        theme=theme,
        include=[second, fourth, fifth],
        exclude=[third, first],
        num_items=wanted.num_items,
        top=fifth,
        closing=rng.choice(CLOSINGS),
    )
    messages += _says("assistant", _text(draft))
    messages += _says("user", THIRD.format(first=first, fifth=fifth, closing=wanted.closing))
    return Conversation(messages, LATEST_COUNTS, wanted)


def _text(items: Sequence[str], closing: str = "") -> str:
    return "\n".join([*(f"- {item}" for item in items), *([closing] if closing else [])])


def _says(role: str, text: str) -> list[JSONObject]:
    return [{"role": role, "content": text}]


FIRST = (
    "Write a packing list for {theme}: {num} items, each on a line of its own that begins with a "
    'hyphen and a space, and nothing else. It must have "{first}" and "{second}" on it.'
)
SECOND = (
    'Good, but leave out "{third}": I have that there. Put "{fourth}" in, and make it {num} items. '
    "Give me the whole list again, nothing else."
)
THIRD = (
    'One last change: I no longer need "{first}", and "{fifth}" has to stand at the top. Keep the '
    'number of items. After the list, on a line of its own, write "{closing}" Nothing else.'
)
CLOSINGS = ("Have a good trip!", "Check the weather first.", "That is all you need.")
THEMES = {
    "a week of camping by a lake": (
        "a rain jacket",
        "tent pegs",
        "a head torch",
        "matches",
        "a water filter",
        "insect spray",
        "a tin opener",
        "a sleeping mat",
        "dry socks",
        "a fishing rod",
        "a washing line",
        "a first-aid kit",
    ),
    "a picnic in the park": (
        "a blanket",
        "napkins",
        "a corkscrew",
        "lemonade",
        "a bread knife",
        "paper plates",
        "sun cream",
        "a frisbee",
        "cherry tomatoes",
        "a cool box",
        "a rubbish bag",
        "salt",
    ),
    "a long train journey with two children": (
        "crayons",
        "a pack of cards",
        "apple slices",
        "wet wipes",
        "headphones",
        "a picture book",
        "a change of clothes",
        "water bottles",
        "a soft toy",
        "the tickets",
        "a travel pillow",
        "a puzzle",
    ),
    "a winter weekend in the mountains": (
        "woollen gloves",
        "thick socks",
        "a thermos flask",
        "snow boots",
        "lip balm",
        "a trail map",
        "ski goggles",
        "a scarf",
        "tea bags",
        "a whistle",
        "a pocket lamp",
        "chocolate",
    ),
    "the first night in an empty flat": (
        "a mattress",
        "light bulbs",
        "toilet paper",
        "a screwdriver",
        "a kettle",
        "two mugs",
        "a towel",
        "a phone charger",
        "soap",
        "a doormat",
        "a broom",
        "the keys",
    ),
}
