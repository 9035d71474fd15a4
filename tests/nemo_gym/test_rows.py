"""Tests of reading NeMo Gym's rows and rollouts."""

import pytest

from gymcli.nemo_gym.rows import (
    Prompt,
    agent_name,
    is_nemo_rollout,
    own_task_id,
    read_prompt,
    read_rollout,
)
from gymcli.types import FunctionCall, Message, ToolCall, Usage, digest

PROMPT = {"input": "Go."}


def said(text):
    return {"role": "assistant", "content": text}


def result(text):
    return {"type": "function_call_output", "call_id": "c", "output": text}


CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}


def line(*output, response=None, **fields):
    whole = {"output": list(output), **(response or {})}
    return {"responses_create_params": PROMPT, "response": whole, **fields}


def read(*output, **fields):
    return read_rollout(line(*output, **fields), env="quiz")


def test_read_prompt_gives_messages_tools_and_parameters():
    prompt = read_prompt(
        {
            "input": [{"role": "developer", "content": "Be kind."}, said("Yes?")],
            "tools": [{"type": "function", "name": "look", "parameters": {}}],
            "temperature": 0.5,
            "max_output_tokens": None,
            "stream": False,
            "model": None,
        }
    )
    assert [(m.role, m.text) for m in prompt.messages] == [
        ("developer", "Be kind."),
        ("assistant", "Yes?"),
    ]
    function = {"name": "look", "parameters": {}}
    assert prompt.tools == [{"type": "function", "function": function}]
    assert prompt.params == {"temperature": 0.5}
    assert prompt.ignored == ["stream"]


@pytest.mark.parametrize("create", [{}, {"input": None}, {"input": []}, {"input": ""}])
def test_read_prompt_without_input_gives_no_messages(create):
    assert read_prompt(create) == Prompt([], None, {}, [])


def test_agent_name():
    assert agent_name({"type": "x", "name": "quiz"}) == "quiz"
    for wrong in ("quiz", [], {"name": 3}):
        with pytest.raises(ValueError, match='"agent_ref" must be an object with the text "name"'):
            agent_name(wrong)


def test_is_nemo_rollout_tells_them_from_rows_and_from_ours():
    assert is_nemo_rollout({"response": {}})
    assert not is_nemo_rollout({"responses_create_params": {}})
    assert not is_nemo_rollout({"response": {}, "messages": []})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"task_id": "t", "id": 1}, "t"),
        ({"task_id": None, "id": 0, "uuid": "u"}, "0"),
        ({"id": False, "uuid": "u"}, "u"),
        ({"id": ""}, None),
        ({}, None),
    ],
)
def test_own_task_id_is_the_first_that_names_the_row(row, expected):
    assert own_task_id(row) == expected


def test_read_rollout_gives_the_conversation():
    rollout = read(
        CALL,
        result("rain"),
        said("Take a coat."),
        response={"model": "m", "usage": {"input_tokens": 7, "output_tokens": 2}},
        reward=1,
        city="Oslo",
        agent_ref={"name": "agent"},
        _ng_rollout_index=1,
        _ng_task_index=4,
        ng_trajectory={"turns": []},
    )
    call = ToolCall(id="c", function=FunctionCall("look", "{}"))
    assert rollout.messages == [
        Message(role="user", content="Go."),
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", tool_call_id="c", content="rain"),
        Message(role="assistant", content="Take a coat."),
    ]
    assert rollout.num_prompt_messages == 1
    assert (rollout.task_id, rollout.attempt, rollout.reward) == ("4", 1, 1.0)
    assert rollout.usage == Usage(prompt_tokens=7, completion_tokens=2)
    assert (rollout.model, rollout.task, rollout.env) == ("m", {"city": "Oslo"}, "quiz")
    assert (rollout.schema_version, rollout.env_version, rollout.seed) == (1, "", 0)
    assert rollout.task_hash == digest({"responses_create_params": PROMPT, "city": "Oslo"})


