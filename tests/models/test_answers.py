"""The one assistant message of an answer."""

import pytest

from gymcli.nemo_gym.payload import (
    CallParts,
    Thought,
    assistant_message,
    count_in,
    finish_of,
    split_thought,
    tool_calls_of,
)
from gymcli.types import JSON, FinishReason, FunctionCall, Message, ToolCall


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("plain", Thought("", "plain")),
        ("<think>a</think>b", Thought("a", "b")),
        ("\n<think>\na\n</think>\n\nb\n", Thought("a", "b\n")),
        ("<think>\n\n</think>\n\nb", Thought("", "b")),
        ("a</think>b", Thought("a", "b")),
        ("<think>never closed", Thought("never closed", "")),
        ("Hello <think>a</think> b", Thought("", "Hello <think>a</think> b")),
        ("<think>a</think>b</think>c", Thought("a", "b</think>c")),
        ("", Thought("", "")),
        ("a\n</think>\n\nb", Thought("a", "b")),
        ("It ends at </think> always.", Thought("", "It ends at </think> always.")),
        ("Split at `</think>`.", Thought("", "Split at `</think>`.")),
        ("I look for </think> now.\n</think>\nb", Thought("I look for </think> now.", "b")),
        ("<think>find </think> here</think>b", Thought("find </think> here", "b")),
        ("<think>a </think>b", Thought("a", "b")),
    ],
)
def test_split_thought(text: str, thought: Thought) -> None:
    assert split_thought(text) == thought


def test_split_thought_leaves_a_lone_closing_tag_where_reasoning_is_separate() -> None:
    assert split_thought("a</think>b", is_separate=True) == Thought("", "a</think>b")
    assert split_thought("<think>a</think>b", is_separate=True) == Thought("a", "b")


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
        parts=[{"type": "text", "text": "<think>c</think>"}, {"type": "text", "text": "d"}],
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
    message = assistant_message(parts=parts, reasoning=[], refusal="no", calls=[])
    assert message == Message(role="assistant", content=parts, refusal="no")


def test_assistant_message_without_text_is_empty_or_calls_tools() -> None:
    empty = assistant_message(parts=[], reasoning=[], refusal="", calls=[])
    assert empty == Message(role="assistant", content="")
    calling = assistant_message(
        parts=[{"type": "text", "text": ""}],
        reasoning=[],
        refusal="",
        calls=[CallParts("i", "f", "{}")],
    )
    assert calling.content is None


@pytest.mark.parametrize(
    ("reason", "has_calls", "finish"),
    [
        ("stop", True, "tool_calls"),
        ("stop", False, "stop"),
        ("length", True, "length"),
        ("content_filter", True, "content_filter"),
        ("tool_calls", False, "tool_calls"),
    ],
)
def test_finish_of(reason: FinishReason, has_calls: bool, finish: FinishReason) -> None:
    calls = [ToolCall("i", FunctionCall("f", ""))] if has_calls else []
    assert finish_of(reason, Message(role="assistant", tool_calls=calls)) == finish


def test_count_in_is_zero_where_nothing_is_said() -> None:
    usage: dict[str, object] = {"a": 3, "b": {"c": 2.0}, "d": None, "e": "7", "f": -1}
    assert [count_in(usage, key) for key in "adefx"] == [3, 0, 0, 0, 0]
    assert [count_in(usage, *keys) for keys in ("bc", "bx", "dc", "ac")] == [2, 0, 0, 0]
