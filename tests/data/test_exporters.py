"""Export formats; rows for gymcli and NeMo Gym are read back, with NeMo Gym's metrics."""

import csv
import io
import json
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.data.exporters import COLUMNS, JSON_COLUMNS
from gymcli.data.training_formats import LOSSES
from gymcli.errors import MissingPackageError, UsageError
from gymcli.secrets import scrubber_of
from gymcli.serving.service import aggregate_metrics
from gymcli.store.run_index import RunIndex
from gymcli.store.scored_lines import EnvironmentFacts
from gymcli.types import FunctionCall, Message, ToolCall
from tests.builders import failed, lines, scored, waiting, with_tools, write_rows, write_run
from tests.comparison.compared import nemo
from tests.data.exporting import export

SECRET = "sk-12345678901234567890"


def test_jsonl_gives_the_lines_that_are_selected(tmp_path):
    rollouts = [scored("a", number, number / 2, said="é ☃") for number in range(3)]
    run = write_run(tmp_path / "run", rollouts=rollouts, failures=[failed("b")])
    exported = export("jsonl", run, where="reward > 0 or status == 'failed'")
    assert exported.data == lines(*rollouts[1:])
    assert exported.left_out == {"not scored": 1}


def test_exports_hold_no_secret(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored(said=f"It is {SECRET}."), scored("b")])
    scrubber = scrubber_of((SECRET,), {})
    for to in ("jsonl", "sft", "csv", "nemo-gym"):
        exported = export(to, run, scrubber=scrubber)
        assert SECRET.encode() not in exported.data
        assert b"It is [redacted]." in exported.data
        assert exported.num_redacted == 1


NEMO_RUN = Path(__file__).parents[3] / "shared" / "data" / "nemo_gym_run"


def read_back(exported, folder):
    """Return the rollouts of an exported file by task and attempt."""
    path = folder / "back.jsonl"
    path.write_bytes(exported.data)
    with RunIndex(path) as index:
        return {(row.task_id, row.attempt): index.read(row) for row in index.rows}


def test_nemo_gym_reads_back_as_it_was(tmp_path):
    rollouts = [
        with_tools("x", reward=0.5, components={"form": 1.0}, answer="Rom", sampling={"seed": 3}),
        scored("y", 1, 1.0, task={"id": "y", "expected": "B"}, metrics={"length": 4.0}),
        scored("y", 0, 0.0, task={"id": "y", "expected": "B"}, details={"reason": "r", "id": "no"}),
    ]
    exported = export("nemo-gym", write_run(tmp_path / "run", rollouts=rollouts))
    back = read_back(exported, tmp_path)
    assert len(back) == exported.num_rows == 3
    for rollout in rollouts:
        found = back[rollout.task_id, rollout.attempt]
        assert found.reward == rollout.reward
        assert found.components == rollout.components
        assert (found.env, found.answer) == ("quiz", rollout.answer)
        assert found.num_prompt_messages == rollout.num_prompt_messages
        assert [m.text for m in found.messages] == [m.text for m in rollout.messages]
        assert [m.tool_calls for m in found.messages] == [m.tool_calls for m in rollout.messages]
        assert [m.reasoning for m in found.messages] == [m.reasoning for m in rollout.messages]
        assert found.usage == rollout.usage
        assert found.task.items() >= rollout.task.items()


