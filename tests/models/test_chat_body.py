"""Chat Completions: the bodies of requests."""

import json

import msgspec
import pytest

from gymcli.models.dialects import DIALECTS
from gymcli.nemo_gym.responses_items import IGNORED_PARAMS
from gymcli.types import JSON, FunctionCall, JSONObject, Message, Request, Role, ToolCall

CHAT = DIALECTS["chat"]
USER = Message(role="user", content="hi")
TOOL: JSONObject = {"type": "function", "function": {"name": "f", "parameters": {}}}


def sent(request: Request, **options: object) -> JSONObject:
    """Give the body as the endpoint decodes it."""
    body = CHAT.body(request, "m", **options)  # type: ignore[arg-type]
    return msgspec.json.decode(msgspec.json.encode(body))


def sent_messages(messages: list[Message]) -> list[JSONObject]:
    """Give the messages as the endpoint decodes them."""
    return msgspec.convert(sent(Request(messages=messages))["messages"], list[JSONObject])


def test_body_passes_params_on_and_leaves_out_nulls() -> None:
    params: JSONObject = {"temperature": 0.5, "top_k": 3, "seed": None, "stop": ["x"]}
    assert sent(Request(messages=[USER], params=params)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "top_k": 3,
        "stop": ["x"],
    }


def test_body_does_not_copy_messages_that_need_no_change() -> None:
    call = Message(role="assistant", tool_calls=[ToolCall("c", FunctionCall("f", "{}"))])
    result = Message(role="tool", tool_call_id="c", content="1")
    messages = CHAT.body(Request(messages=[USER, call, result]), "m")["messages"]
    assert isinstance(messages, list)
    assert all(a is b for a, b in zip(messages, [USER, call, result], strict=True))


def test_body_leaves_out_what_only_we_keep() -> None:
    message = Message(
        role="assistant",
        content="",
        reasoning="r",
        response_items=[{"type": "x"}],
        logprobs={"content": []},
    )
    bare = Message(role="user", response_items=[{"type": "x"}])
    assert sent(Request(messages=[message, bare]))["messages"] == [
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
    ]
    assert message.reasoning == "r"


def test_body_leaves_out_assistant_messages_that_chat_cannot_say() -> None:
    items: list[JSONObject] = [{"type": "web_search_call", "id": "w"}]
    calls = [ToolCall("c", FunctionCall("f", "{}"))]
    search = Message(role="assistant", response_items=items)
    said = [
        Message(role="assistant", response_items=items, tool_calls=calls),
        Message(role="assistant", response_items=items, refusal="no"),
        Message(role="assistant", response_items=items, content="a"),
    ]
    messages = sent_messages([USER, search, *said])
    assert [message.get("content") for message in messages] == ["hi", None, "", "a"]


def test_body_sends_empty_answers() -> None:
    """A model that said nothing did say it: the turn is part of the conversation."""
    messages = [Message(role="assistant"), Message(role="assistant", content="")]
    messages.append(Message(role="assistant", content="", response_items=[{"type": "reasoning"}]))
    empty = {"role": "assistant", "content": ""}
    assert [{"content": "", **message} for message in sent_messages(messages)] == [empty] * 3


def test_body_sends_an_item_whose_reasoning_is_sent() -> None:
    items: list[JSONObject] = [{"type": "reasoning", "encrypted_content": "e"}]
    request = Request(messages=[Message(role="assistant", reasoning="r", response_items=items)])
    assert sent(request)["messages"] == []
    assert sent(request, send_reasoning="reasoning")["messages"] == [
        {"role": "assistant", "content": "", "reasoning": "r"}
    ]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_body_sends_reasoning_of_assistants_only(key: str) -> None:
    calls = [ToolCall("c", FunctionCall("f", "{}"))]
    messages = [
        Message(role="user", content="q", reasoning="mine"),
        Message(role="assistant", content="a", reasoning="r"),
        Message(role="assistant", reasoning="r", tool_calls=calls),
        Message(role="assistant", content="b"),
    ]
    assert sent(Request(messages=messages), send_reasoning=key)["messages"] == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", key: "r"},
        {
            "role": "assistant",
            "content": None,
            key: "r",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "assistant", "content": "b"},
    ]


