"""What rescoring changed, and the effects: of rewards, of other numbers, of what is not scored."""

from pathlib import Path

import msgspec
import pytest

from gymcli.runner.measure import measure
from gymcli.runner.rescoring import Rescoring
from tests.commands.running import FLAKY, lines_of, write_sums
from tests.runner.collecting import collect_all

GRADED = '''"""An environment whose verifier gives numbers beside the reward."""

import json
from pathlib import Path

from gymcli import Context, Environment, Rollout, Score, Task


class Graded(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        told = json.loads(Path("told.json").read_text())
        score = told[f"{rollout.task_id}/{rollout.attempt}"]
        if score is None:
            raise RuntimeError("told to")
        return Score(**score)
'''


@pytest.fixture
def run(tmp_path) -> Path:
    """Give a run of four sums, two attempts each, all right."""
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=tmp_path / "run", repeats=2)
    return tmp_path / "run"


def write_lines(path: Path, lines) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def change(run: Path, scores) -> None:
    """Give the first rollouts other scores on record, by task and attempt."""
    lines = lines_of(run / "rollouts.jsonl")
    lines.sort(key=lambda line: (line["task_id"], line["attempt"]))
    for line, score in zip(lines, scores, strict=False):
        line.update(score)
    write_lines(run / "rollouts.jsonl", lines)


def told(tmp_path, monkeypatch, scores, **environment):
    """Give a run of these scores by task and attempt, and what scores it as it is told to."""
    monkeypatch.chdir(tmp_path)
    Path("graded.py").write_text(GRADED)
    lines = [
        {
            "schema_version": 1,
            "env": "graded",
            "env_version": "1",
            "task_id": key.split("/")[0],
            "attempt": int(key.split("/")[1]),
            "messages": [{"role": "assistant", "content": "x"}],
            **before,
        }
        for key, (before, _) in scores.items()
    ]
    Path("run").mkdir()
    write_lines(Path("run/rollouts.jsonl"), lines)
    Path("told.json").write_bytes(
        msgspec.json.encode({key: after for key, (_, after) in scores.items()})
    )
    record = {"version": "1", "max_reward": 1.0, "num_expected": len(scores), **environment}
    manifest = {
        "environments": {"graded": record},
        "model": "m",
        "num_expected": record["num_expected"],
    }
    Path("run/run.json").write_bytes(msgspec.json.encode(manifest))
    return Rescoring(Path("run"), env="graded.py:Graded")


def test_a_run_without_changes_has_no_effects(run):
    report = Rescoring(run).run()
    assert report.environments == {}
    assert (report.num_fail_to_pass, report.num_pass_to_fail) == (0, 0)


def test_flips_are_counted_by_reason_and_by_where_they_went(run):
    strict = {"details": {"reason": "strict"}}
    change(run, [{"reward": 0.0, **strict}, {"reward": 0.25, **strict}, {"reward": 2.0}])
    report = Rescoring(run).run()
    [(env, flips)] = report.environments.items()
    assert env == "arithmetic"
    for counts in (report, flips):
        assert (counts.num_changed, counts.num_up, counts.num_down) == (3, 2, 1)
        assert (counts.num_fail_to_pass, counts.num_pass_to_fail) == (2, 0)
    assert report.reasons == {"strict -> -": 2, "- -> -": 1}
    assert {reason: one.num_changed for reason, one in flips.reasons.items()} == report.reasons
    assert flips.reasons["strict -> -"].num_fail_to_pass == 2
    assert flips.reasons["- -> -"].num_down == 1
    assert flips.num_others == 0


