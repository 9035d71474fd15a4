"""Conversations and pairs to train on: the prompt, what came after it, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.types import FunctionCall, Message, ToolCall
from tests.data.exporting import export
from tests.store.indexed_runs import failed, scored, waiting, with_tools, write_run

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def talk(*messages, num_prompt_messages=1, **fields):
    return scored(messages=list(messages), num_prompt_messages=num_prompt_messages, **fields)


def user(content="Hi"):
    return Message(role="user", content=content)


def model(content="Hello", **fields):
    return Message(role="assistant", content=content, **fields)


def test_sft_gives_the_conversation_as_templates_read_it(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[with_tools(tools=TOOLS, reward=0.5)])
    [row] = export("sft", run).rows
    assert row == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Where is it warm?"},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "let me look",
                "tool_calls": [
                    {
                        "id": number,
                        "type": "function",
                        "function": {"name": "weather", "arguments": {"city": city}},
                    }
                    for number, city in (("1", "Oslo"), ("2", "Rom"))
                ],
            },
            {"role": "tool", "content": "cold", "tool_call_id": "1"},
            {"role": "tool", "content": "warm", "tool_call_id": "2"},
            {"role": "assistant", "content": "In Rom."},
        ],
        "tools": TOOLS,
        "env": "quiz",
        "task_id": "t",
        "attempt": 0,
        "reward": 0.5,
    }


def test_sft_completion_splits_the_conversation_after_the_prompt(tmp_path):
    rollouts = [with_tools(), talk(user(), model(), task_id="b")]
    run = write_run(tmp_path / "run", rollouts=rollouts)
    whole, split = export("sft", run).rows, export("completion", run).rows
    assert [row["prompt"] + row["completion"] for row in split] == [r["messages"] for r in whole]
    assert [len(row["prompt"]) for row in split] == [3, 1]
    assert "messages" not in split[0]
    assert "tools" not in split[0]


@pytest.mark.parametrize("to", ["sft", "completion"])
def test_sft_leaves_out_what_comes_after_the_last_words_of_the_model(tmp_path, to):
    tool = Message(role="tool", tool_call_id="1", content="warm")
    call = ToolCall(id="1", function=FunctionCall("weather", ""))
    rollout = talk(user(), model(None, tool_calls=[call]), tool, user("And?"))
    [row] = export(to, write_run(tmp_path / "run", rollouts=[rollout])).rows
    last = (row.get("messages") or row["completion"])[-1]
    assert last["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize(
    ("rollout", "reason"),
    [
        (talk(user(), user()), "no message of the model"),
        (talk(model(), num_prompt_messages=1), "no message of the model"),
        (
            talk(user([{"type": "image_url", "image_url": {"url": "data:,"}}]), model()),
            "pictures or other content that is no text",
        ),
        (
            talk(user(), model(None, tool_calls=[ToolCall("1", FunctionCall("f", "{oops"))])),
            "a tool call whose arguments are no JSON object",
        ),
        (
            talk(user(), model(None, tool_calls=[ToolCall("1", FunctionCall("f", '"{}"'))])),
            "a tool call whose arguments are no JSON object",
        ),
        (
            talk(user(), model(None, response_items=[{"type": "web_search_call"}]), model()),
            "items that chat messages have no words for",
        ),
    ],
)
@pytest.mark.parametrize("to", ["sft", "completion"])
def test_sft_counts_what_chat_messages_cannot_say(tmp_path, to, rollout, reason):
    exported = export(to, write_run(tmp_path / "run", rollouts=[rollout]))
    assert exported.num_rows == 0
    assert exported.left_out == {reason: 1}


@pytest.mark.parametrize(
    ("rollout", "reason"),
    [
        (talk(model(), num_prompt_messages=0), "no prompt"),
        (talk(Message(role="developer", content="Go"), model()), "a prompt that nobody asks"),
    ],
)
def test_sft_completion_needs_a_prompt(tmp_path, rollout, reason):
    run = write_run(tmp_path / "run", rollouts=[rollout])
    assert export("completion", run).left_out == {reason: 1}
    assert export("sft", run).num_rows == 1


def test_sft_says_developers_as_system_and_refusals_as_text(tmp_path):
    rollout = talk(
        Message(role="developer", content="Be brief."),
        Message(
            role="user", content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        ),
        model(None, refusal="I will not."),
        Message(role="user", content="x", name="Ann"),
        model(""),
    )
    [row] = export("sft", write_run(tmp_path / "run", rollouts=[rollout])).rows
    assert row["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "I will not."},
        {"role": "user", "content": "x", "name": "Ann"},
        {"role": "assistant", "content": ""},
    ]


def test_sft_takes_scored_rollouts_that_are_selected(tmp_path):
    run = write_run(
        tmp_path / "run",
        rollouts=[scored("a", 0, 1.0), scored("a", 1, 0.0)],
        generations=[waiting("b")],
        failures=[failed("c")],
    )
    assert export("sft", run).left_out == {"not scored": 2}
    selected = export("sft", run, where="passed")
    assert [(row["task_id"], row["reward"]) for row in selected.rows] == [("a", 1.0)]
    assert selected.left_out == {}


def attempt(task_id, number, reward, **fields):
    return scored(task_id, number, reward, said=f"{task_id}{number}", **fields)


def words(messages):
    return [message["content"] for message in messages]


def test_dpo_pairs_the_best_with_the_worst(tmp_path):
    run = write_run(
        tmp_path / "run",
        rollouts=[
            attempt("a", 2, 0.25),
            attempt("a", 0, 0.0),
            attempt("b", 0, 1.0),
            attempt("b", 1, 1.0),
            attempt("a", 1, 1.0),
            attempt("a", 3, 1.0),
            attempt("c", 0, 1.0),
        ],
        failures=[failed("c", 1)],
    )
    exported = export("dpo", run)
    assert exported.rows == [
        {
            "prompt": [{"role": "user", "content": "A or B?"}],
            "chosen": [{"role": "assistant", "content": "a1"}],
            "rejected": [{"role": "assistant", "content": "a0"}],
            "env": "quiz",
            "task_id": "a",
            "chosen_reward": 1.0,
            "rejected_reward": 0.0,
            "margin": 1.0,
        }
    ]
    assert exported.left_out == {"ties": 1, "tasks with one attempt": 1, "not scored": 1}


def test_dpo_pairs_within_what_is_selected(tmp_path):
    rollouts = [attempt("a", number, number / 4) for number in range(4)]
    run = write_run(tmp_path / "run", rollouts=rollouts)
    [row] = export("dpo", run, where="0 < attempt < 3").rows
    assert (row["chosen_reward"], row["rejected_reward"], row["margin"]) == (0.5, 0.25, 0.25)


def test_dpo_pairs_no_attempts_of_different_runs_or_environments(tmp_path):
    runs = [
        write_run(tmp_path / "a", rollouts=[attempt("a", 0, 1.0), attempt("a", 1, 0.0, env="x")]),
        write_run(tmp_path / "b", rollouts=[attempt("a", 1, 0.0)]),
    ]
    assert export("dpo", *runs).left_out == {"tasks with one attempt": 3}


def test_dpo_has_tools_where_there_are_any(tmp_path):
    tools = [{"type": "function", "function": {"name": "weather"}}]
    rollouts = [
        with_tools(attempt=0, tools=tools),
        with_tools(attempt=1, reward=0.0, answer="", tools=tools),
    ]
    rollouts[1].messages = [*rollouts[1].messages[:-1], Message(role="assistant", content="No.")]
    [row] = export("dpo", write_run(tmp_path / "run", rollouts=rollouts)).rows
    assert row["tools"] == tools
    assert words(row["prompt"]) == ["Be brief.", "Hello", "Where is it warm?"]
    assert words(row["rejected"]) == ["", "cold", "warm", "No."]


def test_dpo_leaves_out_pairs_that_tell_nothing(tmp_path):
    other = [Message(role="user", content="C?"), Message(role="assistant", content="C")]
    run = write_run(
        tmp_path / "run",
        rollouts=[
            scored("same", 0, 1.0),
            scored("same", 1, 0.0),
            attempt("prompt", 0, 1.0),
            scored("prompt", 1, 0.0, messages=other),
            attempt("tools", 0, 1.0),
            attempt("tools", 1, 0.0, tools=[{"type": "function", "function": {"name": "f"}}]),
            attempt("mute", 0, 1.0),
            scored("mute", 1, 0.0, messages=[Message(role="user", content="A or B?")]),
        ],
    )
    assert export("dpo", run).left_out == {
        "pairs with the same answer": 1,
        "pairs with different prompts": 2,
        "no message of the model": 1,
    }


rewards = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 4)),
    st.sampled_from([-1.0, 0.0, 0.25, 1.0]),
    max_size=14,
)


@given(rewards)
def test_dpo_keeps_its_laws(tmp_path_factory, rewards):
    """No pair of equal rewards; the chosen one is the best of its task; one prompt for both."""
    rollouts = [attempt(*key, reward) for key, reward in rewards.items()]
    run = write_run(tmp_path_factory.mktemp("run"), rollouts=rollouts)
    exported = export("dpo", run)
    for row in exported.rows:
        own = [reward for (task, _), reward in rewards.items() if task == row["task_id"]]
        assert row["chosen_reward"] == max(own)
        assert row["rejected_reward"] == min(own)
        assert row["margin"] == max(own) - min(own) > 0
        assert words(row["prompt"]) == ["A or B?"]
        [chosen], [rejected] = words(row["chosen"]), words(row["rejected"])
        assert rewards[chosen[0], int(chosen[1:])] == row["chosen_reward"]
        assert rewards[rejected[0], int(rejected[1:])] == row["rejected_reward"]
    tasks = {task for task, _ in rewards}
    assert len(exported.rows) + sum(exported.left_out.values()) == len(tasks)
