"""Ends of files that a writer, or a machine, did not finish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.store.durability import mend_file, unfinished_end

WHOLE = b'{"a":1}\n{"b":2}\n'


def mended(path, data):
    """Give whether something was cut off, and what is left; it is the same the second time."""
    path.write_bytes(data)
    is_cut = mend_file(path)
    left = path.read_bytes()
    assert mend_file(path) is False
    assert path.read_bytes() == left
    return is_cut, left


@pytest.mark.parametrize(
    "tail",
    [
        b"{",
        b'{"a',
        b"1",
        b'"text"',
        b"null",
        b"\xff",
        b"\0",
        b"\0" * 70_000,
        b'{"c":\0\0',
        b"\0\0\n",
        b'{"c":\0\0}\n',
        b'\0\0\0"c":3}\n{"d":\0\0\0\n{"e"',
        b"   ",
    ],
)
def test_mend_file_cuts_off_what_is_not_whole(tmp_path, tail):
    assert mended(tmp_path / "f", WHOLE + tail) == (True, WHOLE)
    assert mended(tmp_path / "f", tail) == (True, b"")


@pytest.mark.parametrize("data", [b"", WHOLE, b"\n", b"{\n", b'{\n{"a":1}\n'])
def test_mend_file_leaves_what_ends_in_a_newline(tmp_path, data):
    """A damaged line is no unfinished one; who reads it says where it stands."""
    assert mended(tmp_path / "f", data) == (False, data)


def test_mend_file_adds_the_newline_that_a_whole_line_lacks(tmp_path):
    assert mended(tmp_path / "f", WHOLE + b'{"c":3}') == (False, WHOLE + b'{"c":3}\n')


def test_mend_file_leaves_bytes_that_follow_damage(tmp_path):
    """Only the end is cut: whole lines behind NUL bytes are somebody's results."""
    data = b"\0\0\n" + WHOLE
    assert mended(tmp_path / "f", data) == (False, data)


def test_mend_file_cuts_off_an_end_that_is_longer_than_any_line(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(WHOLE)
    with path.open("r+b") as file:
        file.truncate(150 << 20)
    assert unfinished_end(path)
    assert mend_file(path)
    assert path.read_bytes() == WHOLE


@given(st.binary(max_size=60), st.integers(0, 3))
def test_mend_file_keeps_every_whole_line(tmp_path_factory, tail, num_lines):
    path = tmp_path_factory.getbasetemp() / "any"
    before = b"".join(b'{"n":%d}\n' % n for n in range(num_lines))
    _, left = mended(path, before + tail)
    assert left.startswith(before)
    assert left == b"" or left.endswith(b"\n")


@given(st.integers(0, len(WHOLE)))
def test_mend_file_of_any_part_leaves_the_lines_that_are_whole_in_it(tmp_path_factory, size):
    path = tmp_path_factory.getbasetemp() / "part"
    _, left = mended(path, WHOLE[:size])
    lines = [line for line in WHOLE.splitlines() if WHOLE.index(line) + len(line) <= size]
    assert left == b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize(
    ("data", "is_unfinished"),
    [(b"", False), (WHOLE, False), (WHOLE + b"  ", False), (WHOLE[:-1], False), (b"{", True)],
)
def test_unfinished_end_sees_a_last_line_that_is_not_whole(tmp_path, data, is_unfinished):
    (tmp_path / "f").write_bytes(data)
    assert unfinished_end(tmp_path / "f") is is_unfinished


def test_mend_file_cuts_nothing_that_a_link_leads_to(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "f").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="f is no file"):
        mend_file(tmp_path / "f")
    assert (tmp_path / "victim").read_bytes() == b"precious"
