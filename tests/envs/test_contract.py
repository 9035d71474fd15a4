"""Rules that every environment obeys."""

import inspect
import pkgutil
from pathlib import Path
from random import Random

import msgspec
import pytest

import gymcli.envs
from gymcli.environment.registry import Registry, shipped_tasks
from gymcli.tasks.task_files import read_tasks
from gymcli.tasks.task_row import TaskReading
from gymcli.types import Message, Rollout, TaskRow
from tests.envs.episodes import calls, played, says, scored

NAMES = sorted(module.name for module in pkgutil.iter_modules(gymcli.envs.__path__))

ANY_CALL_IS_RIGHT = {"example_single_tool_call"}

SILENCE_IS_NOT_UNREAD = {
    "aviary": "the world says how it ended",
    "example_multi_step": "the values are submitted by a call; `no_values` says that none was made",
    "example_session_state_mgmt": "the counter always has a value",
    "example_single_tool_call": "`no_call` says that the tool was not called",
    "example_tool_call_multireward": "`no_call` says that no tool was called",
    "possible_calls": "`no_call` says that no tool was called, which may be right",
    "workplace_assistant": "`nothing_changed` says that no call had an effect",
    "xlam_fc": "`no_call` says that no tool was called, which may be right",
}
"""The environments in which an empty answer has another reason than `no_answer`, and why."""

of_every_environment = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def garbage():
    """Return calls of unknown tools, and calls of every tool with wrong arguments."""
    tools = [list(environment_of(name).method_tools()) for name in NAMES]
    return [
        calls(("no_such_tool", "{}")),
        calls(("verify", "{}"), ("setup", "{}")),
        *(
            calls(*((name, text) for name in names))
            for names in tools
            if names
            for text in ("", "{", "null", "[1]", '"{}"', '{"no_such_argument": 1}')
        ),
    ]


def environment_of(name):
    return Registry().find(name).environment


def rows_of(name):
    path = shipped_tasks(name)
    assert path is not None, f"{name} ships no tasks"
    return list(read_tasks([path], TaskReading(default_env=name)))


def assert_below_top(name, rollout):
    """Check that a useless answer does not earn the top reward, where there is one."""
    environment = environment_of(name)
    assert rollout.reward is not None
    if environment.max_reward is not None and "empty" not in environment.skipped_checks:
        assert rollout.reward < environment.max_reward


def score_of(rollout):
    return (rollout.reward, rollout.components, rollout.metrics, rollout.answer, rollout.details)


@of_every_environment
def test_class_and_tools_say_what_they_are(name):
    environment = environment_of(name)
    assert inspect.getdoc(environment)
    assert environment.version
    assert isinstance(environment.version, str)
    assert all(environment.properties)
    for tool in environment.method_tools().values():
        assert tool.description.strip(), tool
        assert tool.parameters["type"] == "object", tool
        assert set(tool.parameters["required"]) <= set(tool.parameters["properties"]), tool


@of_every_environment
def test_tasks_validate(name):
    """Tasks are also distinct and of every difficulty."""
    rows = rows_of(name)
    assert all(isinstance(row, TaskRow) for row in rows), rows
    for row in rows:
        environment_of(name).parse_task(row.fields)
    assert len({row.id for row in rows}) == len(rows)
    assert len({msgspec.json.encode(row.messages) for row in rows}) >= 50
    assert {row.fields["difficulty"] for row in rows} >= {"easy", "medium", "hard"}


@of_every_environment
def test_tasks_can_be_generated_again(name):
    path = shipped_tasks(name)
    num = path.read_bytes().count(b"\n")
    rows = environment_of(name).generate(Random(0), num)

    assert b"".join(msgspec.json.encode(row) + b"\n" for row in rows) == path.read_bytes()


@pytest.mark.parametrize(
    ("name", "num"),
    [
        ("genrm_compare", 600),
        ("instruction_following", 3_000),
        ("multichallenge", 300),
        ("reward_model", 1_500),
        ("workplace_assistant", 900),
    ],
)
def test_generators_ask_nothing_twice(name, num):
    rows = list(environment_of(name).generate(Random(7), num))

    prompts = {msgspec.json.encode(row.get("messages") or row["prompt"]) for row in rows}
    assert len(prompts) == len({row["id"] for row in rows}) == num


@of_every_environment
def test_tasks_come_with_their_origin(name):
    readme = (Path(shipped_tasks(name)).parent / "README.md").read_text()
    generator = f"`{environment_of(name).__name__}.generate`"
    for told in ("Apache-2.0", "Random(0)", generator, f"environment `{name}`"):
        assert told in readme, told


@pytest.mark.slow
@of_every_environment
def test_oracle_gets_the_top_reward_in_every_task(name):
    for row in rows_of(name):
        rollout = played(row)

        assert rollout.stop_reason in ("done", "env_done")
        assert not rollout.tool_errors
        environment, reward = environment_of(name), scored(rollout).reward
        if environment.max_reward is not None:
            assert reward == environment.max_reward
        elif environment.pass_threshold is not None:
            assert reward >= environment.pass_threshold


@of_every_environment
def test_verify_scores_an_answer_that_says_nothing(name):
    row = rows_of(name)[0]
    for message in (says(""), says("I do not know."), Message(role="assistant", reasoning="Hm.")):
        assert_below_top(name, scored(played(row, message)))


@of_every_environment
def test_verify_scores_a_conversation_of_garbage_calls(name, garbage):
    rollout = played(rows_of(name)[0], *garbage, says("Done."), max_turns=len(garbage) + 8)
    if environment_of(name).executes_tools:
        assert rollout.tool_errors["unknown_tool"] > 0
    rollout = scored(rollout)
    if name not in ANY_CALL_IS_RIGHT:
        assert_below_top(name, rollout)


@of_every_environment
def test_verify_says_why(name):
    """The reason is a text, and `no_answer` where nothing could be read."""
    row = rows_of(name)[0]
    for text in ("", "%) \\boxed{ ((( <answer> ```"):
        rollout = scored(played(row, says(text)))
        reason = rollout.details["reason"]
        assert isinstance(reason, str)
        assert reason
        if not text:
            assert (reason == "no_answer") == (name not in SILENCE_IS_NOT_UNREAD)
        if reason == "no_answer":
            assert rollout.answer is None


@of_every_environment
def test_verify_scores_a_record_without_an_answer(name):
    row = rows_of(name)[0]
    rollout = Rollout(
        env=name,
        task=row.fields,
        messages=row.messages,
        num_prompt_messages=len(row.messages),
        stop_reason="context_overflow",
    )
    assert scored(rollout).reward is not None


@of_every_environment
def test_verify_says_the_same_of_the_same_record(name, garbage):
    """Scored twice in memory, and again after the record was written and read back."""
    for row in rows_of(name)[:6]:
        for rollout in (played(row), played(row, *garbage[:3], says("B is 12."))):
            line = msgspec.json.encode(rollout)

            first = score_of(scored(rollout))
            assert score_of(scored(rollout)) == first
            assert msgspec.json.encode(rollout) == line, "verify changed the record"
            assert score_of(scored(msgspec.json.decode(line, type=Rollout))) == first
