"""Chat Completions: request bodies, answers and streams; some tests cover all formats."""

import json
import re
import time
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.errors import InvalidAnswerError, ModelError, ServerError
from gymcli.models.chat import (
    decode,
    error_in,
    usage_of,
)
from gymcli.models.dialects import DIALECTS
from gymcli.nemo_gym.payload import usage_in
from gymcli.nemo_gym.responses_items import IGNORED_PARAMS
from gymcli.types import (
    JSON,
    Answer,
    FunctionCall,
    JSONObject,
    Message,
    Request,
    Role,
    ToolCall,
    Usage,
)

CHAT = DIALECTS["chat"]
USER = Message(role="user", content="hi")
TOOL: JSONObject = {"type": "function", "function": {"name": "f", "parameters": {}}}


def sent(request: Request, **options: object) -> JSONObject:
    """Return the body as the endpoint decodes it."""
    body = CHAT.body(request, "m", **options)  # type: ignore[arg-type]
    return msgspec.json.decode(msgspec.json.encode(body))


def sent_messages(messages: list[Message]) -> list[JSONObject]:
    """Return the messages as the endpoint decodes them."""
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
    """An empty answer is a turn of the conversation."""
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


def test_body_leaves_out_messages_with_only_reasoning() -> None:
    """Mistral and others refuse an assistant message without content."""
    thought = Message(role="assistant", content="", reasoning="r")
    assert sent_messages([USER, thought]) == [{"role": "user", "content": "hi"}]
    body = sent(Request(messages=[USER, thought]), send_reasoning="reasoning")
    assert body["messages"][1] == {"role": "assistant", "content": "", "reasoning": "r"}  # type: ignore[index]


@pytest.mark.parametrize("extra", ["x", 1, ["x"], {"x": 1}])
def test_body_sends_nothing_of_what_a_row_calls_extra(extra: JSON) -> None:
    """A row may have a member `extra`, which did not come from an endpoint."""
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}, "extra": extra}
    row = {"role": "assistant", "tool_calls": [call], "extra": extra}
    [message] = sent_messages([msgspec.convert(row, Message)])
    assert message["tool_calls"] == [
        {k: v for k, v in call.items() if k != "extra"} | {"type": "function"}
    ]
    assert message.keys() == {"role", "content", "tool_calls"}


def answered(message: JSON, **choice: object) -> Answer:
    """Read a body with this message."""
    return CHAT.answer(decode(json.dumps({"choices": [{"message": message, **choice}]}).encode()))


def test_answer_reads_everything() -> None:
    body = {
        "model": "m-1",
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "r",
                    "reasoning": "r",
                    "tool_calls": [
                        {"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}},
                        {"function": {"name": "g", "arguments": {"y": 2}}},
                        {"id": "b", "type": "custom", "custom": {"name": "h", "input": "raw"}},
                    ],
                },
                "finish_reason": "stop",
                "logprobs": {"content": [{"token": "a", "logprob": -1.0}], "refusal": None},
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }
    assert CHAT.answer(decode(json.dumps(body).encode())) == Answer(
        message=Message(
            role="assistant",
            reasoning="r",
            tool_calls=[
                ToolCall("a", FunctionCall("f", '{"x": 1}')),
                ToolCall("call_1", FunctionCall("g", '{"y":2}')),
                ToolCall("b", FunctionCall("h", "raw")),
            ],
            logprobs={"content": [{"token": "a", "logprob": -1.0}]},
        ),
        finish_reason="tool_calls",
        usage=Usage(prompt_tokens=9, completion_tokens=4, cached_tokens=8, reasoning_tokens=3),
        model="m-1",
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": ""}, Message(role="assistant", content="")),
        ({"content": None, "refusal": "no"}, Message(role="assistant", content="", refusal="no")),
        (
            {"content": "<think>a</think>b"},
            Message(role="assistant", content="b", reasoning="a"),
        ),
        ({"content": "x", "reasoning": "r"}, Message(role="assistant", content="x", reasoning="r")),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}, "c"]},
            Message(role="assistant", content="abc"),
        ),
        (
            {"content": [{"type": "refusal", "refusal": "no"}]},
            Message(role="assistant", content="", refusal="no"),
        ),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "a"}]},
                    {"type": "thinking", "thinking": "b"},
                    {"type": "text", "text": "c"},
                ]
            },
            Message(role="assistant", content="c", reasoning="ab"),
        ),
        (
            {"content": [{"type": "image_url", "image_url": {"url": "u"}}]},
            Message(role="assistant", content=[{"type": "image_url", "image_url": {"url": "u"}}]),
        ),
        (
            {"content": ["a", "b", 1, {"type": "image_url"}, "c"]},
            Message(
                role="assistant",
                content=[
                    {"type": "text", "text": "ab"},
                    {"type": "image_url"},
                    {"type": "text", "text": "c"},
                ],
            ),
        ),
        (
            {"content": "", "function_call": {"name": "f", "arguments": "{}"}},
            Message(role="assistant", tool_calls=[ToolCall("call_0", FunctionCall("f", "{}"))]),
        ),
    ],
)
def test_answer_message(message: JSONObject, expected: Message) -> None:
    assert answered(message).message == expected


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("function_call", "tool_calls"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("max_output_tokens", "length"),
        ("model_length", "length"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
        (None, "stop"),
        (["odd"], "stop"),
    ],
)
def test_answer_finish_reason(reason: JSON, finish: str) -> None:
    assert answered({"content": "x"}, finish_reason=reason).finish_reason == finish


