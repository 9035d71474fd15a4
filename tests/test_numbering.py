"""Numbers of keys: the law of a dict that gives each new key the next number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.numbering import Numbering


@given(st.lists(st.binary(max_size=3), max_size=300))
def test_numbers_are_those_of_a_dict(keys):
    numbering = Numbering()
    expected: dict[bytes, int] = {}
    for key in keys:
        assert numbering.find(key) == expected.get(key)
        assert numbering.number_of(key) == expected.setdefault(key, len(expected))
        assert numbering.find(key) == expected[key]
    assert [numbering[number] for number in range(len(numbering))] == list(expected)


def test_many_keys_keep_their_numbers_while_the_table_grows():
    numbering = Numbering()
    keys = [f"task-{number}".encode() for number in range(5_000)]
    assert [numbering.number_of(key) for key in keys] == list(range(5_000))
    assert [numbering.number_of(key) for key in reversed(keys)] == list(reversed(range(5_000)))
    assert len(numbering) == 5_000


def test_the_empty_key_is_one_and_keys_that_run_together_are_two():
    numbering = Numbering()
    assert [numbering.number_of(key) for key in (b"", b"ab", b"a", b"b", b"")] == [0, 1, 2, 3, 0]


def test_a_number_that_no_key_has():
    with pytest.raises(IndexError):
        Numbering()[0]


@given(st.lists(st.binary(max_size=2), max_size=200), st.lists(st.binary(max_size=2), max_size=50))
def test_keys_keep_their_numbers_where_it_settled_in_between(keys, later):
    numbering = Numbering()
    expected: dict[bytes, int] = {}
    for key in keys:
        numbering.number_of(key)
        expected.setdefault(key, len(expected))
    numbering.settle()
    assert [numbering[number] for number in range(len(numbering))] == list(expected)
    assert [numbering.find(key) for key in later] == [expected.get(key) for key in later]
    numbering.settle()
    for key in later:
        assert numbering.number_of(key) == expected.setdefault(key, len(expected))
