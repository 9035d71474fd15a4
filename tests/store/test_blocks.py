"""Many lines at a time: the same lines as one by one, and where a block says that it cannot."""

import gzip

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import UsageError
from gymcli.store.lines import (
    decode_block,
    iterate_blocks,
    iterate_lines,
    iterate_parts,
    part_lines,
)

DECODER = msgspec.json.Decoder(dict[str, int])

files = st.lists(st.sampled_from([b"", b" ", b'{"a":1}', b'{"a":22}\r', b"x" * 30])).map(b"\n".join)


def write(folder, data, name="lines.jsonl"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("blocks")


@given(files, st.integers(1, 100))
def test_blocks_have_the_lines_of_the_file(folder, data, size):
    path = write(folder, data)

    pairs = [(bytes(b.data), list(b.lines(path))) for b in iterate_blocks(path, size=size)]

    assert b"".join(block for block, _ in pairs) == data
    assert [line for _, lines in pairs for line in lines] == list(iterate_lines(path))


@given(files, st.integers(1, 100), st.integers(0, 3))
def test_parts_have_the_lines_of_the_file_after_the_first_ones(folder, data, size, num_first):
    path = write(folder, data)
    ends = [0, *(place + 1 for place in range(len(data)) if data[place : place + 1] == b"\n")]
    num_first = min(num_first, len(ends) - 1)

    parts = list(iterate_parts(path, start=ends[num_first], size=lambda _: size))

    lines = [line for part in parts for line in part.lines()]
    assert b"".join(lines) == data[ends[num_first] :]
    assert all(line.find(b"\n") in (-1, len(line) - 1) for line in lines)
    number, found = num_first, []
    for part in parts:
        found += part_lines(part, number)
        number += part.num_lines()
    assert found == [line for line in iterate_lines(path) if line.number > num_first]


def test_blocks_of_a_compressed_file(tmp_path):
    path = write(tmp_path, gzip.compress(b'{"a":1}\n' * 5), "lines.jsonl.gz")

    [block] = iterate_blocks(path)

    assert decode_block(block, DECODER) == [{"a": 1}] * 5


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1}\n{"a":2}',
        b'{"a":1}\n\n{"a":2}\n',
        b'{"a":1}{"a":2}\n',
        b'{"a":\n1}\n',
        b'{"a":1}\n{"a":"text"}\n',
        b'\xef\xbb\xbf{"a":1}\n',
    ],
    ids=["unfinished", "blank", "two values", "two lines", "another type", "byte order mark"],
)
def test_decode_block_leaves_what_is_not_a_value_a_line(tmp_path, data):
    path = write(tmp_path, data)

    assert None in [decode_block(block, DECODER) for block in iterate_blocks(path)]


def test_blocks_without_end_of_blank_lines_are_refused(tmp_path):
    path = write(tmp_path, b"{}\n" + b"\n" * (1 << 21))

    with pytest.raises(UsageError, match="more than 1 MB are blank"):
        list(iterate_blocks(path))
