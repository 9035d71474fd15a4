"""Tests of reports on rescoring: its effects, and verifiers that disagree with themselves."""

import asyncio
import itertools
import math
import statistics
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.metrics.measure import measure
from gymcli.mock import MockServer
from gymcli.rescoring.line_rescoring import Rescored
from gymcli.rescoring.run_rescoring import Repeats, Rescoring
from gymcli.rollout.verifier_worker import ErrorReply
from gymcli.runner.judges import Judges
from gymcli.store.scored_lines import ScoredLine
from gymcli.types import AttemptKey
from tests.builders import FLAKY, collect_all, lines_of, write_prompts, write_rows, write_sums
from tests.metrics.aggregating import aggregate
from tests.runner.test_roles import JUDGED, collected, endpoint_of

GRADED = '''"""An environment whose verifier returns components and metrics with the reward."""

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

FICKLE = '''"""Environments whose verifiers disagree with themselves."""

import itertools
from pathlib import Path

from gymcli import Context, Environment, Rollout, Score, Task

CALLS = itertools.count()


class Fickle(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(float(next(CALLS) % 2))


class Hashed(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        words = {f"word {number}" for number in range(1_000)}
        return Score(float(next(iter(words))[5:]))


class Failing(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        if next(CALLS) % 2:
            raise RuntimeError("not now")
        return Score(1.0)


class Grouped(Environment[Task]):
    """Say anything."""

    max_reward = None

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        first = next(CALLS) % len(rollouts)
        return [Score(float(number == first)) for number in range(len(rollouts))]


class Recorded(Fickle):
    """Say anything."""

    rescore = "recorded"
'''


def fickle(tmp_path, monkeypatch, name, num=6, **fields):
    """Return a Rescoring of this many rollouts by one of these verifiers."""
    monkeypatch.chdir(tmp_path)
    Path("fickle.py").write_text(FICKLE)
    write_rollouts(Path("r.jsonl"), num, **fields)
    return Rescoring(Path("r.jsonl"), env=f"fickle.py:{name}")


def write_rollouts(path, num, **fields):
    lines = [
        {
            "schema_version": 1,
            "env": "fickle",
            "env_version": "1",
            "task_id": f"t{number}",
            "attempt": 0,
            "messages": [{"role": "assistant", "content": "x"}],
            "reward": 1.0,
            **fields,
        }
        for number in range(num)
    ]
    write_rows(path, lines)


def test_a_verifier_that_counts_its_calls_is_found(tmp_path, monkeypatch):
    """Each repeat has its own processes, with a different number of calls made first."""
    report = fickle(tmp_path, monkeypatch, "Fickle").repeat(3)
    assert (report.num_rollouts, report.num_disagreeing, report.num_faulty) == (6, 6, 6)
    assert [found.rewards for found in report.disagreements[:2]] == [
        [0.0, 1.0, 0.0],
        [1.0, 0.0, 1.0],
    ]
    assert report.largest_spread == 1.0
    [agreement] = report.environments.values()
    assert (agreement.asks_models, agreement.agreement) == (False, 0.0)
    assert agreement.mean_rewards == [0.5] * 3
    # The sample variance of 0, 1, 0 and of 1, 0, 1.
    assert agreement.within_variance == pytest.approx(1 / 3)
    assert agreement.verifier_error == pytest.approx(math.sqrt(1 / 3 / 6))
    assert agreement.standard_error == pytest.approx(math.sqrt(0.3 / 6))
    assert agreement.verifier_share == 1.0, "the ratio is above 1 by chance, and capped"


def test_a_verifier_that_counts_its_calls_is_found_among_many(tmp_path, monkeypatch):
    """Here workers read the file themselves."""
    rescoring = fickle(tmp_path, monkeypatch, "Fickle", num=200, final_state="x" * 50_000)
    report = rescoring.repeat(2)
    assert report.num_rollouts == 200
    assert report.num_disagreeing >= 20


@pytest.mark.slow
def test_the_order_of_a_set_is_found(tmp_path, monkeypatch):
    """Each repeat has its own processes, with another hash seed."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    report = fickle(tmp_path, monkeypatch, "Hashed", num=1).repeat(6)
    assert report.num_faulty == 1
    assert len(set(report.disagreements[0].rewards)) > 1


def test_a_verifier_that_fails_now_and_then_disagrees(tmp_path, monkeypatch):
    report = fickle(tmp_path, monkeypatch, "Failing").repeat(2)
    assert (report.num_disagreeing, report.num_failed) == (6, 0)
    assert [found.rewards for found in report.disagreements[:2]] == [[1.0, None], [None, 1.0]]
    assert report.errors == {"VerifierError: RuntimeError: not now": 6}
    [agreement] = report.environments.values()
    assert (agreement.mean_rewards, agreement.within_variance) == ([], None)


def test_groups_are_scored_together_each_time(tmp_path, monkeypatch):
    rescoring = fickle(tmp_path, monkeypatch, "Grouped", num=0)
    lines = [{"task_id": "t", "attempt": attempt} for attempt in range(3)]
    made = [
        {
            "schema_version": 1,
            "env": "fickle",
            "env_version": "1",
            "messages": [{"role": "assistant", "content": "x"}],
            "reward": 0.0,
            **line,
        }
        for line in lines
    ]
    write_rows("r.jsonl", made)
    rescoring = Rescoring(Path("r.jsonl"), env="fickle.py:Grouped")
    report = rescoring.repeat(3)
    assert (report.num_rollouts, report.num_faulty) == (3, 3)
    assert [found.rewards for found in report.disagreements] == [
        [1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [0.0, 0.0, 1.0],
    ]
    [agreement] = report.environments.values()
    assert agreement.verifier_error == 0.0, "the mean of the group is the same each time"
    assert agreement.within_variance == pytest.approx(1 / 3)


def test_rollouts_that_are_not_scored_again_are_counted_apart(tmp_path, monkeypatch):
    report = fickle(tmp_path, monkeypatch, "Recorded").repeat(2)
    assert (report.num_not_rescored, report.num_rollouts, report.environments) == (6, 0, {})


def test_a_sound_verifier_agrees_with_itself(tmp_path):
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=tmp_path / "run", repeats=2)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    seen = []
    report = Rescoring(tmp_path / "run").repeat(2, watch=lambda r: seen.append(r.num_scores))
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert (report.num_rollouts, report.num_disagreeing, report.errors) == (8, 0, {})
    [agreement] = report.environments.values()
    assert (agreement.agreement, agreement.verifier_error) == (1.0, 0.0)
    assert seen[-1] == 16


def test_no_rollout_has_nothing_to_repeat(tmp_path, monkeypatch):
    report = fickle(tmp_path, monkeypatch, "Fickle", num=0).repeat(2)
    assert (report.num_rollouts, report.num_failed, report.environments) == (0, 0, {})


@pytest.mark.parametrize("num", [1, 600])
def test_an_attempt_that_is_there_twice_is_refused(tmp_path, monkeypatch, num):
    """It is refused before another repeat is paid for: it would look like a disagreement."""
    rescoring = fickle(tmp_path, monkeypatch, "Fickle", num=num)
    first = Path("r.jsonl").read_bytes().splitlines(keepends=True)[0]
    with Path("r.jsonl").open("ab") as file:
        file.write(first)
    seen = []
    with pytest.raises(RunFileError, match="task 't0' of environment 'fickle', attempt 0, is sc"):
        rescoring.repeat(2, watch=lambda repeats: seen.append(repeats.num_scores))
    assert seen[-1] == num + 1


def repeated(run, behaviour, num_repeats):
    """Repeat the scoring of a run with a judge on a server; return the report and the server."""

    def repeat(server):
        judges = Judges({"judge": endpoint_of(server, "j")})
        return Rescoring(run, env=JUDGED, judges=judges).repeat(num_repeats)

    async def main():
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(MockServer(behaviour))
            return await asyncio.to_thread(repeat, server), server

    return asyncio.run(main())


def test_a_judge_is_asked_each_time_and_nothing_is_kept(tmp_path):
    """Verdicts on record are not reused; a judge that changes its mind is no verifier's fault."""
    run = tmp_path / "run"
    collected(write_prompts(tmp_path / "t.jsonl", 4), out=run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    answers = itertools.cycle(["[[GOOD]]"] * 4 + ["[[BAD]]"] * 4)
    report, judge = repeated(run, lambda _: next(answers), 3)
    assert judge.num_requests == 12
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert (report.num_rollouts, report.num_disagreeing, report.num_faulty) == (4, 4, 0)
    assert [found.rewards for found in report.disagreements] == [[1.0, 0.0, 1.0]] * 4
    [agreement] = report.environments.values()
    assert agreement.asks_models
    assert agreement.mean_rewards == [1.0, 0.0, 1.0]


def test_equal_requests_of_one_repeat_are_asked_each(tmp_path):
    """Two rollouts with equal answers share no verdict, even when judged concurrently."""
    run = tmp_path / "run"
    collected(write_prompts(tmp_path / "t.jsonl", 3), policy=lambda _: "gold", out=run)
    assert len(lines_of(run / "verdicts.jsonl")) == 1
    report, judge = repeated(run, lambda _: "[[GOOD]]", 2)
    assert judge.num_requests == 6
    assert report.num_disagreeing == 0


rewards = st.sampled_from([0.0, 0.25, 1.0])
noisy = st.integers(2, 4).flatmap(
    lambda num: st.lists(
        st.lists(st.lists(rewards, min_size=num, max_size=num), min_size=1, max_size=3),
        min_size=2,
        max_size=5,
    )
)


@given(noisy)
def test_repeats_have_the_numbers_of_their_definition(found):
    """Means and errors equal those of `gym metrics`, and the other numbers their formulas."""
    num_repeats = len(found[0][0])
    repeats = Repeats(num_repeats, lambda env: False)
    for number in range(num_repeats):
        for task, attempts in enumerate(found):
            for attempt, own in enumerate(attempts):
                key = AttemptKey("quiz", f"t{task}", attempt)
                item = Rescored(key=key, old_reward=None, new_reward=own[number])
                repeats.add([item], is_first=number == 0)
    report = repeats.report()
    agreement = report.environments["quiz"]
    of_each = [
        aggregate(
            ScoredLine(env="quiz", task_id=f"t{task}", attempt=attempt, reward=own[number])
            for task, attempts in enumerate(found)
            for attempt, own in enumerate(attempts)
        )
        for number in range(num_repeats)
    ]
    assert agreement.mean_rewards == pytest.approx([one.mean_reward for one in of_each])
    squares = [one.standard_error**2 for one in of_each]
    assert agreement.standard_error == pytest.approx(math.sqrt(statistics.fmean(squares)))
    rollouts = [own for attempts in found for own in attempts]
    assert report.num_disagreeing == sum(len(set(own)) > 1 for own in rollouts)
    assert agreement.within_variance == pytest.approx(
        statistics.fmean(statistics.variance(own) for own in rollouts), abs=1e-12
    )
    of_tasks = [
        statistics.variance([statistics.fmean(values) for values in zip(*attempts, strict=True)])
        for attempts in found
    ]
    assert agreement.verifier_error == pytest.approx(
        math.sqrt(sum(of_tasks)) / len(found), abs=1e-9
    )
    spreads = [max(own) - min(own) for own in rollouts]
    assert agreement.largest_spread == report.largest_spread == max(spreads)


def test_the_first_disagreements_are_listed():
    repeats = Repeats(2, lambda env: True)
    for number, (task, attempt) in itertools.product(
        range(2), itertools.product(range(600), range(2))
    ):
        key = AttemptKey("quiz", f"t{task}", attempt)
        repeats.add(
            [Rescored(key=key, old_reward=0.0, new_reward=float(number))], is_first=not number
        )
    report = repeats.report()
    assert (report.num_disagreeing, len(report.disagreements), report.num_faulty) == (
        1_200,
        1_000,
        0,
    )


def test_what_was_never_scored_agrees_with_nothing():
    repeats = Repeats(2, lambda env: False)
    error = ErrorReply("VerifierError", "no")
    for number in range(2):
        key = AttemptKey("quiz", "t", 0)
        failed = Rescored(key=key, old_reward=1.0, new_reward=None, error=error)
        repeats.add([failed], is_first=not number)
    report = repeats.report()
    assert (report.num_failed, report.num_disagreeing) == (1, 0)
    assert report.environments["quiz"].agreement is None
    assert report.errors == {"VerifierError: no": 2}


@pytest.fixture
def run(tmp_path) -> Path:
    """Return a run of four sums, two attempts each, all correct."""
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=tmp_path / "run", repeats=2)
    return tmp_path / "run"


def change(run: Path, scores) -> None:
    """Change the recorded scores of the first rollouts, by task and attempt."""
    lines = lines_of(run / "rollouts.jsonl")
    lines.sort(key=lambda line: (line["task_id"], line["attempt"]))
    for line, score in zip(lines, scores, strict=False):
        line.update(score)
    write_rows(run / "rollouts.jsonl", lines)


def told(tmp_path, monkeypatch, scores, **environment):
    """Return a run with these scores by task and attempt, and a function that rescores it."""
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
    write_rows(Path("run/rollouts.jsonl"), lines)
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
    assert report.reasons == {"strict -> correct": 2, "correct -> correct": 1}
    assert {reason: one.num_changed for reason, one in flips.reasons.items()} == report.reasons
    assert flips.reasons["strict -> correct"].num_fail_to_pass == 2
    assert flips.reasons["correct -> correct"].num_down == 1
    assert flips.num_others == 0


def test_effects_equal_those_of_gym_metrics(run, tmp_path):
    """Before equals the run's metrics, after those of the run that --out writes."""
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
        "avg@2": [side.avg_at_k["2"] for side in sides],
        "best@2": [side.best_of_k["2"] for side in sides],
    }.items():
        effect = effects.pop(name)
        assert [effect.before, effect.after] == pytest.approx(values)
        assert effect.difference.value == pytest.approx(values[1] - values[0])
        assert effect.difference.num_clusters == 4
    assert effects == {}
    assert (report.mean_before, report.mean_after) == (sides[0].mean_reward, 1.0)


def test_effects_equal_those_of_gym_metrics_in_any_order_of_lines(tmp_path, monkeypatch):
    """Tasks have different numbers of attempts, and their lines are reversed or far apart."""
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
    assert effects.keys() >= {"micro_mean_reward", "avg@6", "best@6"}
    for name, effect in effects.items():
        assert effect.before == pytest.approx(before[name].value, rel=1e-12)
        assert effect.after == pytest.approx(after[name].value, rel=1e-12)
        assert of_lines[name] == effect
    assert effects["mean_reward"].after != effects["micro_mean_reward"].after


def test_effects_know_the_threshold_of_the_run(run):
    """The threshold is the manifest's; that of a bare file is the environment's."""
    manifest = msgspec.json.decode((run / "run.json").read_bytes())
    manifest["environments"]["arithmetic"]["pass_threshold"] = 0.5
    (run / "run.json").write_bytes(msgspec.json.encode(manifest))
    change(run, [{"reward": 0.75}, {"reward": 0.25}])
    assert Rescoring(run).run().num_fail_to_pass == 1
    assert Rescoring(run / "rollouts.jsonl").run().num_fail_to_pass == 2


def test_other_numbers_that_changed_have_effects(tmp_path, monkeypatch):
    """Unchanged rollouts count on both sides."""
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
    assert set(effects) == {"components.x", "metrics.m", "metrics.n"}, "y does not change"
    x = effects["components.x"]
    assert (x.before, x.after) == (0.75, 0.5)
    assert (x.difference.value, x.difference.num_clusters) == (-0.25, 2)
    assert x.difference.interval.low >= -1.0, "a share has a range"
    assert (effects["metrics.n"].before, effects["metrics.n"].after) == (None, 3.0)
    assert effects["metrics.n"].difference is None
    assert effects["metrics.m"].difference.value == -6.0


def test_other_numbers_of_many_rollouts_are_found_by_workers(tmp_path, monkeypatch):
    """Their results come back in columns."""
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
    # The values 0, 0.1, ... 0.9 become 0.
    assert effect.after == pytest.approx((49.5 - 4.5) / 100)
    assert effect.difference.num_clusters == 100


def test_other_numbers_of_attempts_with_any_index_are_found(tmp_path, monkeypatch):
    """The lines of changed rollouts are not counted twice."""
    last = (1 << 63) - 1
    scores = {
        f"{task}/{attempt}": (
            {"reward": 1.0, "components": {"x": 1.0}},
            {"reward": 1.0, "components": {"x": float(attempt not in (5, last))}},
        )
        for task in ("a", "b")
        for attempt in (0, 5, 7, last)
    }
    scores["b/6"] = ({"reward": 1.0, "components": {"x": 0.0}}, None)
    report = told(tmp_path, monkeypatch, scores).run()
    x = report.environments["graded"].effects["components.x"]
    assert (x.before, x.after, x.difference.num_values) == (1.0, 0.5, 16)


@pytest.mark.parametrize("num_expected", [6, 10])
def test_strict_mean_counts_what_the_verifier_cannot_score(tmp_path, monkeypatch, num_expected):
    """Before and after equal `gym metrics`, here with an attempt that had already failed."""
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
    write_rows(
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


def test_effects_are_by_environment(working_folder):
    """One of the rollouts of another environment had no score before."""
    Path("flaky.py").write_text(FLAKY)
    collect_all(write_sums(Path("t.jsonl"), 3), out=Path("run"))
    lines = lines_of(Path("run/rollouts.jsonl"))
    lines += [{**line, "env": "flaky", "reward": 0.0} for line in lines]
    lines[0]["reward"] = 0.0
    del lines[-1]["reward"]
    write_rows(Path("r.jsonl"), lines)
    report = Rescoring(Path("r.jsonl"), env="flaky.py:Flaky").run()
    changed = {env: flips.num_changed for env, flips in report.environments.items()}
    assert changed == {"arithmetic": 1, "flaky": 3}
    flaky = report.environments["flaky"].effects
    assert (flaky["mean_reward"].before, flaky["mean_reward"].after) == (0.0, 1.0)
    assert flaky["mean_reward"].difference.num_clusters == 2
    assert flaky["strict_mean_reward"].difference.num_clusters == 3
    assert report.mean_before is None
