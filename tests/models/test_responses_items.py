"""Responses items as chat messages, and back without loss."""

import pytest

from gymcli.nemo_gym.responses_items import items_from_messages, messages_from_items
from gymcli.types import FunctionCall, JSONObject, Message, ToolCall

CALL: JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
REASONING: JSONObject = {
    "type": "reasoning",
    "id": "rs_0",
    "summary": [{"type": "summary_text", "text": "r"}],
}


def read(*items: JSONObject) -> list[Message]:
    """Read items, and hold the law that the way back gives exactly them."""
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
    # In this order it is not what the message alone would give.
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
