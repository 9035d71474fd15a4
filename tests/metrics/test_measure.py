"""Tests of measuring a run or a file: its numbers, its slices by field, and its index."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gymcli.errors import RunFileError, UnknownNameError, UsageError
from gymcli.metrics.measure import index_run, measure
from gymcli.mock.behaviours import refusal_of
from gymcli.rescoring.run_rescoring import Rescoring
from gymcli.runner.merging import Merging
from gymcli.types import SCHEMA_VERSION, ErrorRecord, Failure, Rollout
from tests.builders import (
    FLAKY,
    add_up,
    collect_all,
    lines,
    lines_of,
    scored,
    write_rows,
    write_run,
    write_sums,
)

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
    assert metrics.pass_at_k == {"1": 1.0}, "the installed environment defines success"


def test_measure_of_a_folder_without_a_manifest(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), lambda _: refusal_of(400, "no"), out=out)
    (out / "run.json").unlink()
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_unscored) == (None, 2)


def test_measure_of_a_run_that_has_only_begun(tmp_path):
    """With nothing but a manifest, everything is expected and nothing is present."""
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
    """The agent's name is the environment's; the row's index distinguishes the tasks."""
    lines = [
        {**NEMO, "agent_ref": {"name": "arithmetic_simple_agent"}, "_ng_task_index": index}
        for index in range(2)
    ]
    write_rows(tmp_path / "r.jsonl", lines)
    metrics = measure(tmp_path / "r.jsonl").metrics()
    assert list(metrics.environments) == ["arithmetic"]
    assert (metrics.num_scored, metrics.usage["completion_tokens"]) == (2, 2)
    assert metrics.pass_at_k == {"1": 1.0}


def test_measure_reads_a_file_in_which_lines_of_ours_and_of_nemo_gym_are_mixed(tmp_path):
    """A line without a version, or with version 0, is not gymcli's, even if its other keys fit."""
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    ours = lines_of(out / "rollouts.jsonl")
    nemo = {**NEMO, "agent_ref": {"name": "arithmetic"}, "task_id": "n", "attempt": 7}
    mixed = [ours[0], nemo, ours[1], {**nemo, "schema_version": 0, "task_id": "m"}]
    write_rows(tmp_path / "r.jsonl", mixed)
    metrics = measure(tmp_path / "r.jsonl").metrics()
    assert (metrics.num_scored, metrics.num_tasks) == (4, 4)
    own_tokens = sum(line["usage"]["prompt_tokens"] for line in ours)
    assert metrics.usage["prompt_tokens"] == own_tokens + 2 * 5