def test_answer_survives_nulls_everywhere() -> None:
    body = (
        b'{"model": null, "usage": {"prompt_tokens": null, "prompt_tokens_details": null}, '
        b'"choices": [{"logprobs": null, '
        b'"message": {"content": "x", "tool_calls": null, "refusal": null}}]}'
    )
    assert CHAT.answer(decode(body)) == Answer(message=Message(role="assistant", content="x"))
    assert answered({"content": "x"}, logprobs={"content": None}).message.logprobs is None


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ("{}", InvalidAnswerError, "choices"),
        ('{"choices": []}', InvalidAnswerError, "choices"),
        ('{"choices": [{"text": "x"}]}', InvalidAnswerError, "message"),
        ('{"choices": [{"finish_reason": "stop", "message": {}}]}', InvalidAnswerError, "empty"),
        ('{"choices": [{"message": {"content": 3}}]}', InvalidAnswerError, "content"),
        ('{"choices": [{"message": {"tool_calls": [null]}}]}', InvalidAnswerError, "tool call"),
        ('{"error": {"message": "odd"}}', InvalidAnswerError, "odd"),
        ('{"error": {"message": "slow", "code": 429}}', InvalidAnswerError, "slow"),
        ('{"choices": [{"error": {"message": "gone", "code": 502}}]}', InvalidAnswerError, "gone"),
        ('{"choices": [{"finish_reason": "error", "message": {}}]}', ServerError, "error"),
    ],
)
def test_answer_refuses(payload: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        CHAT.answer(decode(payload.encode()))


@pytest.mark.parametrize(("word", "unknown"), [("odd", "odd"), ("stop", None), (None, None)])
def test_answer_keeps_an_unknown_finish_reason(word: JSON, unknown: str | None) -> None:
    answer = answered({"content": "x"}, finish_reason=word)
    assert (answer.finish_reason, answer.unknown_finish) == ("stop", unknown)


def test_answer_bounds_the_words_of_the_endpoint() -> None:
    body = {"id": "i" * 999, "choices": [{"message": {"content": "x"}, "finish_reason": "w" * 999}]}
    answer = CHAT.answer(decode(json.dumps(body).encode()))
    assert (answer.response_id, answer.unknown_finish) == ("i" * 200, "w" * 200)


def test_answer_keeps_what_else_is_said_of_message_and_calls() -> None:
    signature = {"google": {"thought_signature": "s"}}
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": signature,
        "note": None,
    }
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    message = answered(
        {
            "role": "assistant",
            "content": None,
            "annotations": [],
            "audio": None,
            "tool_calls": [call],
            "reasoning_details": details,
        }
    ).message
    assert message.extra == {"reasoning_details": details}
    assert message.tool_calls[0].extra == {"extra_content": signature}


