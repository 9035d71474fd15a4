"""Draws calls of the catalogue's tools, the words that ask for them, and the tools beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

from gymcli import JSONObject

from .actions import Action
from .catalogue import ACTIONS

__all__ = [
    "DIFFICULTIES",
    "Difficulty",
    "Wish",
    "asked_anew",
    "drawn",
    "drawn_apart",
    "shown_tools",
]

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")


class Wish(NamedTuple):
    """A call and the words that ask for it."""

    action: Action
    arguments: JSONObject
    words: str

    @property
    def call(self) -> JSONObject:
        """The call, its arguments an object."""
        return {"name": self.action.name, "arguments": self.arguments}


def drawn(rng: Random, action: Action, *, is_full: bool = False, known_id: str = "") -> Wish:
    """Draw a call of a tool.

    Args:
        rng: The only source of chance.
        action: The tool.
        is_full: Whether the optional argument is wanted.
        known_id: What the first argument is, where it was looked up before; the words then refer
            to it without saying it.

    """
    values: dict[str, object] = {}
    words: dict[str, str] = {}
    for name in action.parameters if is_full else action.required:
        parameter = action.parameters[name]
        value = parameter.drawn(rng)
        if known_id and not values:
            values[name], words[name] = known_id, f"the {parameter.noun}"
        else:
            values[name], words[name] = value, f"{parameter.noun} {value}".strip()
    phrase = action.phrase + (action.clause if is_full else "")
    return Wish(action, values, phrase.format(**words))


def drawn_apart(rng: Random, actions: Sequence[Action]) -> list[Wish]:
    """Draw a call of each tool, a tool's first one with its optional argument, all different."""
    wishes: list[Wish] = []
    for action in actions:
        is_full = all(action is not other.action for other in wishes)
        one = drawn(rng, action, is_full=is_full)
        while any(one.call == other.call for other in wishes):
            one = drawn(rng, action, is_full=is_full)
        wishes.append(one)
    rng.shuffle(wishes)
    return wishes


def asked_anew(
    rng: Random, draw: Callable[[], list[Wish]], seen: set[str]
) -> tuple[list[Wish], str]:
    """Draw wishes until nobody has asked for them in these words, and keep the words in mind."""
    while (text := _asked(rng, wishes := draw())) in seen:
        pass
    seen.add(text)
    return wishes, text


def shown_tools(
    rng: Random, needed: Sequence[Action], *, num_others: int, has_siblings: bool = False
) -> list[JSONObject]:
    """Give the tools that are needed among others, each once, in any order.

    Args:
        rng: The only source of chance.
        needed: Tools that have to be there; one may be named twice.
        num_others: How many there are beside these.
        has_siblings: Whether those come from the same domains first, or last.

    """
    wanted = {action.name: action for action in needed}
    domains = {action.domain for action in needed}
    others = [a for a in rng.sample(ACTIONS, len(ACTIONS)) if a.name not in wanted]
    others.sort(key=lambda action: (action.domain in domains) != has_siblings)
    shown = [*wanted.values(), *others[:num_others]]
    rng.shuffle(shown)
    return [action.tool for action in shown]


def _asked(rng: Random, wishes: Sequence[Wish]) -> str:
    """Ask for one thing or several."""
    *first, last = [one.words for one in wishes]
    if not first:
        return rng.choice(ONE_WISH).format(last)
    return rng.choice(SEVERAL_WISHES).format(f"{'; '.join(first)}; and {last}")


ONE_WISH = ["Please {}.", "Could you {}?", "I need you to {}.", "Can you {} for me?"]
SEVERAL_WISHES = [
    "Please do all of this: {}.",
    "I need several things done: {}.",
    "Here is what I want from you: {}.",
]
