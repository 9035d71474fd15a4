"""Tests that the dialects can read what the mock server writes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import InvalidAnswerError
from gymcli.mock import MockAnswer
from gymcli.mock.wire_formats import FORMATS, ParsedRequest, parse_request, rendered, with_logprobs
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import SCALAR_DIALECTS
from gymcli.models.http import EventReader
from gymcli.types import Answer, Usage
from tests.mock.talking import PATHS, body_for, post, talk

CONVERSATION = [
    {"role": "user", "content": "x" * 10},
    {"role": "assistant", "content": "x" * 10},
    {"role": "user", "content": "x" * 10},
    {"role": "assistant", "content": "x" * 10},
]
INPUTS = {
    "chat": {"messages": CONVERSATION},
    "responses": {"input": CONVERSATION},
    "score": {"text_1": "x" * 20, "text_2": "x" * 20},
    "pooling": {"messages": CONVERSATION},
    "classify": {"messages": CONVERSATION},
}
PATH_OF = {form.dialect: path for path, form in FORMATS.items()}
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def request_in(dialect: str, **fields: object) -> ParsedRequest:
    """Return a request of two turns and 40 characters, made at second 0."""
    body = {"model": "model", **INPUTS[dialect], **fields}
    parsed = parse_request(msgspec.json.encode(body), FORMATS[PATH_OF[dialect]])
    return parsed._replace(created=0)


LOGPROBS = {"content": [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]}

ANSWERS = [
    MockAnswer(text="a text of more than one piece, to be streamed"),
    MockAnswer(text="cut", finish_reason="length"),
    MockAnswer(text="four", reasoning="two and two", usage=Usage(prompt_tokens=3, cached_tokens=1)),
    MockAnswer(tool_calls=[("add", {"a": 1}), ("add", '{"a": ')]),
    MockAnswer(text="calling", tool_calls=[("now", {})]),
    MockAnswer(refusal="I would rather not."),
    MockAnswer(text="x", logprobs=LOGPROBS),
]


def body_of(dialect: str, answer: MockAnswer) -> bytes:
    [body] = rendered(answer, request_in(dialect)).pieces
    return body


def events_of(answer: MockAnswer, dialect: str = "chat", **fields: object) -> list[bytes]:
    return [*rendered(answer, request_in(dialect, **(fields or WITH_USAGE))).pieces]


def plain(dialect: str, answer: MockAnswer) -> Answer:
    return DIALECTS[dialect].answer(body_of(dialect, answer))


def streamed(dialect: str, answer: MockAnswer) -> Answer:
    reader = EventReader()
    data = [event for chunk in events_of(answer, dialect) for event in reader.feed(chunk)]
    return DIALECTS[dialect].answer(DIALECTS[dialect].assemble(data))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("read", [plain, streamed])
def test_events_and_body_say_the_same(read, dialect, answer):
    """One answer reads the same in both dialects, streamed or not."""
    made, reference = read(dialect, answer), plain("chat", answer)
    for one in (made, reference):
        one.message.content = one.message.content or None
        one.message.response_items = []
        one.response_id = ""
    assert made == reference


@pytest.mark.parametrize("dialect", PATHS)
def test_body_holds_what_the_script_says(dialect):
    answer = plain(dialect, MockAnswer(reasoning="hm", tool_calls=[("add", {"a": 1})]))
    assert answer.model == "model"
    assert answer.finish_reason == "tool_calls"
    assert answer.message.reasoning == "hm"
    (call,) = answer.message.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_2_0", "add", '{"a":1}')
    assert answer.usage == Usage(prompt_tokens=11, completion_tokens=4)


@given(st.text(), st.text())
def test_chat_events_keep_any_text(text, arguments):
    answer = streamed("chat", MockAnswer(tool_calls=[("f", arguments)], refusal=text))
    assert answer.message.tool_calls[0].arguments == arguments
    assert answer.message.refusal == (text or None)


@pytest.mark.parametrize(
    ("options", "expected"), [({"include_usage": True}, True), ({}, False), (None, False)]
)
def test_chat_events_leave_usage_out_unless_asked(options, expected):
    events = events_of(MockAnswer(text="x"), stream=True, stream_options=options)
    assert any(b'"usage"' in event for event in events) == expected


def test_responses_body_of_an_incomplete_answer():
    body = msgspec.json.decode(body_of("responses", MockAnswer(finish_reason="content_filter")))
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "content_filter"}
    assert [item["content"] for item in body["output"]] == [[]]


def test_responses_body_gives_items_word_for_word():
    items = [{"type": "reasoning", "id": "r", "encrypted_content": "x", "summary": []}]
    body = msgspec.json.decode(body_of("responses", MockAnswer(text="a", response_items=items)))
    assert body["output"] == items
    assert streamed("responses", MockAnswer(response_items=items)).message.response_items == items


def test_chat_events_of_a_long_text_are_not_too_many():
    events = events_of(MockAnswer(text="x" * 100_000))
    assert 1000 < len(events) < 1100


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_scalar_body_holds_the_number_of_the_text(dialect, number):
    body = body_of(dialect, MockAnswer(text=f" {number} "))
    answer = DIALECTS[dialect].answer(body)
    assert float(answer.message.text) == number
    assert answer.model == "model"
    assert answer.usage == Usage(prompt_tokens=11)


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
@pytest.mark.parametrize("text", [None, "", "good", "nan"])
def test_scalar_body_of_a_text_that_is_no_number(dialect, text):
    body = body_of(dialect, MockAnswer(text=text))
    with pytest.raises(InvalidAnswerError):
        DIALECTS[dialect].answer(body)


ASKED = {
    "chat": {"logprobs": True, "top_logprobs": 2},
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
}


@pytest.mark.parametrize("params", ASKED.values())
def test_tokens_of_logprobs_make_up_the_text(params):
    answer = with_logprobs(MockAnswer(text="a text: äöü"), params)
    content = answer.logprobs["content"]
    assert "".join(entry["token"] for entry in content) == "a text: äöü"
    assert b"".join(bytes(entry["bytes"]) for entry in content).decode() == "a text: äöü"
    for entry in content:
        assert entry["logprob"] <= 0
        assert [len(entry["top_logprobs"]), entry["top_logprobs"][0]["token"]] == [
            2,
            entry["token"],
        ]
    assert answer == with_logprobs(MockAnswer(text="a text: äöü"), params)


@pytest.mark.parametrize("params", [{}, {"logprobs": False}, {"include": []}, {"include": None}])
def test_no_logprobs_unless_asked(params):
    assert with_logprobs(MockAnswer(text="x"), params).logprobs is None


def test_no_logprobs_without_text_and_those_of_the_script_stay():
    assert with_logprobs(MockAnswer(), {"logprobs": True}).logprobs is None
    own = MockAnswer(text="x", logprobs={"content": []})
    assert with_logprobs(own, {"logprobs": True}) is own


def test_top_logprobs_may_be_left_out():
    answer = with_logprobs(MockAnswer(text="x"), {"logprobs": True})
    assert answer.logprobs["content"][0]["top_logprobs"] == []


def test_top_logprobs_is_what_openai_gives_at_most():
    answer = with_logprobs(MockAnswer(text="x"), {"logprobs": True, "top_logprobs": 10**400})
    assert len(answer.logprobs["content"][0]["top_logprobs"]) == 20


@pytest.mark.parametrize("dialect", PATHS)
def test_server_sends_logprobs_where_the_dialect_has_them(dialect):
    body = body_for(dialect, **ASKED[dialect])
    status, payload = talk(lambda server, session: post(session, server, PATHS[dialect], body))
    answer = DIALECTS[dialect].answer(msgspec.json.encode(payload))
    assert status == 200
    tokens = [entry["token"] for entry in answer.message.logprobs["content"]]
    assert tokens == ["hell", "o"]
