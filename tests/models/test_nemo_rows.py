"""Rows of NeMo Gym: what is sent equals what the row asks for."""

import json
from pathlib import Path

import pytest

from gymcli.models.dialects import DIALECTS
from gymcli.nemo_gym.responses_items import (
    items_from_messages,
    messages_from_items,
    params_from_responses,
    tools_from_responses,
)
from gymcli.types import JSONObject, Request, canonical_json

FILES = Path(__file__).parents[3] / "shared" / "data"

SCHEMA: JSONObject = {"type": "object", "properties": {"city": {"type": "string"}}}

OWN_ROWS: list[JSONObject] = [
    {"input": [{"role": "user", "content": "What is 2 + 2?"}]},
    {
        "input": [
            {"role": "developer", "content": "Use the tool."},
            {"role": "user", "content": "Is it raining in Oslo?"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "",
                "parameters": SCHEMA,
                "strict": True,
            },
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False,
        "temperature": 1.0,
    },
    {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ],
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "max_output_tokens": 64,
        "max_tool_calls": 2,
        "metadata": {"chat_template_kwargs": '{"enable_thinking": false}'},
        "truncation": "auto",
        "user": "u",
    },
]


def check_row(create_params: JSONObject) -> None:
    """Build the request of a row and compare its body with the row."""
    request = Request(
        messages=messages_from_items(create_params["input"]),  # type: ignore[arg-type]
        tools=tools_from_responses(create_params.get("tools") or []),  # type: ignore[arg-type]
        params=params_from_responses(create_params),
    )
    expected = {key: value for key, value in create_params.items() if value not in (None, [])}
    if isinstance(expected["input"], str):
        expected["input"] = [{"role": "user", "content": expected["input"]}]
    body = DIALECTS["responses"].body(request, "m")
    assert canonical_json(body) == canonical_json({**expected, "model": "m"})
    chat = json.loads(canonical_json(DIALECTS["chat"].body(request, "m")))
    assert all(
        "role" in message and "response_items" not in message for message in chat["messages"]
    )
    assert all("function" in tool or tool["type"] != "function" for tool in chat.get("tools", []))


@pytest.mark.parametrize("create_params", OWN_ROWS)
def test_body_equals_the_row(create_params: JSONObject) -> None:
    check_row(create_params)


def test_body_of_a_text_input_has_one_message() -> None:
    check_row({"input": "What is 2 + 2?", "tools": [], "temperature": None})


@pytest.mark.skipif(not FILES.is_dir(), reason="the example files of NeMo Gym are not here")
def test_body_equals_every_row_of_the_example_files() -> None:
    num_rows = 0
    for path in sorted(FILES.glob("nemo_gym/*.jsonl")):
        for line in path.read_bytes().splitlines():
            check_row(json.loads(line)["responses_create_params"])
            num_rows += 1
    assert num_rows > 0


@pytest.mark.skipif(not FILES.is_dir(), reason="the example files of NeMo Gym are not here")
def test_output_of_every_example_rollout_round_trips() -> None:
    lines = (FILES / "nemo_gym_run" / "rollouts.jsonl").read_bytes().splitlines()
    for line in lines:
        rollout = json.loads(line)
        check_row(rollout["responses_create_params"])
        output = rollout["response"]["output"]
        messages = messages_from_items(output)
        assert items_from_messages(messages) == output
        assert [message.role for message in messages][-2:] == ["tool", "assistant"]
        DIALECTS["responses"].answer(canonical_json(rollout["response"]))
    assert lines
