"""Responses: request bodies, answers and streams."""

import json
import time

import pytest

from gymcli.errors import InvalidAnswerError, ServerError
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.nemo_gym.responses_items import IGNORED_PARAMS
from gymcli.types import (
    JSON,
    Answer,
    FunctionCall,
    JSONObject,
    Message,
    Request,
    ToolCall,
    Usage,
)

RESPONSES = DIALECTS["responses"]


def encoded(output: JSON, **fields: object) -> bytes:
    return json.dumps({"object": "response", "output": output, **fields}).encode()


def encoded_events(events: list[JSONObject]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


def said(*parts: JSONObject) -> JSONObject:
    return {"type": "message", "role": "assistant", "content": list(parts)}


def text(value: str, **fields: object) -> JSONObject:
    return {"type": "output_text", "text": value, "annotations": [], **fields}


def test_body_has_input_tools_and_params() -> None:
    request = Request(
        messages=[
            Message(role="system", content="s"),
            Message(role="assistant", content="a", reasoning="r"),
        ],
        tools=[{"type": "function", "function": {"name": "f", "strict": True}}],
        params={"max_tokens": 5, "seed": 1, "stream": True, "extra_body": {"top_k": 2}},
    )
    assert RESPONSES.body(request, "m") == {
        "model": "m",
        "input": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}],
        "tools": [{"type": "function", "name": "f", "strict": True}],
        "max_output_tokens": 5,
        "top_k": 2,
    }


def test_body_sends_reasoning_when_asked_and_opaque_items_always() -> None:
    opaque: JSONObject = {"type": "reasoning", "id": "x", "encrypted_content": "e"}
    messages = [
        Message(role="assistant", content="a", reasoning="r"),
        Message(role="assistant", content="b", reasoning="q", response_items=[opaque]),
    ]
    request = Request(messages=messages)
    plain: JSONObject = {"role": "assistant", "content": "a"}
    reasoning: JSONObject = {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "r"}],
    }
    assert RESPONSES.body(request, "m")["input"] == [plain, opaque]
    body = RESPONSES.body(request, "m", send_reasoning="reasoning")
    assert body["input"] == [reasoning, plain, opaque]


def test_body_streams() -> None:
    body = RESPONSES.body(Request(messages=[]), "m", stream=True)
    assert body == {"model": "m", "input": [], "stream": True}


@pytest.mark.parametrize("tools", [[], [{"type": "web_search"}]])
def test_body_keeps_what_extra_body_may_not_replace(tools: list[JSONObject]) -> None:
    decided: JSONObject = {
        **dict.fromkeys(IGNORED_PARAMS, "taken over"),
        **{name: ["taken over"] for name in ("messages", "input", "tools")},
    }
    messages = [Message(role="user", content="hi")]
    plain = RESPONSES.body(Request(messages=messages, tools=tools, params={"top_k": 3}), "m")
    cases: list[JSONObject] = [
        {"extra_body": {**decided, "top_k": 3}},
        {"messages": [], "input": [], "tools": ["taken over"], "top_k": 3},
    ]
    for params in cases:
        assert RESPONSES.body(Request(messages=messages, tools=tools, params=params), "m") == plain
    assert RESPONSES.unsent({"extra_body": {"store": True, "top_k": 3}}) == ["extra_body.store"]


@pytest.mark.parametrize(
    "params",
    [
        {"max_tokens": 1, "max_completion_tokens": 2},
        {"max_completion_tokens": 2, "max_tokens": 1},
    ],
)
def test_body_sends_one_limit_of_the_answer(params: JSONObject) -> None:
    body = RESPONSES.body(Request(messages=[], params=params), "m")
    assert body == {"model": "m", "input": [], "max_output_tokens": 2}


def test_unsent_names_what_responses_lacks() -> None:
    params: JSONObject = {"seed": None, "stop": "x", "temperature": 1, "presence_penalty": 1}
    assert RESPONSES.unsent(params) == ["seed", "stop", "presence_penalty"]


