"""Exports of recorded token ids: sequences, OpenEnv's traces, NeMo Gym's fields, token files."""

import msgspec
import pytest

from gymcli.errors import RunFileError, UsageError
from gymcli.secrets import scrubber_of
from gymcli.store.tokens import TokenFile
from gymcli.types import JSONObject, Message
from tests.builders import failed, scored, with_tools, write_run
from tests.data.exporting import export
from tests.data.token_runs import CHANGED, FORKED, ONE, PARTLY, PROMPT, TWO, tokens, write_token_run

SECRET = "sk-12345678901234567890"


def test_tokens_gives_a_row_for_each_sequence(tmp_path):
    run = write_token_run(
        tmp_path / "run",
        [
            (with_tools("two", reward=0.5), TWO),
            (with_tools("forked", stop_reason="max_turns"), FORKED),
            (scored("none"), None),
            (scored("short"), [tokens(PROMPT, [4], logprobs=[])]),
            (scored("empty"), [None]),
            *((scored(f"odd{n}"), [tokens(PROMPT, [4], problem=f"{n} odd ids")]) for n in (5, 16)),
        ],
        failures=[failed("x")],
    )
    exported = export("tokens", run)
    two, *forked = exported.rows
    assert two == {
        "env": "quiz",
        "task_id": "two",
        "attempt": 0,
        "input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "loss_mask": [0, 0, 0, 1, 1, 0, 0, 1, 1],
        "logprobs": [0, 0, 0, -0.5, -0.5, 0, 0, -0.5, -0.5],
        "prompt_length": 3,
        "calls": [0, 1],
        "weight_version": "",
        "stop_reason": "done",
        "off_policy": "",
        "reward": 0.5,
    }
    assert [row["input_ids"] for row in forked] == [[1, 2, 3, 4, 5], [1, 2, 7, 8, 9]]
    assert {row["stop_reason"] for row in forked} == {"max_turns"}
    because = "no call that can be trained on: "
    assert exported.left_out == {
        "no token ids": 1,
        f"{because}there are not as many log-probabilities as sampled ids": 1,
        f"{because}the answer has no token ids": 1,
        f"{because}N odd ids": 2,
        "not scored": 1,
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # The sample standard deviation of 1, 0 and 0.5 is 0.5; TRL adds 1e-4 to it.
        ("mean", [0.5, -0.5, 0.0, 0.0, 0.0]),
        ("zscore", [0.5 / 0.5001, -0.5 / 0.5001, 0.0, 0.0, 0.0]),
        ("loo", [0.75, -0.75, 0.0, 0.0, 0.0]),
    ],
)
def test_advantages_compare_a_reward_with_its_task(tmp_path, kind, expected):
    rewards = [("a", 0, 1.0), ("a", 1, 0.0), ("a", 2, 0.5), ("alone", 0, 1.0), ("same", 0, 1.0)]
    plays = [(scored(*key), ONE) for key in [*rewards, ("same", 1, 1.0)]]
    run = write_token_run(tmp_path / "run", plays, failures=[failed("a", 3)])
    rows = export("tokens", run, form=kind).rows
    assert [row["advantage"] for row in rows[:-1]] == pytest.approx(expected)
    # The group is all scored attempts, whatever is selected.
    [first] = export("tokens", run, form=kind, where="avg < 1 and passed").rows
    assert first["advantage"] == rows[0]["advantage"]


def test_openenv_gives_traces(tmp_path):
    said = Message(role="assistant", content="And again.")
    odd = with_tools("odd")
    odd.messages = [*odd.messages, said]
    run = write_token_run(
        tmp_path / "run", [(with_tools("two", reward=0.5), TWO), (odd, TWO), (scored("n"), None)]
    )
    exported = export("openenv", run)
    [row] = exported.rows
    assert {**row, "trace": None} == {
        "trace": None,
        "env": "quiz",
        "task_id": "two",
        "attempt": 0,
        "reward": 0.5,
    }
    first, second = row["trace"]["turns"]
    assert first["node_id"] != second["node_id"]
    assert first["completion_token_ids"] == [4, 5]
    assert second["prompt_token_ids"] == [1, 2, 3, 4, 5, 6, 7]
    assert second["loss_mask"] == [0] * 7 + [1] * 2
    assert [m["role"] for m in first["request"]["messages"]] == ["system", "assistant", "user"]
    [choice] = first["response"]["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"}'
    assert [m["role"] for m in second["request"]["messages"]][3:] == ["assistant", "tool", "tool"]
    assert second["response"]["choices"][0]["message"]["content"] == "In Rom."
    assert exported.left_out == {
        "more or fewer messages of the model than calls": 1,
        "no token ids": 1,
    }


def test_openenv_reads_the_traces(tmp_path):
    training = pytest.importorskip(
        "openenv.core.harness.training", reason="OpenEnv validates its own format"
    )
    plays = [(with_tools(str(n)), answers) for n, answers in enumerate((TWO, FORKED, CHANGED))]
    for row in export("openenv", write_token_run(tmp_path / "run", plays)).rows:
        assert len(training.TrainingTrace.model_validate(row["trace"]).turns) == 2


