"""A plain body is read to the same answer as one that may be anything."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.models.chat import Chat, answer_of, plain_answer

odd = st.sampled_from([None, "", "x", 0, 3, -1, 1.0, 2.5, True, [], {}, ["x"], {"x": 1}])
texts = st.text(max_size=4) | st.sampled_from(["<think>a</think>b", "a</think>b", "", "7"])
functions = st.fixed_dictionaries({"name": texts | odd, "arguments": texts | odd})
calls = st.fixed_dictionaries(
    {"function": functions | odd},
    optional={
        "id": texts | odd,
        "type": st.sampled_from(["function", "custom", None]),
        "index": odd,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "role": odd,
        "content": texts | odd,
        "refusal": texts | odd,
        "reasoning": texts | odd,
        "reasoning_content": texts | odd,
        "tool_calls": st.lists(calls, max_size=2) | odd,
        "function_call": st.none() | functions,
    },
)
reasons = st.sampled_from(
    ["stop", "tool_calls", "function_call", "length", "content_filter", "max_tokens", "other"]
)
choices = st.fixed_dictionaries(
    {"message": messages | odd},
    optional={"finish_reason": reasons | odd, "logprobs": odd, "error": st.none() | odd},
)
usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": odd,
        "completion_tokens": odd,
        "prompt_tokens_details": st.fixed_dictionaries({}, optional={"cached_tokens": odd}) | odd,
        "completion_tokens_details": odd,
    },
)
bodies = st.fixed_dictionaries(
    {"choices": st.lists(choices, max_size=2) | odd},
    optional={"usage": usages | odd, "model": texts | odd, "error": odd, "id": odd},
)


@settings(max_examples=400, deadline=None)
@given(bodies)
def test_plain_answer_is_the_one_that_is_read_from_anything(body):
    plain = plain_answer(msgspec.json.encode(body))
    assert plain is None or plain == answer_of(body)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "7", "refusal": None},
        {"content": None, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]},
        {"content": "7", "reasoning_content": "hm", "tool_calls": []},
    ],
)
def test_plain_answer_reads_usual_bodies(message):
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    payload = msgspec.json.encode({"choices": [choice], "usage": {"prompt_tokens": 3}})
    plain = plain_answer(payload)
    assert plain is not None
    assert plain == Chat().answer(payload) == answer_of(msgspec.json.decode(payload))
    assert plain.usage.prompt_tokens == 3


@pytest.mark.parametrize("payload", [b"", b"[", b'"\xff"', b'{"choices": []}', b"[" * 10_000])
def test_plain_answer_leaves_the_rest(payload):
    assert plain_answer(payload) is None