def test_effects_are_over_tasks_and_as_gym_metrics_has_them(run, tmp_path):
    """Before as in the run, after as in the run that --out makes."""
    change(run, [{"reward": 0.0}, {"reward": 0.0}, {"reward": 0.0}])
    report = Rescoring(run, out=tmp_path / "again").run()
    effects = report.environments["arithmetic"].effects
    sides = [measure(path).metrics() for path in (run, tmp_path / "again")]
    for name, values in {
        "mean_reward": [side.mean_reward for side in sides],
        "micro_mean_reward": [side.micro_mean_reward for side in sides],
        "strict_mean_reward": [side.strict_mean_reward for side in sides],
        "pass@1": [side.pass_at_k["1"] for side in sides],
        "pass@2": [side.pass_at_k["2"] for side in sides],
        "pass^2": [side.pass_hat_k["2"] for side in sides],
        "avg@1": [side.avg_at_k["1"] for side in sides],
        "avg@2": [side.avg_at_k["2"] for side in sides],
        "best@2": [side.best_of_k["2"] for side in sides],
    }.items():
        effect = effects.pop(name)
        assert [effect.before, effect.after] == pytest.approx(values)
        assert effect.difference.value == pytest.approx(values[1] - values[0])
        assert effect.difference.num_clusters == 4
    assert effects == {}
    assert (report.mean_before, report.mean_after) == (sides[0].mean_reward, 1.0)


def test_effects_are_as_gym_metrics_has_them_in_any_order_of_lines(tmp_path, monkeypatch):
    """Of tasks with unequally many attempts, whose lines stand backwards, or far apart."""
    keys = [f"t{task:02}/{attempt}" for task in range(40) for attempt in reversed(range(task % 6))]
    scores = {
        key: ({"reward": place % 5 / 4}, {"reward": (3 * place + 1) % 7 / 6})
        for place, key in enumerate([*keys, "t05/5", "t00/1", "t03/4"])
    }
    told(tmp_path, monkeypatch, scores)
    rescoring = Rescoring(Path("run"), env="graded.py:Graded", out=Path("again"))
    effects = rescoring.run().environments["graded"].effects
    of_lines = Rescoring(Path("run"), env="graded.py:Graded").run().environments["graded"].effects
    before, after = [measure(Path(path)).metrics().estimates for path in ("run", "again")]
    assert effects.keys() == of_lines.keys() == before.keys() - {"pass^1", "best@1"}
    assert effects.keys() >= {"micro_mean_reward", "avg@4", "best@6"}
    for name, effect in effects.items():
        assert effect.before == pytest.approx(before[name].value, rel=1e-12)
        assert effect.after == pytest.approx(after[name].value, rel=1e-12)
        assert of_lines[name] == effect
    assert effects["mean_reward"].after != effects["micro_mean_reward"].after


def test_effects_know_the_threshold_of_the_run(run):
    """The manifest's; of a bare file it is that of the environment."""
    manifest = msgspec.json.decode((run / "run.json").read_bytes())
    manifest["environments"]["arithmetic"]["pass_threshold"] = 0.5
    (run / "run.json").write_bytes(msgspec.json.encode(manifest))
    change(run, [{"reward": 0.75}, {"reward": 0.25}])
    assert Rescoring(run).run().num_fail_to_pass == 1
    assert Rescoring(run / "rollouts.jsonl").run().num_fail_to_pass == 2


def test_other_numbers_that_changed_have_effects(tmp_path, monkeypatch):
    """The rollouts that stay as they are count on both sides."""
    scores = {
        "a/0": ({"reward": 1.0, "components": {"x": 1.0, "y": 2.0}}, {"x": 0.0, "y": 2.0}),
        "a/1": ({"reward": 1.0, "components": {"x": 1.0, "y": 4.0}}, {"x": 1.0, "y": 4.0}),
        "b/0": ({"reward": 1.0, "components": {"x": 0.5}}, {"x": 0.5}),
        "c/0": ({"reward": 1.0}, {}),
        "d/0": ({"reward": 1.0, "components": {"x": 1.0}}, None),
    }
    numbers = {"reward": 1.0, "metrics": {"n": 3.0}}
    scores = {
        key: (before, None if after is None else {**numbers, "components": after})
        for key, (before, after) in scores.items()
    }
    scores["c/0"][1]["metrics"] = {}
    scores["e/0"] = ({"reward": 1.0, "metrics": {"m": 1.0}}, {"reward": 0.0, "metrics": {"m": -5}})
    report = told(tmp_path, monkeypatch, scores).run()
    flips = report.environments["graded"]
    assert (flips.num_changed, flips.num_others, report.num_failed) == (2, 3, 1)
    assert report.num_pass_to_fail == 1
    effects = {name: e for name, e in flips.effects.items() if name.startswith(("comp", "metr"))}
    assert set(effects) == {"components.x", "metrics.m", "metrics.n"}, "y stays as it is"
    x = effects["components.x"]
    assert (x.before, x.after) == (0.75, 0.5)
    assert (x.difference.value, x.difference.num_clusters) == (-0.25, 2)
    assert x.difference.interval.low >= -1.0, "as a share it has a range"
    assert (effects["metrics.n"].before, effects["metrics.n"].after) == (None, 3.0)
    assert effects["metrics.n"].difference is None
    assert effects["metrics.m"].difference.value == -6.0


