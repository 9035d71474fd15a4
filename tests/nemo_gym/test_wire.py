"""Tests of the rows, responses and verdicts exchanged with an environment server of NeMo Gym."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import VerifierError
from gymcli.nemo_gym.wire import (
    MAX_DETAILS,
    check_verdict,
    response_of,
    row_of,
    score_of,
    verdict_fields,
)
from gymcli.types import Message, Rollout, Usage
from tests.environment.remote_server import complaint
from tests.envs.episodes import calls, row_of_file, says

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
LINES = [
    {"responses_create_params": {"input": [{"role": "user", "content": "Hello."}]}, "answer": 4},
    {
        "responses_create_params": {
            "input": [
                {"role": "developer", "content": "Use the tool.", "type": "message"},
                {"role": "user", "content": [{"type": "input_text", "text": "Rain in Oslo?"}]},
                {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "rain"},
                {"role": "user", "content": "And in Rome?"},
            ],
            "tools": [
                {
                    "type": "function",
                    "name": "weather",
                    "description": "",
                    "parameters": SCHEMA,
                    "strict": True,
                },
                {"type": "web_search"},
            ],
            "parallel_tool_calls": False,
            "tool_choice": {"type": "function", "name": "weather"},
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "text"}},
            "max_output_tokens": 64,
            "temperature": 0.5,
            "metadata": {"chat_template_kwargs": "{}"},
        },
        "verifier_metadata": {"expected": "rain"},
        "difficulty": "easy",
    },
]


def record(row, *responses, **fields):
    """Return the record of a row with an answer of the model."""
    return Rollout(
        task_id=row.id,
        attempt=0,
        task=row.fields,
        messages=[*row.messages, *responses],
        num_prompt_messages=len(row.messages),
        tools=row.tools or [],
        sampling=row.params,
        **{"model": "m", **fields},
    )


@pytest.mark.parametrize("line", LINES)
def test_row_of_gives_what_the_file_had(tmp_path, line):
    row = row_of_file(tmp_path, "remote", line)
    assert row_of(record(row)) == line
    assert complaint(row_of(record(row))) == ""


def test_row_of_leaves_out_what_the_server_would_refuse(tmp_path):
    """These are parameters of chat endpoints and nulls, from the row or the command line."""
    params = {"seed": 1, "top_k": 5, "extra_body": {"min_p": 0.1}, "top_p": 1, "user": None}
    row = row_of_file(tmp_path, "remote", {**LINES[0], "params": params})
    assert row_of(record(row)) == {
        "answer": 4,
        "responses_create_params": {
            "input": [{"role": "user", "content": "Hello."}],
            "top_p": 1,
        },
    }


def test_row_of_a_chat_row_has_complete_tools(tmp_path):
    """Tools in chat format may lack what NeMo Gym's schema requires."""
    tools = [{"type": "function", "function": {"name": "look"}}]
    line = {"messages": [{"role": "user", "content": "Look."}], "tools": tools}
    row = row_of(record(row_of_file(tmp_path, "remote", line)))
    assert complaint(row) == ""
    assert row == {
        "responses_create_params": {
            "input": [{"role": "user", "content": "Look."}],
            "tools": [{"type": "function", "name": "look", "parameters": None, "strict": None}],
        },
    }


def test_response_of_has_every_item_after_the_prompt(tmp_path):
    row = row_of_file(tmp_path, "remote", LINES[1])
    asking = calls(("weather", '{"city": "Rome"}'))
    asking.reasoning = "It is far away."
    result = Message(role="tool", tool_call_id="call_0", content="sun")
    rollout = record(row, asking, result, says("Sun."), response_model="m-2026")
    usage = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2, reasoning_tokens=1)
    response = response_of(rollout, row_of(rollout), rollout.responses, usage)
    assert response["output"] == [
        {
            "type": "reasoning",
            "id": "rs_0",
            "summary": [{"type": "summary_text", "text": "It is far away."}],
        },
        {
            "type": "function_call",
            "call_id": "call_0",
            "name": "weather",
            "arguments": '{"city": "Rome"}',
        },
        {"type": "function_call_output", "call_id": "call_0", "output": "sun"},
        {
            "type": "message",
            "id": "msg_3",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Sun.", "annotations": []}],
        },
    ]
    assert response["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 10,
    }
    assert response["model"] == "m-2026"
    assert response["parallel_tool_calls"] is False
    assert response["tool_choice"] == {"type": "function", "name": "weather"}
    assert [tool["type"] for tool in response["tools"]] == ["function", "web_search"]
    assert "incomplete_details" not in response


