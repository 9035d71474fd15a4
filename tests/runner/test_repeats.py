"""Rollouts scored several times: who disagrees with itself, and what that does to the mean."""

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
from gymcli.metrics import ScoredLine, aggregate
from gymcli.mock import MockServer
from gymcli.rollout.rescored import Rescored
from gymcli.rollout.verifier_worker import ErrorReply
from gymcli.runner.judging import Judges
from gymcli.runner.repeats import Repeats
from gymcli.runner.rescoring import Rescoring
from gymcli.types import AttemptKey
from tests.commands.running import lines_of, write_sums
from tests.runner.collecting import collect_all
from tests.runner.test_roles import JUDGED, collected, endpoint_of, write_rows

FICKLE = '''"""Environments whose verifiers do not say the same each time."""

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
    """Give what repeats the scoring of so many rollouts by one of these verifiers."""
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
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def test_a_verifier_that_counts_its_calls_is_found(tmp_path, monkeypatch):
    """Though every repeat has processes of its own: each calls it another number of times first."""
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
    assert agreement.within_variance == pytest.approx(1 / 3)
    assert agreement.verifier_error == pytest.approx(math.sqrt(1 / 3 / 6))
    assert agreement.standard_error == pytest.approx(math.sqrt(0.3 / 6))
    assert agreement.verifier_share == 1.0, "by chance it is more"


def test_a_verifier_that_counts_its_calls_is_found_among_many(tmp_path, monkeypatch):
    """Where workers read the file themselves."""
    rescoring = fickle(tmp_path, monkeypatch, "Fickle", num=200, final_state="x" * 50_000)
    report = rescoring.repeat(2)
    assert report.num_rollouts == 200
    assert report.num_disagreeing >= 20


def test_the_order_of_a_set_is_found(tmp_path, monkeypatch):
    """Each repeat has processes of its own, which hash texts in another way."""
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
    Path("r.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in made))
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
    report = fickle(tmp_path, monkeypatch, "Recorded").repeat(3)
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
    """Before another repeat is paid for: as one that disagrees with itself it would look."""
    rescoring = fickle(tmp_path, monkeypatch, "Fickle", num=num)
    first = Path("r.jsonl").read_bytes().splitlines(keepends=True)[0]
    with Path("r.jsonl").open("ab") as file:
        file.write(first)
    seen = []
    with pytest.raises(RunFileError, match="task 't0' of environment 'fickle', attempt 0, is sc"):
        rescoring.repeat(2, watch=lambda repeats: seen.append(repeats.num_scores))
    assert seen[-1] == num + 1


def repeated(run, behaviour, num_repeats):
    """Repeat the scoring of a run whose judge is a server; give the report and the server."""

    def repeat(server):
        judges = Judges({"judge": endpoint_of(server, "j")})
        return Rescoring(run, env=JUDGED, judges=judges).repeat(num_repeats)

    async def main():
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(MockServer(behaviour))
            return await asyncio.to_thread(repeat, server), server

    return asyncio.run(main())


def test_a_judge_is_asked_each_time_and_nothing_is_kept(tmp_path):
    """Past the verdicts on record; that it changes its mind is no fault of the verifier's."""
    run = tmp_path / "run"
    collected(write_rows(tmp_path / "t.jsonl", 4), out=run)
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
    """Two rollouts that say the same share no answer, though they are judged at one time."""
    run = tmp_path / "run"
    collected(write_rows(tmp_path / "t.jsonl", 3), policy=lambda _: "gold", out=run)
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
    """Means and errors of a repeat are those of `gym metrics`; the rest is by hand."""
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