def test_other_numbers_of_many_rollouts_are_found_by_workers(tmp_path, monkeypatch):
    """Whose results come in columns."""
    scores = {
        f"t{n:03}/0": (
            {"reward": 1.0, "components": {"x": n / 100}},
            {"reward": 1.0, "components": {"x": (n if n % 10 else 0) / 100}},
        )
        for n in range(100)
    }
    report = told(tmp_path, monkeypatch, scores).run()
    assert (report.num_rescored, report.num_changed) == (100, 0)
    flips = report.environments["graded"]
    assert flips.num_others == 9
    assert flips.effects.keys() == {"components.x"}
    effect = flips.effects["components.x"]
    assert effect.before == pytest.approx(0.495)
    assert effect.after == pytest.approx((49.5 - 4.5) / 100)
    assert effect.difference.num_clusters == 100


@pytest.mark.parametrize("num_expected", [6, 10])
def test_strict_mean_counts_what_the_verifier_cannot_score(tmp_path, monkeypatch, num_expected):
    """Before and after as gym metrics counts it, with an attempt that had failed anyway."""
    one = {"reward": 1.0}
    scores = {
        "a/0": (one, {"reward": 0.0}),
        "a/1": (one, None),
        "b/0": (one, one),
        "c/0": (one, None),
    }
    rescoring = told(tmp_path, monkeypatch, scores, num_expected=num_expected)
    error = {"class": "E", "phase": "model"}
    failures = [("b", 1), ("a", 1), ("e", 0)]
    write_lines(
        Path("run/failures.jsonl"),
        [
            {"schema_version": 1, "env": "graded", "task_id": t, "attempt": n, "error": error}
            for t, n in failures
        ],
    )
    before = measure(Path("run")).metrics()
    Rescoring(Path("run"), env="graded.py:Graded", out=Path("again")).run()
    after = measure(Path("again")).metrics()
    effects = rescoring.run().environments["graded"].effects
    strict = effects["strict_mean_reward"]
    assert strict.before == pytest.approx(before.strict_mean_reward)
    assert strict.after == pytest.approx(after.strict_mean_reward)
    assert effects["mean_reward"].difference.num_values == 4
    assert (effects["mean_reward"].before, effects["mean_reward"].after) == (1.0, 0.5)


def test_effects_are_by_environment(tmp_path, monkeypatch):
    """With a rollout of others that had no score before."""
    monkeypatch.chdir(tmp_path)
    Path("flaky.py").write_text(FLAKY)
    collect_all(write_sums(Path("t.jsonl"), 3), out=Path("run"))
    lines = lines_of(Path("run/rollouts.jsonl"))
    lines += [{**line, "env": "flaky", "reward": 0.0} for line in lines]
    lines[0]["reward"] = 0.0
    del lines[-1]["reward"]
    write_lines(Path("r.jsonl"), lines)
    report = Rescoring(Path("r.jsonl"), env="flaky.py:Flaky").run()
    changed = {env: flips.num_changed for env, flips in report.environments.items()}
    assert changed == {"arithmetic": 1, "flaky": 3}
    flaky = report.environments["flaky"].effects
    assert (flaky["mean_reward"].before, flaky["mean_reward"].after) == (0.0, 1.0)
    assert flaky["mean_reward"].difference.num_clusters == 2
    assert flaky["strict_mean_reward"].difference.num_clusters == 3
    assert report.mean_before is None
