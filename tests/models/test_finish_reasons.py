"""What an answer means: finish reason, text and tokens, whole and streamed."""

import asyncio
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.errors import InvalidAnswerError, ModelError, ServerError
from gymcli.mock import MockAnswer, MockServer, in_order
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.models.finish_reasons import finished_answer, split_thought, tool_calls_of
from gymcli.nemo_gym.payload import CallParts
from gymcli.types import (
    JSON,
    FinishReason,
    FunctionCall,
    JSONObject,
    Message,
    ToolCall,
    Usage,
)
from tests.models.asking import ask_and_see

CHAT = DIALECTS["chat"]

NORMAL = (
    "stop",
    "eos",
    "eos_token",
    "end_turn",
    "stop_sequence",
    "complete",
    "completed",
    None,
    "",
)
CALLS = ("tool_calls", "function_call", "tool_use")
CUTS = ("length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length")
WINDOW = ("model_context_window_exceeded", "Length")
FILTERS = (
    *("content_filter", "content_filtered", "safety", "SAFETY", "recitation", "RECITATION"),
    *("blocklist", "prohibited_content", "PROHIBITED_CONTENT", "spii", "image_safety"),
    *("error_toxic", "ERROR_TOXIC", "sensitive", "guardrail_intervened"),
    *("FinishReason.SAFETY", "content_filter: PROHIBITED_CONTENT"),
)
MALFORMED = (
    *("malformed_function_call", "function_call_filter: MALFORMED_FUNCTION_CALL"),
    *("UNEXPECTED_TOOL_CALL", "malformed_tool_use"),
)
INTERRUPTIONS = (
    *("abort", "aborted", "ABORTED", "cancelled", "canceled", "error", "ERROR", "failed"),
    *("incomplete", "network_error", "timeout", "engine_overloaded", "engine_shutdown"),
    *("insufficient_system_resource", "error: upstream timed out.", "network_error: ECONNRESET"),
)
UNKNOWN = ("odd", "pause_turn", "errors", "stopped", "stop: odd.", "It ended.", "1")

FAILURE = "failure"
# By finish reason: with text; without: tokens counted, 0 counted, none counted.
RULES: list[tuple[tuple[str | None, ...], str, tuple[str, str, str]]] = [
    (NORMAL, "stop", ("stop", FAILURE, "no_answer")),
    (CALLS, "tool_calls", (FAILURE, FAILURE, FAILURE)),
    ((*CUTS, *WINDOW), "length", ("length", "length", "length")),
    (FILTERS, "content_filter", ("content_filter",) * 3),
    (("refusal", "REFUSAL"), "refusal", ("refusal", "refusal", "refusal")),
    (MALFORMED, "malformed_call", ("malformed_call",) * 3),
    (INTERRUPTIONS, FAILURE, (FAILURE, FAILURE, FAILURE)),
    (UNKNOWN, "stop", (FAILURE, FAILURE, FAILURE)),
]
COUNTS: dict[str, JSON] = {
    "tokens": {"prompt_tokens": 3, "completion_tokens": 2},
    "zero": {"prompt_tokens": 3, "completion_tokens": 0},
    "none": None,
}


def read(word: str | None, message: JSONObject, usage: JSON, *, is_streamed: bool) -> str:
    """Return the finish reason that an answer is read with, or `failure`."""
    choice: JSONObject = {"finish_reason": word}
    if not is_streamed:
        body: JSONObject = {"choices": [{**choice, "message": message}], "usage": usage}
    else:
        chunks: list[JSONObject] = [{"choices": [{"delta": message}]}, {"choices": [choice]}]
        chunks.append({"choices": [], "usage": usage})
        body = {}
    try:
        if is_streamed:
            body = CHAT.assemble([msgspec.json.encode(chunk) for chunk in chunks])
        return CHAT.answer(body).finish_reason
    except (InvalidAnswerError, ServerError):
        return FAILURE


@pytest.mark.parametrize("is_streamed", [False, True])
def test_every_finish_reason_with_and_without_text_and_tokens(is_streamed: bool, subtests) -> None:
    num_cases = 0
    for words, with_text, without_text in RULES:
        # A stream without a finish reason has not ended.
        for word in words if not is_streamed else filter(None, words):
            for count, usage in COUNTS.items():
                with subtests.test(word=word, text=True, count=count):
                    assert read(word, {"content": "4"}, usage, is_streamed=is_streamed) == with_text
            for expected, (count, usage) in zip(without_text, COUNTS.items(), strict=True):
                for content in (None, "", " \n"):
                    with subtests.test(word=word, text=content, count=count):
                        message: JSONObject = {"role": "assistant", "content": content}
                        assert read(word, message, usage, is_streamed=is_streamed) == expected
                        num_cases += 1
    assert num_cases > 400


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning": "hm"},
        {"content": "<think>hm</think>"},
        {"refusal": "no"},
        {"audio": {"transcript": "four"}},
        {"images": [{"type": "image_url", "image_url": {"url": "u"}}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
        {"content": [{"type": "image_url", "image_url": {"url": "u"}}]},
    ],
)
def test_text_is_also_reasoning_a_refusal_and_media(message: JSONObject) -> None:
    expected = "refusal" if "refusal" in message else "stop"
    for usage in COUNTS.values():
        assert read("stop", message, usage, is_streamed=False) == expected
        assert read("odd", message, usage, is_streamed=False) == expected
        assert read("error", message, usage, is_streamed=False) == FAILURE


