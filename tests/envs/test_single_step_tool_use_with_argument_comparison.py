"""The comparison of calls and the tasks of single_step_tool_use_with_argument_comparison."""

import json
from random import Random

import pytest
from pydantic import ValidationError

from gymcli.envs.single_step_tool_use_with_argument_comparison import SingleStepToolUse
from tests.envs.episodes import calls, played, row_of_file, says, scored, task_row

NAME = "single_step_tool_use_with_argument_comparison"


def expected_call(name="f", **arguments):
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def batch(*wanted):
    return {"type": "function_call_batch", "calls": list(wanted)}


def call(name="f", **arguments):
    return (name, json.dumps(arguments))


def verdict(action, message, **options):
    row = task_row(NAME, {"expected_action": action})
    rollout = scored(played(row, message), **options)
    return rollout.reward, rollout.details["reason"]


def fault(expected, actual, **options):
    """Return the reason why a value is wrong, or None if it is right."""
    message = calls(call(x=actual))
    reward, reason = verdict(expected_call(x=expected), message, **options)
    assert reward == (reason == "expected_tool_call")
    return None if reward else reason


TEXT = {"type": "message", "content": "It is done."}
TYPE, KEYS = "argument_value_type_different", "argument_object_keys_different"
LENGTH, VALUE = "argument_list_length_different", "argument_value_different"


@pytest.mark.parametrize(
    ("action", "message", "found"),
    [
        pytest.param(TEXT, says("No."), (1, "expected_chat_message_found"), id="any text"),
        pytest.param(TEXT, says(""), (0, "no_answer"), id="no text"),
        pytest.param(TEXT, says(" \n"), (0, "no_answer"), id="white space"),
        pytest.param(TEXT, calls(call()), (0, "no_expected_chat_message"), id="call for text"),
        pytest.param(
            expected_call(), says("f()"), (0, "no_expected_tool_call"), id="text for a call"
        ),
        pytest.param(expected_call(), says(""), (0, "no_answer"), id="nothing for a call"),
        pytest.param(expected_call(), calls(call()), (1, "expected_tool_call"), id="call"),
        pytest.param(expected_call(), calls(call("g")), (0, "unexpected_tool"), id="other tool"),
        pytest.param(
            expected_call(), calls(("f", "{")), (0, "arguments_decode_error"), id="no JSON"
        ),
        pytest.param(expected_call(), calls(("f", "[]")), (0, TYPE), id="no object"),
        pytest.param(expected_call(), calls(("f", "null")), (0, TYPE), id="null"),
        pytest.param(expected_call(a=1), calls(("f", '"{}"')), (0, TYPE), id="encoded twice"),
        pytest.param(expected_call(), calls(("f", "")), (1, "expected_tool_call"), id="empty"),
        pytest.param(batch(expected_call()), says("f()"), (0, "no_expected_tool_call"), id="batch"),
        pytest.param(
            batch(expected_call()), calls(call()), (1, "expected_tool_call"), id="batch of one"
        ),
    ],
)
def test_verify_tells_the_kinds_of_actions(action, message, found):
    assert verdict(action, message) == found


def test_verify_looks_at_calls_before_text():
    message = calls(call())
    message.content = "I call f."

    assert verdict(TEXT, message) == (0.0, "no_expected_chat_message")
    assert verdict(expected_call(), message) == (1.0, "expected_tool_call")