def test_read_rollout_joins_the_fields_of_its_row_which_go_first():
    rollout = read_rollout(
        line(said("B"), answer="A", other=1, _ng_task_index=4),
        env="quiz",
        row_fields={"id": "x", "answer": "B"},
    )
    assert rollout.task == {"answer": "B", "other": 1, "id": "x"}
    assert rollout.task_id == "x"


def test_read_rollout_without_id_and_index_is_named_by_its_content():
    for number in ("2", -1, True, None):
        rollout = read(said("B"), answer="A", _ng_task_index=-1, _ng_rollout_index=number)
        assert rollout.task_id == digest({"responses_create_params": PROMPT, "answer": "A"})
        assert (rollout.attempt, type(rollout.attempt)) == (0, int)


def opening(text):
    return {"type": "message", "role": "user", "content": text}


@pytest.mark.parametrize("own", [[], [opening("Go.")]])
def test_read_rollout_takes_the_last_transition_as_the_conversation(own):
    """The agent of aviary repeats the prompt in each, with the world's opening messages."""
    before = [*own, opening("Look."), CALL, result("rain")]
    row = {"responses_create_params": {"input": own}, "reward": 1.0}
    rollout = read_rollout(line(before, [*before, said("Wet.")], **row), env="quiz")
    roles = [message.role for message in rollout.messages]
    assert roles == ["user"] * (len(own) + 1) + ["assistant", "tool", "assistant"]
    assert rollout.num_prompt_messages == len(own) + 1
    assert [message.text for message in rollout.responses] == ["", "rain", "Wet."]
    assert (rollout.stop_reason, rollout.reward) == ("done", 1.0)
    silent = read_rollout(line([*own, opening("Look.")], **row), env="quiz")
    assert (len(silent.messages), silent.responses) == (len(own) + 1, [])


@pytest.mark.parametrize(
    ("output", "response", "stop_reason"),
    [
        ([said("B")], {}, "done"),
        ([], {}, "done"),
        ([CALL, result("x")], {}, "max_turns"),
        ([said("B")], {"incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ([said("B")], {"incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ([said("B")], {"incomplete_details": None}, "done"),
    ],
)
def test_read_rollout_says_why_it_ended(output, response, stop_reason):
    assert read(*output, response=response).stop_reason == stop_reason


def test_read_rollout_takes_a_line_that_lacks_what_it_can():
    rollout = read_rollout({"response": {"output": [], "model": 3, "usage": []}}, env="quiz")
    assert (rollout.messages, rollout.model, rollout.reward) == ([], "", None)
    assert rollout.usage == Usage()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"response": None}, '"response" must be an object with the list "output"'),
        ({"response": {"output": "text"}}, '"response" must be an object with the list "output"'),
        ({"response": {"output": [[], "x"]}}, '"response.output": item 0 is not an object'),
        ({"response": {"output": [[{}]]}}, '"response.output": item 0 has neither "type" nor'),
        ({"response": {"output": [{}]}}, '"response.output": item 0 has neither "type" nor "role"'),
        ({"responses_create_params": {"input": 3}}, '"responses_create_params.input" must be'),
    ],
)
def test_read_rollout_says_what_is_wrong(fields, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        read_rollout({**line(said("B")), **fields}, env="quiz")


def test_read_rollout_takes_the_score_of_their_verifier():
    rollout = read(
        said("B"), reward=2, extracted_answer="B", reward_components={"form": 1, "x": "y"}
    )
    assert (rollout.reward, rollout.answer, rollout.components) == (2.0, "B", {"form": 1.0})
    assert rollout.task == {}
    other = read(said("C"), reward=0, extracted_answer="C", reward_components=None)
    assert (other.answer, other.components) == ("C", {})
    assert other.task_hash == rollout.task_hash


def test_read_rollout_has_no_reward_where_their_verifier_failed():
    """Their judge's failure comes with a reward of 0 that means nothing."""
    assert read(said("B"), reward=0.0, _ng_failure_class="judge_failed").reward is None
