"""Tests of what every result of a call offers: a data frame, and a table in a notebook."""

import sys
from types import ModuleType
from typing import ClassVar

import msgspec
import pytest

from gymcli.errors import MissingPackageError
from gymcli.library.result import Result, Results


class Table(Result):
    table = "items"

    def __init__(self, *items):
        self.items = list(items)

    def rows(self):
        return self.items


class Row(msgspec.Struct):
    name: str
    limits: dict[str, object] = {}


class Named(msgspec.Struct, Result):
    title: str
    num: int
    parts: dict[str, Row]

    table: ClassVar[str] = "parts"


class Several(msgspec.Struct, Result):
    results: list[Named]

    table: ClassVar[str] = "results"


def test_rows_begin_with_the_texts_and_columns_are_paths():
    named = Named("first", 2, {"a": Row("x"), "b": Row("y", {"high": {"value": 1}})})
    assert named.rows() == [
        {"title": "first", "environment": "a", "name": "x"},
        {"title": "first", "environment": "b", "name": "y", "limits.high.value": 1},
    ]
    assert Several([named, named]).rows() == Results([named, named]).rows() == named.rows() * 2
    assert Several([]).rows() == []
    assert "<caption>Named num 2</caption>" in named._repr_html_()


def test_slices_follow_their_environment():
    part = {"mean": 1, "slices": {"kind": {"easy": {"mean": 2}}}}
    sliced = Named("first", 2, {"a": part})
    assert sliced.rows() == [
        {"title": "first", "environment": "a", "mean": 1},
        {"title": "first", "environment": "a", "field": "kind", "value": "easy", "mean": 2},
    ]


def test_a_data_frame_has_the_rows():
    frame = Table({"a": 1, "b": [1.5]}, {"a": 2, "b": None}).to_dataframe()
    assert list(frame.columns) == ["a", "b"]
    assert list(frame["a"]) == [1, 2]


def test_a_data_frame_is_of_polars_if_only_that_is_installed(monkeypatch):
    polars = ModuleType("polars")
    polars.DataFrame = lambda rows, infer_schema_length: (rows, infer_schema_length)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", polars)
    assert Table({"a": 1}).to_dataframe() == ([{"a": 1}], None)


def test_a_data_frame_needs_one_of_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingPackageError, match="pip install pandas, or polars"):
        Table({"a": 1}).to_dataframe()


def test_a_table_shows_nothing_unescaped():
    table = Table({"<i>": "<script>alert(1)</script>", "b": 0.123456, "c": None})._repr_html_()
    assert "<script" not in table
    assert "<th>&lt;i&gt;</th>" in table
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td><td>0.1235</td><td></td>" in table


def test_a_table_is_not_longer_than_a_screen():
    table = Table(*({"a": "x" * 1000} for _ in range(100)))._repr_html_()
    assert table.count("<tr>") == 61
    assert table.endswith("<p>and 40 more rows</p>")
    assert len(table) < 20_000


def test_a_wide_table_shows_the_headline():
    row = {f"column {number}": number for number in range(20)} | {"mean_reward": 0.5, "run": "a"}
    assert "<tr><th>run</th><th>mean_reward</th></tr>" in Table(row)._repr_html_()


def test_results_have_the_rows_of_all():
    results = Results([Table({"a": 1}), Table({"a": 2})])
    assert results.rows() == [{"a": 1}, {"a": 2}]
    assert Results()._repr_html_().startswith("<table><caption>Results</caption>")
