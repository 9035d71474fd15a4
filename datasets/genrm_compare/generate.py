"""Generates conversations that ask for packing lists."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from gymcli import JSONObject
from gymcli.envs.genrm_compare import THEMES, PackingList, _text


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield requests for packing lists, in one turn or with changes over two or three turns."""
    seen: set[str] = set()
    for number in range(num):
        difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
        talk = conversation(rng, difficulty)
        while str(talk.messages) in seen:
            talk = conversation(rng, difficulty)
        seen.add(str(talk.messages))
        yield {
            "id": f"list-{number}",
            "difficulty": difficulty,
            "messages": talk.messages,
            "dataset": "lists",
            "principle": talk.principle,
            "wanted": talk.wanted.model_dump(exclude_defaults=True),
        }


LATEST_COUNTS = "What the user wants may change. What counts is how it stands in the last message."


class Conversation(NamedTuple):
    """The prompt of a task, and the list that its last message asks for."""

    messages: list[JSONObject]
    principle: str
    wanted: PackingList


def conversation(rng: Random, difficulty: str) -> Conversation:
    """Draw a conversation with one (easy), two (medium) or three (hard) turns of the user."""
    theme = rng.choice(list(THEMES))
    first, second, third, fourth, fifth, *others = rng.sample(THEMES[theme], len(THEMES[theme]))
    wanted = PackingList(theme=theme, include=[first, second], num_items=rng.randint(5, 6))
    messages = _says(
        "user", FIRST.format(num=wanted.num_items, first=first, second=second, theme=theme)
    )
    if difficulty == "easy":
        return Conversation(messages, "", wanted)
    # A right answer to the first message, with an item that the second one removes.
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

DIFFICULTIES = ("easy", "medium", "hard")
