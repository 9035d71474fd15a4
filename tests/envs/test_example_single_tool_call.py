"""The environment example_single_tool_call: its tool, and the reward of its use."""

import msgspec
import pytest

from gymcli.envs.example_single_tool_call import ExampleSingleToolCall
from tests.envs.episodes import calls, played, row_of_file, says, scored, task_row


@pytest.mark.parametrize(
    ("messages", "reward"),
    [
        pytest.param([calls(("get_weather", '{"city": "Riga"}')), says("Cold.")], 1.0, id="called"),
        pytest.param([calls(("get_weather", "no JSON")), says("?")], 1.0, id="any arguments"),
        pytest.param([says("I do not know.")], 0.0, id="did not call"),
        pytest.param([says('get_weather(city="Riga")')], 0.0, id="only wrote the call"),
        pytest.param([calls(("get_wether", "{}")), says("?")], 0.0, id="called another tool"),
        pytest.param([says("")], 0.0, id="said nothing"),
    ],
)
def test_verify_rewards_a_call_of_the_tool(messages, reward):
    rollout = scored(played(task_row("example_single_tool_call", {}), *messages))

    assert rollout.reward == reward
    assert rollout.details == {"reason": "called" if reward else "no_call"}


def test_get_weather_answers_in_the_shape_of_the_reference():
    row = task_row("example_single_tool_call", {})
    rollout = played(row, calls(("get_weather", '{"city": "Riga"}')), says("Cold."))

    assert msgspec.json.decode(rollout.messages[2].text) == {
        "city": "Riga",
        "weather_description": "The weather in Riga is cold.",
    }


def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path):
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "A town."}},
        "required": ["city"],
        "additionalProperties": False,
    }
    declared = {"name": "get_weather", "description": "Ask the sky.", "parameters": parameters}
    row = row_of_file(
        tmp_path,
        "example_single_tool_call",
        {
            "responses_create_params": {
                "input": [
                    {"role": "developer", "content": "You plan picnics."},
                    {"role": "user", "content": "Shall we eat outside in Porto?"},
                ],
                "tools": [{"type": "function", **declared, "strict": True}],
            }
        },
    )
    rollout = scored(played(row, calls(("get_weather", '{"city": "Porto"}')), says("No.")))

    assert [message.role for message in rollout.messages] == [
        "developer", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert rollout.tools == [{"type": "function", "function": {**declared, "strict": True}}]
    assert "The weather in Porto is cold." in rollout.messages[3].text
    assert rollout.reward == 1.0


def test_get_weather_has_the_parameters_of_the_reference():
    parameters = ExampleSingleToolCall.method_tools()["get_weather"].parameters

    assert parameters["properties"]["city"]["type"] == "string"
    assert parameters["required"] == ["city"]


def test_oracle_asks_for_every_city_at_once():
    rollout = played(task_row("example_single_tool_call", {"cities": ["Riga", "Faro"]}))

    first, *answers, last = rollout.responses
    assert [call.arguments for call in first.tool_calls] == ['{"city":"Riga"}', '{"city":"Faro"}']
    assert ["Riga" in answers[0].text, "Faro" in answers[1].text] == [True, True]
    assert last.text


def test_oracle_answers_a_row_without_cities():
    rollout = played(task_row("example_single_tool_call", {}))

    assert len(rollout.responses) == 1