def test_nemo_gym_has_its_keys(tmp_path):
    run = write_run(
        tmp_path / "run",
        rollouts=[with_tools("x"), scored("y", 2, stop_reason="length")],
        failures=[failed("z")],
    )
    exported = export("nemo-gym", run)
    first, second = exported.rows
    assert first["agent_ref"] == {"name": "quiz"}
    assert (first["_ng_task_index"], first["_ng_rollout_index"]) == (0, 0)
    assert (second["_ng_task_index"], second["_ng_rollout_index"]) == (1, 2)
    assert [item.get("type") for item in first["response"]["output"]] == [
        *("reasoning", "function_call", "function_call"),
        *("function_call_output", "function_call_output", "message"),
    ]
    assert first["response"]["usage"]["total_tokens"] == 10
    assert second["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert first["responses_create_params"]["input"][0]["role"] == "system"
    assert exported.left_out == {"not scored": 1}


def test_nemo_gym_writes_the_numbers_beside(tmp_path):
    rewards = {"x": (1.0, 0.0, 1.0, 0.0), "y": (0.0, 0.0, 1.0, 1.0)}
    rollouts = [
        scored(task, number, reward)
        for task, own in rewards.items()
        for number, reward in enumerate(own)
    ]
    run = write_run(tmp_path / "run", rollouts=[*rollouts, scored("w", 0, 0.5, env="other")])
    exported = export("nemo-gym", run)
    quiz, other = msgspec.json.decode(exported.second)
    assert quiz["agent_ref"] == {"name": "quiz"}
    assert quiz["agent_metrics"]["mean/reward"] == 0.5
    assert quiz["agent_metrics"]["pass@2/accuracy"] == pytest.approx(83.33, abs=0.01)
    assert quiz["key_metrics"]["pass@1/accuracy"] == 50.0
    assert [group["_ng_task_index"] for group in quiz["group_level_metrics"]] == [0, 1]
    assert (other["agent_ref"], other["agent_metrics"]["max/reward"]) == ({"name": "other"}, 0.5)
    # These equal the numbers that our server computes from the same rows.
    rows = [row for row in exported.rows if row["agent_ref"] == {"name": "quiz"}]
    served = aggregate_metrics(rows, env="quiz", facts=EnvironmentFacts(max_reward=1.0))
    for group in (*quiz["group_level_metrics"], *served["group_level_metrics"]):
        del group["task_id"]
    assert {"agent_ref": {"name": "quiz"}, **served} == quiz


def test_nemo_gym_leaves_its_own_lines_as_they_are(tmp_path):
    right = [nemo(task, something={"of": "theirs"}) for task in ("a", "b")]
    path = write_rows(tmp_path / "rollouts.jsonl", [*right, nemo("a", 0.0, attempt=1)])
    assert export("nemo-gym", path, where="reward == 1").rows == right


def test_nemo_gym_refuses_runs_that_do_not_go_together(tmp_path):
    foreign = write_rows(tmp_path / "rollouts.jsonl", [nemo("a")])
    ours = write_run(tmp_path / "run", rollouts=[scored()])
    other = tmp_path / "other.jsonl"
    other.write_bytes(lines(scored("b"), scored()))
    with pytest.raises(UsageError, match="export them separately"):
        export("nemo-gym", ours, foreign)
    with pytest.raises(
        UsageError, match=r"other\.jsonl: attempt 0 of task a \(quiz\): is also in ano"
    ):
        export("nemo-gym", ours, other)


def test_nemo_gym_refuses_numbers_that_cannot_be_added_up(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored(task={"size": 10**400})])
    with pytest.raises(UsageError, match=r"attempt 0 of task a .*too large"):
        export("nemo-gym", run)
    large = [scored("a", number, task={"size": 1.5e308}) for number in range(2)]
    with pytest.raises(UsageError, match="environment quiz: a number is too large"):
        export("nemo-gym", write_run(tmp_path / "large", rollouts=large))


@pytest.mark.skipif(not NEMO_RUN.is_dir(), reason="the run of NeMo Gym is missing")
def test_nemo_gym_gives_the_numbers_that_nemo_gym_gave():
    exported = export("nemo-gym", NEMO_RUN / "rollouts.jsonl")
    theirs = json.loads((NEMO_RUN / "rollouts_aggregate_metrics.json").read_bytes())
    [ours], [expected] = msgspec.json.decode(exported.second), theirs
    assert ours["agent_ref"] == expected["agent_ref"]
    assert ours["agent_metrics"].items() >= expected["agent_metrics"].items()
    by_task = {group["_ng_task_index"]: group for group in expected["group_level_metrics"]}
    assert len(ours["group_level_metrics"]) == len(by_task) > 1
    for group in ours["group_level_metrics"]:
        given = by_task[group["_ng_task_index"]]
        shared = group.keys() & given.keys()
        assert len(shared) > 20
        assert {name: group[name] for name in shared} == {name: given[name] for name in shared}


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
    whole, split = export("sft", run).rows, export("sft", run, form="completion").rows
    assert [row["prompt"] + row["completion"] for row in split] == [r["messages"] for r in whole]
    assert [len(row["prompt"]) for row in split] == [3, 1]
    assert "messages" not in split[0]
    assert "tools" not in split[0]