def chunk(delta: JSON = None, **choice: object) -> bytes:
    """Return a chunk with this delta."""
    return json.dumps({"model": "m", "choices": [{"index": 0, "delta": delta, **choice}]}).encode()


def read(*events: bytes) -> Answer:
    return CHAT.answer(CHAT.assemble(events))


def call_piece(**piece: object) -> bytes:
    return chunk({"tool_calls": [piece]})


FINISH = chunk({}, finish_reason="stop")


def test_assemble_joins_texts_usage_and_logprobs() -> None:
    usage = b'{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}'
    answer = read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "th"}),
        chunk({"reasoning_content": "ink"}),
        b"",
        chunk({"content": "He"}, logprobs={"content": [{"token": "He"}], "refusal": None}),
        chunk({"content": "llo"}, logprobs={"content": [{"token": "llo"}]}),
        chunk(None, finish_reason="length"),
        usage,
        b" [DONE] ",
        b"never read",
    )
    assert answer == Answer(
        message=Message(
            role="assistant",
            content="Hello",
            reasoning="think",
            logprobs={"content": [{"token": "He"}, {"token": "llo"}]},
        ),
        finish_reason="length",
        usage=Usage(prompt_tokens=3, completion_tokens=2),
        model="m",
    )


def test_assemble_joins_tool_calls_by_index() -> None:
    answer = read(
        call_piece(index=0, id="a", function={"name": "f", "arguments": ""}),
        call_piece(index=1, id="b", function={"name": "g", "arguments": '{"y'}),
        call_piece(index=0, id="a", function={"name": "f", "arguments": '{"x": '}),
        call_piece(index=1, function={"arguments": '": 2}'}),
        call_piece(index=0, function={"name": None, "arguments": "1}"}),
        chunk({}, finish_reason="tool_calls"),
    )
    assert answer.message.tool_calls == [
        ToolCall("a", FunctionCall("f", '{"x": 1}')),
        ToolCall("b", FunctionCall("g", '{"y": 2}')),
    ]


@pytest.mark.parametrize("where", [{"index": 0}, {}, {"index": [0]}, {"index": {}}])
def test_assemble_parts_calls_that_share_an_index(where: JSONObject) -> None:
    """Some endpoints send each call whole, with index 0 or without one."""
    answer = read(
        call_piece(**where, id="a", function={"name": "f", "arguments": "{}"}),
        call_piece(**where, id="b", function={"name": "f", "arguments": {"x": 1}}),
        FINISH,
    )
    assert answer.message.tool_calls == [
        ToolCall("a", FunctionCall("f", "{}")),
        ToolCall("b", FunctionCall("f", '{"x":1}')),
    ]


@pytest.mark.parametrize("where", [{"index": 0}, {}])
def test_assemble_joins_pieces_that_all_have_the_id_and_name_of_their_call(
    where: JSONObject,
) -> None:
    answer = read(
        call_piece(**where, id="a", function={"name": "f", "arguments": '{"x": '}),
        call_piece(**where, id="a", function={"name": "f", "arguments": "1}"}),
        call_piece(**where, id="b", function={"name": "f", "arguments": '{"x": 1}'}),
        FINISH,
    )
    assert answer.message.tool_calls == [
        ToolCall("a", FunctionCall("f", '{"x": 1}')),
        ToolCall("b", FunctionCall("f", '{"x": 1}')),
    ]


def test_assemble_reads_a_legacy_function_call() -> None:
    answer = read(
        chunk({"function_call": {"name": "f", "arguments": "{"}}),
        chunk({"function_call": {"arguments": "}"}}),
        chunk({}, finish_reason="function_call"),
    )
    assert answer.message.tool_calls == [ToolCall("call_0", FunctionCall("f", "{}"))]
    assert answer.finish_reason == "tool_calls"


def test_assemble_joins_content_parts() -> None:
    answer = read(
        chunk({"content": [{"type": "thinking", "thinking": "a"}]}),
        chunk({"content": [{"type": "thinking", "thinking": "b"}]}),
        chunk({"content": "c"}),
        FINISH,
    )
    assert answer.message == Message(role="assistant", content="c", reasoning="ab")