def test_a_finish_reason_that_is_no_text_is_unknown() -> None:
    for word in (7, True, ["length"], {"type": "length"}):
        choice: JSONObject = {"finish_reason": word, "message": {"content": "4"}}
        answer = CHAT.answer(decode(msgspec.json.encode({"choices": [choice]})))
        assert (answer.finish_reason, answer.unknown_finish) == ("stop", str(word))


def test_a_cut_or_filtered_choice_needs_no_message() -> None:
    words = {"content_filter": "content_filter", "SAFETY": "content_filter", "length": "length"}
    words |= {"refusal": "refusal", "MALFORMED_FUNCTION_CALL": "malformed_call"}
    for word, finish in words.items():
        body = {"choices": [{"index": 0, "finish_reason": word}]}
        assert CHAT.answer(decode(msgspec.json.encode(body))).finish_reason == finish
    for word in ("stop", "tool_calls", "odd", "error"):
        body = {"choices": [{"index": 0, "finish_reason": word}]}
        with pytest.raises(ModelError):
            CHAT.answer(decode(msgspec.json.encode(body)))


EMPTY = MockAnswer(finish_reason="stop", has_usage=False)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("answers", "text", "finish", "num_requests"),
    [
        ([EMPTY] * 5, "", "no_answer", 3),
        ([EMPTY, EMPTY, "4"], "4", "stop", 3),
        ([EMPTY, "4"], "4", "stop", 2),
        ([MockAnswer(finish_reason="stop")], "", "stop", 1),
        ([MockAnswer(finish_reason="stop", usage=Usage(prompt_tokens=3)), "4"], "4", "stop", 2),
        ([MockAnswer(text="It wi", finish_reason="network_error"), "4"], "4", "stop", 2),
        ([EMPTY, MockAnswer(text="It", finish_reason="abort"), EMPTY, "4"], "4", "stop", 4),
    ],
)
def test_what_is_asked_again(dialect, stream, answers, text, finish, num_requests) -> None:
    answer, server = ask_and_see(in_order(*answers), dialect=dialect, stream=stream)
    assert (answer.message.text, answer.finish_reason) == (text, finish)
    assert server.num_requests == num_requests


def test_an_empty_answer_is_asked_for_no_more_often_than_max_attempts() -> None:
    answer, server = ask_and_see(in_order(EMPTY, "4"), max_attempts=1)
    assert (answer.finish_reason, server.num_requests) == ("no_answer", 1)


def played(answers: list[MockAnswer | str], env: str, row: JSONObject, path: Path) -> list:
    """Return the records of one task, played against these answers."""
    (tasks := path / "tasks.jsonl").write_bytes(msgspec.json.encode({"id": "t", **row}))

    async def run() -> list:
        async with MockServer(in_order(*answers)) as server:
            endpoint = gymcli.Endpoint(base_url=server.base_url, model="m", max_attempts=2)
            records = gymcli.collect(tasks, endpoint=endpoint, env=env)
            return [record async for record in records]

    return asyncio.run(run())


def test_what_stops_an_episode(tmp_path: Path) -> None:
    row: JSONObject = {"prompt": "2 + 2?", "expected_answer": "4"}
    cut_call = MockAnswer(tool_calls=[("f", '{"x": ')], finish_reason="MAX_TOKENS")
    stops = {
        "length": cut_call,
        "content_filter": MockAnswer(finish_reason="SAFETY", has_message=False),
        "refusal": MockAnswer(text="I cannot.", finish_reason="refusal"),
    }
    for stop_reason, answer in stops.items():
        [record] = played([answer], "string_match", row, tmp_path)
        assert (record.stop_reason, record.reward) == (stop_reason, 0.0)
    [record] = played([EMPTY] * 2, "string_match", row, tmp_path)
    assert (record.stop_reason, record.reward) == ("no_answer", 0.0)
    assert record.retries == {"InvalidAnswerError": 1}
    [record] = played(
        [MockAnswer(text="4", finish_reason="failed")] * 9, "string_match", row, tmp_path
    )
    assert record.error.error_class == "ServerError"


