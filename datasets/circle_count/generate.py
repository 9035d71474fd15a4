"""Draws pictures of circles, with the same bytes on every platform, and asks for their number."""

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from math import isqrt
from random import Random
from typing import NamedTuple

from gymcli import JSONObject
from gymcli.envs.circle_count import Circle


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield pictures in which every number of circles of the colour is equally likely."""
    for number in range(num):
        difficulty = list(LEVELS)[number % len(LEVELS)]
        level = LEVELS[difficulty]
        circles, target = _scene(rng, level)
        question = rng.choice(QUESTIONS).format(color=target)
        text = f"The picture is {SIZE} by {SIZE} pixels. {question} {FORM}"
        yield {
            "id": f"count-{number}",
            "difficulty": difficulty,
            **shown(circles, target, text),
        }


# A PNG encoder for up to 16 colours: RFC 2083 (PNG), RFC 1950 (zlib), RFC 1951 (deflate).
#
# The output of `zlib.compress` differs between zlib and its successors, so a data set with pictures
# could not be reproduced byte for byte. This encoder writes one block with the fixed codes of RFC
# 1951, 3.2.6. It only repeats the previous byte or the row above, which suffices for flat drawings.

MIN_MATCH, MAX_MATCH = 3, 258
LENGTHS = [(257 + n, 3 + n, 0) for n in range(8)]

LENGTHS += [
    (261 + 4 * extra + n, 3 + (4 + n << extra), extra) for extra in range(1, 6) for n in range(4)
]

LENGTHS += [(285, MAX_MATCH, 0)]
"""Symbols of match lengths, each with its smallest length and its number of extra bits."""
DISTANCES = [(n, 1 + n, 0) for n in range(4)]

DISTANCES += [
    (2 + 2 * extra + n, 1 + (2 + n << extra), extra) for extra in range(1, 14) for n in range(2)
]
"""Symbols of match distances, each with its smallest distance and its number of extra bits."""
MAX_DISTANCE = 32_768
END_OF_BLOCK = 256


def png(rows: Sequence[str], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """Return an image as a PNG file.

    Args:
        rows: One hexadecimal digit per pixel, the index of its colour in the palette. All rows have
            the same, even length.
        palette: Up to 16 colours as red, green and blue, 0 to 255.

    Raises:
        ValueError: The rows have an odd length, or more than 65,534 pixels.

    """
    if len(rows[0]) % 2:
        raise ValueError(f"rows have {len(rows[0])} pixels, which is odd")
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 4, 3, 0, 0, 0)
    # Two pixels of four bits fill a byte; the zero before each row means that it is not filtered.
    lines = [b"\0" + bytes.fromhex(row) for row in rows]
    chunks = [
        (b"IHDR", header),
        (b"PLTE", b"".join(map(bytes, palette))),
        (b"IDAT", deflated(b"".join(lines), len(lines[0]))),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def deflated(data: bytes, row_length: int) -> bytes:
    """Compress bytes in zlib's format; matches reach back one byte, or one row.

    Raises:
        ValueError: A row is longer than a match can reach back.

    """
    if row_length > MAX_DISTANCE:
        raise ValueError(f"a row has {row_length} bytes, more than {MAX_DISTANCE}")
    bits = ["110"]  # lowest bit first: BFINAL 1 (last block), BTYPE 01 (fixed codes)
    place = 0
    while place < len(data):
        options = [(_match_length(data, place, back), back) for back in (row_length, 1)]
        length, back = max(options, key=lambda option: option[0])
        if length < MIN_MATCH:
            bits.append(_code(data[place]))
            place += 1
        else:
            bits += _match(length, back)
            place += length
    bits.append(_code(END_OF_BLOCK))
    stream = "".join(bits)
    # Deflate fills each byte from its lowest bit.
    packed = int(stream[::-1], 2).to_bytes((len(stream) + 7) // 8, "little")
    return b"\x78\x01" + packed + struct.pack(">I", zlib.adler32(data))


def _match_length(data: bytes, place: int, back: int) -> int:
    """Return how many bytes from a place on equal those `back` bytes earlier."""
    if place < back:
        return 0
    # The XOR of the two as big integers is zero up to the first byte that differs.
    ahead = data[place : place + MAX_MATCH]
    behind = data[place - back : place - back + len(ahead)]
    difference = int.from_bytes(ahead, "big") ^ int.from_bytes(behind, "big")
    return len(ahead) - (difference.bit_length() + 7) // 8


def _match(length: int, back: int) -> list[str]:
    """Return the bits of a match: the symbols of length and distance, each with its extra bits."""
    symbol, least, num_extra = max(entry for entry in LENGTHS if entry[1] <= length)
    far_symbol, nearest, num_far = max(entry for entry in DISTANCES if entry[1] <= back)
    return [
        _code(symbol),
        _extra(length - least, num_extra),
        f"{far_symbol:05b}",
        _extra(back - nearest, num_far),
    ]


def _code(symbol: int) -> str:
    """Return the fixed code of a literal or length symbol, most significant bit first."""
    if symbol < 144:
        return f"{0b00110000 + symbol:08b}"
    if symbol < 256:
        return f"{0b110010000 + symbol - 144:09b}"
    if symbol < 280:
        return f"{symbol - 256:07b}"
    return f"{0b11000000 + symbol - 280:08b}"


def _extra(value: int, num_bits: int) -> str:
    """Return extra bits; as numbers, unlike codes, they come least significant bit first."""
    return f"{value:0{num_bits}b}"[::-1] if num_bits else ""


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)


SIZE = 400
"""Width and height of a picture in pixels."""

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


def places(rng: Random, num: int, num_columns: int, radius: int) -> list[tuple[int, int]]:
    """Draw centres of circles that do not touch and are completely in the picture.

    Each circle has its own cell in a grid of `num_columns` by `num_columns`.
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
    """Return a PNG file of circles on white; where they overlap, the last one is on top.

    The circles must be completely in the picture and have colours of `COLORS`.
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
    """Return the fields of a row with a picture of circles and a text below it."""
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


class Level(NamedTuple):
    """The pictures of a difficulty."""

    num_circles: tuple[int, int]
    num_colors: int
    num_columns: int
    """Columns of the grid of circles."""
    radius: tuple[int, int]


LEVELS = {
    "easy": Level((3, 6), 2, 4, (26, 40)),
    "medium": Level((8, 13), 3, 5, (18, 30)),
    "hard": Level((16, 26), 5, 7, (9, 19)),
}
QUESTIONS = [
    "How many {color} circles do you see?",
    "Count the circles that are {color}.",
    "What is the number of {color} circles in this picture?",
    "Some of these circles may be {color}. How many are?",
    "Look at the picture and count every {color} circle in it.",
]
FORM = "Give the number once, in \\boxed{}; write 0 where there is none."


def _scene(rng: Random, level: Level) -> tuple[list[Circle], str]:
    """Draw circles of one size, and the colour to count."""
    num_circles = rng.randint(*level.num_circles)
    radius = rng.randint(*level.radius)
    target, *others = rng.sample(list(COLORS), level.num_colors)
    num_targets = rng.randint(0, num_circles)
    colors = [target] * num_targets + rng.choices(others, k=num_circles - num_targets)
    centres = places(rng, num_circles, level.num_columns, radius)
    circles = [
        Circle(x=x, y=y, radius=radius, color=color)
        for (x, y), color in zip(centres, colors, strict=True)
    ]
    return rng.sample(circles, num_circles), target