def test_answer_joins_the_output_to_one_message() -> None:
    output = [
        {"type": "reasoning", "id": "rs", "summary": [{"text": "a"}, {"text": "b"}]},
        {"type": "reasoning", "summary": [], "content": [{"text": "c"}], "encrypted_content": None},
        said(text("He"), {"type": "refusal", "refusal": "no"}),
        said(text("llo")),
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call", "name": "g", "arguments": {"x": 1}},
    ]
    usage = {
        "input_tokens": 9,
        "output_tokens": 4,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    payload = encoded(output, status="completed", model="m-1", usage=usage, error=None)
    assert RESPONSES.answer(decode(payload)) == Answer(
        message=Message(
            role="assistant",
            content="Hello",
            reasoning="a\nb\nc",
            refusal="no",
            tool_calls=[
                ToolCall("c", FunctionCall("f", "{}")),
                ToolCall("call_1", FunctionCall("g", '{"x":1}')),
            ],
        ),
        finish_reason="tool_calls",
        usage=Usage(prompt_tokens=9, completion_tokens=4, cached_tokens=8, reasoning_tokens=3),
        model="m-1",
    )


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "id": "x", "summary": [], "encrypted_content": "e"},
        {"type": "web_search_call", "id": "w"},
        {"type": None},
    ],
)
def test_answer_keeps_opaque_output_verbatim(item: JSONObject) -> None:
    output = [item, {**said(text("hi")), "id": "m"}]
    assert RESPONSES.answer(decode(encoded(output))).message == Message(
        role="assistant", content="hi", response_items=output
    )


def test_answer_keeps_parts_that_are_not_text() -> None:
    parts: list[JSONObject] = [text("a"), {"type": "output_audio", "data": "d"}]
    assert RESPONSES.answer(decode(encoded([said(*parts)]))).message.content == [
        {"type": "text", "text": "a"},
        {"type": "output_audio", "data": "d"},
    ]


def test_answer_gives_logprobs_in_chat_shape() -> None:
    output = [
        said(text("a", logprobs=[{"token": "a"}])),
        said(text("b", logprobs=[{"token": "b"}])),
    ]
    message = RESPONSES.answer(decode(encoded(output))).message
    assert message.logprobs == {"content": [{"token": "a"}, {"token": "b"}]}


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({"status": "completed"}, "stop"),
        ({}, "stop"),
        ({"status": "incomplete"}, "length"),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "completed", "incomplete_details": {"reason": None}}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": None}}, "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
    ],
)
def test_answer_finish_reason(fields: JSONObject, finish: str) -> None:
    answer = RESPONSES.answer(decode(encoded([], usage={"output_tokens": 1}, **fields)))
    assert answer == Answer(
        message=Message(role="assistant", content=""),
        finish_reason=finish,  # type: ignore[arg-type]
        usage=Usage(completion_tokens=1),
    )