@pytest.mark.parametrize(
    ("expected", "actual", "found"),
    [
        pytest.param(1, 1, None, id="integer"),
        pytest.param(1, 2, VALUE, id="other integer"),
        pytest.param(1, 1.0, TYPE, id="float for integer"),
        pytest.param(1.0, 1, TYPE, id="integer for float"),
        pytest.param(1, True, None, id="boolean for integer"),
        pytest.param(True, 1, TYPE, id="integer for boolean"),
        pytest.param(True, False, VALUE, id="other boolean"),
        pytest.param(None, None, None, id="null"),
        pytest.param(None, 0, TYPE, id="value for null"),
        pytest.param("a", None, TYPE, id="null for text"),
        pytest.param(0.5, 0.5 + 9e-7, None, id="float within the tolerance"),
        pytest.param(0.5, 0.5 + 2e-6, VALUE, id="float beyond the tolerance"),
        pytest.param([1, 2], [1, 2], None, id="list"),
        pytest.param([1, 2], [2, 1], VALUE, id="list in another order"),
        pytest.param([1, 2], [1], LENGTH, id="shorter list"),
        pytest.param([1], ["1"], TYPE, id="other type in a list"),
        pytest.param([], {}, TYPE, id="object for list"),
        pytest.param({"a": 1}, {"a": 1}, None, id="object"),
        pytest.param({"a": 1}, {}, KEYS, id="key is missing"),
        pytest.param({"a": 1}, {"a": 1, "b": 2}, KEYS, id="key too many"),
        pytest.param({"a": {"b": [1.5]}}, {"a": {"b": [2.5]}}, VALUE, id="deep within"),
    ],
)
def test_verify_compares_values_by_type(expected, actual, found):
    assert fault(expected, actual) == found


@pytest.mark.parametrize(
    ("expected", "actual", "threshold", "is_alike"),
    [
        pytest.param("mint", "mint", 0.5, True, id="one word"),
        pytest.param("mint", "Mint", 0.0, False, id="one word, other case"),
        pytest.param("mint", "mint tea", 0.0, False, id="one word against two"),
        pytest.param("mint tea", "mint", 0.0, False, id="two words against one"),
        pytest.param(" mint", "mint", 0.0, False, id="one word, other space"),
        pytest.param("", "", 0.5, True, id="no word"),
        pytest.param("mint tea", "mint tea", 0.5, True, id="equal texts have 0.5"),
        pytest.param("mint tea", "Tea  MINT", 0.5, True, id="case, order and space are free"),
        pytest.param("mint tea", "mint oil", 0.25, True, id="one of two is 0.25"),
        pytest.param("mint tea", "mint oil", 0.26, False, id="below the threshold"),
        pytest.param("tea tea", "tea oil", 0.25, True, id="words count as often as they stand"),
        pytest.param("tea tea", "tea oil", 0.26, False, id="and no more often"),
        pytest.param("mint tea", "black coffee", 0.0, True, id="a threshold of 0 takes anything"),
        pytest.param("mint tea", "black coffee", 0.1, False, id="nothing is shared"),
    ],
)
def test_verify_compares_texts_by_words(expected, actual, threshold, is_alike):
    found = fault(expected, actual, word_count_similarity_threshold=threshold)

    assert found == (None if is_alike else VALUE)


def test_options_refuse_a_threshold_that_no_text_can_meet():
    assert SingleStepToolUse.Options().word_count_similarity_threshold == 0.1
    with pytest.raises(ValidationError):
        SingleStepToolUse.Options(word_count_similarity_threshold=0.51)


def test_options_widen_the_tolerance_of_numbers():
    assert fault(0.5, 0.75) == VALUE
    assert fault(0.5, 0.75, floating_point_comparison_threshold=0.3) is None
    assert fault(0.5, 0.75, floating_point_comparison_threshold=0.25) == VALUE


A, B = expected_call(x=1), expected_call(x=2)
GATED = {"parallel_tool_call_rewarding": True}
FEWER, MORE = {**GATED, "allow_subset": True}, {**GATED, "allow_superset": True}
OPEN = {**FEWER, **MORE}
FRACTION = {**OPEN, "parallel_tool_call_reward_mode": "fractional"}
F1 = {**OPEN, "parallel_tool_call_reward_mode": "f1"}
NUMBER, BATCH = "function_call_batch_length_different", "expected_tool_call_batch"


