"""Fields of task rows and the names of their slices."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.slicing import NONE, field_of, slice_name, slice_order

ROW = {
    "category": "math",
    "level": 3,
    "tags": ["a", "b"],
    "meta": {"source": {"year": 2024}, "empty": None},
    "a.b": "dotted",
    "a": {"b": "nested"},
    "verifier_metadata": {"category": "hidden", "unit": "m", "deep": {"er": True}},
}
RAW = msgspec.json.decode(msgspec.json.encode(ROW), type=dict[str, msgspec.Raw])


@pytest.mark.parametrize("row", [ROW, RAW], ids=["decoded", "raw"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("category", '"math"'),
        ("task.category", '"math"'),
        ("level", "3"),
        ("tags", '["a","b"]'),
        ("meta.source.year", "2024"),
        ("task.meta.source", '{"year":2024}'),
        ("a.b", '"dotted"'),
        ("unit", '"m"'),
        ("deep.er", "true"),
        ("meta.empty", None),
        ("category.inner", None),
        ("absent", None),
        ("", None),
    ],
)
def test_field_of(row, field, value):
    assert field_of(row, field) == value


def test_field_of_is_the_same_for_equal_values():
    one = msgspec.json.decode('{"x": {"b": 1, "a": "\\u00e9"}}', type=dict[str, msgspec.Raw])
    other = msgspec.json.decode('{"x":{"a":"é","b":1}}', type=dict[str, msgspec.Raw])
    assert field_of(one, "x") == field_of(other, "x")


def test_field_of_a_value_nested_too_deeply_is_none():
    deep = {"x": msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)}
    assert field_of(deep, "x") is None


@pytest.mark.parametrize(
    ("value", "name"),
    [('"math"', "math"), ("3", "3"), ("true", "true"), ('["a"]', '["a"]'), (None, NONE)],
)
def test_slice_name(value, name):
    assert slice_name(value) == name


def test_slice_order_is_numbers_then_texts_then_none():
    names = ["b", NONE, "10", "a", "9", "nan", "2.5"]
    assert sorted(names, key=slice_order) == ["2.5", "9", "10", "a", "b", "nan", NONE]


@given(st.lists(st.text()))
def test_slice_order_is_an_order_whatever_the_names(names):
    ordered = sorted(names, key=slice_order)
    names.reverse()
    assert sorted(names, key=slice_order) == ordered
