"""The environment xlam_fc: the comparison of sets of calls, and the generated tasks."""

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from gymcli.envs import load_generator
from gymcli.envs.xlam_fc import (
    ExpectedCall,
    XlamFunctionCalls,
    answer_of,
    gold_message,
    maximum_matching,
    predicted_calls,
    shown_calls,
)
from gymcli.types import Rollout, TaskRow
from tests.envs.episodes import calls, played, row_of_file, says, scored, task_row

generator = load_generator("xlam_fc")

NAME = "xlam_fc"
TEA = {"name": "brew", "arguments": {"tea": "mint", "cups": 2}}
LAMP = {"name": "light", "arguments": {"lamp": "hall"}}


def call(name, **arguments):
    return (name, json.dumps(arguments))


def verdict(expected, *messages):
    rollout = scored(played(task_row(NAME, {"expected_answers": expected}), *messages))
    return rollout.reward, rollout.details["reason"], rollout.metrics["num_correct"]


MINT, HALL = call("brew", tea="mint", cups=2), call("light", lamp="hall")


@pytest.mark.parametrize(
    ("expected", "message", "found"),
    [
        pytest.param([TEA], calls(MINT), (1.0, "correct", 1), id="one"),
        pytest.param([TEA, LAMP], calls(HALL, MINT), (1.0, "correct", 2), id="any order"),
        pytest.param([TEA, TEA], calls(MINT, MINT), (1.0, "correct", 2), id="twice"),
        pytest.param([TEA, TEA], calls(MINT), (0.0, "missing_calls", 1), id="twice, made once"),
        pytest.param([TEA], calls(MINT, MINT), (0.0, "surplus_calls", 1), id="once, made twice"),
        pytest.param([TEA, LAMP], calls(MINT), (0.0, "missing_calls", 1), id="one is missing"),
        pytest.param([TEA], calls(MINT, HALL), (0.0, "surplus_calls", 1), id="one too many"),
        pytest.param([TEA], calls(HALL), (0.0, "wrong_calls", 0), id="another tool"),
        pytest.param(
            [TEA],
            calls(call("pour", **TEA["arguments"])),
            (0.0, "wrong_calls", 0),
            id="another tool, same arguments",
        ),
        pytest.param([TEA], says("Mint tea, twice."), (0.0, "no_call", 0), id="text"),
        pytest.param([TEA], says(""), (0.0, "no_call", 0), id="nothing"),
        pytest.param([], says("I cannot."), (1.0, "correctly_no_call", 0), id="none wanted"),
        pytest.param([], says(""), (1.0, "correctly_no_call", 0), id="none wanted, silence"),
        pytest.param([], calls(MINT), (0.0, "surplus_calls", 0), id="none wanted, one made"),
    ],
)
def test_verify_compares_sets_of_calls(expected, message, found):
    assert verdict(expected, message) == found


