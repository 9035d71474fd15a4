"""The environment example_tool_call_multireward: the reward's components, and the tasks."""

from random import Random

import pytest
from pydantic import ValidationError

from gymcli.envs.example_tool_call_multireward import ExampleToolCallMultireward
from gymcli.types import FunctionCall, Message, ToolCall
from tests.envs.episodes import calls, played, row_of_file, says, scored, task_row

NAME = "example_tool_call_multireward"


def declared(name, parameters):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    declared("brew", {"type": "object", "properties": {}, "required": ["tea", "cups"]}),
    declared("light", {"type": "object", "properties": {}}),
    declared("wait", None),
    {"type": "web_search"},
]
RIGHT = ("brew", '{"tea": "mint", "cups": 2}')


def components(*messages, arguments=None, tools=TOOLS):
    expected = {"tea": "mint", "cups": 2} if arguments is None else arguments
    fields = {"expected_call": {"name": "brew", "arguments": expected}}
    rollout = scored(played(task_row(NAME, fields, tools=tools), *messages))
    assert rollout.reward == sum(rollout.components.values())
    found = rollout.components
    return (found["correctness"], found["schema_valid"], found["format"]), rollout.details["reason"]


def called(text, *named):
    return Message(
        role="assistant",
        content=text,
        tool_calls=[ToolCall(id="call_0", function=FunctionCall(*one)) for one in named],
    )


@pytest.mark.parametrize(
    ("message", "found", "reason"),
    [
        pytest.param(calls(RIGHT), (1, 1, 1), "correct", id="all right"),
        pytest.param(
            calls(("brew", '{"tea": "mint", "cups": 2, "milk": true}')),
            (1, 1, 1),
            "correct",
            id="other arguments are free",
        ),
        pytest.param(
            calls(("brew", '{"tea": "mint", "cups": 3}')), (0, 1, 1), "wrong_call", id="value"
        ),
        pytest.param(calls(("brew", '{"tea": "mint"}')), (0, 0, 1), "wrong_call", id="missing"),
        pytest.param(calls(("light", "{}")), (0, 1, 1), "wrong_call", id="nothing is required"),
        pytest.param(calls(("wait", "{}")), (0, 1, 1), "wrong_call", id="tool without a schema"),
        pytest.param(calls(("pour", "{}")), (0, 0, 1), "wrong_call", id="tool is not declared"),
        pytest.param(calls(("light", "[]")), (0, 0, 1), "wrong_call", id="no object"),
        pytest.param(calls(("light", "{")), (0, 0, 1), "wrong_call", id="no JSON"),
        pytest.param(calls(("light", '"{}"')), (0, 0, 1), "wrong_call", id="encoded twice"),
        pytest.param(
            calls(RIGHT, RIGHT), (1, 1, 0), "not_one_call_alone", id="any call may be right"
        ),
        pytest.param(
            calls(("brew", "{}"), RIGHT), (1, 0, 0), "missing_arguments", id="the first is checked"
        ),
        pytest.param(called("Here:", RIGHT), (1, 1, 0), "not_one_call_alone", id="text beside it"),
        pytest.param(called("\n\n", RIGHT), (1, 1, 1), "correct", id="white space beside it"),
        pytest.param(says("Mint tea."), (0, 0, 0), "no_call", id="text alone"),
        pytest.param(says(""), (0, 0, 0), "no_call", id="nothing"),
    ],
)
def test_verify_gives_each_component(message, found, reason):
    assert components(message) == (found, reason)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("{", (0, 0, 1), id="no JSON"),
        pytest.param("null", (0, 0, 1), id="null"),
        pytest.param('{"a":' * 10_000, (0, 0, 1), id="10,000 levels"),
        pytest.param('{"tea": NaN}', (0, 0, 1), id="not a number"),
        pytest.param("", (1, 0, 1), id="empty text"),
    ],
)
def test_verify_of_arguments_that_say_nothing(text, found):
    """Without expected arguments any object is correct, but unreadable arguments are not."""
    assert components(calls(("brew", text)), arguments={})[0] == found


def test_verify_wants_a_null_to_be_there():
    assert components(calls(("brew", "{}")), arguments={"milk": None})[0] == (0, 0, 1)
    assert components(calls(("brew", '{"milk": null}')), arguments={"milk": None})[0] == (1, 0, 1)


def test_verify_without_declared_tools_finds_no_valid_call():
    assert components(calls(RIGHT), tools=None)[0] == (1, 0, 1)


@pytest.mark.parametrize("required", [True, "cups", [["cups"]], {"cups": True}, None, [1]])
def test_verify_requires_nothing_where_the_schema_names_nothing(required):
    """Rows of other sources may have any schema; a `required` that is no list is ignored."""
    tools = [declared("brew", {"type": "object", "required": required})]

    assert components(calls(("brew", "{}")), tools=tools)[0] == (0, 1, 1)


def test_verify_ends_with_the_call_so_that_the_format_can_be_right():
    row = task_row(NAME, {"expected_call": {"name": "brew"}}, tools=TOOLS)
    rollout = scored(played(row, calls(RIGHT), says("Done.")))

    assert rollout.stop_reason == "done"
    assert rollout.reward == ExampleToolCallMultireward.max_reward == 3.0
    assert rollout.details["predicted_calls"] == [{"name": "brew", "arguments": RIGHT[1]}]


def test_parse_task_refuses_a_row_without_a_call():
    with pytest.raises(ValidationError, match="expected_call"):
        ExampleToolCallMultireward.parse_task({})


def test_oracle_gets_the_top_reward_in_a_foreign_row(tmp_path):
    tool = {"type": "function", "name": "brew", "parameters": {"required": ["tea"]}}
    params = {"input": [{"role": "developer", "content": "One call."}], "tools": [tool]}
    call = {"name": "brew", "arguments": {"tea": "mint"}}
    row = {"responses_create_params": params, "expected_call": call}

    assert scored(played(row_of_file(tmp_path, NAME, row))).reward == 3.0


def test_generate_makes_harder_tasks_larger():
    rows = list(ExampleToolCallMultireward.generate(Random(3), 300))
    sizes = {row["difficulty"]: len(row["tools"]) for row in rows}

    assert sizes == {"easy": 1, "medium": 4, "hard": 9}
    assert len({row["messages"][-1]["content"] for row in rows}) == 300


def test_generate_says_every_argument_in_the_request():
    for row in ExampleToolCallMultireward.generate(Random(3), 300):
        request = row["messages"][-1]["content"].partition(" Do not ")[0]
        assert all(str(v) in request for v in row["expected_call"]["arguments"].values())
