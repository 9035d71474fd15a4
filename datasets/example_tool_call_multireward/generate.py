"""Generates requests for one call of a tool of xlam_fc."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from gymcli import JSONObject
from gymcli.envs import load_generator

if TYPE_CHECKING:
    from datasets.xlam_fc.generate import Difficulty, Wish

xlam_fc = load_generator("xlam_fc")


INSTRUCTIONS = (
    "Answer with one call of one tool, and with no text. Take names, words and numbers as they "
    "stand in the request, and leave out arguments that it says nothing of."
)
NUM_OTHERS: dict[Difficulty, int] = {"easy": 0, "medium": 3, "hard": 8}


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield requests for one of one, four or nine tools; the nine are from close domains."""
    seen: set[str] = set()
    for number in range(num):
        difficulty = xlam_fc.DIFFICULTIES[number % len(xlam_fc.DIFFICULTIES)]
        [wish], text = xlam_fc.asked_anew(rng, partial(_wish, rng, difficulty), seen)
        is_hard = difficulty == "hard"
        if is_hard:
            # A distractor: words that ask for another tool.
            done = xlam_fc.drawn(
                rng, rng.choice([a for a in xlam_fc.ACTIONS if a is not wish.action])
            )
            text += f" Do not {done.words}: I did that myself."
        tools = xlam_fc.shown_tools(
            rng, [wish.action], num_others=NUM_OTHERS[difficulty], has_siblings=is_hard
        )
        yield {
            "id": f"call-{number}",
            "difficulty": difficulty,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": text},
            ],
            "tools": tools,
            "expected_call": wish.call,
        }


def _wish(rng: Random, difficulty: Difficulty) -> list[Wish]:
    return [xlam_fc.drawn(rng, rng.choice(xlam_fc.ACTIONS), is_full=difficulty != "easy")]
