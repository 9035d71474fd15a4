"""Draws pictures in which one circle has the colour to click."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from gymcli import JSONObject
from gymcli.envs import load_generator
from gymcli.envs.circle_count import Circle

circle_count = load_generator("circle_count")


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield pictures with one circle of the colour; harder ones have more and smaller circles."""
    size = circle_count.SIZE
    for number in range(num):
        difficulty = list(LEVELS)[number % len(LEVELS)]
        circles, target = _scene(rng, LEVELS[difficulty])
        request = rng.choice(REQUESTS).format(color=target)
        text = f"The picture is {size} pixels wide and {size} pixels high. {request}"
        yield {
            "id": f"click-{number}",
            "difficulty": difficulty,
            **circle_count.shown(circles, target, text),
        }


class Level(NamedTuple):
    """The pictures of a difficulty."""

    num_circles: tuple[int, int]
    num_columns: int
    """Columns of the grid of circles."""
    radius: tuple[int, int]


LEVELS = {
    "easy": Level((2, 4), 4, (26, 36)),
    "medium": Level((6, 10), 5, (16, 24)),
    "hard": Level((14, 24), 8, (6, 11)),
}
REQUESTS = [
    "Click the {color} circle.",
    "One of the circles is {color}: click it.",
    "Find the {color} circle and click anywhere inside it.",
    "Where is the {color} circle? Show it with a click.",
]


def _scene(rng: Random, level: Level) -> tuple[list[Circle], str]:
    """Draw circles of several sizes, and a colour that only one of them has."""
    target, *others = rng.sample(list(circle_count.COLORS), len(circle_count.COLORS))
    num_circles = rng.randint(*level.num_circles)
    colors = rng.sample([target, *rng.choices(others, k=num_circles - 1)], num_circles)
    centres = circle_count.places(rng, num_circles, level.num_columns, level.radius[1])
    circles = [
        Circle(x=x, y=y, radius=rng.randint(*level.radius), color=color)
        for (x, y), color in zip(centres, colors, strict=True)
    ]
    return circles, target
