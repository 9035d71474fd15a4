"""JSON objects in free text: which are found, and that hostile text takes no longer than other."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.model_text import find_objects

KEYS = st.text(max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


@given(st.lists(st.tuples(OBJECTS, st.booleans(), st.sampled_from([None, 2]))))
def test_find_objects_gives_every_object_in_order(drawn):
    written = [json.dumps(value, ensure_ascii=plain, indent=dent) for value, plain, dent in drawn]
    assert find_objects(" and then ".join(written)) == [value for value, _, _ in drawn]


@given(st.lists(st.sampled_from(['{"a":', "{", "}", '"', "[", "1", ",", " so ", "\\"])), OBJECTS)
def test_find_objects_finds_the_last_one_whatever_stands_before_it(pieces, value):
    """Unless what stands before lets the object be a part of its own, nothing hides it."""
    assert find_objects("".join(pieces) + "\n" + json.dumps(value))[-1] == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("none at all", []),
        ("{}", [{}]),
        ('```json\n{"a": 1}\n```', [{"a": 1}]),
        ('[{"a": 1}, {"b": 2}]', [{"a": 1}, {"b": 2}]),
        ('{"a": {"b": {}}}', [{"a": {"b": {}}}]),
        ('{"a": "} {\\" {"}', [{"a": '} {" {'}]),
        ('the set {1, 2} and {"a": [1, {}, []]}', [{"a": [1, {}, []]}]),
        ('{"broken": {"a": 1}', [{"a": 1}]),
        ('{"broken": {"a": 1}, {"b": 2}', [{"a": 1}, {"b": 2}]),
        ('{"{"a": 1}', [{"a": 1}]),
        ('{"a": 1]} {"b": 2}', [{"b": 2}]),
        ('{"a": [1}', []),
        ('{"a": "two\nlines"}', []),
        ('{"a": .5}', []),
        ('{"a": 01}', []),
        ('{"a": NaN}', []),
        ("{'a': 1}", []),
        ('{"a": 1,}', []),
        ('{"a" 1}', []),
    ],
)
def test_find_objects(text, found):
    assert find_objects(text) == found


def test_find_objects_leaves_out_what_no_decoder_takes():
    deep = '{"a":' * 50_000 + "1" + "}" * 50_000
    assert find_objects(deep) == []
    assert find_objects(f'{deep} {{"b": 2}}') == [{"b": 2}]


@pytest.mark.parametrize(
    "unit",
    [
        '{"a":',
        "{",
        "}",
        '{"',
        '"',
        '{"a":"{","a":"{",',
        '":{',
        '{"\\"',
        "[{",
        '{"a":[',
        '{ "a',
        "{}",
    ],
)
def test_find_objects_takes_time_in_proportion_to_the_text(unit):
    """A quadratic scan would need minutes for this."""
    started = time.process_time()
    find_objects(unit * (200_000 // len(unit)))
    assert time.process_time() - started < 5
