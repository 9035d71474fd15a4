"""Reward models: the bodies that are sent, and the numbers that are read."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import InvalidAnswerError
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import SCALAR_DIALECTS
from gymcli.types import FunctionCall, Message, Request, ToolCall, Usage

ASKED = Message(role="user", content="What is 2 + 2?")
SAID = Message(role="assistant", content="4", reasoning="two and two")
NUMBERS = {
    "score": lambda value: {"score": value},
    "pooling": lambda value: {"data": [[0.5], [value]]},
    "classify": lambda value: {"label": "LABEL_0", "probs": [value], "num_classes": 1},
}


def body_of(dialect, *messages, **params):
    return DIALECTS[dialect].body(Request(messages=list(messages), params=params), "m")


def read(dialect, item, **fields):
    return DIALECTS[dialect].answer(decode(json.dumps({"data": [item], **fields}).encode()))


def test_scalar_dialects_are_the_ones_that_the_client_knows():
    assert {name: DIALECTS[name].path for name in SCALAR_DIALECTS} == {
        "score": "/score",
        "pooling": "/pooling",
        "classify": "/classify",
    }


@pytest.mark.parametrize("dialect", ["pooling", "classify"])
def test_body_holds_the_conversation(dialect):
    """Reasoning is not sent, as in Chat Completions."""
    wire = json.loads(msgspec.json.encode(body_of(dialect, ASKED, SAID)))
    assert wire == {
        "model": "m",
        "messages": [
            {"role": "user", "content": "What is 2 + 2?"},
            {"role": "assistant", "content": "4"},
        ],
    }


def test_body_sends_reasoning_where_it_is_wanted():
    request = Request(messages=[ASKED, SAID])
    body = DIALECTS["pooling"].body(request, "m", send_reasoning="reasoning_content")
    assert body["messages"][1]["reasoning_content"] == "two and two"


def test_body_of_score_is_a_question_and_its_answer():
    assert body_of("score", ASKED, SAID) == {
        "model": "m",
        "text_1": "What is 2 + 2?",
        "text_2": "4",
    }


def test_body_of_score_writes_a_longer_conversation_with_its_roles():
    call = ToolCall("call_0", FunctionCall("add", '{"a": 2}'))
    messages = [
        Message(role="system", content="Be short."),
        Message(role="user", content=[{"type": "text", "text": "What is 2 + 2?"}]),
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", tool_call_id="call_0", content="4"),
        SAID,
    ]
    body = body_of("score", *messages)
    assert body["text_1"] == (
        'system: Be short.\n\nuser: What is 2 + 2?\n\nassistant: add({"a": 2})\n\ntool: 4'
    )
    assert body["text_2"] == "4"


@pytest.mark.parametrize(("messages", "answer"), [([], ""), ([ASKED], "What is 2 + 2?")])
def test_body_of_score_without_a_question(messages, answer):
    body = body_of("score", *messages)
    assert (body["text_1"], body["text_2"]) == ("", answer)


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
def test_body_leaves_out_sampling_tools_and_streams(dialect):
    """Nothing is sampled, called or streamed; parameters that are left out are reported."""
    params = {
        "temperature": 0.5,
        "truncate_prompt_tokens": 512,
        "use_activation": False,
        "user": None,
        "response_format": {"type": "json_object"},
        "extra_body": {"dimensions": 1, "messages": [], "model": "other"},
    }
    request = Request(messages=[ASKED, SAID], tools=[{"type": "function"}], params=params)
    body = DIALECTS[dialect].body(request, "m", stream=True)
    added = {"truncate_prompt_tokens": 512, "use_activation": False, "dimensions": 1}
    assert body == {**DIALECTS[dialect].body(Request(messages=[ASKED, SAID]), "m"), **added}
    assert DIALECTS[dialect].unsent(params) == [
        "temperature",
        "response_format",
        "extra_body.messages",
        "extra_body.model",
    ]


@pytest.mark.parametrize(("dialect", "is_unsent"), [("score", True), ("pooling", False)])
def test_unsent_names_parameters_of_a_chat_template_where_there_is_none(dialect, is_unsent):
    params = {"add_generation_prompt": False}
    assert bool(DIALECTS[dialect].unsent(params)) == is_unsent
    assert ("add_generation_prompt" in body_of(dialect, ASKED, **params)) != is_unsent


def test_unsent_names_what_would_replace_the_conversation():
    params = {"extra_body": {"text_1": "x", "priority": 1}}
    assert DIALECTS["score"].unsent(params) == ["extra_body.text_1"]
    body = body_of("score", ASKED, SAID, **params)
    assert (body["text_1"], body["priority"]) == ("What is 2 + 2?", 1)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_answer_is_the_number_as_it_came(number):
    for dialect, item in NUMBERS.items():
        assert float(read(dialect, item(number)).message.text) == number


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
def test_answer_reads_everything(dialect):
    usage = {
        "prompt_tokens": 9,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    answer = read(dialect, NUMBERS[dialect](-3), model="m-1", usage=usage)
    assert answer.message == Message(role="assistant", content="-3.0")
    assert answer.usage == Usage(prompt_tokens=9, cached_tokens=8)
    assert (answer.model, answer.finish_reason) == ("m-1", "stop")


@pytest.mark.parametrize(
    ("dialect", "item", "text"),
    [
        pytest.param("pooling", {"data": [1.5]}, "1.5", id="one value"),
        pytest.param("pooling", {"data": [0.25, 1.5]}, "1.5", id="one value for each token"),
        pytest.param("pooling", {"data": [[1.0], [2.0], [-0.5]]}, "-0.5", id="a row for each"),
        pytest.param("pooling", {"data": [[0.9, 0.1], [0.2, 0.8]]}, "0.8", id="bad and good"),
        pytest.param("pooling", {"data": 2.5}, "2.5", id="no list"),
        pytest.param("classify", {"probs": [0.3]}, "0.3", id="one class"),
        pytest.param("classify", {"probs": [0.3, 0.7]}, "0.7", id="the last class"),
    ],
)
def test_answer_takes_the_number_of_the_whole_conversation(dialect, item, text):
    assert read(dialect, item).message.text == text


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
@pytest.mark.parametrize(
    "number", [None, math.nan, math.inf, "0.5", True, 10**400], ids=lambda number: str(number)[:9]
)
def test_answer_refuses_what_is_no_finite_number(dialect, number):
    with pytest.raises(InvalidAnswerError, match="not a finite number"):
        read(dialect, NUMBERS[dialect](number))


@pytest.mark.parametrize(
    ("dialect", "item", "words"),
    [
        ("score", {}, 'the "score" of the answer is not a finite number'),
        ("pooling", {}, "the last pooled value of the answer is not a finite number"),
        ("pooling", {"data": []}, "not a finite number"),
        ("pooling", {"data": [[]]}, "not a finite number"),
        ("pooling", {"data": "AACAPw=="}, "not a finite number"),
        (
            "pooling",
            {"data": [[0.0] * 64]},
            "64 numbers per token, which are hidden states and not rewards",
        ),
        ("classify", {"probs": []}, 'the last of "probs" of the answer is not a finite number'),
    ],
)
def test_answer_refuses_an_item_without_a_reward(dialect, item, words):
    with pytest.raises(InvalidAnswerError, match=words):
        read(dialect, item)


@pytest.mark.parametrize("body", [{}, {"data": []}, {"data": [3]}, {"data": None}])
def test_answer_refuses_a_body_without_data(body):
    with pytest.raises(InvalidAnswerError, match='the body has no "data"'):
        DIALECTS["score"].answer(decode(json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "it broke", "code": "context_length_exceeded"}}, None),
        ({"object": "error", "message": "it broke", "code": 500}, 500),
    ],
)
def test_answer_raises_the_error_in_a_body(body, status):
    with pytest.raises(InvalidAnswerError, match="it broke") as raised:
        DIALECTS["classify"].answer(decode(json.dumps(body).encode()))
    assert raised.value.status == status


def test_assemble_refuses_a_stream():
    with pytest.raises(InvalidAnswerError, match="/pooling answered with a stream"):
        DIALECTS["pooling"].assemble([b"{}"])
