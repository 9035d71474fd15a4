"""Of each task the best attempt stands against the worst."""

from hypothesis import given
from hypothesis import strategies as st

from gymcli.types import Message
from tests.data.exporting import export
from tests.store.indexed_runs import failed, scored, with_tools, write_run


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
