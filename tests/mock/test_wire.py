"""What the mock server writes is what the dialects read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import InvalidAnswerError
from gymcli.mock import MockAnswer
from gymcli.mock.bodies import (
    Circumstances,
    chat_body,
    chat_events,
    classify_body,
    pooling_body,
    responses_body,
    responses_events,
    score_body,
)
from gymcli.models.dialects import DIALECTS
from gymcli.models.http import EventReader
from gymcli.types import Answer, Message, Request, Usage

RENDERERS = {"chat": (chat_body, chat_events), "responses": (responses_body, responses_events)}
SCALAR_BODIES = {"score": score_body, "pooling": pooling_body, "classify": classify_body}
ABOUT = Circumstances("model", 2, 40, 0)
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


def plain(dialect: str, answer: MockAnswer) -> Answer:
    body, _ = RENDERERS[dialect]
    return DIALECTS[dialect].answer(body(answer, ABOUT))


def streamed(dialect: str, answer: MockAnswer) -> Answer:
    _, events = RENDERERS[dialect]
    reader = EventReader()
    data = [event for chunk in events(answer, ABOUT) for event in reader.feed(chunk)]
    return DIALECTS[dialect].answer(DIALECTS[dialect].assemble(data))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("dialect", RENDERERS)
@pytest.mark.parametrize("read", [plain, streamed])
def test_events_and_body_say_the_same(read, dialect, answer):
    """One answer reads the same in both dialects, streamed or not."""
    made, reference = read(dialect, answer), plain("chat", answer)
    for one in (made, reference):
        one.message.content = one.message.content or None
        one.message.response_items = []
        one.response_id = ""
    assert made == reference


@pytest.mark.parametrize("dialect", RENDERERS)
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


def test_chat_events_leave_usage_out_unless_asked():
    about = ABOUT._replace(with_usage=False)
    assert not any(b'"usage"' in event for event in chat_events(MockAnswer(text="x"), about))


@pytest.mark.parametrize(
    ("options", "expected"), [({"include_usage": True}, True), ({}, False), (None, False)]
)
def test_circumstances_of(options, expected):
    request = Request(
        messages=[Message(role="user", content="12345678")], params={"stream_options": options}
    )
    about = Circumstances.of(request, model="m", turn=0, created=1)
    assert about == Circumstances("m", 0, 8, 1, expected)


def test_responses_body_of_an_incomplete_answer():
    body = msgspec.json.decode(responses_body(MockAnswer(finish_reason="content_filter"), ABOUT))
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "content_filter"}
    assert [item["content"] for item in body["output"]] == [[]]


def test_responses_body_gives_items_word_for_word():
    items = [{"type": "reasoning", "id": "r", "encrypted_content": "x", "summary": []}]
    body = msgspec.json.decode(responses_body(MockAnswer(text="a", response_items=items), ABOUT))
    assert body["output"] == items
    assert streamed("responses", MockAnswer(response_items=items)).message.response_items == items


def test_chat_events_of_a_long_text_are_not_too_many():
    events = list(chat_events(MockAnswer(text="x" * 100_000), ABOUT))
    assert 1000 < len(events) < 1100


@pytest.mark.parametrize("dialect", SCALAR_BODIES)
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_scalar_body_holds_the_number_of_the_text(dialect, number):
    body = SCALAR_BODIES[dialect](MockAnswer(text=f" {number} "), ABOUT)
    answer = DIALECTS[dialect].answer(body)
    assert float(answer.message.text) == number
    assert answer.model == "model"
    assert answer.usage == Usage(prompt_tokens=11)


@pytest.mark.parametrize("dialect", SCALAR_BODIES)
@pytest.mark.parametrize("text", [None, "", "good", "nan"])
def test_scalar_body_of_a_text_that_is_no_number(dialect, text):
    body = SCALAR_BODIES[dialect](MockAnswer(text=text), ABOUT)
    with pytest.raises(InvalidAnswerError):
        DIALECTS[dialect].answer(body)
