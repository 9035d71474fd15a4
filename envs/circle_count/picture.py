"""Pictures of circles: where they lie, how they are drawn, and the rows that show them."""

import base64
from collections.abc import Iterable, Sequence
from math import isqrt
from random import Random

from pydantic import BaseModel

from gymcli import JSONObject, Task

from .png import png

__all__ = ["COLORS", "SIZE", "Circle", "CircleTask", "drawn", "places", "shown"]

SIZE = 400
"""Pixels of a picture's sides."""

COLORS = {
    "red": (214, 30, 30),
    "orange": (250, 140, 10),
    "yellow": (250, 220, 30),
    "green": (30, 150, 50),
    "cyan": (40, 210, 220),
    "blue": (35, 70, 210),
    "purple": (125, 40, 160),
    "pink": (250, 150, 190),
    "brown": (120, 75, 35),
    "black": (15, 15, 15),
}
WHITE = (255, 255, 255)


class Circle(BaseModel):
    """A circle of a picture; y counts from the top."""

    x: int | float
    y: int | float
    radius: int | float
    color: str


class CircleTask(Task):
    """What a picture shows, and the colour that is asked about."""

    circles: list[Circle]
    target_color: str

    @property
    def targets(self) -> list[Circle]:
        """The circles of the colour that is asked about."""
        return [circle for circle in self.circles if circle.color == self.target_color]


def places(rng: Random, num: int, num_columns: int, radius: int) -> list[tuple[int, int]]:
    """Choose centres of circles that keep apart and lie wholly in the picture.

    Each has a cell of its own in a grid of `num_columns` times as many.
    """
    side = SIZE // num_columns
    play = side - 2 * radius - 2
    cells = rng.sample(range(num_columns * num_columns), num)
    return [
        (
            cell % num_columns * side + radius + 1 + rng.randint(0, play),
            cell // num_columns * side + radius + 1 + rng.randint(0, play),
        )
        for cell in cells
    ]


def drawn(circles: Iterable[Circle]) -> bytes:
    """Draw circles on white and give the PNG file; a pixel has the colour of the last one on it.

    The circles lie wholly in the picture and have colours of `COLORS`.
    """
    digits = {name: f"{number:x}" for number, name in enumerate(COLORS, start=1)}
    rows = [["0"] * SIZE for _ in range(SIZE)]
    for circle in circles:
        x, y, radius = int(circle.x), int(circle.y), int(circle.radius)
        for row in range(y - radius, y + radius + 1):
            half = isqrt(radius**2 - (row - y) ** 2)
            rows[row][x - half : x + half + 1] = digits[circle.color] * (2 * half + 1)
    return png(["".join(row) for row in rows], [WHITE, *COLORS.values()])


def shown(circles: Sequence[Circle], target_color: str, text: str) -> JSONObject:
    """Give the fields of a row that shows a picture of circles, with a text below it."""
    data = base64.b64encode(drawn(circles)).decode()
    image: JSONObject = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{data}"},
    }
    return {
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": text}]}],
        "circles": [circle.model_dump() for circle in circles],
        "target_color": target_color,
    }