@pytest.mark.parametrize(
    ("wanted", "made", "fits"),
    [
        pytest.param({"a": 1}, {"a": 1, "b": 2}, True, id="other arguments are free"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, False, id="an argument is missing"),
        pytest.param({"a": None}, {}, False, id="null has to be there"),
        pytest.param({"a": 1}, {"a": 2}, False, id="another value"),
        pytest.param({"a": "x"}, {"a": "X"}, False, id="case counts"),
        pytest.param({"a": 1}, {"a": "1"}, False, id="a text is no number"),
        pytest.param({"a": 1}, {"a": 1.0}, True, id="1 and 1.0 are equal"),
        pytest.param({"a": 1}, {"a": True}, True, id="1 and true are equal"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, False, id="lists have an order"),
        pytest.param(
            {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False, id="objects within are exact"
        ),
        pytest.param({}, {"a": 1}, True, id="no argument is expected"),
    ],
)
def test_verify_compares_arguments(wanted, made, fits):
    assert verdict([{"name": "f", "arguments": wanted}], calls(call("f", **made)))[0] == fits


@pytest.mark.parametrize("is_reversed", [False, True])
def test_verify_pairs_calls_whatever_their_order(is_reversed):
    """Pairing each expected call with the first that fits would leave the second without one."""
    expected = [{"name": "f", "arguments": a} for a in ({"x": 1}, {"x": 1, "y": 2})]
    made = [call("f", x=1, y=2), call("f", x=1)]
    made = made[::-1] if is_reversed else made

    assert verdict(expected, calls(*made)) == (1.0, "correct", 2)


@pytest.mark.parametrize(
    ("text", "arguments", "is_json"),
    [
        pytest.param('{"a": 1}', {"a": 1}, True, id="object"),
        pytest.param("", {}, True, id="empty"),
        pytest.param(" \n", {}, True, id="white space"),
        pytest.param('{"a": 1, "a": 2}', {"a": 2}, True, id="key twice"),
        pytest.param("[1]", None, True, id="list"),
        pytest.param("null", None, True, id="null"),
        pytest.param('"{\\"a\\": 1}"', None, True, id="encoded twice"),
        pytest.param('{"a": 1', None, False, id="cut off"),
        pytest.param("{'a': 1}", None, False, id="Python"),
        pytest.param('{"a": NaN}', None, False, id="not a number"),
        pytest.param('{"a": -Infinity}', None, False, id="infinity"),
        pytest.param('{"a": 1e999}', None, False, id="out of range"),
        pytest.param(f'{{"a": {"9" * 10_000}}}', None, False, id="10,000 digits"),
        pytest.param('{"a": "\ud800"}', None, False, id="half surrogate"),
        pytest.param('{"a":' * 10_000 + "1" + "}" * 10_000, None, False, id="10,000 levels"),
        pytest.param('{"a":' * 65 + "1" + "}" * 65, None, False, id="65 levels"),
        pytest.param(f'{{"a": "{"x" * 100_000}"}}', None, False, id="too long"),
    ],
)
def test_predicted_calls_reads_arguments(text, arguments, is_json):
    [found] = predicted_calls(Rollout(messages=[calls(("f", text))]))

    assert (found.arguments, found.is_json) == (arguments, is_json)


@pytest.mark.parametrize("text", ["[1]", "{", '"{}"'])
def test_verify_lets_arguments_that_are_no_object_fit_nothing(text):
    expected = [{"name": "f", "arguments": {}}]

    assert verdict(expected, calls(("f", text))) == (0.0, "wrong_calls", 0)
    assert verdict(expected, calls(("f", ""))) == (1.0, "correct", 1)


def test_verify_pairs_hundreds_of_calls():
    expected = [{"name": "f", "arguments": {"x": 1}}] * 300
    made = [call("f", x=1, y=number) for number in range(299)]

    assert verdict(expected, calls(*made, call("f", x=2))) == (0.0, "wrong_calls", 299)


def test_verify_counts_calls_and_shows_the_first_of_them():
    row = task_row(NAME, {"expected_answers": [TEA]})
    rollout = scored(played(row, calls(*[call("f", x="y" * 900)] * 40)))

    assert rollout.metrics == {"num_expected": 1.0, "num_predicted": 40.0, "num_correct": 0.0}
    assert len(rollout.details["predicted_calls"]) == 20
    assert all(len(c["arguments"]) == 500 for c in rollout.details["predicted_calls"])
    assert len(rollout.answer) == 2_000


def test_shown_calls_keeps_what_was_written():
    found = predicted_calls(Rollout(messages=[calls(("f", "{"))]))

    assert shown_calls(found) == [{"name": "f", "arguments": "{"}]


def test_answer_of_is_the_same_whatever_the_order():
    answers = [
        answer_of(predicted_calls(Rollout(messages=[calls(*made)])))
        for made in (
            [("f", '{"a": 1, "b": 2}'), ("g", "{")],
            [("g", "{"), ("f", '{"b":2,"a":1}')],
        )
    ]

    assert answers[0] == answers[1] == '[["f",{"a":1,"b":2}],["g","{"]]'
    assert answer_of([]) is None


@given(st.lists(st.sets(st.integers(0, 6)), max_size=7))
def test_maximum_matching_is_a_matching_of_the_greatest_size(candidates):
    found = maximum_matching([sorted(places) for places in candidates])
    edges = np.array([[right in places for right in range(7)] for places in candidates], dtype=int)
    best = maximum_bipartite_matching(csr_matrix(edges.reshape(-1, 7)), perm_type="column")

    assert all(right in candidates[left] for left, right in found.items())
    assert len(set(found.values())) == len(found) == np.sum(best >= 0)


def test_maximum_matching_moves_a_long_chain_of_pairs():
    """Each pair has to move on by one, which is deeper than Python calls."""
    candidates = [[place, place + 1] for place in range(5_000)]

    assert len(maximum_matching([*candidates, [0]])) == 5_001


@pytest.mark.parametrize("arguments", ["{", "[1]", '"{}"', "{" * 10_000, [1], 7])
def test_parse_task_refuses_expected_arguments_that_cannot_be_read(arguments):
    with pytest.raises(ValidationError):
        XlamFunctionCalls.parse_task({"expected_answers": [{"name": "f", "arguments": arguments}]})


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        pytest.param({"arguments": '{"a": 1}'}, {"a": 1}, id="JSON text"),
        pytest.param({"arguments": " "}, {}, id="empty text"),
        pytest.param({"arguments": None}, {}, id="null"),
        pytest.param({}, {}, id="absent"),
    ],
)
def test_parse_task_reads_expected_arguments(fields, arguments):
    task = XlamFunctionCalls.parse_task({"expected_answers": [{"name": "f", **fields}]})

    assert task.expected_answers[0].arguments == arguments