@pytest.mark.parametrize(
    ("stop_reason", "told"),
    [
        ("length", "max_output_tokens"),
        ("context_overflow", "max_output_tokens"),
        ("content_filter", "content_filter"),
    ],
)
def test_response_of_an_incomplete_episode_says_so(tmp_path, stop_reason, told):
    row = row_of_file(tmp_path, "remote", LINES[0])
    rollout = record(row, says("On and"), stop_reason=stop_reason)
    response = response_of(rollout, row_of(rollout), rollout.responses)
    assert response["incomplete_details"] == {"reason": told}


def test_response_of_keeps_items_as_the_endpoint_wrote_them(tmp_path):
    """Items without a chat equivalent stay unchanged; null content becomes an empty text."""
    items = [
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "message", "id": "m", "role": "assistant", "content": None},
        {
            "type": "message",
            "id": "n",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
    ]
    row = row_of_file(tmp_path, "remote", LINES[0])
    rollout = record(row, Message(role="assistant", response_items=items))
    first, second, third = response_of(rollout, row_of(rollout), rollout.responses)["output"]
    assert (first, third) == (items[0], {**items[2], "status": "completed"})
    assert second["content"] == [{"type": "output_text", "text": "", "annotations": []}]


TEXTS = st.text(max_size=20)
MESSAGES = st.lists(
    st.one_of(
        st.builds(says, TEXTS),
        st.builds(lambda name, text: calls((name, text)), TEXTS, TEXTS),
        st.builds(
            lambda text: Message(role="tool", tool_call_id="call_0", content=text),
            TEXTS,
        ),
        st.builds(lambda text: Message(role="user", content=text), TEXTS),
        st.builds(lambda text: Message(role="assistant", reasoning=text, refusal=text), TEXTS),
    ),
    max_size=6,
)


@given(messages=MESSAGES)
def test_response_of_any_conversation_is_accepted(messages):
    """The servers' schema accepts any conversation, before and after a round trip to disk."""
    rollout = Rollout(task={"id": 1}, messages=messages, num_prompt_messages=0, model="m")
    row = row_of(rollout)
    payload = {**row, "response": response_of(rollout, row, messages, rollout.usage)}
    assert complaint(payload) == ""
    read = msgspec.json.decode(msgspec.json.encode(rollout), type=Rollout)
    again = row_of(read)
    assert {**again, "response": response_of(read, again, read.responses, read.usage)} == payload


def test_verdict_fields_leaves_out_the_echo():
    row = {"id": 1, "expected": 5, "reward": 1.0, "changed": 1}
    answer = {
        **row,
        "responses_create_params": {"input": []},
        "response": {"id": "r"},
        "reward": 1.0,
        "changed": 2,
        "extracted_answer": None,
        "judge": None,
    }
    assert verdict_fields(answer, row) == {"reward": 1.0, "changed": 2, "extracted_answer": None}


def test_score_of_sorts_what_the_server_said():
    score = score_of(
        {
            "reward": 2,
            "reward_components": {"format": 1.0, "correct": True, "note": "x"},
            "format": 1.0,
            "library_reward": 0.5,
            "is_equal": False,
            "extracted_answer": "7",
            "reason": "equal",
            "judge": {"label": "A=B"},
            "mask_sample": False,
        }
    )
    assert score.reward == 2.0
    assert score.components == {"format": 1.0, "correct": 1.0}
    assert score.metrics == {"library_reward": 0.5, "is_equal": 0.0}
    assert score.answer == "7"
    assert score.details == {"reason": "equal", "judge": {"label": "A=B"}}


def test_score_of_an_answer_that_is_no_text():
    score = score_of({"reward": 1.0, "extracted_answer": [1, 2], "reward_components": 3})
    assert score.answer is None
    assert score.details == {"extracted_answer": [1, 2]}
    assert score.components == {}


def test_score_of_long_details_names_what_it_leaves_out():
    score = score_of({"reward": 0.0, "a": "x" * MAX_DETAILS, "b": "short"})
    assert score.details == {"b": "short", "left_out": ["a"]}


@given(texts=st.dictionaries(st.text(max_size=5), st.text(max_size=6000), max_size=6))
def test_score_of_has_details_of_a_bounded_size(texts):
    details = score_of({**{f"_{name}": text for name, text in texts.items()}, "reward": 1}).details
    assert sum(len(msgspec.json.encode(v)) for v in details.values()) <= MAX_DETAILS + 100


def test_check_verdict_names_the_judge_that_failed():
    answer = {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "x\ny"}
    with pytest.raises(VerifierError, match=r"^POST /verify: .*judge_failed \(x y\)$"):
        check_verdict(answer, "POST /verify")


def test_check_verdict_takes_a_number():
    check_verdict({"reward": 0, "mask_sample": False, "failure_kind": "slow"}, "POST /verify")
