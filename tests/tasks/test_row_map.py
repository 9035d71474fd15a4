"""Maps of `gym data pull`: which rows are taken, how columns are mapped, and what is refused."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pytest

from gymcli.errors import UsageError
from gymcli.tasks.row_map import TRANSFORMS, RowMap, json_value, map_text, read_map

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
    return read_map(path).apply(row)


def one(tmp_path, column):
    return mapped(tmp_path, f"fields: {{x: {column}}}")["x"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("question", "1 + 1?"),
        ("choices.text", ["one", "two", 3]),
        ("choices.text.1", "two"),
        ("a.b", "dotted"),
        ("{from: level}", 5),
    ],
)
def test_map_takes_columns_by_their_path(tmp_path, path, expected):
    assert one(tmp_path, path) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("{from: level, apply: text}", "5"),
        ("{from: question, apply: text}", "1 + 1?"),
        ("{from: choices.text, apply: text}", '["one","two",3]'),
        ('{from: solution, apply: [{after: "####"}, number]}', 1234),
        ("{from: level, apply: number}", 5),
        ('{from: solution, apply: {after: "no."}}', "#### 1,234"),
        ("{from: solution, apply: strip}", "One and one. #### no. #### 1,234"),
        ("{from: choices.text, apply: [text, json]}", ["one", "two", 3]),
        (
            "{from: [question, choices.text.0], apply: {objects: q}}",
            [{"q": "1 + 1?"}, {"q": "one"}],
        ),
        ("{from: choices.text, apply: letters}", [{"A": "one"}, {"B": "two"}, {"C": "3"}]),
        ("{from: choices.text, apply: lettered}", "A: one\nB: two\nC: 3"),
        ("{from: answer, apply: letter}", "B"),
        ("{from: choices.text.1, apply: {letter_in: choices.text}}", "B"),
        ("{from: is_open, apply: {letter_in: mixed}}", "B"),
    ],
)
def test_map_applies_transforms_in_order(tmp_path, column, expected):
    assert one(tmp_path, column) == expected


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
                "options": {"from": "choices.text", "apply": "letters"},
                "answer": {"from": "key", "apply": {"letter_in": "choices.label"}},
                "second": "choices.text.1",
            }
        }
    )
    assert row_map.apply({"choices": choices, "key": "2"}) == {
        "options": [{"A": "one"}, {"B": "two"}],
        "answer": "B",
        "second": "two",
    }


def test_a_list_of_objects_of_which_one_lacks_the_key_has_no_such_path():
    row_map = RowMap.model_validate({"fields": {"x": "choices.text"}})
    with pytest.raises(ValueError, match=r'there is no column "choices\.text"'):
        row_map.apply({"choices": [{"text": "one"}, {}]})


@pytest.mark.parametrize(
    ("value", "options", "letter"),
    [("4", [3, 4], "B"), (4, ["3", " 4 "], "B"), (True, ["true", "false"], "A")],
)
def test_an_answer_is_an_option_with_the_same_text(value, options, letter):
    assert TRANSFORMS["letter_in"].function(value, options) == letter


def test_the_text_of_a_map_is_a_map_file(tmp_path):
    row_map = RowMap.model_validate(
        {
            "fields": {
                "a": "x",
                "b": {"from": ["y", "z"], "apply": ["strip", {"letter_in": ["y", "z"]}]},
                "c": {"from": "y", "apply": [{"after": "#: '"}]},
            },
            "constants": {"env": "mcqa"},
            "drop_empty": True,
            "user": '{a}\n\n"é" \\boxed{{}}',
        }
    )
    path = tmp_path / "map.yaml"
    path.write_text(map_text(row_map), encoding="utf-8")

    assert "\n" not in map_text(row_map)
    assert read_map(path) == row_map


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
    assert TRANSFORMS["number"].function(text, None) == expected


@pytest.mark.parametrize(
    "text",
    ["1,5", "1.234,56", "12,34,5", "1234,567", "1,2345", ",123", "+-3", "--3", "", "1e999", "007"],
)
def test_number_refuses_what_may_mean_another(text):
    with pytest.raises(ValueError, match="is not a number"):
        TRANSFORMS["number"].function(text, None)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("nowhere", 'there is no column "nowhere" (the row has: question, choices, answer,'),
        ("choices.text.3", 'there is no column "choices.text.3"'),
        ("question.x", 'there is no column "question.x"'),
        (
            "{from: question, apply: number}",
            "column \"question\": number: '1 + 1?' is not a number",
        ),
        ("{from: flag, apply: number}", "'true' is not a number"),
        ("{from: choices.text, apply: number}", 'column "choices.text": number: ['),
        ("{from: level, apply: strip}", 'column "level": strip: 5 is not text'),
        ("{from: question, apply: {after: x}}", "has no 'x'"),
        ("{from: question, apply: json}", "is not JSON"),
        ("{from: question, apply: letters}", "is not a list"),
        ("{from: level, apply: [text, letter]}", "'5' is not an index from 0 to 25"),
        ("{from: question, apply: {letter_in: choices.text}}", "appears 0 times among the options"),
        ("{from: question, apply: {letter_in: none}}", 'there is no column "none"'),
        ("{from: mixed.2, apply: {letter_in: mixed}}", "'one' appears 2 times among the options"),
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
    assert RowMap().apply(ROW) == ROW


def test_map_with_fields_takes_these_alone_and_fills_its_template(tmp_path):
    text = """
    fields: {question: question, options: {from: choices.text, apply: lettered}}
    system: "Answer."
    user: "{question} {{}}\\n{options}"
    """
    assert mapped(tmp_path, text) == {
        "question": "1 + 1?",
        "options": "A: one\nB: two\nC: 3",
        "messages": [
            {"role": "system", "content": "Answer."},
            {"role": "user", "content": "1 + 1? {}\nA: one\nB: two\nC: 3"},
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
    assert read_map(tmp_path / "map.yaml").takes(ROW) is is_taken


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a", "a map must be a YAML mapping"),
        ("a: [", "is not YAML"),
        ("field: {}", "field: is unknown"),
        ("fields: {x: {apply: text}}", "fields.x.from: is missing"),
        ("fields: {x: {from: y, apply: uper}}", 'no transform "uper" (choose from text, number,'),
        ("fields: {x: {from: y, apply: after}}", 'the transform "after" takes a text'),
        ("fields: {x: {from: y, apply: {text: z}}}", 'the transform "text" takes nothing'),
        ("fields: {x: {from: y, apply: [3]}}", "a transform must be a name, or name: argument"),
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
        read_map(tmp_path / "map.yaml")
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