def test_assemble_reads_the_first_choice_only() -> None:
    answer = read(chunk({"content": "a"}), chunk({"content": "b"}, index=1), FINISH)
    assert answer.message.content == "a"


def test_assemble_joins_choices_of_which_one_has_text() -> None:
    """GitHub Copilot sends the text and the call of a message of Claude as two choices."""
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    answer = read(
        chunk({"content": "Let me "}),
        chunk({"tool_calls": [call]}, index=1),
        chunk({"content": "look."}),
        chunk({}, finish_reason="tool_calls"),
        chunk({}, index=1, finish_reason="tool_calls"),
    )
    assert answer.message == Message(
        role="assistant",
        content="Let me look.",
        tool_calls=[ToolCall("a", FunctionCall("f", "{}"))],
    )
    with pytest.raises(InvalidAnswerError, match="ended early"):  # the second choice is cut off
        read(chunk({"content": "Let me"}), chunk({"tool_calls": [call]}, index=1), FINISH)


def answered_in_choices(*choices: JSONObject) -> Answer:
    return CHAT.answer(decode(msgspec.json.encode({"choices": choices})))


def test_answer_joins_choices_of_which_one_has_text() -> None:
    function = {"name": "f", "arguments": "{}"}
    call: JSONObject = {"message": {"content": None, "tool_calls": [{"function": function}]}}
    text: JSONObject = {"message": {"content": "Hm."}, "finish_reason": "tool_calls"}
    for choices in ([text, call], [call, text]):
        answer = answered_in_choices(*choices)
        assert answer.message.text == "Hm."
        assert [made.name for made in answer.message.tool_calls] == ["f"]
        assert answer.finish_reason == "tool_calls"
    assert len(answered_in_choices(call, call).message.tool_calls) == 2
    assert answered_in_choices(text, {**call, "finish_reason": "length"}).finish_reason == "length"
    both = answered_in_choices(text, {"message": {"content": "b", "tool_calls": [function]}})
    assert both.message == Message(role="assistant", content="Hm.")
    with pytest.raises(InvalidAnswerError, match="gone"):
        answered_in_choices(text, {"error": {"message": "gone", "code": 502}})


@pytest.mark.parametrize(
    ("pieces", "name"),
    [
        (["get_", "weather"], "get_weather"),
        (["get_weather", "get_weather"], "get_weather"),
        (["get", "_wea", "ther"], "get_weather"),
        (["get", "_weather", "get_weather"], "get_weather"),
        (["add", "_up"], "add"),  # `add_up` is no tool
        (["no", "thing"], "nothing"),
        (["get_weather", "", "get_weather"], "get_weather"),
        (["get", "get_wea", "get_weather"], "get_weather"),
    ],
)
def test_assemble_joins_the_pieces_of_a_name(pieces: list[str], name: str) -> None:
    request = {"tools": [{"function": {"name": shown}} for shown in ("get_weather", "add")]}
    events = [
        call_piece(index=0, id="a", function={"name": piece, "arguments": part})
        for piece, part in zip(pieces, ["", "{", "}"], strict=False)
    ]
    whole = CHAT.assemble([*events, FINISH], msgspec.json.encode(request))
    assert [call.name for call in CHAT.answer(whole).message.tool_calls] == [name]


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "z": "a" * 100}]},
        {"z": "a" * 100},
    ],
    ids=["arguments", "member of a call", "member"],
)
def test_assemble_reads_each_piece_once(delta: JSONObject) -> None:
    """The time grew with the square of the number of pieces: minutes for a stream of 5 MB."""
    first = call_piece(index=0, id="c", function={"name": "f", "arguments": "{"})
    events = [first, *[chunk(delta)] * 30_000, FINISH]
    began = time.process_time()
    CHAT.assemble(events)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            chunk({"tool_calls": [{"index": number} for number in range(10_001)]}),
            "more than 10,000 tool calls",
        ),
        (
            json.dumps({"choices": [{"index": number} for number in range(10_001)]}).encode(),
            "more than 10,000 choices",
        ),
        (chunk({str(number): 1 for number in range(10_001)}), "more than 10,000 unknown members"),
    ],
    ids=["calls", "choices", "members"],
)
def test_assemble_refuses_what_no_answer_has(event: bytes, message: str) -> None:
    """A stream of 30 MB took 1.5 GB of memory and 20 seconds."""
    with pytest.raises(InvalidAnswerError, match=message):
        CHAT.assemble([event, FINISH])


