"""Lines for gymcli and NeMo Gym are read back as they were, with NeMo Gym's numbers beside."""

import json
from pathlib import Path

import msgspec
import pytest

from gymcli.errors import UsageError
from gymcli.metrics.scored_lines import EnvironmentFacts
from gymcli.secrets import scrubber_of
from gymcli.serving.service import aggregated
from gymcli.store.run_index import RunIndex
from tests.data.exporting import export
from tests.runner.compared import nemo, write_lines
from tests.store.indexed_runs import failed, lines, scored, with_tools, write_run

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
    # The same as a server of ours says of the same rows.
    rows = [row for row in exported.rows if row["agent_ref"] == {"name": "quiz"}]
    served = aggregated(rows, env="quiz", facts=EnvironmentFacts(max_reward=1.0))
    for group in (*quiz["group_level_metrics"], *served["group_level_metrics"]):
        del group["task_id"]
    assert {"agent_ref": {"name": "quiz"}, **served} == quiz


def test_nemo_gym_leaves_its_own_lines_as_they_are(tmp_path):
    right = [nemo(task, something={"of": "theirs"}) for task in ("a", "b")]
    path = write_lines(tmp_path / "rollouts.jsonl", [*right, nemo("a", 0.0, attempt=1)])
    assert export("nemo-gym", path, where="reward == 1").rows == right


def test_nemo_gym_refuses_runs_that_do_not_go_together(tmp_path):
    foreign = write_lines(tmp_path / "rollouts.jsonl", [nemo("a")])
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


@pytest.mark.skipif(not NEMO_RUN.is_dir(), reason="the run of NeMo Gym is not here")
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
