"""Chat Completions: answers."""

import json

import pytest

from gymcli.errors import InvalidAnswerError, RateLimitError, ServerError
from gymcli.models.dialects import DIALECTS
from gymcli.types import JSON, Answer, FunctionCall, JSONObject, Message, ToolCall, Usage

CHAT = DIALECTS["chat"]


def answered(message: JSON, **choice: object) -> Answer:
    """Read a body with this message."""
    return CHAT.answer(json.dumps({"choices": [{"message": message, **choice}]}).encode())


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
    assert CHAT.answer(json.dumps(body).encode()) == Answer(
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
    assert CHAT.answer(body) == Answer(message=Message(role="assistant", content="x"))
    assert answered({"content": "x"}, logprobs={"content": None}).message.logprobs is None


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ("{}", InvalidAnswerError, "choices"),
        ('{"choices": []}', InvalidAnswerError, "choices"),
        ('{"choices": [{"text": "x"}]}', InvalidAnswerError, "message"),
        ('{"choices": [{"finish_reason": "stop", "message": {}}]}', InvalidAnswerError, "empty"),
        ('{"choices": [{"message": {"role": "assistant"}}]}', InvalidAnswerError, "no tokens"),
        ('{"choices": [{"message": {"content": 3}}]}', InvalidAnswerError, "content"),
        ('{"choices": [{"message": {"tool_calls": [null]}}]}', InvalidAnswerError, "tool call"),
        ('{"error": {"message": "odd"}}', InvalidAnswerError, "odd"),
        ('{"error": {"message": "slow", "code": 429}}', RateLimitError, "slow"),
        ('{"choices": [{"error": {"message": "gone", "code": 502}}]}', ServerError, "gone"),
        ('{"choices": [{"finish_reason": "error", "message": {}}]}', ServerError, "error"),
    ],
)
def test_answer_refuses(payload: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        CHAT.answer(payload.encode())


@pytest.mark.parametrize("word", ["abort", "error", "cancelled", "insufficient_system_resource"])
def test_answer_that_the_endpoint_did_not_finish_is_none(word: str) -> None:
    with pytest.raises(ServerError, match=word):
        answered({"role": "assistant", "content": "half"}, finish_reason=word)


@pytest.mark.parametrize("choice", [{"finish_reason": "stop"}, {"logprobs": {"content": [1]}}])
def test_answer_of_nothing_is_one_where_anything_else_is_said(choice: JSONObject) -> None:
    assert answered({"content": None}, **choice).message.text == ""


def test_answer_of_nothing_is_one_where_it_took_tokens() -> None:
    body = {"choices": [{"message": {"content": None}}], "usage": {"completion_tokens": 1}}
    assert CHAT.answer(json.dumps(body).encode()).message.text == ""


@pytest.mark.parametrize(("word", "unknown"), [("eos", "eos"), ("stop", None), (None, None)])
def test_answer_keeps_an_unknown_finish_reason(word: JSON, unknown: str | None) -> None:
    answer = answered({"content": "x"}, finish_reason=word)
    assert (answer.finish_reason, answer.unknown_finish) == ("stop", unknown)


def test_answer_bounds_the_words_of_the_endpoint() -> None:
    body = {"id": "i" * 999, "choices": [{"message": {"content": "x"}, "finish_reason": "w" * 999}]}
    answer = CHAT.answer(json.dumps(body).encode())
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
