"""The numbers of a run or a file."""

import subprocess
import sys

import msgspec
import pytest

from gymcli.errors import RunFileError, UnknownNameError, UsageError
from gymcli.mock.behaviours import refusal_of
from gymcli.runner.measure import measure
from tests.commands.running import FLAKY, add_up, lines_of, write_sums
from tests.runner.collecting import collect_all

NEMO = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is 1 + 1?"}]},
    "response": {
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "2"}],
            }
        ],
        "usage": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6},
    },
    "answer": 2,
    "reward": 1.0,
}


def test_measure_counts_what_a_run_expects(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 3), out=out, repeats=2)
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_scored, metrics.mean_reward) == (6, 6, 1.0)
    assert metrics.pass_at_k == {"1": 1.0, "2": 1.0}


def test_measure_knows_no_expectation_of_a_bare_file(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 3), out=out)
    metrics = measure(out / "rollouts.jsonl").metrics()
    assert (metrics.num_expected, metrics.num_scored) == (None, 3)
    assert metrics.pass_at_k == {"1": 1.0}, "the environment here says what a success is"


def test_measure_of_a_folder_without_a_manifest(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), lambda _: refusal_of(400, "no"), out=out)
    (out / "run.json").unlink()
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_unscored) == (None, 2)


def test_measure_of_a_run_that_has_only_begun(tmp_path):
    """Nothing is there but the manifest: everything is expected, nothing present."""
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    (out / "rollouts.jsonl").unlink()
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_present, metrics.mean_reward) == (2, 0, None)


def test_measure_leaves_a_torn_last_line_out(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 3), out=out)
    whole = (out / "rollouts.jsonl").read_bytes()
    (out / "rollouts.jsonl").write_bytes(whole[:-20])
    assert measure(out).metrics().num_scored == 2


def test_measure_reads_nemo_gym(tmp_path):
    """An agent's name is that of its environment; the row's index tells the tasks apart."""
    lines = [
        {**NEMO, "agent_ref": {"name": "arithmetic_simple_agent"}, "_ng_task_index": index}
        for index in range(2)
    ]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    metrics = measure(tmp_path / "r.jsonl").metrics()
    assert list(metrics.environments) == ["arithmetic"]
    assert (metrics.num_scored, metrics.usage["completion_tokens"]) == (2, 2)
    assert metrics.pass_at_k == {"1": 1.0}


def test_measure_reads_a_file_in_which_lines_of_ours_and_of_nemo_gym_are_mixed(tmp_path):
    """What has no version, or version 0, is not ours, also where it has all that is counted."""
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    ours = lines_of(out / "rollouts.jsonl")
    nemo = {**NEMO, "agent_ref": {"name": "arithmetic"}, "task_id": "n", "attempt": 7}
    mixed = [ours[0], nemo, ours[1], {**nemo, "schema_version": 0, "task_id": "m"}]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, mixed)))
    metrics = measure(tmp_path / "r.jsonl").metrics()
    assert (metrics.num_scored, metrics.num_tasks) == (4, 4)
    own_tokens = sum(line["usage"]["prompt_tokens"] for line in ours)
    assert metrics.usage["prompt_tokens"] == own_tokens + 2 * 5


