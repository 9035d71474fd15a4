"""Tests that the dialects can read what the mock server writes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import InvalidAnswerError
from gymcli.mock import MockAnswer
from gymcli.mock.tokenizer import with_logprobs
from gymcli.mock.wire_formats import FORMATS, ParsedRequest, parse_request, render_answers
from gymcli.models.chat import decode
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
    [body] = render_answers([answer], request_in(dialect)).pieces
    return body


def events_of(answer: MockAnswer, dialect: str = "chat", **fields: object) -> list[bytes]:
    return [*render_answers([answer], request_in(dialect, **(fields or WITH_USAGE))).pieces]


def plain(dialect: str, answer: MockAnswer) -> Answer:
    return DIALECTS[dialect].answer(decode(body_of(dialect, answer)))


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


def payloads(events: list[bytes]) -> list[dict]:
    data = [event.partition(b"data: ")[2] for event in events]
    return [msgspec.json.decode(one) for one in data if one.strip() != b"[DONE]"]


MADE = [
    *ANSWERS,
    MockAnswer(),
    MockAnswer(text="half", finish_reason="failed"),
    MockAnswer(reasoning="hm", text="calling", tool_calls=[("now", ""), ("add", {"a": 1})]),
    MockAnswer(
        response_items=[
            {
                "type": "reasoning",
                "id": "r",
                "summary": [
                    {"type": "summary_text", "text": "a summary of two pieces"},
                    {"type": "summary_text", "text": "and another"},
                ],
                "encrypted_content": "x",
            },
            {"type": "custom_tool_call", "id": "c", "call_id": "d", "name": "run", "input": "ls"},
            {"type": "web_search_call", "id": "w", "status": "completed"},
            {"type": "message", "role": "assistant", "content": "plain"},
        ]
    ),
]
TEXT_KEYS = {"refusal": "refusal", "function_call_arguments": "arguments"}
TEXT_KEYS["custom_tool_call_input"] = "input"


@pytest.mark.parametrize("answer", MADE)
def test_responses_events_build_up_the_response(answer):
    """Items and parts begin empty, their deltas make up their text, and the last event has all."""
    events = payloads(events_of(answer, "responses"))
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    created, in_progress, *middle, last = events
    assert (created["type"], in_progress["type"]) == ("response.created", "response.in_progress")
    started = created["response"]
    assert started == in_progress["response"]
    assert (started["status"], started["output"], started["usage"]) == ("in_progress", [], None)
    response = msgspec.json.decode(body_of("responses", answer))
    assert last["response"] == response
    assert last["type"] == f"response.{response['status']}"
    for index, item in enumerate(response["output"]):
        added, *inner, done = [event for event in middle if event["output_index"] == index]
        assert (added["type"], done["type"]) == (
            "response.output_item.added",
            "response.output_item.done",
        )
        assert done["item"] == item
        empty = [added["item"].get(key) for key in ("content", "summary", "arguments", "input")]
        assert not any(empty)
        assert added["item"].get("status", "in_progress") == "in_progress"
        assert all(event["item_id"] == item.get("id", "") for event in inner)
        joined, logprobs = "", []
        for event in inner:
            name, _, step = event["type"].removeprefix("response.").rpartition(".")
            if name in ("content_part", "reasoning_summary_part"):
                key = "summary" if name == "reasoning_summary_part" else "content"
                number = event["summary_index" if key == "summary" else "content_index"]
                part = item[key][number]
                text_key = TEXT_KEYS.get(part["type"], "text")
                assert event["part"] == (part if step == "done" else event["part"])
                assert event["part"][text_key] == (part[text_key] if step == "done" else "")
                joined, logprobs = "", []
            elif step == "delta":
                joined += event["delta"]
                logprobs += event.get("logprobs", [])
            else:
                assert event[TEXT_KEYS.get(name, "text")] == joined
                assert event.get("logprobs", []) == logprobs
    assert not [event for event in middle if event["output_index"] >= len(response["output"])]


@pytest.mark.parametrize(
    ("word", "status", "reason"),
    [
        ("", "completed", None),
        ("stop", "completed", None),
        ("end_turn", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("abort", "incomplete", "abort"),
        ("failed", "failed", None),
    ],
)
def test_finish_reason_decides_the_status_of_a_response(word, status, reason):
    body = msgspec.json.decode(body_of("responses", MockAnswer(text="x", finish_reason=word)))
    assert body["status"] == status
    assert body["incomplete_details"] == (reason and {"reason": reason})
    assert (body["error"] is None) == (status != "failed")
    assert body["output"][0]["status"] == ("completed" if status == "completed" else "incomplete")


def test_response_repeats_the_settings_of_its_request():
    tools = [{"type": "function", "name": "add", "parameters": {}, "strict": True}]
    about = request_in("responses", tools=tools, temperature=None, top_p=0.5)
    [payload] = render_answers([MockAnswer(text="x")], about).pieces
    body = msgspec.json.decode(payload)
    assert (body["tools"], body["temperature"], body["top_p"]) == (tools, 1.0, 0.5)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", True)


@pytest.mark.parametrize("dialect", PATHS)
def test_usage_can_be_left_out(dialect):
    answer = MockAnswer(text="x", has_usage=False)
    assert not msgspec.json.decode(body_of(dialect, answer)).get("usage")
    assert streamed(dialect, answer).usage == Usage()
    # Zeros are sent.
    body = msgspec.json.decode(body_of(dialect, MockAnswer(text="x", usage=Usage())))
    assert body["usage"]["total_tokens"] == 0


def test_only_the_last_chunk_counts_tokens():
    chunks = payloads(events_of(MockAnswer(text="x" * 20)))
    *others, last = [(chunk["choices"] != [], chunk["usage"]) for chunk in chunks]
    assert others == [(True, None)] * len(others)
    assert (last[0], last[1]["completion_tokens"]) == (False, 6)


def test_chunks_have_the_logprobs_of_their_tokens():
    asked = {"logprobs": True}
    answer = with_logprobs(MockAnswer(text="x" * 30, reasoning="hm"), asked)
    chunks = payloads(events_of(answer, stream=True))
    pieces = []
    for [choice] in (chunk["choices"] for chunk in chunks):
        shown = (choice["logprobs"] or {}).get("content", [])
        assert "".join(entry["token"] for entry in shown) == (choice["delta"].get("content") or "")
        pieces += [entry["token"] for entry in shown]
    assert "".join(pieces) == "x" * 30
    # Tokens that are not those of the text are not lost.
    assert streamed("chat", MockAnswer(text="5", logprobs=LOGPROBS)).message.logprobs == LOGPROBS
    assert streamed("chat", MockAnswer(logprobs=LOGPROBS)).message.logprobs == LOGPROBS


CHOICES = [
    MockAnswer(text="a text of more than one piece, to be streamed", usage=Usage(prompt_tokens=9)),
    MockAnswer(tool_calls=[("add", {"a": 1})], usage=Usage(prompt_tokens=9, completion_tokens=7)),
    MockAnswer(text="cut", finish_reason="length", reasoning="hm"),
]


def test_chat_body_has_a_choice_for_each_answer():
    [payload] = render_answers(CHOICES, request_in("chat", n=3)).pieces
    body = msgspec.json.decode(payload)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    for choice, answer in zip(body["choices"], CHOICES, strict=True):
        [alone] = msgspec.json.decode(body_of("chat", answer))["choices"]
        assert choice == {**alone, "index": choice["index"]}
    assert body["usage"]["prompt_tokens"] == 9
    assert body["usage"]["completion_tokens"] == 0 + 7 + 2


def test_chunks_of_choices_alternate():
    chunks = payloads([*render_answers(CHOICES, request_in("chat", n=3, **WITH_USAGE)).pieces])
    assert all(len(chunk["choices"]) == 1 for chunk in chunks[:-1])
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["index"] for choice in choices[:6]] == [0, 1, 2, 0, 1, 2]
    for index, answer in enumerate(CHOICES):
        alone = [c for chunk in payloads(events_of(answer)) for c in chunk["choices"]]
        expected = [{**choice, "index": index} for choice in alone]
        assert [choice for choice in choices if choice["index"] == index] == expected
    assert chunks[-1]["usage"]["completion_tokens"] == 9


@pytest.mark.parametrize("wanted", [0, -1, 129, True, "2", 1.5])
def test_a_number_of_choices_that_is_none(wanted):
    with pytest.raises(ValueError, match='"n" must be a whole number from 1 to 128'):
        request_in("chat", n=wanted)


def test_responses_have_one_answer():
    assert request_in("responses", n=3).num_choices == 1
    assert request_in("chat", n=None).num_choices == 1


def test_chat_events_of_a_long_text_are_not_too_many():
    assert 1000 < len(events_of(MockAnswer(text="x" * 100_000))) < 1100


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_scalar_body_holds_the_number_of_the_text(dialect, number):
    body = body_of(dialect, MockAnswer(text=f" {number} "))
    answer = DIALECTS[dialect].answer(decode(body))
    assert float(answer.message.text) == number
    assert answer.model == "model"
    assert answer.usage == Usage(prompt_tokens=11)


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
@pytest.mark.parametrize("text", [None, "", "good", "nan"])
def test_scalar_body_of_a_text_that_is_no_number(dialect, text):
    body = body_of(dialect, MockAnswer(text=text))
    with pytest.raises(InvalidAnswerError):
        DIALECTS[dialect].answer(decode(body))


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
    answer = DIALECTS[dialect].answer(decode(msgspec.json.encode(payload)))
    assert status == 200
    tokens = [entry["token"] for entry in answer.message.logprobs["content"]]
    assert tokens == ["hell", "o"]
