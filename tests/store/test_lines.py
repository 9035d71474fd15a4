"""Reading lines of JSONL files, one by one and in blocks: compressed, damaged, far too long."""

import gzip
import random
import re
import subprocess
import sys
import tracemalloc

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import UsageError
from gymcli.store.lines import (
    Line,
    decode_block,
    iterate_blocks,
    iterate_lines,
    iterate_parts,
)

TEXT = b'{"a": 1}\n\n  \r\n{"b": 2}\r\n{"c": 3}'
LINES = [Line(1, b'{"a": 1}', True), Line(4, b'{"b": 2}', True), Line(5, b'{"c": 3}', False)]


def compressed(suffix, data):
    if suffix == ".gz":
        return gzip.compress(data)
    if suffix == ".zst":
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return data


def write(tmp_path, suffix, data):
    path = tmp_path / f"file.jsonl{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_numbers_the_lines_that_are_not_blank(tmp_path, suffix):
    assert list(iterate_lines(write(tmp_path, suffix, compressed(suffix, TEXT)))) == LINES


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_of_an_empty_file_gives_none(tmp_path, suffix):
    assert list(iterate_lines(write(tmp_path, suffix, compressed(suffix, b"")))) == []
    assert list(iterate_lines(write(tmp_path, suffix, b""))) == []


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_iterate_lines_reads_archives_of_several_parts(tmp_path, suffix):
    parts = b"".join(compressed(suffix, b"%d\n" % number) for number in range(20))
    lines = [line.data for line in iterate_lines(write(tmp_path, suffix, parts))]
    assert lines == [b"%d" % number for number in range(20)]


def test_iterate_lines_skips_a_byte_order_mark(tmp_path):
    path = write(tmp_path, "", b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n")
    assert [line.data for line in iterate_lines(path)] == [b"{}", b"\xef\xbb\xbf{}"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-9], id="cut off"),
        pytest.param(lambda data: data[:3], id="cut off in its head"),
        pytest.param(lambda data: data[: len(data) // 2], id="half of it"),
        pytest.param(lambda data: b"no archive", id="no archive"),
        pytest.param(lambda data: data[:40] + b"\xff" * 40 + data[80:], id="overwritten"),
        pytest.param(lambda data: data + b"more after it", id="more after it"),
    ],
)
def test_iterate_lines_names_a_damaged_archive(tmp_path, suffix, damage):
    """A truncated archive is never taken for a complete one."""
    data = compressed(suffix, b"".join(b"%d\n" % (n * n) for n in range(50_000)))
    path = write(tmp_path, suffix, damage(data))
    with pytest.raises(UsageError, match=f"file.jsonl{suffix}: cannot be read: "):
        list(iterate_lines(path))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_names_a_missing_file_and_a_folder(tmp_path, suffix):
    missing = tmp_path / f"missing{suffix}"
    with pytest.raises(UsageError, match=r"missing.*: cannot be read: No such file"):
        list(iterate_lines(missing))
    missing.mkdir()
    with pytest.raises(UsageError, match=r"missing.*: cannot be read: Is a directory"):
        list(iterate_lines(missing))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_holds_no_more_than_a_part_of_the_file(tmp_path, suffix):
    rng = random.Random(0)
    lines = b"".join(b'{"text": "%s"}\n' % rng.randbytes(500).hex().encode() for _ in range(8_000))
    path = write(tmp_path, suffix, compressed(suffix, lines))
    for _ in iterate_lines(path):
        break
    tracemalloc.start()
    try:
        assert sum(1 for _ in iterate_lines(path)) == 8_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(lines) / 8


