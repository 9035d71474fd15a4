"""The environment example_session_state_mgmt: the counter, and the replay of records."""

import msgspec
import pytest

from gymcli.envs.example_session_state_mgmt import ExampleSessionStateMgmt
from gymcli.errors import ReplayDivergedError
from gymcli.types import Message, Rollout
from tests.envs.episodes import calls, cut, played, says, scored, task_row

TASK = {"initial_count": 3, "expected_count": 6}


def add(count):
    return ("increment_counter", f'{{"count": {count}}}')


READ = ("get_counter_value", "{}")


@pytest.mark.parametrize(
    ("messages", "reward", "count"),
    [
        pytest.param([calls(add(1)), calls(add(2)), calls(READ), says("6")], 1.0, 6, id="as asked"),
        pytest.param([calls(add(1), add(2), READ), says("6")], 1.0, 6, id="in one message"),
        pytest.param([calls(add(3)), says("Done.")], 1.0, 6, id="in one step, never read"),
        pytest.param([calls(add(4)), calls(add(-1)), says("")], 1.0, 6, id="there and back"),
        pytest.param([calls(add(3.0)), says("")], 1.0, 6, id="whole float"),
        pytest.param([calls(add(3)), says("It is 7.")], 1.0, 6, id="says it wrong"),
        pytest.param([calls(add(1)), says("It is 6.")], 0.0, 4, id="one step missing"),
        pytest.param([calls(add(3)), calls(add(3)), says("6")], 0.0, 9, id="one step too many"),
        pytest.param([says("The counter is 6.")], 0.0, 3, id="no call at all"),
        pytest.param([calls(add('"3"')), says("6")], 0.0, 3, id="number as text is refused"),
        pytest.param(
            [calls(("increment_counter", '{"count": 3, "step": 1}')), says("6")],
            0.0,
            3,
            id="argument too many is refused",
        ),
        pytest.param([calls(add(0.5)), calls(add(3)), says("6")], 1.0, 6, id="goes on after error"),
    ],
)
def test_verify_compares_the_counter(messages, reward, count):
    rollout = scored(played(task_row("example_session_state_mgmt", TASK), *messages))

    assert (rollout.reward, rollout.answer, rollout.final_state) == (reward, str(count), count)
    assert rollout.details["reason"] == ("correct" if reward else "wrong_count")


def test_verify_scores_an_episode_that_ran_out_of_turns():
    """The calls of the last message were executed, so they count."""
    row = task_row("example_session_state_mgmt", TASK)
    rollout = scored(played(row, calls(add(1)), max_turns=3))

    assert (rollout.stop_reason, rollout.reward) == ("max_turns", 1.0)


def test_verify_does_not_run_calls_of_a_message_that_was_cut():
    row = task_row("example_session_state_mgmt", TASK)
    rollout = scored(played(row, calls(add(1)), cut(calls(add(2)))))

    assert rollout.stop_reason == "length"
    assert (rollout.reward, rollout.answer, rollout.final_state) == (0.0, "4", 4)


@pytest.mark.parametrize(("count", "reward"), [(2, 1.0), (5, 0.0)])
def test_verify_replays_a_record_of_another_program(count, reward):
    """Its tools may word their results differently; results are not compared."""
    answers = ['{"success": true}', '{"success": true, "note": "added"}', '{"count": 6}']
    asked = [calls(add(1)), calls(add(count)), calls(READ)]
    messages = [Message(role="user", content="Add 1, then 2, then read.")]
    for call, answer in zip(asked, answers, strict=True):
        messages += [call, Message(role="tool", tool_call_id="call_0", content=answer)]
    rollout = Rollout(
        env="example_session_state_mgmt",
        task=TASK,
        messages=[*messages, says("It is 6.")],
        num_prompt_messages=1,
        stop_reason="done",
    )

    assert rollout.env_version == ""
    assert (scored(rollout).reward, scored(rollout).answer) == (reward, str(4 + count))


@pytest.mark.parametrize("arguments", ['{"count": "3"}', '{"count": 3, "step": 1}'])
def test_verify_reads_arguments_of_another_program_loosely(arguments):
    row = task_row("example_session_state_mgmt", TASK)
    played_here = played(row, calls(("increment_counter", arguments)), says("6"))
    foreign = msgspec.structs.replace(played_here, env_version="")

    assert [scored(played_here).reward, scored(foreign).reward] == [0.0, 1.0]


def test_verify_leaves_a_doctored_record_unscored():
    row = task_row("example_session_state_mgmt", TASK)
    rollout = played(row, calls(add(1)), calls(READ), says("6"))
    forged = Message(role="tool", tool_call_id="call_0", content='{"count":6}')
    messages = [forged if "count" in m.text else m for m in rollout.messages]

    with pytest.raises(ReplayDivergedError):
        scored(msgspec.structs.replace(rollout, messages=messages))


async def test_instances_do_not_share_a_counter():
    task = ExampleSessionStateMgmt.parse_task(TASK)
    first, second = ExampleSessionStateMgmt(task), ExampleSessionStateMgmt(task)
    await first.setup()
    await second.setup()
    first.increment_counter(5)
    assert (await first.final_state(), await second.final_state()) == (8, 3)


def test_tools_answer_in_the_shape_of_the_reference():
    row = task_row("example_session_state_mgmt", TASK)
    rollout = played(row, calls(add(2), READ), says(""))

    texts = [message.text for message in rollout.messages if message.role == "tool"]
    assert texts == ['{"success":true}', '{"count":5}']


def test_tools_have_the_parameters_of_the_reference():
    tools = ExampleSessionStateMgmt.method_tools()

    assert tools["increment_counter"].parameters["properties"]["count"]["type"] == "integer"
    assert tools["increment_counter"].parameters["required"] == ["count"]
    assert tools["get_counter_value"].parameters["properties"] == {}


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        pytest.param(
            {"additions": [1, 2]}, ['{"count":1}', '{"count":2}', "{}"], id="step by step"
        ),
        pytest.param({}, ['{"count":3}', "{}"], id="row of the reference"),
    ],
)
def test_oracle_adds_and_reads(fields, arguments):
    rollout = played(task_row("example_session_state_mgmt", {**TASK, **fields}))

    assert [call.arguments for call in rollout.tool_calls] == arguments
    assert rollout.last_text == "The counter is 6."
    assert scored(rollout).reward == 1.0
