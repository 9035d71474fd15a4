"""Writes PNG images of up to 16 colours, the same bytes wherever it runs.

Format: RFC 2083 (PNG), RFC 1950 (zlib) and RFC 1951 (deflate). What `zlib.compress` gives differs
between zlib and its successors, so that a data set with pictures could not be made again byte for
byte. This encoder writes one block with the fixed codes of RFC 1951, 3.2.6. It repeats the byte
before or the row above, which is all that flat drawings have.
"""

import struct
import zlib
from collections.abc import Sequence

__all__ = ["deflated", "png"]

MIN_MATCH, MAX_MATCH = 3, 258
LENGTHS = [(257 + n, 3 + n, 0) for n in range(8)]
LENGTHS += [
    (261 + 4 * extra + n, 3 + (4 + n << extra), extra) for extra in range(1, 6) for n in range(4)
]
LENGTHS += [(285, MAX_MATCH, 0)]
"""Symbols of match lengths: each with the least length it stands for, and its extra bits."""
DISTANCES = [(n, 1 + n, 0) for n in range(4)]
DISTANCES += [
    (2 + 2 * extra + n, 1 + (2 + n << extra), extra) for extra in range(1, 14) for n in range(2)
]
"""Symbols of match distances, in the same form."""
MAX_DISTANCE = 32_768
END_OF_BLOCK = 256


def png(rows: Sequence[str], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """Give an image as a PNG file.

    Args:
        rows: One hexadecimal digit for each pixel, the place of its colour in the palette; all
            rows of the same, even length.
        palette: Up to 16 colours as red, green and blue, 0 to 255.

    Raises:
        ValueError: The rows are of an odd length, or longer than 65,534 pixels.

    """
    if len(rows[0]) % 2:
        raise ValueError(f"rows have {len(rows[0])} pixels, which is odd")
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 4, 3, 0, 0, 0)
    lines = [b"\0" + bytes.fromhex(row) for row in rows]  # 0: the row is not filtered
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
    bits = ["110"]  # the last block, and its codes are the fixed ones
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
    packed = int(stream[::-1], 2).to_bytes((len(stream) + 7) // 8, "little")
    return b"\x78\x01" + packed + struct.pack(">I", zlib.adler32(data))


def _match_length(data: bytes, place: int, back: int) -> int:
    """Count the bytes from a place on that equal those so many bytes before them."""
    if place < back:
        return 0
    ahead = data[place : place + MAX_MATCH]
    behind = data[place - back : place - back + len(ahead)]
    difference = int.from_bytes(ahead, "big") ^ int.from_bytes(behind, "big")
    return len(ahead) - (difference.bit_length() + 7) // 8


def _match(length: int, back: int) -> list[str]:
    """Give the bits of a match: both symbols, each followed by its extra bits."""
    symbol, least, num_extra = max(entry for entry in LENGTHS if entry[1] <= length)
    far_symbol, nearest, num_far = max(entry for entry in DISTANCES if entry[1] <= back)
    return [
        _code(symbol),
        _extra(length - least, num_extra),
        f"{far_symbol:05b}",
        _extra(back - nearest, num_far),
    ]


def _code(symbol: int) -> str:
    """Give the fixed code of a literal or length symbol, its first bit first."""
    if symbol < 144:
        return f"{0b00110000 + symbol:08b}"
    if symbol < 256:
        return f"{0b110010000 + symbol - 144:09b}"
    if symbol < 280:
        return f"{symbol - 256:07b}"
    return f"{0b11000000 + symbol - 280:08b}"


def _extra(value: int, num_bits: int) -> str:
    """Give extra bits, which are numbers and so come with their last bit first."""
    return f"{value:0{num_bits}b}"[::-1] if num_bits else ""


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)