def test_import_loads_nothing_that_only_environments_need():
    """Who measures a run directory waits for none of it."""
    command = (
        "import sys; from gymcli.runner.measure import measure; print([name for name in "
        "('gymcli.environment.registry', 'asyncio', 'pydantic', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert found.stdout.decode().strip() == "[]"


def test_measure_takes_the_environment_of_lines_that_name_none(tmp_path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "r.jsonl").write_bytes(msgspec.json.encode(NEMO))
    assert list(measure(tmp_path / "r.jsonl", env="mcqa").metrics().environments) == ["mcqa"]
    spec = f"{tmp_path / 'flaky.py'}:Flaky"
    assert list(measure(tmp_path / "r.jsonl", env=spec).metrics().environments) == ["flaky"]
    with pytest.raises(UsageError, match="give --env NAME"):
        measure(tmp_path / "r.jsonl")
    with pytest.raises(UnknownNameError, match='no environment "mqca"'):
        measure(tmp_path / "r.jsonl", env="mqca")


def test_measure_of_an_environment_that_is_not_here(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    lines = [{**line, "env": "riddles"} for line in lines_of(out / "rollouts.jsonl")]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    metrics = measure(tmp_path / "r.jsonl").metrics()
    assert (metrics.mean_reward, metrics.pass_at_k) == (1.0, None)


def test_measure_refuses_a_line_without_reward(tmp_path):
    line = {**NEMO, "agent_ref": {"name": "arithmetic"}}
    del line["reward"]
    (tmp_path / "r.jsonl").write_bytes(msgspec.json.encode(line))
    with pytest.raises(RunFileError, match=r"r\.jsonl:1: the rollout has no reward"):
        measure(tmp_path / "r.jsonl")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("reward", -1e200, r"reward is -1e\+200; numbers beyond 1e"),
        ("components", {"style": 1.7e308}, r"style is 1.7e\+308; numbers beyond 1e"),
        ("cost", 1e101, r"cost is 1e\+101; numbers beyond 1e"),
        ("attempt", 1 << 63, "there is no attempt 9223372036854775808"),
        ("attempt", -1, '"env", "task_id" or "attempt" is missing'),
    ],
)
def test_measure_refuses_numbers_that_are_too_large(tmp_path, field, value, message):
    """No double holds their squares, or the sum of some."""
    rollout = {"schema_version": 1, "env": "arithmetic", "attempt": 0, "reward": 1e100}
    lines = [{**rollout, "task_id": "a"}, {**rollout, "task_id": "b", field: value}]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    with pytest.raises(RunFileError, match=rf"r\.jsonl:2: .*{message}"):
        measure(path)


def test_measure_gives_an_error_of_the_largest_numbers(tmp_path):
    rollout = {"schema_version": 1, "env": "arithmetic"}
    lines = [{**rollout, "task_id": str(n), "reward": 1e100 * (-1) ** n} for n in range(4)]
    path = tmp_path / "r.jsonl"
    path.write_bytes(
        b"".join(
            msgspec.json.encode({**line, "attempt": a}) + b"\n" for line in lines for a in (0, 1)
        )
    )
    metrics = measure(path).metrics()
    assert metrics.standard_error == pytest.approx(1e100 / 3**0.5)
    assert metrics.micro_standard_error == pytest.approx(metrics.standard_error)


def test_measure_counts_failures_that_were_not_made_up_for(tmp_path):
    out, tasks = tmp_path / "run", write_sums(tmp_path / "t.jsonl", 2)

    def behave(request):
        return refusal_of(400, "no") if "0 + 1" in request.messages[-1].text else add_up(request)

    collect_all(tasks, behave, out=out)
    metrics = measure(out).metrics()
    assert (metrics.num_present, metrics.num_scored) == (2, 1)
    assert (metrics.mean_reward, metrics.strict_mean_reward) == (1.0, 0.5)
    assert metrics.failures == {"RequestRefusedError": 1}


def test_measure_counts_a_failed_verifier_of_nemo_gym_as_unscored(tmp_path):
    """Its reward of 0 means nothing, and is no part of any mean."""
    lines = [
        {**NEMO, "reward": 1.0, "extracted_answer": "7", "reward_components": {"form": 1.0}},
        {**NEMO, "reward": 0.0, "_ng_rollout_index": 1, "_ng_failure_class": "judge_failed"},
    ]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    metrics = measure(path, env="arithmetic").metrics()
    assert (metrics.num_scored, metrics.num_unscored, metrics.mean_reward) == (1, 1, 1.0)
    assert metrics.failures == {"judge_failed": 1}
    assert metrics.components == {"form": 1.0}
    assert metrics.majority_at_k is not None
