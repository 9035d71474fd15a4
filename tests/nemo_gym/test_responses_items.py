"""Tests of Responses items, tools and parameters: converted to chat and back."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.nemo_gym.responses_items import (
    IGNORED_PARAMS,
    items_from_messages,
    messages_from_items,
    params_from_responses,
    params_to_responses,
    part_from_responses,
    part_to_responses,
    tool_choice_from_responses,
    tool_choice_to_responses,
    tools_from_responses,
    tools_to_responses,
)
from gymcli.types import JSON, FunctionCall, JSONObject, Message, Request, ToolCall, canonical_json

CALL: JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
REASONING: JSONObject = {
    "type": "reasoning",
    "id": "rs_0",
    "summary": [{"type": "summary_text", "text": "r"}],
}


def read(*items: JSONObject) -> list[Message]:
    """Read items, and check that converting back yields exactly them."""
    given = list(items)
    messages = messages_from_items(given)
    assert items_from_messages(messages) == given
    assert items_from_messages(messages, with_reasoning=False) == given
    return messages


def test_messages_from_items_of_text() -> None:
    assert messages_from_items("hi") == [Message(role="user", content="hi")]


def test_messages_from_items_of_easy_messages_keeps_no_items() -> None:
    roles = ("system", "developer", "user", "assistant")
    items: list[JSONObject] = [{"role": role, "content": "x"} for role in roles]
    assert read(*items) == [
        Message(role=role, content="x")  # type: ignore[arg-type]
        for role in roles
    ]


def test_messages_from_items_of_a_typed_message_keeps_the_item() -> None:
    item: JSONObject = {
        "role": "user",
        "type": "message",
        "content": [{"type": "input_text", "text": "t"}],
    }
    assert read(item) == [
        Message(role="user", content=[{"type": "text", "text": "t"}], response_items=[item])
    ]


def test_messages_from_items_of_parts_without_loss_keeps_no_items() -> None:
    parts: list[JSONObject] = [
        {"type": "input_image", "image_url": "data:x", "detail": "auto"},
        {"type": "input_text", "text": "t"},
    ]
    assert read({"role": "user", "content": parts}) == [
        Message(
            role="user",
            content=[
                {"type": "image_url", "image_url": {"url": "data:x", "detail": "auto"}},
                {"type": "text", "text": "t"},
            ],
        )
    ]


def test_messages_from_items_merges_a_turn() -> None:
    said: JSONObject = {
        "type": "message",
        "role": "assistant",
        "id": "m",
        "content": [
            {"type": "output_text", "text": "a", "annotations": []},
            {"type": "output_text", "text": "b", "annotations": []},
        ],
    }
    result: JSONObject = {"type": "function_call_output", "call_id": "c", "output": "1"}
    more: JSONObject = {"role": "assistant", "content": "done"}
    assert read(REASONING, said, CALL, result, more) == [
        Message(
            role="assistant",
            content="ab",
            reasoning="r",
            tool_calls=[ToolCall("c", FunctionCall("f", "{}"))],
            response_items=[REASONING, said, CALL],
        ),
        Message(role="tool", tool_call_id="c", content="1"),
        Message(role="assistant", content="done"),
    ]


def test_messages_from_items_of_plain_calls_keeps_no_items() -> None:
    other: JSONObject = {**CALL, "call_id": "d"}
    text: JSONObject = {"role": "assistant", "content": "x"}
    calls = [ToolCall(name, FunctionCall("f", "{}")) for name in "cd"]
    assert read(CALL, other) == [Message(role="assistant", tool_calls=calls)]
    assert read(text, CALL, other) == [Message(role="assistant", content="x", tool_calls=calls)]
    # The message by itself would be written in another order.
    assert read(CALL, text)[0].response_items == [CALL, text]


def test_messages_from_items_joins_messages_of_one_turn() -> None:
    first: JSONObject = {"role": "assistant", "content": "a"}
    second: JSONObject = {"role": "assistant", "content": "b"}
    assert read(first, second) == [
        Message(role="assistant", content="ab", response_items=[first, second])
    ]


@pytest.mark.parametrize("output", ["", "text", [{"type": "input_text", "text": "t"}]])
def test_messages_from_items_of_an_output(output: object) -> None:
    (message,) = read({"type": "function_call_output", "call_id": "c", "output": output})
    assert (message.role, message.tool_call_id, message.response_items) == ("tool", "c", [])
    assert message.text == ("t" if isinstance(output, list) else output)


def test_messages_from_items_of_a_refusal() -> None:
    parts: list[JSONObject] = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "no"},
    ]
    assert read({"role": "assistant", "content": parts}) == [
        Message(role="assistant", content="a", refusal="no")
    ]
    assert read({"role": "assistant", "content": parts[1:]})[0].refusal == "no"


def test_messages_from_items_of_assistant_parts_that_are_not_text() -> None:
    parts: list[JSONObject] = [
        {"type": "output_text", "text": "a"},
        {"type": "output_audio", "data": "d"},
        {"type": "refusal", "refusal": "no"},
    ]
    (message,) = read({"role": "assistant", "content": parts})
    assert message.content == [{"type": "text", "text": "a"}, parts[1]]
    assert message.response_items == []


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "web_search_call", "id": "w"}, "assistant"),
        ({"type": "mcp_list_tools", "tools": []}, "assistant"),
        ({"type": "computer_call_output", "output": {}}, "user"),
        ({"type": "item_reference", "id": "i"}, "user"),
        ({"type": "odd", "role": "system"}, "system"),
        ({"type": "odd", "role": "wizard"}, "user"),
    ],
)
def test_messages_from_items_of_unknown_types(item: JSONObject, role: str) -> None:
    around: JSONObject = {"role": "assistant", "content": "x"}
    messages = read(around, item, around)
    assert messages[1] == Message(role=role, response_items=[item])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "reasoning", "id": "x", "encrypted_content": "e"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": []},
        {"role": "assistant"},
        {"type": "function_call", "call_id": "c", "name": "f"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"x": 1}},
        {"role": "user", "content": "x", "name": "Ada"},
    ],
)
def test_messages_from_items_keeps_odd_items(item: JSONObject) -> None:
    assert read(item)[0].response_items == [item]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({}, 'has neither "type" nor "role"'),
        ("text", "is not an object"),
        ({"role": "wizard", "content": "x"}, "has the role 'wizard'; it can be system, developer"),
        ({"type": "message", "content": "x"}, "has the role None"),
        ({"type": 5, "role": "user"}, "has the type 5, which is not text"),
        ({"role": "user"}, 'needs "content", text or a list of parts'),
        ({"role": "user", "content": ["x"]}, 'needs "content"'),
        ({"type": "function_call", "name": "f"}, 'is a function_call without "call_id"'),
        ({"type": "function_call", "call_id": "c"}, 'is a function_call without "name"'),
        ({"type": "function_call_output", "output": ""}, 'is a function_call_output without "call'),
        ({"type": "function_call_output", "call_id": "c"}, 'needs "output"'),
    ],
)
def test_messages_from_items_refuses_bad_items(item: JSONObject, words: str) -> None:
    with pytest.raises(ValueError, match="item 1 " + words) as caught:
        messages_from_items([{"role": "user", "content": "x"}, item])
    assert "\n" not in str(caught.value)


def test_messages_from_items_refuses_other_values() -> None:
    with pytest.raises(ValueError, match="neither text nor a list"):
        messages_from_items(3)  # type: ignore[arg-type]


def test_items_from_messages_of_empty_messages() -> None:
    messages = [Message(role="assistant"), Message(role="user"), Message(role="tool")]
    assert items_from_messages(messages) == [
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
        {"type": "function_call_output", "call_id": "", "output": ""},
    ]


def test_items_from_messages_gives_reasoning_if_wanted() -> None:
    messages = [Message(role="assistant", content="a", reasoning="r")]
    plain: JSONObject = {"role": "assistant", "content": "a"}
    assert items_from_messages(messages) == [REASONING, plain]
    assert items_from_messages(messages, with_reasoning=False) == [plain]


@pytest.mark.parametrize(
    ("item_part", "chat_part"),
    [
        ({"type": "input_text", "text": "t"}, {"type": "text", "text": "t"}),
        (
            {"type": "input_image", "image_url": "u", "detail": "auto"},
            {"type": "image_url", "image_url": {"url": "u", "detail": "auto"}},
        ),
        (
            {"type": "input_image", "image_url": "u"},
            {"type": "image_url", "image_url": {"url": "u"}},
        ),
        (
            {"type": "input_file", "filename": "f", "file_data": "d"},
            {"type": "file", "file": {"filename": "f", "file_data": "d"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},
        ),
        ({"type": "input_image", "file_id": "i"}, {"type": "input_image", "file_id": "i"}),
        ({"type": "input_video", "x": 1}, {"type": "input_video", "x": 1}),
    ],
)
def test_parts_round_trip(item_part: JSONObject, chat_part: JSONObject) -> None:
    assert part_from_responses(item_part) == chat_part
    assert part_to_responses(chat_part, "user") == item_part


def test_part_from_responses_leaves_out_what_chat_refuses() -> None:
    part: JSONObject = {"type": "output_text", "text": "t", "annotations": [], "logprobs": None}
    assert part_from_responses(part) == {"type": "text", "text": "t"}
    image: JSONObject = {"type": "input_image", "image_url": "u", "detail": None}
    assert part_from_responses(image) == {"type": "image_url", "image_url": {"url": "u"}}


def test_part_to_responses_of_odd_chat_parts() -> None:
    text: JSONObject = {"type": "text", "text": "t", "cache_control": {}}
    assert part_to_responses(text, "assistant") == {**text, "type": "output_text"}
    bare: JSONObject = {"type": "image_url", "image_url": "u"}
    assert part_to_responses(bare, "user") == {"type": "input_image", "image_url": "u"}
    odd: JSONObject = {"type": "file", "file": "f"}
    assert part_to_responses(odd, "user") == odd


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"description": ""},
        {"description": None},
        {"description": "d", "parameters": {"type": "object"}, "strict": True},
        {"parameters": None, "strict": False},
        {"strict": None},
    ],
)
def test_tools_wrap_and_unwrap_functions(fields: JSONObject) -> None:
    flat: list[JSONObject] = [{"type": "function", "name": "f", **fields}]
    wrapped: list[JSONObject] = [{"type": "function", "function": {"name": "f", **fields}}]
    assert tools_from_responses(flat) == wrapped
    assert tools_to_responses(wrapped) == flat
    assert tools_from_responses(wrapped) == wrapped


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "filters": None},
        {"type": "mcp", "server_label": "l", "name": "n"},
        {"type": "custom", "name": "c"},
        {"name": "no type"},
    ],
)
def test_tools_leave_hosted_ones_alone(tool: JSONObject) -> None:
    assert tools_from_responses([tool]) == [tool]
    assert tools_to_responses([tool]) == [tool]


def test_tools_from_responses_refuses_what_is_no_object() -> None:
    with pytest.raises(ValueError, match=r"tools\[1\] is not an object"):
        tools_from_responses([{}, "f"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("flat", "wrapped"),
    [
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        ({"type": "custom", "name": "f"}, {"type": "custom", "custom": {"name": "f"}}),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
            },
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "web_search"},
                    ],
                },
            },
        ),
        (
            {"type": "allowed_tools", "mode": "auto"},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}},
        ),
    ],
)
def test_tool_choice_round_trip(flat: JSON, wrapped: JSON) -> None:
    assert tool_choice_from_responses(flat) == wrapped
    assert tool_choice_to_responses(wrapped) == flat
    assert tool_choice_from_responses(wrapped) == wrapped


SCHEMA: JSONObject = {"type": "object", "properties": {"a": {"type": "integer"}}}
LOGPROBS = "message.output_text.logprobs"


def test_params_from_responses_leaves_out_input_tools_and_nulls() -> None:
    create: JSONObject = {"input": "x", "tools": [], "temperature": None, "top_p": 0.5}
    assert params_from_responses(create) == {"top_p": 0.5}
    assert create["tools"] == []


@pytest.mark.parametrize(
    ("create", "params"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        (
            {"reasoning": {"effort": "low", "summary": "auto"}},
            {"reasoning_effort": "low", "reasoning_summary": "auto"},
        ),
        (
            {"reasoning": {"effort": "low", "generate_summary": None}},
            {"reasoning_effort": "low", "reasoning": {"generate_summary": None}},
        ),
        ({"reasoning": {}}, {"reasoning": {}}),
        ({"reasoning": {"effort": None}}, {"reasoning": {"effort": None}}),
        ({"reasoning": "odd"}, {"reasoning": "odd"}),
        (
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
            {"response_format": {"type": "json_object"}, "verbosity": "low"},
        ),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
                }
            },
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
        ),
        ({"text": {"format": "odd"}}, {"response_format": "odd"}),
        ({"include": [LOGPROBS], "top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["a", LOGPROBS]}, {"include": ["a"], "logprobs": True}),
        ({"include": [LOGPROBS, "a"]}, {"include": [LOGPROBS, "a"], "logprobs": True}),
        ({"include": [LOGPROBS, LOGPROBS]}, {"include": [LOGPROBS, LOGPROBS], "logprobs": True}),
        ({"include": []}, {"include": []}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"metadata": {"a": "b"}, "prompt": {"id": "p"}},
            {"metadata": {"a": "b"}, "prompt": {"id": "p"}},
        ),
    ],
)
def test_params_round_trip(create: JSONObject, params: JSONObject) -> None:
    assert params_from_responses(create) == params
    assert params_to_responses(params) == create


@pytest.mark.parametrize(
    ("params", "body"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 2}, {"max_output_tokens": 2}),
        ({"seed": 1, "stop": "x", "n": 2, "logit_bias": {}, "top_k": 3}, {"top_k": 3}),
        ({"temperature": None, "logprobs": False}, {}),
        ({"logprobs": True}, {"include": [LOGPROBS]}),
        (
            {"extra_body": {"seed": 1, "temperature": 0}, "temperature": 1},
            {"seed": 1, "temperature": 0},
        ),
        ({"extra_body": "odd"}, {}),
        (
            {"reasoning_effort": "low", "reasoning": {"max": 3}},
            {"reasoning": {"effort": "low", "max": 3}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {}},
                }
            },
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        ),
    ],
)
def test_params_to_responses(params: JSONObject, body: JSONObject) -> None:
    assert params_to_responses(params) == body


@pytest.mark.parametrize("choice", ["auto", "none", 3, {"type": "web_search"}])
def test_params_leave_other_tool_choices_alone(choice: JSON) -> None:
    assert params_from_responses({"tool_choice": choice}) == {"tool_choice": choice}
    assert params_to_responses({"tool_choice": choice}) == {"tool_choice": choice}


def test_ignored_params_are_left_to_the_caller() -> None:
    create: JSONObject = {"model": "m", "store": True}
    assert set(create) <= set(IGNORED_PARAMS)
    assert params_from_responses(create) == create


words = st.text("abcdef", min_size=1, max_size=6)
objects = st.dictionaries(words, st.none() | st.booleans() | words | st.lists(words), max_size=3)
formats = st.one_of(
    st.just({"type": "text"}),
    st.just({"type": "json_object"}),
    st.builds(
        lambda more: {**more, "type": "json_schema", "name": "n", "schema": {"type": "object"}},
        st.sampled_from([{}, {"strict": True}, {"strict": None, "description": "d"}]),
    ),
)
named_tools = st.builds(lambda name: {"type": "function", "name": name}, words)
tool_choices = st.one_of(
    st.sampled_from(["auto", "none", "required"]),
    named_tools,
    st.just({"type": "mcp", "server_label": "l", "name": "n"}),
    st.builds(
        lambda tools: {"type": "allowed_tools", "mode": "auto", "tools": tools},
        st.lists(named_tools | st.just({"type": "web_search"}), max_size=2),
    ),
)
includes = st.lists(
    st.sampled_from(["message.output_text.logprobs", "reasoning.encrypted_content", "x"]),
    max_size=3,
)
create_params = st.fixed_dictionaries(
    {},
    optional={
        "include": includes,
        "instructions": words,
        "max_output_tokens": st.integers(1, 9),
        "max_tool_calls": st.integers(1, 9),
        "metadata": st.dictionaries(words, words, max_size=2),
        "parallel_tool_calls": st.booleans(),
        "prompt": st.builds(lambda more: {**more, "id": "p"}, objects),
        "reasoning": st.fixed_dictionaries(
            {},
            optional={
                "effort": st.none() | words,
                "summary": st.none() | words,
                "generate_summary": st.none() | words,
            },
        ),
        "service_tier": words,
        "temperature": st.floats(0, 2),
        "text": st.fixed_dictionaries(
            {}, optional={"format": st.none() | formats, "verbosity": st.none() | words}
        ),
        "tool_choice": tool_choices,
        "top_logprobs": st.integers(0, 5),
        "top_p": st.floats(0, 1),
        "truncation": st.sampled_from(["auto", "disabled"]),
        "user": words,
    },
)


@given(create_params)
@settings(max_examples=60, deadline=None)
def test_params_survive_chat_names(given_params: JSONObject) -> None:
    before = json.dumps(given_params)
    params = params_from_responses(given_params)
    assert params_to_responses(params) == given_params
    assert json.dumps(given_params) == before
    assert not params.keys() & set(IGNORED_PARAMS)


FILES = Path(__file__).parents[3] / "shared" / "data"

CITY_SCHEMA: JSONObject = {"type": "object", "properties": {"city": {"type": "string"}}}

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
                "parameters": CITY_SCHEMA,
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
        DIALECTS["responses"].answer(decode(canonical_json(rollout["response"])))
    assert lines
