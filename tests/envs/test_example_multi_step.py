import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.envs.example_multi_step import ExampleMultiStep, value_of
from gymcli.registry import shipped_tasks
from tests.envs.episodes import calls, played, says, scored, task_row

TASK = {
    "expected_synonyms": ["Blazing", "Warm"],
    "expected_synonym_values": [711, 407],
    "minefield_label": "Hot",
    "minefield_label_value": 299,
}


def hands_over(values):
    text = msgspec.json.encode({"synonym_values": values}).decode()
    return calls(("extract_synonym_values", text))


def score_of(*messages, **fields):
    row = task_row("example_multi_step", {**TASK, **fields})
    return scored(played(row, *messages, says("Done.")))


@pytest.mark.parametrize(
    ("values", "reward", "overlap", "hit", "disorder"),
    [
        pytest.param([711, 407], 1.0, 1.0, 0.0, 0.0, id="right"),
        pytest.param([711.0, 407], 1.0, 1.0, 0.0, 0.0, id="whole float equals the number"),
        pytest.param([407, 711], 0.0, 1.0, 0.0, 1.0, id="wrong order"),
        pytest.param([711, 407, 407], 0.0, 1.0, 0.0, 1.0, id="one twice"),
        pytest.param([711], 0.0, 0.5, 0.0, 0.0, id="one missing"),
        pytest.param([711, 407, 299], 0.0, 1.0, 1.0, 1.0, id="term beside them"),
        pytest.param([299], 0.0, 0.0, 1.0, 0.0, id="term alone"),
        pytest.param([], 0.0, 0.0, 0.0, 0.0, id="empty list"),
        pytest.param([711, 407, "x"], 0.0, 1.0, 0.0, 1.0, id="a text beside them"),
        pytest.param([711, "407"], 0.0, 0.5, 0.0, 0.0, id="one as text"),
        pytest.param([711, 407, [1], {"a": 1}], 0.0, 1.0, 0.0, 1.0, id="list and object"),
        pytest.param([None, 299, True], 0.0, 0.0, 1.0, 0.0, id="term among no numbers"),
        pytest.param([[711, 407]], 0.0, 0.0, 0.0, 0.0, id="list in the list"),
    ],
)
def test_verify_compares_values_in_order(values, reward, overlap, hit, disorder):
    rollout = score_of(hands_over(values))

    assert rollout.reward == reward
    assert rollout.metrics == {
        "accuracy": reward,
        "set_overlap": overlap,
        "original_term_minefield_hit": hit,
        "order_instruction_following_failure": disorder,
    }
    assert rollout.details["parsed_synonym_values"] == values


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param("{", "arguments_not_json", id="not JSON"),
        pytest.param("", "arguments_not_json", id="no text"),
        pytest.param("[711, 407]", "no_list_of_values", id="not an object"),
        pytest.param('{"values": [711, 407]}', "no_list_of_values", id="key missing"),
        pytest.param('{"synonym_values": 711}', "no_list_of_values", id="not a list"),
        pytest.param('{"synonym_values": "711"}', "no_list_of_values", id="text for the list"),
        pytest.param('{"synonym_values": {}}', "no_list_of_values", id="object for the list"),
        pytest.param(
            f'{{"synonym_values": {"[" * 100_000}{"]" * 100_000}}}',
            "arguments_not_json",
            id="nested too deeply",
        ),
    ],
)
def test_verify_scores_bad_arguments_of_the_last_call(arguments, reason):
    """The reference fails on these with a server error; ours are 0, with the reason."""
    rollout = score_of(hands_over([711, 407]), calls(("extract_synonym_values", arguments)))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, reason)
    assert rollout.metrics["set_overlap"] == 0.0


def test_verify_takes_the_last_call():
    assert score_of(hands_over([1]), hands_over([711, 407])).reward == 1.0
    assert score_of(hands_over([711, 407]), hands_over([1])).reward == 0.0


def test_verify_says_that_nothing_was_handed_over():
    rollout = score_of(calls(("get_synonym_value", '{"synonym": "Warm"}')))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "no_values")


@pytest.mark.parametrize(
    ("messages", "reward", "overlap"),
    [
        pytest.param([], 1.0, 1.0, id="no call"),
        pytest.param([hands_over([])], 1.0, 1.0, id="empty list"),
        pytest.param([hands_over([711])], 0.0, 0.0, id="a value"),
        pytest.param([calls(("extract_synonym_values", "{"))], 0.0, 0.0, id="bad arguments"),
    ],
)
def test_verify_knows_what_to_do_where_nothing_is_expected(messages, reward, overlap):
    """The reference divides by zero here."""
    rollout = score_of(*messages, expected_synonyms=[], expected_synonym_values=[])

    assert (rollout.reward, rollout.metrics["set_overlap"]) == (reward, overlap)


@given(st.lists(st.integers(0, 2000)), st.lists(st.integers(0, 2000)))
def test_verify_rewards_equality_and_nothing_else(expected, values):
    rollout = score_of(hands_over(values), expected_synonym_values=expected)

    assert rollout.reward == float(expected == values)
    assert 0 <= rollout.metrics["set_overlap"] <= 1


def test_tools_answer_in_the_shape_of_the_reference():
    row = task_row("example_multi_step", TASK)
    rollout = played(
        row, calls(("get_synonym_value", '{"synonym": "Blazing"}')), hands_over([1]), says("")
    )

    texts = [message.text for message in rollout.messages if message.role == "tool"]
    assert texts == ['{"synonym_value":711}', '{"success":true}']


def test_tools_have_the_parameters_of_the_reference():
    tools = ExampleMultiStep.method_tools()
    synonym = tools["get_synonym_value"].parameters["properties"]["synonym"]
    values = tools["extract_synonym_values"].parameters["properties"]["synonym_values"]

    assert synonym["type"] == "string"
    assert (values["type"], values["items"]) == ("array", {"type": "integer"})
    assert synonym["description"]
    assert values["description"]


def test_oracle_looks_up_one_synonym_a_turn():
    rollout = played(task_row("example_multi_step", TASK))

    assert [call.name for call in rollout.tool_calls] == [
        "get_synonym_value",
        "get_synonym_value",
        "extract_synonym_values",
    ]
    assert [call.id for call in rollout.tool_calls] == ["call_0", "call_1", "call_2"]


def test_tasks_set_a_minefield_that_no_synonym_hits():
    for line in shipped_tasks("example_multi_step").read_bytes().splitlines():
        row = msgspec.json.decode(line)
        listing = row["messages"][0]["content"].splitlines()
        term = row["minefield_label"]
        in_order = [line.split(": ")[1] for line in listing if line.startswith(f"- {term}: ")]

        assert row["expected_synonyms"] == in_order
        assert row["expected_synonym_values"] == [value_of(synonym) for synonym in in_order]
        assert value_of(term) == row["minefield_label_value"]
        assert row["minefield_label_value"] not in row["expected_synonym_values"]
        assert (term in row["messages"][1]["content"]) == (row["difficulty"] != "hard")