def test_a_malformed_call_is_told_to_the_model_and_replayed(tmp_path: Path) -> None:
    row: JSONObject = {"prompt": "Add 2.", "initial_count": 1, "expected_count": 3}
    answers = [
        MockAnswer(text="<increment(", finish_reason="MALFORMED_FUNCTION_CALL"),
        MockAnswer(tool_calls=[("increment_counter", {"count": 2})]),
        "3",
    ]
    [record] = played(answers, "example_session_state_mgmt", row, tmp_path)
    roles = [message.role for message in record.responses]
    assert roles == ["assistant", "user", "assistant", "tool", "assistant"]
    assert record.responses[0].is_malformed_call
    assert "could not be read" in record.responses[1].text
    assert (record.tool_errors, record.reward) == ({"malformed": 1}, 1.0)
    assert [call.finish_reason for call in record.calls] == ["malformed_call", "tool_calls", "stop"]


def test_a_malformed_call_keeps_the_fields_of_its_message(tmp_path: Path) -> None:
    row: JSONObject = {"prompt": "Add 2.", "initial_count": 1, "expected_count": 3}
    fields: JSONObject = {"extra_content": {"google": {"thought_signature": "s"}}}
    choice = {"message": {"content": "f(", **fields}, "finish_reason": "MALFORMED_FUNCTION_CALL"}
    malformed = MockAnswer(body=msgspec.json.encode({"choices": [choice]}).decode())
    [record] = played([malformed, "3"], "example_session_state_mgmt", row, tmp_path)
    assert record.responses[0].extra == {**fields, "malformed_call": True}


def test_a_call_beside_a_malformed_one_is_carried_out(tmp_path: Path) -> None:
    """Endpoints refuse a conversation in which a call has no result."""
    row: JSONObject = {"prompt": "Add 2.", "initial_count": 1, "expected_count": 3}
    calls = [("increment_counter", {"count": 2})]
    malformed = MockAnswer(tool_calls=calls, finish_reason="MALFORMED_FUNCTION_CALL")
    [record] = played([malformed, "3"], "example_session_state_mgmt", row, tmp_path)
    assert [message.role for message in record.responses] == ["assistant", "tool", "assistant"]
    assert (record.tool_errors, record.reward) == ({}, 1.0)


def test_a_malformed_call_ends_an_episode_whose_calls_are_never_run(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    expected = [{"name": "f", "arguments": {}}]
    row: JSONObject = {"prompt": "Call f.", "tools": [tool], "expected_answers": expected}
    malformed = MockAnswer(text="f(", finish_reason="MALFORMED_FUNCTION_CALL")
    [record] = played([malformed, "never asked"], "xlam_fc", row, tmp_path)
    assert (record.stop_reason, record.reward) == ("done", 0.0)
    assert record.tool_errors == {"malformed": 1}


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


def test_an_answer_with_absurdly_many_calls_is_invalid() -> None:
    """Their ids were made in time that grew with the square of their number."""
    call = {"function": {"name": "f", "arguments": "{}"}}
    calls: list[JSON] = [
        *[call] * 5000,
        *({"id": f"call_{number}", **call} for number in range(5000)),
    ]
    body: JSONObject = {"choices": [{"message": {"tool_calls": calls}}]}
    assert len({call.id for call in CHAT.answer(body).message.tool_calls}) == 10_000
    calls.append(call)
    with pytest.raises(InvalidAnswerError, match="more than 10,000 tool calls"):
        CHAT.answer(body)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("{bad", "{bad"), (None, ""), ({"a": [1]}, '{"a":[1]}'), ([], "[]"), (3, "3")],
)
def test_tool_calls_of_gives_arguments_as_text(arguments: JSON, text: str) -> None:
    assert tool_calls_of([CallParts("i", None, arguments)]) == [
        ToolCall("i", FunctionCall("", text))
    ]


def message_of(content: str | list[JSONObject], **said) -> Message:
    return finished_answer({}, "stop", content=content, usage=Usage(), **said).message


def test_finished_answer_joins_reasoning_and_thought() -> None:
    message = message_of("<think>c</think>d", reasoning=["a", "", "b"])
    assert message == Message(role="assistant", content="d", reasoning="a\nb\nc")


def test_finished_answer_keeps_parts_that_are_not_text() -> None:
    parts: list[dict[str, object]] = [
        {"type": "text", "text": "<think>a"},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    assert message_of(parts, refusal="no") == Message(role="assistant", content=parts, refusal="no")


def test_finished_answer_without_text_is_empty_or_calls_tools() -> None:
    assert message_of("") == Message(role="assistant", content="")
    assert message_of("", calls=[CallParts("i", "f", "{}")]).content is None


@pytest.mark.parametrize(
    ("word", "finish"),
    [("stop", "tool_calls"), ("length", "length"), ("content_filter", "content_filter")],
)
def test_finished_answer_of_a_message_with_calls(word: str, finish: FinishReason) -> None:
    calls = [CallParts("i", "f", "")]
    assert finished_answer({}, word, content="", calls=calls, usage=Usage()).finish_reason == finish