def test_assemble_reads_the_tools_of_the_request_once() -> None:
    request = msgspec.json.encode({"tools": [], "messages": ["x" * 2_000_000]})
    pieces = [
        call_piece(index=number, id=str(number), function={"name": name})
        for number in range(2_000)
        for name in "fg"
    ]
    began = time.process_time()
    CHAT.assemble([*pieces, FINISH], request)
    assert time.process_time() - began < 2


def test_assemble_joins_texts_and_lists_and_replaces_other_values() -> None:
    values: list[JSON] = [1, "a", "b", [1], [2, 3], None, "c", "d"]
    for number, expected in ((1, 1), (3, "ab"), (4, [1]), (5, [1, 2, 3]), (8, "cd")):
        deltas = [{"z": value} for value in values[:number]]
        message = read(*map(chunk, deltas), chunk({"content": "x"}), FINISH).message
        assert message.extra == {"z": expected}


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        (['{"x": 1}', '{"x": 1}'], ['{"x": 1}']),  # a repetition
        (['{"x": 1}', '{"x', '": 1}'], ['{"x": 1}']),
        (['{"x": 1, "y": [2]}', '{"y":[2],"x":1}'], ['{"x": 1, "y": [2]}']),
        (['{"x": 1}', '{"x": true}'], ['{"x": 1}', '{"x": true}']),
        (['{"x": 1}', '{"x": '], ['{"x": 1}', '{"x": ']),
        (['{"x": 1}', '{"x": 2}'], ['{"x": 1}', '{"x": 2}']),
        (['{"x": 1}', '{"x', '": 2}', '{"x": 3}'], ['{"x": 1}', '{"x": 2}', '{"x": 3}']),
        (['{"x": ', '{"y": 1}', "}"], ['{"x": {"y": 1}}']),
        (['{"x": [', '{"y": 1}', ",", '{"y": 2}', "]}"], ['{"x": [{"y": 1},{"y": 2}]}']),
        (["{}", '{"x": ', "1}"], ['{"x": 1}']),  # a placeholder
        (["{}", "{}"], ["{}"]),
        (['{"x": 1}', "\n"], ['{"x": 1}\n']),
        (['{"x": "}', '{"}'], ['{"x": "}{"}']),
        (['"text}', '{"x": 1}'], ['"text}{"x": 1}']),
    ],
)
def test_assemble_parts_two_objects_under_one_index(pieces: list[str], calls: list[str]) -> None:
    first, *rest = pieces
    answer = read(
        call_piece(index=0, id="a", function={"name": "f", "arguments": first}),
        *(call_piece(index=0, function={"arguments": piece}) for piece in rest),
        FINISH,
    )
    assert [call.arguments for call in answer.message.tool_calls] == calls
    assert {call.name for call in answer.message.tool_calls} == {"f"}
    assert len({call.id for call in answer.message.tool_calls}) == len(calls)


def test_assemble_of_a_refusal() -> None:
    answer = read(chunk({"refusal": "I "}), chunk({"refusal": "cannot"}), FINISH)
    assert answer.message == Message(role="assistant", content="", refusal="I cannot")


def test_assemble_of_an_error_gives_the_error() -> None:
    error = b'{"error": {"code": 502, "message": "gone"}, "choices": [{"delta": {"content": ""}}]}'
    with pytest.raises(InvalidAnswerError, match="gone"):
        read(chunk({"content": "a"}), error)


@pytest.mark.parametrize("events", [[], [b"[DONE]"], [chunk({"content": "a"})]])
def test_assemble_refuses_a_stream_without_an_end(events: list[bytes]) -> None:
    with pytest.raises(InvalidAnswerError, match="the stream ended early"):
        CHAT.assemble(events)


def test_assemble_refuses_what_is_not_json() -> None:
    with pytest.raises(InvalidAnswerError, match="not JSON"):
        CHAT.assemble([b"{oops"])