def test_oracle_makes_the_calls_of_a_foreign_row_or_says_something(tmp_path):
    tool = {"type": "function", "name": "brew", "parameters": {"type": "object"}}
    params = {"input": [{"role": "user", "content": "Tea."}], "tools": [tool]}
    row = {"id": 0, "responses_create_params": params, "expected_answers": [TEA]}
    found = row_of_file(tmp_path, NAME, row)

    assert isinstance(found, TaskRow)
    assert scored(played(found)).reward == 1.0
    assert scored(played(task_row(NAME, {"expected_answers": []}))).reward == 1.0


def test_gold_message_gives_every_call_an_id_of_its_own():
    made = gold_message([ExpectedCall.model_validate(TEA)] * 3).tool_calls

    assert len({one.id for one in made}) == 3


def test_generate_says_every_argument_in_the_request():
    for row in XlamFunctionCalls.generate(Random(3), 300):
        request = row["messages"][-1]["content"]
        values = [v for c in row["expected_answers"] for v in c["arguments"].values()]
        assert all(str(value) in request for value in values)


def test_generate_makes_harder_tasks_larger():
    rows = list(XlamFunctionCalls.generate(Random(3), 300))
    sizes = {row["difficulty"]: set() for row in rows}
    for row in rows:
        sizes[row["difficulty"]].add((len(row["expected_answers"]), len(row["tools"])))

    assert sizes == {"easy": {(1, 3)}, "medium": {(2, 5)}, "hard": {(3, 10), (4, 11)}}
    assert len({row["messages"][-1]["content"] for row in rows}) == 300


def test_generate_shows_the_tools_that_the_calls_need():
    for row in XlamFunctionCalls.generate(Random(3), 60):
        tools = {tool["function"]["name"]: tool["function"] for tool in row["tools"]}
        assert len(tools) == len(row["tools"])
        for one in row["expected_answers"]:
            schema = tools[one["name"]]["parameters"]
            assert set(schema["required"]) <= set(one["arguments"]) <= set(schema["properties"])


def test_catalogue_names_every_tool_once():
    assert len({action.name for action in generator.ACTIONS}) == len(generator.ACTIONS)
    assert len({lookup.find.domain for lookup in generator.LOOKUPS}) == len(generator.LOOKUPS)