def test_body_sends_tool_params_with_tools_only() -> None:
    params: JSONObject = {"tool_choice": "auto", "parallel_tool_calls": False, "stream": False}
    assert sent(Request(messages=[], params=params)).keys() == {"model", "messages"}
    body = sent(Request(messages=[], params=params, tools=[TOOL]))
    assert body == {
        "model": "m",
        "messages": [],
        "tools": [TOOL],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
    }


def test_body_puts_instructions_first() -> None:
    request = Request(messages=[USER], params={"instructions": "Be brief."})
    messages = sent(request)["messages"]
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert request.messages == [USER]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    ("content", "folded"),
    [
        ("You add.", "Be brief.\n\nYou add."),
        ([{"type": "text", "text": "You add."}], "Be brief.\n\nYou add."),
        ("", "Be brief."),
    ],
)
def test_body_folds_instructions_into_the_system_message(
    role: Role, content: str | list[JSONObject], folded: str
) -> None:
    first = Message(role=role, content=content)
    request = Request(messages=[first, USER], params={"instructions": "Be brief."})
    assert sent(request)["messages"] == [
        {"role": role, "content": folded},
        {"role": "user", "content": "hi"},
    ]
    assert first.content == content


@pytest.mark.parametrize(
    "first",
    [
        Message(role="system", content=[{"type": "image_url", "image_url": {"url": "u"}}]),
        Message(role="system", response_items=[{"type": "x"}]),
    ],
)
def test_body_puts_instructions_before_a_system_message_without_text(first: Message) -> None:
    request = Request(messages=[first], params={"instructions": "Be brief."})
    messages = sent(request)["messages"]
    assert isinstance(messages, list)
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert len(messages) == 2


def test_body_sends_one_limit_of_the_answer() -> None:
    both: JSONObject = {"max_tokens": 1, "max_completion_tokens": 2}
    body = sent(Request(messages=[], params=both))
    assert body.keys() == {"model", "messages", "max_completion_tokens"}
    body = sent(Request(messages=[], params={"max_tokens": 1, "max_completion_tokens": None}))
    assert body.keys() == {"model", "messages", "max_tokens"}


@pytest.mark.parametrize("tools", [[], [TOOL]])
def test_body_keeps_what_extra_body_may_not_replace(tools: list[JSONObject]) -> None:
    decided: JSONObject = {
        **dict.fromkeys(IGNORED_PARAMS, "taken over"),
        **{name: ["taken over"] for name in ("messages", "input", "tools")},
    }
    plain = sent(Request(messages=[USER], tools=tools, params={"top_k": 3}))
    cases: list[JSONObject] = [
        {"extra_body": {**decided, "top_k": 3}},
        {"metadata": {"extra_body": json.dumps({**decided, "top_k": 3})}},
        {"messages": [], "input": [], "tools": ["taken over"], "top_k": 3},
    ]
    for params in cases:
        assert sent(Request(messages=[USER], tools=tools, params=params)) == plain


def test_body_merges_extra_body_over_the_params() -> None:
    params: JSONObject = {"temperature": 1, "extra_body": {"temperature": 0, "min_p": 0.1}}
    body = sent(Request(messages=[], params=params))
    assert (body["temperature"], body["min_p"]) == (0, 0.1)


