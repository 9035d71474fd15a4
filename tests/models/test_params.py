"""Request parameters under Chat Completions names and under Responses names."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.nemo_gym.responses_items import (
    IGNORED_PARAMS,
    params_from_responses,
    params_to_responses,
)
from gymcli.types import JSON, JSONObject

SCHEMA: JSONObject = {"type": "object", "properties": {"a": {"type": "integer"}}}
LOGPROBS = "message.output_text.logprobs"


def test_params_from_responses_leaves_out_input_tools_and_nulls() -> None:
    create: JSONObject = {"input": "x", "tools": [], "temperature": None, "top_p": 0.5}
    assert params_from_responses(create) == {"top_p": 0.5}
    assert create["tools"] == []


@pytest.mark.parametrize(
    ("create", "params"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        (
            {"reasoning": {"effort": "low", "summary": "auto"}},
            {"reasoning_effort": "low", "reasoning_summary": "auto"},
        ),
        (
            {"reasoning": {"effort": "low", "generate_summary": None}},
            {"reasoning_effort": "low", "reasoning": {"generate_summary": None}},
        ),
        ({"reasoning": {}}, {"reasoning": {}}),
        ({"reasoning": {"effort": None}}, {"reasoning": {"effort": None}}),
        ({"reasoning": "odd"}, {"reasoning": "odd"}),
        (
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
            {"response_format": {"type": "json_object"}, "verbosity": "low"},
        ),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
                }
            },
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
        ),
        ({"text": {"format": "odd"}}, {"response_format": "odd"}),
        ({"include": [LOGPROBS], "top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["a", LOGPROBS]}, {"include": ["a"], "logprobs": True}),
        ({"include": [LOGPROBS, "a"]}, {"include": [LOGPROBS, "a"], "logprobs": True}),
        ({"include": [LOGPROBS, LOGPROBS]}, {"include": [LOGPROBS, LOGPROBS], "logprobs": True}),
        ({"include": []}, {"include": []}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"metadata": {"a": "b"}, "prompt": {"id": "p"}},
            {"metadata": {"a": "b"}, "prompt": {"id": "p"}},
        ),
    ],
)
def test_params_round_trip(create: JSONObject, params: JSONObject) -> None:
    assert params_from_responses(create) == params
    assert params_to_responses(params) == create


@pytest.mark.parametrize(
    ("params", "body"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 2}, {"max_output_tokens": 2}),
        ({"seed": 1, "stop": "x", "n": 2, "logit_bias": {}, "top_k": 3}, {"top_k": 3}),
        ({"temperature": None, "logprobs": False}, {}),
        ({"logprobs": True}, {"include": [LOGPROBS]}),
        (
            {"extra_body": {"seed": 1, "temperature": 0}, "temperature": 1},
            {"seed": 1, "temperature": 0},
        ),
        ({"extra_body": "odd"}, {}),
        (
            {"reasoning_effort": "low", "reasoning": {"max": 3}},
            {"reasoning": {"effort": "low", "max": 3}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {}},
                }
            },
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        ),
    ],
)
def test_params_to_responses(params: JSONObject, body: JSONObject) -> None:
    assert params_to_responses(params) == body


@pytest.mark.parametrize("choice", ["auto", "none", 3, {"type": "web_search"}])
def test_params_leave_other_tool_choices_alone(choice: JSON) -> None:
    assert params_from_responses({"tool_choice": choice}) == {"tool_choice": choice}
    assert params_to_responses({"tool_choice": choice}) == {"tool_choice": choice}


def test_ignored_params_are_left_to_the_caller() -> None:
    create: JSONObject = {"model": "m", "store": True}
    assert set(create) <= set(IGNORED_PARAMS)
    assert params_from_responses(create) == create


words = st.text("abcdef", min_size=1, max_size=6)
objects = st.dictionaries(words, st.none() | st.booleans() | words | st.lists(words), max_size=3)
formats = st.one_of(
    st.just({"type": "text"}),
    st.just({"type": "json_object"}),
    st.builds(
        lambda more: {**more, "type": "json_schema", "name": "n", "schema": {"type": "object"}},
        st.sampled_from([{}, {"strict": True}, {"strict": None, "description": "d"}]),
    ),
)
named_tools = st.builds(lambda name: {"type": "function", "name": name}, words)
tool_choices = st.one_of(
    st.sampled_from(["auto", "none", "required"]),
    named_tools,
    st.just({"type": "mcp", "server_label": "l", "name": "n"}),
    st.builds(
        lambda tools: {"type": "allowed_tools", "mode": "auto", "tools": tools},
        st.lists(named_tools | st.just({"type": "web_search"}), max_size=2),
    ),
)
includes = st.lists(
    st.sampled_from(["message.output_text.logprobs", "reasoning.encrypted_content", "x"]),
    max_size=3,
)
create_params = st.fixed_dictionaries(
    {},
    optional={
        "include": includes,
        "instructions": words,
        "max_output_tokens": st.integers(1, 9),
        "max_tool_calls": st.integers(1, 9),
        "metadata": st.dictionaries(words, words, max_size=2),
        "parallel_tool_calls": st.booleans(),
        "prompt": st.builds(lambda more: {**more, "id": "p"}, objects),
        "reasoning": st.fixed_dictionaries(
            {},
            optional={
                "effort": st.none() | words,
                "summary": st.none() | words,
                "generate_summary": st.none() | words,
            },
        ),
        "service_tier": words,
        "temperature": st.floats(0, 2),
        "text": st.fixed_dictionaries(
            {}, optional={"format": st.none() | formats, "verbosity": st.none() | words}
        ),
        "tool_choice": tool_choices,
        "top_logprobs": st.integers(0, 5),
        "top_p": st.floats(0, 1),
        "truncation": st.sampled_from(["auto", "disabled"]),
        "user": words,
    },
)


@given(create_params)
@settings(max_examples=60, deadline=None)
def test_params_survive_chat_names(given_params: JSONObject) -> None:
    before = json.dumps(given_params)
    params = params_from_responses(given_params)
    assert params_to_responses(params) == given_params
    assert json.dumps(given_params) == before
    assert not params.keys() & set(IGNORED_PARAMS)