def test_sft_for_the_assistant_has_a_row_for_each_message_of_the_model(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[with_tools(tools=TOOLS)])
    [whole], rows = export("sft", run).rows, export("sft", run, form="assistant").rows
    assert [row["prompt"] + row["completion"] for row in rows] == [
        whole["messages"][:4],
        whole["messages"],
    ]
    assert [len(row["completion"]) for row in rows] == [1, 1]
    assert [(row["turn"], row["attempt"], row["tools"]) for row in rows] == [
        (0, 0, TOOLS),
        (1, 0, TOOLS),
    ]


def test_kto_labels_what_passed(tmp_path):
    rollouts = [scored("a", 0, 0.75), scored("a", 1, 0.5), scored("b", env="boundless")]
    run = write_run(tmp_path / "run", rollouts=rollouts, threshold=0.75)
    exported = export("kto", run)
    assert exported.rows[0] == {
        "prompt": [{"role": "user", "content": "A or B?"}],
        "completion": [{"role": "assistant", "content": "I say B"}],
        "env": "quiz",
        "task_id": "a",
        "attempt": 0,
        "reward": 0.75,
        "label": True,
    }
    assert exported.rows[1]["label"] is False
    assert exported.left_out == {"an environment without a pass threshold": 1}


@pytest.mark.parametrize("loss", LOSSES)
def test_sft_leaves_out_what_comes_after_the_last_words_of_the_model(tmp_path, loss):
    tool = Message(role="tool", tool_call_id="1", content="warm")
    call = ToolCall(id="1", function=FunctionCall("weather", ""))
    rollout = talk(user(), model(None, tool_calls=[call]), tool, user("And?"))
    [row] = export("sft", write_run(tmp_path / "run", rollouts=[rollout]), form=loss).rows
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
@pytest.mark.parametrize("loss", LOSSES)
def test_sft_counts_what_chat_messages_cannot_say(tmp_path, loss, rollout, reason):
    exported = export("sft", write_run(tmp_path / "run", rollouts=[rollout]), form=loss)
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
    assert export("sft", run, form="completion").left_out == {reason: 1}
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
    """The best and worst rewards of each task are paired, with one prompt; equal ones never are."""
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


def read_csv(exported):
    return list(csv.DictReader(io.StringIO(exported.data.decode(), newline="")))


@pytest.fixture
def run(tmp_path):
    return write_run(
        tmp_path / "run",
        rollouts=[
            with_tools("a", reward=0.5, components={"form": 1.0}, answer="x" * 999, cost=0.25),
            scored("b", 0, 1.0, metrics={"length": 3.0}, said='two\nlines, "quoted"'),
        ],
        generations=[waiting("c")],
        failures=[failed("d")],
    )


def test_csv_has_every_attempt(run):
    exported = export("csv", run)
    rows = read_csv(exported)
    assert list(rows[0]) == [*COLUMNS, "components.form", "metrics.length", "task.category"]
    assert [row["task.category"] for row in rows] == ["letters", "letters", "letters", ""]
    assert [row["status"] for row in rows] == ["scored", "scored", "waiting", "failed"]
    first, second, _, last = rows
    assert first["run"] == str(run)
    assert (first["reward"], first["passed"], first["avg"]) == ("0.5", "False", "0.5")
    assert (first["answer"], first["num_tool_calls"]) == ("x" * 999, "2")
    assert (first["components.form"], first["metrics.length"]) == ("1.0", "")
    assert second["last_text"] == 'two\nlines, "quoted"'
    assert (last["error"], last["reward"], last["last_text"]) == ("ServerError", "", "")
    assert exported.num_rows == 4
    assert exported.left_out == {}


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("  =1+1", "'  =1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("\t=1", "'\t=1"),
        ("\x00\ufeff=1", "'\x00\ufeff=1"),
        ("one\rtwo,3", "one\rtwo,3"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("-5", "-5"),
        ("+1.5e3", "+1.5e3"),
        ("B = 3", "B = 3"),
        ("", ""),
    ],
)
def test_csv_holds_no_formula_of_a_model(tmp_path, text, cell):
    rollout = scored(answer=text, said=text, components={text or "x": 1.0})
    exported = export("csv", write_run(tmp_path / "run", rollouts=[rollout]))
    [row] = read_csv(exported)
    assert (row["answer"], row["last_text"]) == (cell, cell)
    assert not any(name.startswith(("=", "+", "-", "@", "\t")) for name in row)