def test_assemble_joins_a_custom_tool_call() -> None:
    answer = read(
        call_piece(index=0, id="a", type="custom", custom={"name": "shell", "input": ""}),
        call_piece(index=0, custom={"input": "ls "}),
        call_piece(index=0, custom={"input": "-l"}),
        FINISH,
    )
    assert answer.message.tool_calls == [ToolCall("a", FunctionCall("shell", "ls -l"))]


def test_assemble_joins_what_else_is_said() -> None:
    """Lists and texts arrive in pieces, an object arrives whole."""
    signature = {"google": {"thought_signature": "s"}}
    answer = read(
        chunk({"reasoning_details": [{"text": "a"}], "note": "one "}),
        chunk({"reasoning_details": [{"text": "b"}], "note": "two"}),
        call_piece(index=0, id="a", function={"name": "f"}, extra_content=signature),
        call_piece(index=0, function={"arguments": "{}"}),
        FINISH,
    )
    assert answer.message.extra == {
        "reasoning_details": [{"text": "a"}, {"text": "b"}],
        "note": "one two",
    }
    assert answer.message.tool_calls == [
        ToolCall("a", FunctionCall("f", "{}"), extra={"extra_content": signature})
    ]


odd = st.sampled_from([None, "", "x", 0, 3, -1, 1.0, 2.5, True, [], {}, ["x"], {"x": 1}])
texts = st.text(max_size=4) | st.sampled_from(["<think>a</think>b", "a</think>b", "", "7"])
functions = st.fixed_dictionaries({"name": texts | odd, "arguments": texts | odd})
calls = st.fixed_dictionaries(
    {"function": functions | odd},
    optional={
        "id": texts | odd,
        "type": st.sampled_from(["function", "custom", None]),
        "index": odd,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "role": odd,
        "content": texts | odd,
        "refusal": texts | odd,
        "reasoning": texts | odd,
        "reasoning_content": texts | odd,
        "tool_calls": st.lists(calls, max_size=2) | odd,
        "function_call": st.none() | functions,
    },
)
reasons = st.sampled_from(
    ["stop", "tool_calls", "function_call", "length", "content_filter", "max_tokens", "other"]
)
choices = st.fixed_dictionaries(
    {"message": messages | odd},
    optional={"finish_reason": reasons | odd, "logprobs": odd, "error": st.none() | odd},
)
usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": odd,
        "completion_tokens": odd,
        "prompt_tokens_details": st.fixed_dictionaries({}, optional={"cached_tokens": odd}) | odd,
        "completion_tokens_details": odd,
    },
)
bodies = st.fixed_dictionaries(
    {"choices": st.lists(choices, max_size=2) | odd},
    optional={"usage": usages | odd, "model": texts | odd, "error": odd, "id": odd},
)


@settings(max_examples=300, deadline=None)
@given(bodies)
def test_answer_reads_or_refuses_any_body(body) -> None:
    """Whatever a gateway sends, only a ModelError is raised."""
    with suppress(ModelError):
        message = CHAT.answer(decode(msgspec.json.encode(body))).message
        assert message.content is not None or message.tool_calls