def test_body_reads_the_side_channels_of_metadata() -> None:
    params: JSONObject = {
        "temperature": 1,
        "metadata": {
            "extra_body": '{"top_k": 5, "temperature": 0, "n": 4, "messages": []}',
            "chat_template_kwargs": '{"enable_thinking": false}',
            "run": "a",
        },
    }
    body = sent(Request(messages=[USER], params=params))
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 1,
        "top_k": 5,
        "chat_template_kwargs": {"enable_thinking": False},
        "metadata": {"run": "a"},
    }
    assert params["metadata"]["run"] == "a"  # type: ignore[index]
    assert "extra_body" in params["metadata"]  # type: ignore[operator]


@pytest.mark.parametrize("text", ["{bad", "[1]", '"x"', 3, pytest.param("[" * 100_000, id="deep")])
def test_body_leaves_bad_side_channels_in_metadata(text: JSON) -> None:
    params: JSONObject = {"metadata": {"extra_body": text}}
    assert sent(Request(messages=[], params=params))["metadata"] == {"extra_body": text}


@pytest.mark.parametrize(
    ("metadata", "expected"), [("odd", "odd"), ({}, None), ({"extra_body": "{}"}, None)]
)
def test_body_sends_metadata_unless_nothing_is_left(metadata: JSON, expected: JSON) -> None:
    assert sent(Request(messages=[], params={"metadata": metadata})).get("metadata") == expected


def test_body_streams_with_usage() -> None:
    body = sent(Request(messages=[], params={"stream_options": {"x": 1}}), stream=True)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_unsent_names_what_only_responses_has() -> None:
    params: JSONObject = {
        "include": ["x"],
        "truncation": None,
        "temperature": 1,
        "prompt": {"id": "p"},
        "extra_body": "no object",
    }
    assert CHAT.unsent(params) == ["include", "truncation", "prompt", "extra_body"]
    assert CHAT.unsent({"tools": [], "extra_body": {"n": 2, "top_k": 3, "messages": []}}) == [
        "tools",
        "extra_body.n",
        "extra_body.messages",
    ]
    assert sent(Request(messages=[], params=params)).keys() == {"model", "messages", "temperature"}


def test_body_sends_back_the_named_fields_of_messages_and_calls() -> None:
    call = ToolCall("c", FunctionCall("f", "{}"), extra={"extra_content": {"s": 1}, "x": 1})
    messages = [
        Message(role="assistant", tool_calls=[call], extra={"phase": "final", "y": 2}),
        Message(role="assistant", content="a", extra={"y": 2}),
    ]
    request = Request(messages=messages)
    plain = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling: JSONObject = {"role": "assistant", "content": None, "tool_calls": [plain]}
    saying: JSONObject = {"role": "assistant", "content": "a"}
    assert [{"content": None, **m} for m in sent_messages(messages)] == [calling, saying]
    assert sent(request, send_fields=("extra_content", "phase"))["messages"] == [
        {**calling, "tool_calls": [{**plain, "extra_content": {"s": 1}}], "phase": "final"},
        saying,
    ]


def test_body_leaves_out_messages_of_reasoning_alone() -> None:
    """Mistral's and others refuse an assistant message without content."""
    thought = Message(role="assistant", content="", reasoning="r")
    assert sent_messages([USER, thought]) == [{"role": "user", "content": "hi"}]
    body = sent(Request(messages=[USER, thought]), send_reasoning="reasoning")
    assert body["messages"][1] == {"role": "assistant", "content": "", "reasoning": "r"}  # type: ignore[index]


@pytest.mark.parametrize("extra", ["x", 1, ["x"], {"x": 1}])
def test_body_sends_nothing_of_what_a_row_calls_extra(extra: JSON) -> None:
    """A row may have any member of that name; it is not what an endpoint said."""
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}, "extra": extra}
    row = {"role": "assistant", "tool_calls": [call], "extra": extra}
    [message] = sent_messages([msgspec.convert(row, Message)])
    assert message["tool_calls"] == [
        {k: v for k, v in call.items() if k != "extra"} | {"type": "function"}
    ]
    assert message.keys() == {"role", "content", "tool_calls"}