def test_import_loads_nothing_that_only_environments_need():
    """Measuring a run directory does not wait for these imports."""
    command = (
        "import sys; from gymcli.metrics.measure import measure; print([name for name in "
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
    with pytest.raises(UsageError, match="use --env NAME"):
        measure(tmp_path / "r.jsonl")
    with pytest.raises(UnknownNameError, match='no environment "mqca"'):
        measure(tmp_path / "r.jsonl", env="mqca")


def test_measure_of_an_environment_that_is_not_here(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    lines = [{**line, "env": "riddles"} for line in lines_of(out / "rollouts.jsonl")]
    write_rows(tmp_path / "r.jsonl", lines)
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
    write_rows(path, lines)
    with pytest.raises(RunFileError, match=rf"r\.jsonl:2: .*{message}"):
        measure(path)


def test_measure_returns_a_standard_error_of_the_largest_numbers(tmp_path):
    rollout = {"schema_version": 1, "env": "arithmetic"}
    lines = [{**rollout, "task_id": str(n), "reward": 1e100 * (-1) ** n} for n in range(4)]
    path = tmp_path / "r.jsonl"
    path.write_bytes(
        b"".join(
            msgspec.json.encode({**line, "attempt": a}) + b"\n" for line in lines for a in (0, 1)
        )
    )
    metrics = measure(path).metrics()
    # Four means of +-1e100 have a sample variance of 4/3 * 1e200, which is divided by four.
    assert metrics.standard_error == pytest.approx(1e100 / 3**0.5)
    assert metrics.micro_standard_error == pytest.approx(metrics.standard_error)


def test_measure_counts_failures_without_a_later_score(tmp_path):
    out, tasks = tmp_path / "run", write_sums(tmp_path / "t.jsonl", 2)

    def behave(request):
        return refusal_of(400, "no") if "0 + 1" in request.messages[-1].text else add_up(request)

    collect_all(tasks, behave, out=out)
    metrics = measure(out).metrics()
    assert (metrics.num_present, metrics.num_scored) == (2, 1)
    assert (metrics.mean_reward, metrics.strict_mean_reward) == (1.0, 0.5)
    assert metrics.failures == {"RequestRefusedError": 1}


def test_measure_counts_a_failed_verifier_of_nemo_gym_as_unscored(tmp_path):
    """Its reward of 0 means nothing and is in no mean."""
    lines = [
        {**NEMO, "reward": 1.0, "extracted_answer": "7", "reward_components": {"form": 1.0}},
        {**NEMO, "reward": 0.0, "_ng_rollout_index": 1, "_ng_failure_class": "judge_failed"},
    ]
    path = tmp_path / "r.jsonl"
    write_rows(path, lines)
    metrics = measure(path, env="arithmetic").metrics()
    assert (metrics.num_scored, metrics.num_unscored, metrics.mean_reward) == (1, 1, 1.0)
    assert metrics.failures == {"judge_failed": 1}
    assert metrics.components == {"form": 1.0}
    assert metrics.majority_at_k is not None


STYLED = '''"""An environment with metrics of its own."""

from gymcli import Context, Environment, Group, Message, Rollout, Score, Task


class Styled(Environment[Task]):
    """Say anything."""

    slice_fields = ("kind", "meta.level")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0, components={"style": 0.5})

    @classmethod
    def metrics(cls, groups) -> dict[str, float]:
        found = list(groups)
        assert all(isinstance(group, Group) for group in found)
        hard = [group for group in found if group.fields["meta.level"] == 2]
        styles = [score.components["style"] for group in hard for score in group.scores]
        return {"hard_style": sum(styles) / len(styles), "num_hard": len(hard)}
'''


def rollout(number: int, task: dict[str, object], *, reward: float = 1.0) -> bytes:
    """Return a line of a run."""
    record = Rollout(
        schema_version=SCHEMA_VERSION,
        env="arithmetic",
        task_id=f"t{number}",
        attempt=0,
        task=task,
        reward=reward,
    )
    return msgspec.json.encode(record) + b"\n"


def shares(path: Path, field: str) -> dict[str, tuple[int, float | None]]:
    """Return the number of scores and the mean of each slice."""
    found = measure(path, by=[field]).metrics().slices[field]
    return {name: (part.num_scored, part.mean_reward) for name, part in found.items()}


def test_measure_slices_a_run_of_ours(tmp_path):
    """Many blocks, so that reading a line after its buffer was reused would show."""
    path = tmp_path / "r.jsonl"
    filler = "x" * 300
    lines = [
        rollout(n, {"text": filler, "meta": {"kind": f"k{n % 3}"}}, reward=float(n % 3 == 0))
        for n in range(1500)
    ]
    path.write_bytes(b"".join(lines))
    expected = {"k0": (500, 1.0), "k1": (500, 0.0), "k2": (500, 0.0)}
    assert shares(path, "task.meta.kind") == expected
    assert shares(path, "meta.kind") == expected


def test_measure_slices_lines_that_are_read_one_by_one(tmp_path):
    """One line is blank, and the last one is incomplete."""
    path = tmp_path / "r.jsonl"
    lines = [rollout(0, {"kind": "a"}), b"\n", rollout(1, {"kind": 3}), rollout(2, {})]
    path.write_bytes(b"".join(lines) + rollout(3, {"kind": "b"})[:-30])
    assert shares(path, "kind") == {"3": (1, 1.0), "a": (1, 1.0), "(none)": (1, 1.0)}


def test_measure_slices_rollouts_of_nemo_gym(tmp_path):
    """Fields are at the top of a row or under `verifier_metadata`; failures count as well."""
    line = {
        "responses_create_params": {"input": "What is 1 + 1?"},
        "response": {"output": []},
        "reward": 1.0,
        "agent_ref": {"name": "arithmetic_simple_agent"},
    }
    lines = [
        {**line, "_ng_task_index": 0, "kind": "sum"},
        {**line, "_ng_task_index": 1, "verifier_metadata": {"kind": "sum"}},
        {**line, "_ng_task_index": 2, "kind": "product", "_ng_failure_class": "judge_failed"},
    ]
    path = tmp_path / "r.jsonl"
    write_rows(path, lines)
    slices = measure(path, by=["task.kind"]).metrics().environments["arithmetic"].slices
    found = {n: (p.num_scored, p.num_unscored) for n, p in slices["task.kind"].items()}
    assert found == {"product": (0, 1), "sum": (2, 0)}


def test_measure_slices_failures_by_the_scores_of_their_tasks(tmp_path):
    (tmp_path / "rollouts.jsonl").write_bytes(rollout(0, {"kind": "a"}))
    failures = [
        Failure(
            env="arithmetic",
            task_id=task_id,
            attempt=1,
            error=ErrorRecord(error_class="ServerError", phase="model"),
        )
        for task_id in ("t0", "t7")
    ]
    lines = [msgspec.json.encode(failure) + b"\n" for failure in failures]
    (tmp_path / "failures.jsonl").write_bytes(b"".join(lines))
    slices = measure(tmp_path, by=["kind"]).metrics().slices["kind"]
    assert {name: part.num_unscored for name, part in slices.items()} == {"a": 1, "(none)": 1}


@pytest.fixture
def styled_run(tmp_path: Path) -> Path:
    """Return a run of the environment with its own metrics: two tasks, one of them hard."""
    (tmp_path / "styled.py").write_text(STYLED)
    rows = [
        {"task_id": str(n), "prompt": f"What is {n} + 1?", "kind": "x", "meta": {"level": n}}
        for n in (1, 2)
    ]
    tasks = tmp_path / "t.jsonl"
    write_rows(tasks, rows)
    collect_all(tasks, env=f"{tmp_path / 'styled.py'}:Styled", out=tmp_path / "run", repeats=2)
    return tmp_path / "run"


def test_measure_asks_an_environment_that_was_given(styled_run, tmp_path):
    spec = f"{tmp_path / 'styled.py'}:Styled"
    aggregator = measure(styled_run, env=spec)
    found = aggregator.metrics().environments["styled"]
    assert found.environment_metrics == {"hard_style": 0.5, "num_hard": 1.0}
    assert aggregator.warnings == []
    bare = measure(styled_run / "rollouts.jsonl", env=spec).metrics()
    assert bare.environment_metrics == found.environment_metrics


def test_measure_says_which_environment_could_not_be_asked(styled_run):
    aggregator = measure(styled_run)
    assert aggregator.metrics().environment_metrics == {}
    [warning] = aggregator.warnings
    assert warning.startswith('the metrics of environment styled are left out: no environment "st')
    assert "--env FILE.py:CLASS" in warning


def test_a_collection_writes_the_metrics_of_its_environments(styled_run):
    written = msgspec.json.decode((styled_run / "metrics.json").read_bytes())
    assert written["environment_metrics"] == {"hard_style": 0.5, "num_hard": 1.0}
    manifest = msgspec.json.decode((styled_run / "run.json").read_bytes())
    assert manifest["environments"]["styled"]["computes_metrics"] is True


@pytest.mark.parametrize("command", ["merge", "verify"])
def test_merged_and_rescored_runs_have_the_metrics_of_their_environments(
    styled_run, tmp_path, command
):
    """This needs the environment's code; a warning says so when it is missing."""
    spec = f"{tmp_path / 'styled.py'}:Styled"
    warnings: list[str] = []
    if command == "verify":
        Rescoring(styled_run, env=spec, out=tmp_path / "new").run()
    else:
        merging = Merging([styled_run], warn=warnings.append)
        merging.write_run(tmp_path / "without")
        assert [text.partition(":")[0] for text in warnings] == [
            "the metrics of environment styled are left out"
        ]
        assert merging.write_run(tmp_path / "new", env=spec).num_scored == 4
    written = msgspec.json.decode((tmp_path / "new" / "metrics.json").read_bytes())
    assert written["environment_metrics"] == {"hard_style": 0.5, "num_hard": 1.0}


def test_measure_refuses_code_that_is_not_there(styled_run):
    with pytest.raises(UnknownNameError, match='no environment "stiled"'):
        measure(styled_run, env="stiled")


def test_measure_imports_no_environment_without_metrics(tmp_path):
    """The manifest says that there are none, so that nothing is imported."""
    manifest = {"schema_version": 1, "environments": {"riddles": {"max_reward": 1.0}}}
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(manifest))
    (tmp_path / "rollouts.jsonl").write_bytes(rollout(0, {}))
    aggregator = measure(tmp_path)
    assert aggregator.metrics().environments["arithmetic"].num_scored == 1
    assert aggregator.warnings == []


def test_index_run_asks_the_environment_from_which_reward_it_passes(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    records = [scored("a", env="mcqa"), scored("b", 0, 0.0, env="mcqa"), scored("c", env="nobody")]
    path.write_bytes(lines(*records))
    with index_run(path) as index:
        assert [row.passed for row in index.rows] == [True, False, None]


def test_index_run_believes_the_manifest_first(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0, 0.5)], threshold=0.5)
    with index_run(run, env="arithmetic") as index:
        assert index.rows[0].passed


def test_index_run_names_environments_as_they_are_called_here(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(lines(scored("a", env="mcqa_simple_agent")))
    with index_run(path) as index:
        assert index.rows[0].env == "mcqa"


def test_index_run_refuses_a_name_that_was_given_and_is_not_there(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(
        b'{"responses_create_params": {}, "response": {"output": []}, "reward": 1.0}\n'
    )
    with pytest.raises(UnknownNameError, match="nobody"):
        index_run(path, env="nobody")
