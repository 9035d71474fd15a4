"""Streamed chat completions."""

import json

import pytest

from gymcli.errors import InvalidAnswerError, ServerError
from gymcli.models.dialects import DIALECTS
from gymcli.types import JSON, Answer, FunctionCall, JSONObject, Message, ToolCall, Usage

CHAT = DIALECTS["chat"]


def chunk(delta: JSON = None, **choice: object) -> bytes:
    """Give a chunk with this delta."""
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


@pytest.mark.parametrize("where", [{"index": 0}, {}])
def test_assemble_parts_calls_that_share_an_index(where: JSONObject) -> None:
    """Some endpoints send each call whole, with index 0 or none."""
    answer = read(
        call_piece(**where, id="a", function={"name": "f", "arguments": "{}"}),
        call_piece(**where, id="b", function={"name": "f", "arguments": {"x": 1}}),
        FINISH,
    )
    assert answer.message.tool_calls == [
        ToolCall("a", FunctionCall("f", "{}")),
        ToolCall("b", FunctionCall("f", '{"x":1}')),
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


def test_assemble_of_a_refusal() -> None:
    answer = read(chunk({"refusal": "I "}), chunk({"refusal": "cannot"}), FINISH)
    assert answer.message == Message(role="assistant", content="", refusal="I cannot")


def test_assemble_of_an_error_gives_the_error() -> None:
    error = b'{"error": {"code": 502, "message": "gone"}, "choices": [{"delta": {"content": ""}}]}'
    with pytest.raises(ServerError, match="gone"):
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
    """Lists and texts come in pieces; an object comes whole."""
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