@settings(max_examples=100, deadline=None)
@given(st.lists(texts, max_size=4), st.lists(calls, max_size=2))
def test_stream_of_an_answer_is_read_as_the_answer(pieces, called) -> None:
    whole = [{**call, "id": f"call {index}"} for index, call in enumerate(called)]
    message = {"role": "assistant", "content": "".join(pieces), "tool_calls": whole}
    deltas = [{"content": piece} for piece in pieces]
    deltas += [{"tool_calls": [{**call, "index": index}]} for index, call in enumerate(whole)]
    events = [chunk(delta) for delta in [{"content": ""}, *deltas]]
    streamed = CHAT.answer(CHAT.assemble([*events, chunk({}, finish_reason="stop")]))
    assert streamed.message == answered(message, finish_reason="stop").message


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "x\\ud800y"}', {"a": "x\ufffdy"}),
        (b'{"a": "\\udc00\\ud800"}', {"a": "\ufffd\ufffd"}),
        (b'{"\\ud800": 1}', {"\ufffd": 1}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}),
        (b'{"a": NaN, "b": 1.5}', {"a": None, "b": 1.5}),
    ],
)
def test_decode_mends_what_is_not_clean(payload: bytes, expected: JSONObject) -> None:
    assert decode(payload) == expected


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "not JSON: it is empty"),
        (b"<html>\n  busy", "not JSON: <html> busy"),
        (b'{"a": ', "not JSON"),
        (b"[1]", r"not a JSON object: \[1\]"),
        pytest.param(b'{"a":' + b"[" * 200_000, "nested too deeply", id="deep"),
        pytest.param(b'{"a":NaN,"b":' + b"[" * 200_000, "nested too deeply", id="deep and unclean"),
        pytest.param(b'{"a":NaN,"b":' + b"9" * 5000 + b"}", "not JSON", id="endless number"),
    ],
)
def test_decode_refuses(payload: bytes, words: str) -> None:
    with pytest.raises(InvalidAnswerError, match=words) as caught:
        decode(payload)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 429, "message": "m"}, 429),
        ({"code": "429", "message": "m"}, 429),
        ({"status": 503, "message": "m"}, 503),
        ({"code": None, "type": "server_error", "message": "m"}, None),
        ("out of order", None),
        ({}, None),
    ],
)
def test_error_in_has_the_status_that_a_body_names(error: JSON, status: int | None) -> None:
    assert error_in(error).status == status


def test_error_in_keeps_the_providers_words() -> None:
    error = {"code": 502, "message": "Upstream failed", "metadata": {"raw": "worker 7 died"}}
    words = str(error_in(error))
    assert words == "the endpoint answered with an error: Upstream failed (worker 7 died) (502)"
    assert str(error_in({"detail": "odd"})).endswith('{"detail":"odd"}')


unclean = st.text(st.characters(), max_size=6)  # lone surrogates included


@given(st.dictionaries(unclean, unclean, max_size=3))
@settings(max_examples=60, deadline=None)
def test_decode_replaces_lone_surrogates_only(value: dict[str, str]) -> None:
    payload = json.dumps(value)

    def clean(text: str) -> str:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)

    expected = {clean(key): clean(text) for key, text in json.loads(payload).items()}
    assert decode(payload.encode()) == expected


@pytest.mark.parametrize("said", [None, "7", -1, [], {}])
def test_usage_in_is_zero_where_nothing_is_said(said: JSON) -> None:
    names = ("prompt_tokens", "completion_tokens_details")
    assert usage_in(dict.fromkeys(names, said)) == usage_in(said) == Usage()
    details = {"cached_tokens": 2.0, "reasoning_tokens": said}
    usage = {"input_tokens": 3, "input_tokens_details": details, "output_tokens_details": details}
    assert usage_in(usage, "input", "output") == Usage(prompt_tokens=3, cached_tokens=2)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}', (7, 2)),
        (b'{"output": [], "usage": {"input_tokens": 7, "output_tokens": 2}}', (7, 2)),
        (b'{"choices": []}', (0, 0)),
        (b'{"usage": null}', (0, 0)),
        (b'{"usage": {"prompt_tokens": "many"}}', (0, 0)),
    ],
)
def test_usage_of_a_body_that_is_no_answer(body, expected):
    prompt, completion = expected
    assert usage_of(decode(body)) == Usage(prompt_tokens=prompt, completion_tokens=completion)


TEXT = {"type": "message", "content": [{"type": "output_text", "text": "7"}]}


@pytest.mark.parametrize("count", [10**308, 1e308, 2**64])
@pytest.mark.parametrize("form", ["chat", "responses"])
def test_usage_with_a_count_that_cannot_be_is_not_believed(count, form):
    names = ("prompt_tokens", "completion_tokens")
    kept = {"choices": [{"message": {"content": "7"}}]}
    if form == "responses":
        names, kept = ("input_tokens", "output_tokens"), {"output": [TEXT]}
    body = decode(msgspec.json.encode({**kept, "usage": dict(zip(names, (count, 2), strict=True))}))
    assert usage_of(body) == DIALECTS[form].answer(body).usage == Usage()