@given(st.binary(max_size=200), st.sampled_from(["", ".gz", ".zst"]))
def test_iterate_lines_of_any_bytes_raises_nothing_but_ours(tmp_path_factory, data, suffix):
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(data)
    try:
        lines = list(iterate_lines(path))
    except UsageError:
        assert suffix or data[:2] in (b"\xff\xfe", b"\xfe\xff")
        return
    if not suffix:
        parts = [part.strip() for part in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
        assert [line.data for line in lines] == [part for part in parts if part]


def test_iterate_lines_loads_no_decompressor_for_a_plain_file(tmp_path):
    path = write(tmp_path, "", TEXT)
    command = (
        "import sys; from pathlib import Path; from gymcli.store.lines import iterate_lines; "
        f"list(iterate_lines(Path({str(path)!r}))); print('zstandard' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert found.stdout == b"False\n"


TOO_LONG = "is longer than the limit of 128 MB"

BOMBS = {
    "a line": ("", b"x", TOO_LONG),
    "a line in .gz": (".gz", b"x", TOO_LONG),
    "a line in .zst": (".zst", b"x", TOO_LONG),
    "spaces in .zst": (".zst", b" ", TOO_LONG),
    "blank lines in .gz": (".gz", b"\n", "has more than 1 MB of blank lines"),
}

READ = """
import resource, sys
from pathlib import Path
from gymcli.errors import UsageError
from gymcli.store.lines import iterate_lines
import zstandard
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    print(list(iterate_lines(Path(sys.argv[1]))))
except UsageError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_iterate_lines_ends_at_a_line_that_is_far_too_long(tmp_path, bomb):
    """Of 4 GB in a small archive, only a line's limit is unpacked, with 1 GB of memory."""
    suffix, byte, reason = BOMBS[bomb]
    path = tmp_path / f"bomb.jsonl{suffix}"
    if suffix:
        path.write_bytes(compressed(suffix, byte * (1 << 24)) * 256)
    else:
        with path.open("wb") as file:
            file.truncate(4 << 30)
    told = subprocess.run(
        [sys.executable, "-c", READ, path], capture_output=True, text=True, check=False
    )
    assert told.stderr == ""
    assert re.fullmatch(rf"{re.escape(str(path))}:\d+: {reason}\n", told.stdout)


def test_iterate_lines_refuses_a_zst_file_that_asks_for_much_memory(tmp_path):
    params = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    path = write(tmp_path, ".zst", b"")
    with path.open("wb") as file:
        writer = zstandard.ZstdCompressor(compression_params=params).stream_writer(file)
        with writer:
            writer.write(b"{}\n")
    with pytest.raises(UsageError, match=r"file\.jsonl\.zst: cannot be read: "):
        list(iterate_lines(path))


DECODER = msgspec.json.Decoder(dict[str, int])

files = st.lists(st.sampled_from([b"", b" ", b'{"a":1}', b'{"a":22}\r', b"x" * 30])).map(b"\n".join)


def written(folder, data, name="lines.jsonl"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("blocks")


@given(files, st.integers(1, 100))
def test_blocks_have_the_lines_of_the_file(folder, data, size):
    path = written(folder, data)

    pairs = [(bytes(b.data), list(b.lines(path))) for b in iterate_blocks(path, size=size)]

    assert b"".join(block for block, _ in pairs) == data
    assert [line for _, lines in pairs for line in lines] == list(iterate_lines(path))


@given(files, st.integers(1, 100))
def test_parts_have_the_lines_of_the_file(folder, data, size):
    path = written(folder, data)

    parts = list(iterate_parts(path, lambda _: size))

    pieces = [data[part.start : part.end] for part in parts]
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])
    number, found = 0, []
    for part in parts:
        found += part.lines(number)
        number += part.num_lines()
    assert found == list(iterate_lines(path))


def test_blocks_of_a_compressed_file(tmp_path):
    path = written(tmp_path, gzip.compress(b'{"a":1}\n' * 5), "lines.jsonl.gz")

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
    path = written(tmp_path, data)

    assert None in [decode_block(block, DECODER) for block in iterate_blocks(path)]


def test_blocks_without_end_of_blank_lines_are_refused(tmp_path):
    path = written(tmp_path, b"{}\n" + b"\n" * (1 << 21))

    with pytest.raises(UsageError, match="more than 1 MB of blank lines"):
        list(iterate_blocks(path))