@pytest.mark.parametrize(
    ("wanted", "made", "options", "found"),
    [
        pytest.param([A, B], (2, 1), {}, (1, BATCH), id="any order"),
        pytest.param([A, B], (1, 9), {}, (0, VALUE), id="one is wrong"),
        pytest.param([A, B], (1,), {}, (0, NUMBER), id="too few"),
        pytest.param([A, B], (1, 2, 9), {}, (1, BATCH), id="surplus is free"),
        pytest.param([A], (9, 1), {}, (1, "expected_tool_call"), id="surplus of one is free"),
        pytest.param([A], (8, 9), {}, (0, VALUE), id="none of several"),
        pytest.param([A, A], (1, 9), {}, (0, VALUE), id="a call counts once"),
        pytest.param([A, B], (2, 1), GATED, (1, BATCH), id="gate: right number"),
        pytest.param([A, B], (1,), GATED, (0, NUMBER), id="gate: too few"),
        pytest.param([A, B], (1, 2, 3), GATED, (0, NUMBER), id="gate: too many"),
        pytest.param([A], (1, 1), GATED, (0, NUMBER), id="gate: too many for one"),
        pytest.param([A, B], (1,), FEWER, (1, BATCH), id="gate: fewer are admitted"),
        pytest.param([A, B], (1, 2, 3), FEWER, (0, NUMBER), id="gate: more are not"),
        pytest.param([A, B], (1, 2, 3), MORE, (1, BATCH), id="gate: more are admitted"),
        pytest.param([A, B], (1,), MORE, (0, NUMBER), id="gate: fewer are not"),
        pytest.param([A, B], (1,), OPEN, (1, BATCH), id="strict: subset"),
        pytest.param([A, B], (9,), OPEN, (0, VALUE), id="strict: wrong subset"),
        pytest.param([A, B], (1, 2, 3), OPEN, (1, BATCH), id="strict: superset"),
        pytest.param([A, B], (1, 9), OPEN, (0, VALUE), id="strict: one is wrong"),
        pytest.param([A, B], (1, 9), FRACTION, (0.5, VALUE), id="fractional: half"),
        pytest.param([A, B], (1,), FRACTION, (1, BATCH), id="fractional: subset"),
        pytest.param([A, B], (1, 2, 3), FRACTION, (1, BATCH), id="fractional: superset"),
        pytest.param([A, B], (1, 8, 9), FRACTION, (0.5, VALUE), id="fractional: half of three"),
        pytest.param([A, B], (1, 2), F1, (1, BATCH), id="f1: right"),
        pytest.param([A, B], (1,), F1, (2 / 3, NUMBER), id="f1: too few"),
        pytest.param([A, B], (1, 2, 9, 9), F1, (2 / 3, NUMBER), id="f1: too many"),
        pytest.param([A, B], (1, 9), F1, (0.5, VALUE), id="f1: one is wrong"),
        pytest.param([A, B], (8, 9), F1, (0, VALUE), id="f1: none"),
        pytest.param([A], (9,), F1, (0, VALUE), id="f1: one for one"),
    ],
)
def test_verify_scores_several_calls(wanted, made, options, found):
    message = calls(*(call(x=value) for value in made))
    reward, reason = verdict(batch(*wanted), message, **options)

    assert (reward, reason) == (pytest.approx(found[0]), found[1])


def test_verify_pairs_calls_that_fit_several():
    """The first call fits both expected calls, the second fits only the first one."""
    wanted = batch(expected_call(x="red tea pot"), expected_call(x="tea pot"))
    made = calls(call(x="tea pot"), call(x="red cup"))

    assert verdict(wanted, made) == (1.0, BATCH)


