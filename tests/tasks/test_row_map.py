"""Maps: which rows are taken, how columns are renamed, what functions make, what is refused."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from gymcli.errors import TasksError, UsageError
from gymcli.tasks.column_conversions import CONVERSIONS
from gymcli.tasks.row_map import RowMap, json_value, read_map, read_row_map
from gymcli.tasks.table_files import SourceRow, SourceTable

FUNCTION = (
    "must be the name of a column: a YAML map only selects and renames; convert values with a "
    "function, FILE.py:FUNCTION (`gym docs data` has an example)"
)
CODE = """
def task(row):
    return {"x": row["a"] * 2} if row["a"] else None

def number(row):
    return 3

def image(row):
    return {"x": b"x"}

def leave(row):
    raise SystemExit("no")

def leave_all(rows):
    yield from rows
    raise SystemExit("no")

def pairs(rows):
    rows = list(rows)
    for row in reversed(rows):
        yield {"x": [row["a"], len(rows)]}
"""
ROW = {
    "question": "1 + 1?",
    "choices": {"text": ["one", "two", 3], "label": ["A", "B", "C"]},
    "answer": 1,
    "solution": "One and one. #### no. #### 1,234 ",
    "a.b": "dotted",
    "level": 5,
    "flag": "true",
    "is_open": True,
    "day": "2024-01-31",
    "mixed": [1, True, "one", "one"],
}


def mapped(tmp_path, text, row=ROW):
    path = tmp_path / "map.yaml"
    path.write_text(text)
    return read_row_map(path).task(row)


def one(tmp_path, column):
    return mapped(tmp_path, f"fields: {{x: {column}}}")["x"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("question", "1 + 1?"),
        ("choices.text", ["one", "two", 3]),
        ("choices.text.1", "two"),
        ("a.b", "dotted"),
        ("level", 5),
    ],
)
def test_map_takes_columns_by_their_path(tmp_path, path, expected):
    assert one(tmp_path, path) == expected


@pytest.mark.parametrize(
    "choices",
    [
        {"text": ["one", "two"], "label": ["1", "2"]},
        [{"text": "one", "label": "1"}, {"text": "two", "label": "2"}],
        '{"text": ["one", "two"], "label": ["1", "2"]}',
        '[{"text": "one", "label": "1"}, {"text": "two", "label": "2"}]',
    ],
)
def test_a_path_reads_lists_of_objects_and_json_texts(choices):
    row_map = RowMap.model_validate(
        {
            "fields": {
                "options": "choices.text",
                "labels": "choices.label",
                "second": "choices.text.1",
            }
        }
    )
    assert row_map.task({"choices": choices}) == {
        "options": ["one", "two"],
        "labels": ["1", "2"],
        "second": "two",
    }


def test_a_list_of_objects_of_which_one_lacks_the_key_has_no_such_path():
    row_map = RowMap.model_validate({"fields": {"x": "choices.text"}})
    with pytest.raises(ValueError, match=r'there is no column "choices\.text"'):
        row_map.task({"choices": [{"text": "one"}, {}]})


@pytest.mark.parametrize(
    ("value", "options", "letter"),
    [("4", [3, 4], "B"), (4, ["3", " 4 "], "B"), (True, ["true", "false"], "A")],
)
def test_an_answer_is_an_option_with_the_same_text(value, options, letter):
    assert CONVERSIONS["letter_in"](value, options) == letter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" 12 ", 12),
        ("+3", 3),
        ("-1,234,567", -1234567),
        ("1,234.50", 1234.5),
        ("0.5", 0.5),
        ("1e3", 1000.0),
    ],
)
def test_number_reads_commas_between_thousands(text, expected):
    assert CONVERSIONS["number"](text, None) == expected


@pytest.mark.parametrize(
    "text",
    ["1,5", "1.234,56", "12,34,5", "1234,567", "1,2345", ",123", "+-3", "--3", "", "1e999", "007"],
)
def test_number_refuses_what_may_mean_another(text):
    with pytest.raises(ValueError, match="is not a number"):
        CONVERSIONS["number"](text, None)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("nowhere", 'there is no column "nowhere" (the row has: question, choices, answer,'),
        ("choices.text.3", 'there is no column "choices.text.3"'),
        ("question.x", 'there is no column "question.x"'),
    ],
)
def test_map_names_the_column_that_does_not_fit(tmp_path, column, reason):
    with pytest.raises(ValueError) as raised:
        one(tmp_path, column)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_map_names_few_of_many_columns(tmp_path):
    with pytest.raises(ValueError) as raised:
        mapped(tmp_path, "fields: {x: y}", {str(n) * 99: n for n in range(20_000)})
    assert "and 19980 more)" in str(raised.value)
    assert len(str(raised.value)) < 2_000


def test_map_without_fields_takes_every_column_and_adds_constants(tmp_path):
    row = mapped(tmp_path, "constants: {env: mcqa, level: 6, since: 2024-01-31}")

    assert row == {**ROW, "env": "mcqa", "level": 6, "since": "2024-01-31"}
    assert RowMap().task(ROW) == ROW


def test_map_with_fields_takes_these_alone_and_fills_its_template(tmp_path):
    text = """
    fields: {question: question, answer: answer}
    system: "Answer."
    user: "{question} {{}}\\n{answer}"
    """
    assert mapped(tmp_path, text) == {
        "question": "1 + 1?",
        "answer": 1,
        "messages": [
            {"role": "system", "content": "Answer."},
            {"role": "user", "content": "1 + 1? {}\n1"},
        ],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("user: '{none}'", '"none" is missing'),
        ("{user: x, constants: {messages: []}}", 'the row already has "messages"'),
    ],
)
def test_map_refuses_a_template_that_the_row_does_not_fit(tmp_path, text, reason):
    with pytest.raises(ValueError, match=reason):
        mapped(tmp_path, text)


@pytest.mark.parametrize(
    ("where", "is_taken"),
    [
        ("{level: 5}", True),
        ("{level: [4, 5]}", True),
        ("{level: '5'}", False),
        ("{level: 5.0}", True),
        ("{answer: true}", False),
        ("{is_open: true}", True),
        ("{is_open: 1}", False),
        ("{day: 2024-01-31}", True),
        ("{level: 5, question: no}", False),
        ("{choices.label.0: A}", True),
        ("{}", True),
    ],
)
def test_map_takes_rows_whose_columns_have_a_value(tmp_path, where, is_taken):
    (tmp_path / "map.yaml").write_text(f"where: {where}")
    assert (read_row_map(tmp_path / "map.yaml").task(ROW) is not None) is is_taken


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a", "a map must be a YAML mapping"),
        ("a: [", "is not YAML"),
        ("field: {}", "field: is unknown"),
        ("fields: {x: {from: y, apply: text}}", f"fields.x: {FUNCTION}"),
        ("fields: {x: [y, z]}", f"fields.x: {FUNCTION}"),
        ("system: x", '"system" needs the text "user"'),
        ("user: '{a.b}'", "{a.b} is not the name of a field"),
        ("constants: {x: .inf}", 'column "x" holds inf, which JSON cannot express'),
        ("where: {x: .inf}", 'column "x" holds inf, which JSON cannot express'),
        ("where: {x: 1}\nwhere: {y: 1}", 'duplicate key "where"'),
        ("where: {x: 1, x: 2}", 'duplicate key "x"'),
    ],
)
def test_read_map_refuses_what_it_does_not_know(tmp_path, text, reason):
    (tmp_path / "map.yaml").write_text(text)
    with pytest.raises(UsageError) as raised:
        read_row_map(tmp_path / "map.yaml")
    assert str(raised.value).startswith(f"{tmp_path / 'map.yaml'}: ")
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC), "2024-01-31T12:00:00+00:00"),
        (dt.date(2024, 1, 31), "2024-01-31"),
        (dt.time(12, 30), "12:30:00"),
        (Decimal("1.50"), "1.50"),
        (math.nan, None),
        (10**30, 10**30),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.array([[1, 2]]), [[1, 2]]),
        (("a", {1: True}), ["a", {"1": True}]),
    ],
)
def test_json_value_turns_what_json_lacks(value, expected):
    assert json_value(value, "x") == expected
    assert type(json_value(value, "x")) is type(expected)


@pytest.mark.parametrize("value", [b"x", math.inf, {"y": -math.inf}, {1, 2}, dt.timedelta(1)])
def test_json_value_names_the_column_that_has_no_form(value):
    with pytest.raises(ValueError, match=r'column "x(\.y)?" holds .*, which JSON cannot express'):
        json_value(value, "x")


def rows_made_by(function, *rows):
    """Return what a function of `map.py` makes of rows of the table `t`."""
    numbered = (SourceRow(number, row) for number, row in enumerate(rows, 2))
    return list(read_map(Path(f"map.py:{function}"))([SourceTable("t", numbered)]))


@pytest.fixture
def code(working_folder):
    Path("map.py").write_text(CODE)


@pytest.mark.usefixtures("code")
def test_a_function_makes_each_row_or_leaves_it_out():
    """A row that it cannot make is a problem of this row alone."""
    assert rows_made_by("task", {"a": 1}, {"a": 0}, "is wrong", {"a": "y"}) == [
        ("t", 2, {"x": 2}),
        ("t", 4, "is wrong"),
        ("t", 5, {"x": "yy"}),
    ]
    [(*_, missing)] = rows_made_by("task", {})
    assert missing.startswith("map.py:task fails: KeyError: 'a' (")
    assert missing.endswith("map.py:3 in task)")
    [(*_, number)] = rows_made_by("number", {})
    assert number == "the map makes 3 of it, not a dict"
    [(*_, image)] = rows_made_by("image", {})
    assert image == 'column "x" holds bytes, which JSON cannot express'
    [(*_, leave)] = rows_made_by("leave", {})
    assert leave.startswith("map.py:leave fails: SystemExit: no (")


@pytest.mark.usefixtures("code")
def test_a_generator_takes_all_rows():
    assert rows_made_by("pairs", {"a": 1}, {"a": 2}) == [
        ("t", 3, {"x": [2, 2]}),
        ("t", 3, {"x": [1, 2]}),
    ]
    with pytest.raises(UsageError, match=r"^map\.py:pairs fails at t:2: KeyError: 'a' \(.*map\.py"):
        rows_made_by("pairs", {})
    with pytest.raises(UsageError, match=r"^map\.py:leave_all fails at t:2: SystemExit: no \("):
        rows_made_by("leave_all", {})
    with pytest.raises(TasksError, match=r"^t:3: is wrong$"):
        rows_made_by("pairs", {"a": 1}, "is wrong")


@pytest.mark.usefixtures("code")
def test_a_function_is_that_of_the_file_as_it_is_now():
    assert rows_made_by("task", {"a": 1}) == [("t", 2, {"x": 2})]
    Path("map.py").write_text(CODE.replace("* 2", "* 3"))
    assert rows_made_by("task", {"a": 1}) == [("t", 2, {"x": 3})]


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("map.py", "map.py: name the function, map.py:FUNCTION"),
        ("map.py:none", "map.py:none: cannot be loaded: AttributeError: .* 'none'"),
        ("none.py:task", "none.py: cannot be read: No such file"),
        ("wrong.py:task", "wrong.py:task: cannot be loaded: SyntaxError"),
    ],
)
def test_a_function_that_is_not_there_is_named(spec, reason):
    Path("wrong.py").write_text("def task(:")
    with pytest.raises(UsageError, match=f"^{reason}"):
        read_map(Path(spec))
