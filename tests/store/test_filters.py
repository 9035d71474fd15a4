"""Filter expressions: which records match, and one-line errors for those that are wrong."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import FilterError
from gymcli.store.filters import parse_filter

RECORD = {
    "reward": 0.5,
    "avg": 0.25,
    "attempt": 3,
    "status": "scored",
    "passed": False,
    "error": None,
    "answer": "Ähm, C",
    "task.category": "algebra",
    "task.class": "easy",
    "task.tags": ["a", "b"],
    "task.meta": {"level": 3},
    "components.format": 1.0,
    "pass@1": 0.8,
    "pass^4": 0.2,
}


@pytest.mark.parametrize(
    "text",
    [
        "reward == 0.5",
        "0 < avg < 1",
        "1 > reward > avg > 0",
        "not 0 < avg < 0.2",
        "passed == False and status == 'scored'",
        "not passed",
        "error is None",
        "answer is not None",
        'status in ("scored", "failed")',
        'status not in ["waiting"]',
        'contains(answer, "hm")',
        '"C" in answer',
        'startswith(answer, "Ä") and endswith(answer, "C")',
        'contains(lower(answer), "ähm")',
        'task.category == "algebra"',
        'task["category"] == "algebra"',
        'task.class == "easy"',
        '"a" in task.tags',
        'contains(task.meta, "level")',
        "components.format >= 1",
        "pass@1 >= 0.80 and pass^4 < .5",
        "len(answer) == 6",
        "abs(reward - 1) <= 0.5",
        "round(reward * 3) == 2",
        "attempt % 2 == 1 and attempt // 2 == 1 and attempt ** 2 == 9",
        "-reward < +reward",
        "reward / 0 == 1 or reward == 0.5",
        "  reward\n>\t0  ",
        'answer == "\\u00c4hm, C"',
        "True",
    ],
)
def test_filter_holds(text):
    assert parse_filter(text).matches(RECORD)
    assert not parse_filter(f"not ({text})").matches(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "error == 'x'",
        "error != 'x'",
        "error < 1",
        "0 < error < 1",
        "error in ('x', 'y')",
        "error not in ('x', 'y')",
        "'x' in error",
        "contains(error, 'x')",
        "startswith(error, 'x')",
        "endswith(answer, error)",
        "lower(error) == 'x'",
        "len(error) == 0",
        "abs(error) >= 0",
        "round(error) == 0",
        "-error <= 0",
        "error + 1 > 0",
        "reward / 0 > 0",
        "(0 - 1) ** 0.5 == 0",
        "9 ** 9 ** 9 > 0",
        "error",
    ],
)
def test_comparison_with_an_unknown_value_is_false(text):
    """A comparison with None, or with an expression that has no value, is false."""
    assert not parse_filter(text).matches(RECORD)


def test_filter_has_the_names_that_it_reads():
    found = parse_filter('task["a b"].c[0] == 1 and task.from > pass@1 or lower(env) == "x"')
    assert found.names == {"task.a b.c.0", "task.from", "pass@1", "env"}
    assert found.text.startswith("task[")


def test_filter_reads_only_what_it_needs():
    assert parse_filter("status == 'scored' or gone").matches({"status": "scored"})


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", None, "is empty"),
        ("x" * 3000, None, "3000 characters"),
        ("reward = 1", 8, "write == to compare"),
        ("reward => 1", 8, "write >= to compare"),
        ("reward =< 1", 8, "write <= to compare"),
        ("a && b", 3, "write and"),
        ("a == 'x OR y' AND b", 15, "write and"),
        ("NOT a", 1, "write not"),
        ("'x' IN a", 5, "write in"),
        ("a <> 1", 3, "write != to compare"),
        ("a LIKE 'x'", 3, "write 'TEXT' in NAME"),
        ("contains(a, 'x') and", 21, "a value is missing here"),
        ("a || b", 3, "write or"),
        ("!a", 1, "write not"),
        ("a == 'b", 6, "quote is not closed"),
        ("a == '\\d'", 6, r"write \\\\ for"),
        ("1if", 1, "is not a number"),
        ("a ; b", 3, "has no meaning"),
        ("lambda: 1", 7, "has no meaning"),
        ("a @ b", 3, "has no meaning"),
        ("\x00", 1, "has no meaning"),
        ("\u01c0 == 1", 1, "has no meaning"),
        ("(a", 1, "never closed"),
        ("a b", 3, "cannot be read"),
        ("a <", 4, "a value is missing here"),
        (" not", 5, "a value is missing here"),
        ("a >= 50%", 6, "write 0.5 for 50%"),
        ("a < 2.5 % and b", 5, "write 0.025 for 2.5 %"),
        ("a % 2 == ", 10, "a value is missing here"),
        ("007", None, "cannot be read"),
        ("a == None", 1, "write is None"),
        ("None != a", 1, "write is not None"),
        ("a is 1", 6, "write =="),
        ("ä == 1 and b is 'x'", 17, "write =="),
        ("a if b else c", 1, "is not allowed"),
        ("f'{a}'", 1, "is not allowed"),
        ("a < b'x'", 5, "is not allowed"),
        ("1j", 1, "is not a number"),
        ("[x for x in y]", 1, "is not allowed"),
        ("a[-1] == 1", 1, "is not allowed"),
        ("a[b] == 1", 1, "is not allowed"),
        ("(1).real", 1, "is not allowed"),
        ("'x'.upper", 1, "is not allowed"),
        ("...", 1, "is not allowed"),
        ("~a", 1, "has no meaning"),
        ("__import__('os')", 1, "no such function"),
        ("a.__class__()", 1, "no such function"),
        ("(len)(a)(b)", 1, "no such function"),
        ("len(*a)", 5, "is not allowed"),
        ("contains(a)", 1, "takes 2 values"),
        ("len", 1, "is a function"),
        ("a == true", 6, "write True"),
        ("-" * 300 + "1", 62, "nested too deeply"),
        ("(" * 300, None, "cannot be read"),
    ],
)
def test_parse_filter_names_what_is_wrong_and_where(text, place, words):
    with pytest.raises(FilterError, match=words) as caught:
        parse_filter(text)
    assert "\n" not in str(caught.value)
    if place is not None:
        assert f"character {place}:" in str(caught.value)


def test_parse_filter_refuses_a_keyword_argument():
    with pytest.raises(FilterError, match="write == to compare"):
        parse_filter("contains(a, b=1)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("reward < 'x'", """^filter "reward < 'x'": "<" cannot compare a number and text"""),
        ("3 in answer", '"in" cannot compare a number and text'),
        ("status in reward", '"in" cannot compare text and a number'),
        ("passed < 'x'", "a truth value"),
        ("task.meta < 1", "an object"),
        ("task.tags < 1", "a list"),
        ("answer + answer == 1", r'"\+" cannot take text and text'),
        ("answer * 9 == 1", "text and a number"),
        ("answer % 1 == 1", "text and a number"),
        ("-answer == 1", '"-" cannot take text'),
        ("lower(1) == 'x'", r"lower\(\) cannot take a number"),
        ("startswith(1, 'x')", r"startswith\(\) cannot take a number and text"),
        ("endswith('x', 1)", r"endswith\(\) cannot take text and a number"),
        ("len(1) == 1", r"len\(\) cannot take a number"),
        ("abs('x') == 1", r"abs\(\) cannot take text"),
        ("round('x') == 1", r"round\(\) cannot take text"),
        ("rewardd == 1", 'no name "rewardd"; did you mean "reward"'),
        ("reward == done", 'character 11: there is no name "done"; write "done" for a text'),
    ],
)
def test_filter_names_values_that_do_not_fit(text, words):
    with pytest.raises(FilterError, match=words):
        parse_filter(text).matches(RECORD)


def test_check_gives_a_suggestion():
    found = parse_filter("ok == 1 and task.x == 1")
    found.check(["ok"], ["task"])
    with pytest.raises(FilterError, match=r'character 13: there is no name "task.x"; there are ok'):
        found.check(["ok"])
    with pytest.raises(FilterError, match='did you mean "okk"'):
        found.check(["okk"], ["task"])
    with pytest.raises(FilterError, match=r"write task\.FIELD"):
        parse_filter("task == 1").check(["ok"], ["task"])


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_filter_refuses_values_nested_deeply():
    with pytest.raises(FilterError, match="nested too deeply"):
        parse_filter("a == b").matches({"a": nested(100_000), "b": nested(100_000)})


_WORDS = st.sampled_from(
    [
        *("reward", "error", "task.tags", "answer", "status", "missing", "pass@1", "x.__class__"),
        *("1", "0.5", "9" * 400, "1e308", "'x'", '"C"', "None", "True", "(", ")", "[", "]", ","),
        *("<", ">=", "==", "!=", "and", "or", "not", "in", "is", "+", "*", "**", "/", "//", "%"),
        *("len(", "lower(", "contains(", "round(", "abs(", ".", "-", "if", "lambda", "__import__("),
    ]
)


@given(st.lists(_WORDS, max_size=30).map(" ".join) | st.text(max_size=60))
def test_parse_filter_raises_only_filter_errors(text):
    """Any text is either a valid expression or raises a FilterError of one line."""
    try:
        found = parse_filter(text).matches(RECORD)
    except FilterError as error:
        found = str(error)
    assert isinstance(found, bool) or "\n" not in found


_NUMBERS = st.none() | st.integers(-5, 5) | st.floats(-5, 5)


@given(_NUMBERS, _NUMBERS, _NUMBERS)
def test_filter_chains_as_its_parts_do(low, value, high):
    names = {"low": low, "value": value, "high": high}
    parts = parse_filter("low < value and value <= high").matches(names)
    assert parse_filter("low < value <= high").matches(names) == parts
    known = None not in (low, value, high)
    assert parts == (known and low < value <= high)


@given(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), _NUMBERS)
def test_filter_compares_as_python_does_and_nothing_with_none(sign, value):
    left = parse_filter(f"value {sign} 1").matches({"value": value})
    assert left == (value is not None and eval(f"value {sign} 1", {"value": value}))


@given(st.recursive(st.sampled_from(["a", "b", "c"]), lambda t: st.tuples(t, t), max_leaves=8))
def test_filter_follows_de_morgan(tree):
    def joined(tree, word, start=""):
        if isinstance(tree, str):
            return f"{start}{tree}"
        return f"({joined(tree[0], word, start)} {word} {joined(tree[1], word, start)})"

    names = {"a": True, "b": None, "c": 0}
    both = parse_filter(f"not {joined(tree, 'and')}").matches(names)
    assert both == parse_filter(joined(tree, "or", "not ")).matches(names)


def test_filter_bounds_the_results_of_arithmetic():
    """A result too large for a float has no value; powers are computed with floats."""
    large = "9" * 200
    assert parse_filter(f"{large} + {large} > 0").matches({})
    for text in ("x / 2", "x ** 2", "x + 1", "x * x", "large * large", "1e308 * 10 - 1e308 * 10"):
        assert parse_filter(f"({text}) is None").matches({"x": 10**400, "large": int(large)}), text
    assert parse_filter("2 ** 0.5 > 1.4").matches({})
    assert parse_filter("round(x) == x and abs(-x) == x").matches({"x": 10**400})


def test_filter_knows_no_infinite_round():
    assert not parse_filter("round(x) > 0").matches({"x": math.inf})