def test_verify_names_the_reason_nearest_to_the_expected_call():
    wanted = batch(expected_call(x=1), expected_call("g"))

    assert verdict(wanted, calls(call("g"), call("h"))) == (0.0, "unexpected_tool")
    assert verdict(wanted, calls(call("h"), call(x=[]))) == (0.0, TYPE)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"x":' * 10_000 + "1" + "}" * 10_000, id="10,000 levels"),
        pytest.param('{"x": NaN}', id="not a number"),
        pytest.param('{"x": 1e999}', id="out of range"),
        pytest.param(f'{{"x": {"9" * 10_000}}}', id="10,000 digits"),
    ],
)
def test_verify_scores_arguments_that_cannot_be_read(text):
    assert verdict(expected_call(x=1), calls(("f", text))) == (0.0, "arguments_decode_error")


def test_verify_pairs_hundreds_of_calls():
    wanted = batch(*[expected_call(x="a b c")] * 200)
    made = [call(x=f"a b {number}") for number in range(400)]

    assert verdict(wanted, calls(*made)) == (1.0, BATCH)
    assert verdict(wanted, calls(*made[:199], call("g"))) == (0.0, "unexpected_tool")


def test_verify_shows_the_calls():
    row = task_row(NAME, {"expected_action": A})
    rollout = scored(played(row, calls(call(x=1))))

    assert rollout.details["predicted_calls"] == [{"name": "f", "arguments": '{"x": 1}'}]
    assert rollout.answer == '[["f",{"x":1}]]'


@pytest.mark.parametrize(
    "action",
    [
        pytest.param({"type": "shrug"}, id="unknown kind"),
        pytest.param({"type": "function_call", "name": "f", "arguments": "{"}, id="no JSON"),
        pytest.param({"type": "function_call", "arguments": "{}"}, id="no name"),
        pytest.param(batch(), id="no calls"),
        pytest.param(batch({"name": "f", "arguments": "[]"}), id="no object"),
    ],
)
def test_parse_task_refuses_what_cannot_be_scored(action):
    with pytest.raises(ValidationError):
        SingleStepToolUse.parse_task({"expected_action": action})


@pytest.mark.parametrize("action", [TEXT, A, batch(A, B)])
def test_oracle_gets_the_top_reward_in_a_foreign_row(tmp_path, action):
    items = [
        {"role": "user", "content": "Call f."},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "First g."}]},
        {"type": "function_call", "name": "g", "arguments": "{}", "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
    ]
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    params = {"input": items, "tools": [tool]}
    row = row_of_file(
        tmp_path, NAME, {"responses_create_params": params, "expected_action": action}
    )

    assert scored(played(row)).reward == 1.0


def test_generate_writes_every_kind_of_action_in_every_difficulty():
    rows = list(SingleStepToolUse.generate(Random(3), 300))
    kinds = {(row["difficulty"], row["expected_action"]["type"]) for row in rows}

    assert len(kinds) == 9
    assert len({json.dumps(row["messages"]) for row in rows}) == 300


def test_generate_makes_harder_tasks_longer():
    rows = list(SingleStepToolUse.generate(Random(3), 300))
    means = [
        sum(len(row["messages"]) for row in rows if row["difficulty"] == difficulty)
        for difficulty in ("easy", "medium", "hard")
    ]

    assert means == sorted(set(means))


def test_generate_shows_every_value_of_the_next_call_before_it():
    for row in SingleStepToolUse.generate(Random(3), 300):
        action = row["expected_action"]
        shown = "\n".join(message.get("content", "") for message in row["messages"])
        for one in action.get("calls", [action] if "name" in action else []):
            assert all(str(value) in shown for value in json.loads(one["arguments"]).values())


def test_generate_writes_calls_and_results_that_belong_together():
    for row in SingleStepToolUse.generate(Random(3), 60):
        made = [one["id"] for message in row["messages"] for one in message.get("tool_calls", [])]
        answered = [m["tool_call_id"] for m in row["messages"] if m["role"] == "tool"]
        assert made == answered
        assert made
        assert len(set(made)) == len(made)