def test_tables_of_several_runs_have_the_columns_of_all(tmp_path):
    runs = [
        write_run(tmp_path / "one", rollouts=[scored(components={"b": 1.0})]),
        write_run(tmp_path / "two", rollouts=[scored(components={"a": 2.0})]),
    ]
    first, second = read_csv(export("csv", *runs))
    assert (first["components.a"], first["components.b"]) == ("", "1.0")
    assert (second["components.a"], second["run"]) == ("2.0", str(runs[1]))


def test_tables_say_when_there_are_too_many_names(tmp_path):
    names = {f"n{number}": 1.0 for number in range(70)}
    exported = export("csv", write_run(tmp_path / "run", rollouts=[scored(metrics=names)]))
    assert len(read_csv(exported)[0]) == len(COLUMNS) + 65  # and the field of the task
    assert "only the first 64 names are in it" in exported.warnings[0]


def test_parquet_has_every_attempt(run):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    exported = export("parquet", run)
    table = parquet.read_table(io.BytesIO(exported.data))
    names = ["components.form", "metrics.length", "task.category"]
    assert table.column_names == [*COLUMNS, *names, *JSON_COLUMNS]
    rows = table.to_pylist()
    assert exported.num_rows == len(rows) == 4
    assert rows[0]["reward"] == 0.5
    assert rows[0]["passed"] is False
    assert rows[0]["cost"] == 0.25
    assert rows[1]["cost"] is None
    assert json.loads(rows[0]["messages"])[-1] == {"role": "assistant", "content": "In Rom."}
    assert json.loads(rows[0]["task"]) == {"category": "letters"}
    assert rows[0]["details"] is None
    assert rows[3]["messages"] is None
    assert {str(field.type) for field in table.schema} == {"string", "int64", "double", "bool"}


def with_fields(task_id, fields):
    return msgspec.structs.replace(scored(task_id), task=fields)


FIELDS = [
    {"level": 1, "share": 1, "is_open": True, "mixed": "=x", "list": [1], "late": 3},
    {"level": 2, "share": 0.5, "is_open": None, "mixed": 7, "list": "x", "huge": 1 << 70},
]


def test_tables_have_the_scalar_fields_of_tasks(tmp_path):
    rollouts = [with_fields(name, fields) for name, fields in zip("ab", FIELDS, strict=True)]
    run = write_run(tmp_path / "run", rollouts=rollouts)
    first, second = read_csv(export("csv", run))
    names = ["level", "share", "is_open", "mixed", "late", "huge"]
    assert [name for name in first if name.startswith("task.")] == [f"task.{n}" for n in names]
    assert [first[f"task.{name}"] for name in names] == ["1", "1", "True", "'=x", "3", ""]
    assert [second[f"task.{name}"] for name in names] == ["2", "0.5", "", "7", "", str(1 << 70)]

    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    table = parquet.read_table(io.BytesIO(export("parquet", run).data))
    types = [str(table.schema.field(f"task.{name}").type) for name in names]
    assert types == ["int64", "double", "bool", "string", "int64", "string"]
    assert table["task.mixed"].to_pylist() == ["=x", "7"]


def test_tables_have_so_many_fields_of_tasks_at_most(tmp_path):
    fields = {f"f{number}": number for number in range(70)}
    exported = export("csv", write_run(tmp_path / "run", rollouts=[with_fields("a", fields)]))
    assert len(read_csv(exported)[0]) == len(COLUMNS) + 64
    assert exported.warnings == ["the tasks have 70 fields; only the first 64 are in the table"]


def test_parquet_is_written_in_groups_of_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    long = [Message(role="user", content="x" * (5 << 20)), Message(role="assistant", content="y")]
    rollouts = [scored(str(number), messages=long) for number in range(3)]
    exported = export("parquet", write_run(tmp_path / "run", rollouts=rollouts))
    groups = parquet.ParquetFile(io.BytesIO(exported.data)).metadata
    assert (groups.num_row_groups, groups.num_rows) == (2, 3)


def test_parquet_names_the_package_that_it_needs(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'gymcli\[parquet\]'"):
        export("parquet", run)