def test_a_call_that_cannot_be_trained_on_is_skipped(tmp_path):
    rollout = with_tools("partly")
    rollout.messages.insert(-1, Message(role="assistant", content="Wait."))
    run = write_token_run(tmp_path / "run", [(rollout, PARTLY)])
    exports = {to: export(to, run) for to in ("tokens", "openenv", "nemo-gym")}
    for to, exported in exports.items():
        assert exported.num_skipped_calls == 1, to
        assert (exported.left_out, exported.warnings) == ({}, []), to
    [sequence] = exports["tokens"].rows
    assert (sequence["input_ids"], sequence["calls"]) == ([*range(1, 10)], [0, 2])
    [row] = exports["openenv"].rows
    turns = row["trace"]["turns"]
    assert [turn["completion_token_ids"] for turn in turns] == [[4, 5], [8, 9]]
    answers = [turn["response"]["choices"][0]["message"] for turn in turns]
    assert answers[1]["content"] == "In Rom."
    assert seen_by_nemo_rl(exports["nemo-gym"].rows[0]) == ([*range(1, 10)], [4, 5, 8, 9])


def seen_by_nemo_rl(line: JSONObject):
    """Return the ids that NeMo RL trains on, joined by its rule."""
    seen, sampled = [], []
    for item in line["response"]["output"]:
        if item.get("generation_token_ids"):
            assert item["prompt_token_ids"][: len(seen)] == seen
            assert len(item["generation_log_probs"]) == len(item["generation_token_ids"])
            seen = item["prompt_token_ids"] + item["generation_token_ids"]
            sampled += item["generation_token_ids"]
    return seen, sampled


def test_nemo_gym_has_token_fields_on_the_last_item_of_each_call(tmp_path):
    plays = [(with_tools("two"), TWO), (with_tools("forked"), FORKED), (with_tools("not"), None)]
    run = write_token_run(tmp_path / "run", plays)
    exported = export("nemo-gym", run)
    two, forked, without = exported.rows
    has_ids = ["generation_token_ids" in item for item in two["response"]["output"]]
    # Reasoning and two calls, two outputs, a message.
    assert has_ids == [False, False, True, False, False, True]
    assert seen_by_nemo_rl(two) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], [4, 5, 8, 9])
    assert seen_by_nemo_rl(forked) == seen_by_nemo_rl(without) == ([], [])
    assert exported.warnings == [
        "rows without token ids, which NeMo RL refuses: a prompt that does not begin with all "
        "before it: 1, no token ids: 1"
    ]
    plain = write_run(tmp_path / "plain", rollouts=[with_tools("two")])
    assert export("nemo-gym", plain).warnings == []


def test_jsonl_brings_the_token_ids_of_its_lines(tmp_path):
    plays = [(with_tools("two"), TWO), (scored("one"), ONE), (scored("key", said=SECRET), ONE)]
    run = write_token_run(tmp_path / "run", plays)
    exported = export("jsonl", run, where="task_id != 'one'", scrubber=scrubber_of((SECRET,), {}))
    path = tmp_path / "x.jsonl"
    path.write_bytes(exported.data)
    (tmp_path / "x.tokens.jsonl").write_bytes(exported.second)
    assert exported.second.count(b"\n") == 2
    # The ids of a conversation that held a key would decode to the key.
    assert [row.get("play") is None for row in exported.rows] == [False, True]
    assert [row["input_ids"] for row in export("tokens", path).rows] == [[*range(1, 10)]]
    # Someone passes the rollouts on without their token ids.
    (tmp_path / "x.tokens.jsonl").unlink()
    alone = export("jsonl", path)
    assert (alone.num_rows, alone.second) == (2, b"")
    assert "play" not in alone.rows[0]


@pytest.mark.parametrize("to", ["tokens", "openenv"])
def test_runs_without_tokens_are_refused(tmp_path, to):
    run = write_run(tmp_path / "run", rollouts=[scored()])
    with pytest.raises(UsageError, match=r"run: has no token ids; .* --record-tokens"):
        export(to, run)
    run = write_token_run(tmp_path / "run", [(scored("key", said=SECRET), ONE)])
    exported = export(to, run, scrubber=scrubber_of((SECRET,), {}))
    assert exported.left_out == {"a key in the conversation": 1}


def test_a_damaged_token_file_is_named(tmp_path):
    run = write_token_run(tmp_path / "run", [(with_tools("two"), TWO)])
    path = run / "tokens.jsonl"
    first, second = path.read_bytes().splitlines()
    call = msgspec.json.decode(second)
    for lines, words in (
        ([first, msgspec.json.encode({**call, "num_shared": 6})], r"shares 6 ids, .* has only 5"),
        ([msgspec.json.encode({**call, "num_shared": 0})], r"attempt 0 of task two .* is missing"),
        ([first, second, first, second], r'there twice; delete the key "play"'),
        ([first, msgspec.json.encode({**call, "sampled": "x"})], r"of task two .* is damaged"),
        ([msgspec.json.encode({**call, "play": "other"})], r"has no token ids of attempt 0"),
    ):
        path.write_bytes(b"\n".join([*lines, b""]))
        with pytest.raises(RunFileError, match=words):
            export("tokens", run)
    with TokenFile(run) as file:
        assert file.calls(scored()) == []