@pytest.mark.parametrize("usage", [None, {}, {"output_tokens": 0}])
def test_answer_without_output_and_tokens_is_none(usage: JSONObject | None) -> None:
    payload = encoded([], status="completed", usage=usage)
    if usage:
        with pytest.raises(InvalidAnswerError, match="counts 0 tokens"):
            RESPONSES.answer(decode(payload))
    else:
        assert RESPONSES.answer(decode(payload)).finish_reason == "no_answer"


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        (b"{}", InvalidAnswerError, "output"),
        (encoded("text"), InvalidAnswerError, "output"),
        (encoded([], status="failed"), InvalidAnswerError, "status 'failed'"),
        (encoded([], status="queued"), InvalidAnswerError, "status 'queued'"),
        (encoded([], error={"code": "server_error", "message": "m"}), InvalidAnswerError, "m"),
        (encoded([], incomplete_details={"reason": "abort"}), ServerError, "abort"),
        (
            encoded([], error={"code": "rate_limit_exceeded", "message": "m"}),
            InvalidAnswerError,
            "m",
        ),
        (encoded([], error={"code": "invalid_image", "message": "m"}), InvalidAnswerError, "m"),
    ],
)
def test_answer_refuses(payload: bytes, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        RESPONSES.answer(decode(payload))


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete", "response.failed"])
def test_assemble_gives_the_last_events_response(kind: str) -> None:
    response = {"output": [said(text("hi"))]}
    events = [
        b'{"type": "response.created", "response": {}}',
        b"",
        b'{"type": "response.output_text.delta", "delta": "hi"}',
        json.dumps({"type": kind, "response": response}).encode(),
    ]
    assert RESPONSES.assemble(events) == response


@pytest.mark.parametrize("response", [{"output": []}, {"output": None}, {}])
def test_assemble_rebuilds_an_empty_output_from_the_items_done(response: JSONObject) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    done: list[JSONObject] = [
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.output_item.done", "output_index": 0, "item": said(text("hi"))},
        {"type": "response.completed", "response": {**response, "status": "completed"}},
    ]
    message = RESPONSES.answer(RESPONSES.assemble(encoded_events(done))).message
    assert message.content == "hi"
    assert message.tool_calls == [ToolCall("c", FunctionCall("f", "{}"))]


def test_assemble_trusts_the_last_event_where_it_has_output() -> None:
    done: list[JSONObject] = [
        {"type": "response.output_item.done", "output_index": 0, "item": said(text("draft"))},
        {"type": "response.completed", "response": {"output": [said(text("hi"))]}},
    ]
    assert RESPONSES.answer(RESPONSES.assemble(encoded_events(done))).message.content == "hi"


def test_assemble_of_a_last_event_without_a_response_gives_no_answer() -> None:
    done: list[JSONObject] = [
        {"type": "response.output_item.done", "output_index": 0, "item": said(text("hi"))},
        {"type": "response.completed", "response": None},
    ]
    with pytest.raises(InvalidAnswerError):
        RESPONSES.answer(RESPONSES.assemble(encoded_events(done)))


@pytest.mark.parametrize(
    "event",
    [
        b'{"type": "error", "code": "server_error", "message": "gone"}',
        b'{"error": {"code": "server_error", "message": "gone"}}',
    ],
)
def test_assemble_of_an_error_gives_the_error(event: bytes) -> None:
    with pytest.raises(InvalidAnswerError, match="gone"):
        RESPONSES.answer(RESPONSES.assemble([event]))


@pytest.mark.parametrize(
    "events", [[], [b"[DONE]", b"never read"], [b'{"type": "response.created", "response": {}}']]
)
def test_assemble_refuses_a_stream_without_an_end(events: list[bytes]) -> None:
    with pytest.raises(InvalidAnswerError, match="the stream ended early"):
        RESPONSES.assemble(events)


def test_answer_reads_each_item_once() -> None:
    """The time grew with the square of the number of items."""
    output = [said(text("a"), {"type": "refusal", "refusal": "b"})] * 40_000
    began = time.process_time()
    message = RESPONSES.answer({"output": output}).message
    assert time.process_time() - began < 2
    assert message.content == "a" * 40_000
    assert message.refusal == "b" * 40_000


def test_answer_that_is_incomplete_for_an_unknown_reason_was_not_cut() -> None:
    details = {"reason": "server_overloaded"}
    output = [said(text("half"))]
    fields = {"status": "incomplete", "incomplete_details": details, "id": "r"}
    answer = RESPONSES.answer(decode(encoded(output, **fields)))
    assert (answer.finish_reason, answer.unknown_finish) == ("stop", "server_overloaded")
    assert answer.response_id == "r"


def test_answer_keeps_items_with_a_phase_verbatim() -> None:
    output = [
        {**said(text("Let me look.")), "phase": "commentary"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {**said(text("42")), "phase": "final_answer"},
    ]
    message = RESPONSES.answer(decode(encoded(output))).message
    assert RESPONSES.body(Request(messages=[message]), "m")["input"] == output


def test_body_sends_back_the_named_fields_of_messages_and_calls() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "note": "n"}
    message = RESPONSES.answer(decode(encoded([{**said(text("a")), "mood": "good"}, call]))).message
    assert message.extra == {"mood": "good"}
    assert message.tool_calls[0].extra == {"note": "n"}
    request = Request(messages=[message])
    plain = {key: value for key, value in call.items() if key != "note"}
    saying = {"role": "assistant", "content": "a"}
    assert RESPONSES.body(request, "m")["input"] == [saying, plain]
    body = RESPONSES.body(request, "m", send_fields=("note", "mood"))
    assert body["input"] == [{**saying, "mood": "good"}, call]


def test_body_leaves_out_messages_with_only_reasoning() -> None:
    """OpenAI refuses reasoning that nothing follows."""
    sealed: JSONObject = {"type": "reasoning", "id": "x", "encrypted_content": "e"}
    messages = [
        Message(role="assistant", content="", reasoning="r"),
        Message(role="assistant", content="", reasoning="r", response_items=[sealed]),
    ]
    assert RESPONSES.body(Request(messages=messages), "m")["input"] == []
