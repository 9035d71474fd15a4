"""What every wire format has in common in an answer: JSON, errors, messages, token counts."""

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.errors import InvalidAnswerError
from gymcli.models.answer_body import (
    assistant_message,
    decode,
    error_in,
    finished_answer,
    split_thought,
    tool_calls_of,
    usage_of,
)
from gymcli.models.dialects import DIALECTS
from gymcli.nemo_gym.payload import CallParts, count_in
from gymcli.types import JSON, FinishReason, FunctionCall, JSONObject, Message, ToolCall, Usage


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


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("plain", ("", "plain")),
        ("<think>a</think>b", ("a", "b")),
        ("\n<think>\na\n</think>\n\nb\n", ("a", "b\n")),
        ("<think>\n\n</think>\n\nb", ("", "b")),
        ("a</think>b", ("a", "b")),
        ("<think>never closed", ("never closed", "")),
        ("Hello <think>a</think> b", ("", "Hello <think>a</think> b")),
        ("<think>a</think>b</think>c", ("a", "b</think>c")),
        ("", ("", "")),
        ("a\n</think>\n\nb", ("a", "b")),
        ("It ends at </think> always.", ("", "It ends at </think> always.")),
        ("Split at `</think>`.", ("", "Split at `</think>`.")),
        ("I look for </think> now.\n</think>\nb", ("I look for </think> now.", "b")),
        ("<think>find </think> here</think>b", ("find </think> here", "b")),
        ("<think>a </think>b", ("a", "b")),
    ],
)
def test_split_thought(text: str, thought: tuple[str, str]) -> None:
    assert split_thought(text) == thought


def test_split_thought_leaves_a_lone_closing_tag_where_reasoning_is_separate() -> None:
    assert split_thought("a</think>b", is_separate=True) == ("", "a</think>b")
    assert split_thought("<think>a</think>b", is_separate=True) == ("a", "b")


def test_tool_calls_of_gives_missing_ids_that_are_unique() -> None:
    parts = [
        CallParts(None, "f", "{}"),
        CallParts("call_2", "f", "{}"),
        CallParts("", "f", "{}"),
        CallParts(7, "f", "{}"),
    ]
    assert [call.id for call in tool_calls_of(parts)] == ["call_0", "call_2", "call_3", "call_4"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("{bad", "{bad"), (None, ""), ({"a": [1]}, '{"a":[1]}'), ([], "[]"), (3, "3")],
)
def test_tool_calls_of_gives_arguments_as_text(arguments: JSON, text: str) -> None:
    assert tool_calls_of([CallParts("i", None, arguments)]) == [
        ToolCall("i", FunctionCall("", text))
    ]


def test_assistant_message_joins_reasoning_and_thought() -> None:
    message = assistant_message(
        content="<think>c</think>d",
        reasoning=["a", "", "b"],
        refusal="",
        calls=[],
    )
    assert message == Message(role="assistant", content="d", reasoning="a\nb\nc")


def test_assistant_message_keeps_parts_that_are_not_text() -> None:
    parts: list[dict[str, object]] = [
        {"type": "text", "text": "<think>a"},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    message = assistant_message(content=parts, reasoning=[], refusal="no", calls=[])
    assert message == Message(role="assistant", content=parts, refusal="no")


def test_assistant_message_without_text_is_empty_or_calls_tools() -> None:
    empty = assistant_message(content="", reasoning=[], refusal="", calls=[])
    assert empty == Message(role="assistant", content="")
    calling = assistant_message(
        content="",
        reasoning=[],
        refusal="",
        calls=[CallParts("i", "f", "{}")],
    )
    assert calling.content is None


@pytest.mark.parametrize(
    ("word", "has_calls", "finish"),
    [
        ("stop", True, "tool_calls"),
        ("stop", False, "stop"),
        ("length", True, "length"),
        ("content_filter", True, "content_filter"),
        ("tool_calls", False, "tool_calls"),
    ],
)
def test_finished_answer_of_a_message_with_calls(
    word: str, has_calls: bool, finish: FinishReason
) -> None:
    calls = [ToolCall("i", FunctionCall("f", ""))] if has_calls else []
    message = Message(role="assistant", tool_calls=calls)
    answer = finished_answer(message, word, usage=Usage(), model=None, response_id=None)
    assert answer.finish_reason == finish


def test_count_in_is_zero_where_nothing_is_said() -> None:
    usage: dict[str, object] = {"a": 3, "b": {"c": 2.0}, "d": None, "e": "7", "f": -1}
    assert [count_in(usage, key) for key in "adefx"] == [3, 0, 0, 0, 0]
    assert [count_in(usage, *keys) for keys in ("bc", "bx", "dc", "ac")] == [2, 0, 0, 0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}', (7, 2)),
        (b'{"output": [], "usage": {"input_tokens": 7, "output_tokens": 2}}', (7, 2)),
        (b'{"choices": []}', (0, 0)),
        (b'{"usage": null}', (0, 0)),
        (b'{"usage": {"prompt_tokens": "many"}}', (0, 0)),
        (b"<html></html>", (0, 0)),
    ],
)
def test_usage_of_a_body_that_is_no_answer(body, expected):
    prompt, completion = expected
    assert usage_of(body) == Usage(prompt_tokens=prompt, completion_tokens=completion)


TEXT = {"type": "message", "content": [{"type": "output_text", "text": "7"}]}


@pytest.mark.parametrize("count", [10**308, 1e308, 2**64])
@pytest.mark.parametrize("form", ["chat", "responses"])
def test_usage_with_a_count_that_cannot_be_is_not_believed(count, form):
    names = ("prompt_tokens", "completion_tokens")
    kept = {"choices": [{"message": {"content": "7"}}]}
    if form == "responses":
        names, kept = ("input_tokens", "output_tokens"), {"output": [TEXT]}
    body = msgspec.json.encode({**kept, "usage": dict(zip(names, (count, 2), strict=True))})
    assert usage_of(body) == DIALECTS[form].answer(body).usage == Usage()
