"""Numbers that need fields of the task rows: slices, and what environments compute themselves."""

from pathlib import Path

import msgspec
import pytest

from gymcli.errors import UnknownNameError
from gymcli.runner.measure import measure
from gymcli.runner.merging import Merging
from gymcli.runner.rescoring import Rescoring
from gymcli.types import SCHEMA_VERSION, ErrorRecord, Failure, Rollout
from tests.runner.collecting import collect_all

STYLED = '''"""An environment with numbers of its own."""

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
    """Give a line of a run of ours."""
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
    """Give of each slice its number of scores and its mean."""
    found = measure(path, by=[field]).metrics().slices[field]
    return {name: (part.num_scored, part.mean_reward) for name, part in found.items()}


def test_measure_slices_a_run_of_ours(tmp_path):
    """Many blocks of lines, so that none is read after what follows it has taken its place."""
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
    """A blank line among them, and a last one that was not finished."""
    path = tmp_path / "r.jsonl"
    lines = [rollout(0, {"kind": "a"}), b"\n", rollout(1, {"kind": 3}), rollout(2, {})]
    path.write_bytes(b"".join(lines) + rollout(3, {"kind": "b"})[:-30])
    assert shares(path, "kind") == {"3": (1, 1.0), "a": (1, 1.0), "(none)": (1, 1.0)}


def test_measure_slices_rollouts_of_nemo_gym(tmp_path):
    """Their rows have the fields at the top or under `verifier_metadata`; a failure counts too."""
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
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))
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
    """Give a run of the environment with numbers of its own: two tasks, one of them hard."""
    (tmp_path / "styled.py").write_text(STYLED)
    rows = [
        {"task_id": str(n), "prompt": f"What is {n} + 1?", "kind": "x", "meta": {"level": n}}
        for n in (1, 2)
    ]
    tasks = tmp_path / "t.jsonl"
    tasks.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
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


def test_collection_leaves_them_in_the_run_directory(styled_run):
    written = msgspec.json.decode((styled_run / "metrics.json").read_bytes())
    assert written["environment_metrics"] == {"hard_style": 0.5, "num_hard": 1.0}
    manifest = msgspec.json.decode((styled_run / "run.json").read_bytes())
    assert manifest["environments"]["styled"]["computes_metrics"] is True


@pytest.mark.parametrize("command", ["merge", "verify"])
def test_a_new_run_of_a_run_has_them_too(styled_run, tmp_path, command):
    """Where the code is given; else there is a warning that says so."""
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


def test_measure_looks_for_no_environment_without_numbers_of_its_own(tmp_path):
    """The manifest says that there are none, and nothing is imported for them."""
    manifest = {"schema_version": 1, "environments": {"riddles": {"max_reward": 1.0}}}
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(manifest))
    (tmp_path / "rollouts.jsonl").write_bytes(rollout(0, {}))
    aggregator = measure(tmp_path)
    assert aggregator.metrics().environments["arithmetic"].num_scored == 1
    assert aggregator.warnings == []
