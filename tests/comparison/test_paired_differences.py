"""Numbers of two runs, and of one run with two verifiers: differences as `compare` finds them."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymcli.comparison.paired_differences import (
    PairedAttempts,
    number_effects,
    parse_measure,
    reward_effects,
)
from gymcli.errors import RunFileError, UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.at_k import TaskRewards
from gymcli.metrics.intervals import t_interval
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.types import ErrorRecord
from tests.comparison.paired_tasks import compared, paired
from tests.metrics.aggregating import aggregate

BEST = EnvironmentFacts(max_reward=1.0)

share = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 1000).map(lambda n: n / 1000))
both = st.lists(st.tuples(share, share), min_size=1, max_size=4)
tasks = st.lists(both, min_size=1, max_size=8)


def rescored(tasks):
    """Return attempts with both verifiers' rewards, as pairs by task; None is unscored."""
    scores = PairedAttempts("quiz")
    for number, pairs in enumerate(tasks):
        add_scores(scores, f"t{number}", pairs)
    return scores


def add_scores(scores, task_id, pairs, attempts=None):
    attempts = range(len(pairs)) if attempts is None else attempts
    for table, rewards in zip((scores.a, scores.b), zip(*pairs, strict=True), strict=True):
        rewards = [math.nan if reward is None else reward for reward in rewards]
        table.extend([task_id] * len(pairs), attempts, reward=rewards)


def effects_of(found, facts=BEST):
    return reward_effects(rescored(found), facts)


@given(tasks)
@example([[(0.0, 0.5), (0.5, 0.0)], [(0.0, 1e-231)]])
@example([[(0.3, 0.1 + 0.2)], [(1.0, 1.0)]])
def test_effects_are_the_differences_of_compare(found):
    effects = effects_of(found)
    assert {"mean_reward", "strict_mean_reward", "pass@1"} <= effects.keys()
    del effects["micro_mean_reward"]  # which `compare` does not have
    pairs = [tuple(map(list, zip(*task, strict=True))) for task in found]
    for name, effect in effects.items():
        metric = name.removeprefix("strict_")
        expected = compared(paired(pairs), metric=metric)
        assert effect.before == expected.mean_a
        assert effect.after == expected.mean_b
        own, other = effect.difference, expected.difference
        assert own.num_clusters == other.num_clusters
        if not name.startswith("avg@"):  # for which `compare` takes every attempt
            assert own.num_values == other.num_values
        assert own.estimator == other.estimator
        assert own.value == other.value
        assert own.standard_error == other.standard_error
        # `compare` judges other tasks, too: its interval is at least as wide.
        if own.interval is not None:
            assert other.interval.low <= own.interval.low
            assert own.interval.high <= other.interval.high


@given(tasks)
def test_effects_of_the_same_scores_are_none(found):
    same = [[(before, before) for before, _ in task] for task in found]
    for effect in effects_of(same).values():
        assert effect.before == effect.after
        assert effect.difference.value == 0.0


@given(tasks)
def test_effects_the_other_way_round_are_the_opposite(found):
    there = effects_of(found)
    back = effects_of([[(after, before) for before, after in task] for task in found])
    for name, effect in there.items():
        assert back[name].before == effect.after
        assert back[name].difference.value == pytest.approx(-effect.difference.value, abs=1e-12)
        assert back[name].difference.standard_error == pytest.approx(
            effect.difference.standard_error, abs=1e-12
        )


@given(tasks)
def test_effects_cover_every_number_of_rewards_in_gym_metrics(found):
    """Before and after agree with `gym metrics`; names that mean the same number are left out."""
    effects = effects_of(found)
    sides = [metrics_of(found, which, BEST).estimates for which in (0, 1)]
    assert effects.keys() == sides[0].keys() - {"pass^1", "best@1"}
    for name, effect in effects.items():
        assert effect.before == pytest.approx(sides[0][name].value, rel=1e-12)
        assert effect.after == pytest.approx(sides[1][name].value, rel=1e-12)
        assert effect.difference.num_values == 2 * sides[0][name].num_values
        assert effect.difference.num_clusters == sides[0][name].num_clusters


@given(st.lists(both, min_size=2, max_size=8))
@example([[(0.3, 0.1 + 0.2)], [(1.0, 1.0), (0.0, 0.0)]])
@example([[(0.0, 1.0)] * 4, [(0.0, 0.0)], [(1.0, 0.0)] * 2])
def test_the_micro_mean_has_the_error_of_a_ratio_clustered_by_task(found):
    effect = effects_of(found)["micro_mean_reward"]
    differences = [[after - before for before, after in task] for task in found]
    values = [value for task in differences for value in task]
    centre = math.fsum(values) / len(values)
    squares = [math.fsum(value - centre for value in task) ** 2 for task in differences]
    error = math.sqrt(math.fsum(squares) * len(found) / (len(found) - 1)) / len(values)
    difference = effect.difference
    assert difference.value == pytest.approx(centre, abs=1e-12)
    assert difference.standard_error == pytest.approx(error, rel=1e-9, abs=1e-12)
    if difference.standard_error:
        low, high = t_interval(difference.value, error, num_clusters=len(found), level=0.95)
        interval = difference.interval
        assert interval.low == pytest.approx(max(low, -1.0), abs=1e-9)
        assert interval.high == pytest.approx(min(high, 1.0), abs=1e-9)


@given(st.lists(st.tuples(share, share), min_size=2, max_size=8), st.integers(1, 4))
def test_the_micro_mean_of_equally_many_attempts_is_the_mean(found, num_attempts):
    effects = effects_of([[pair] * num_attempts for pair in found])
    micro, macro = (effects[name] for name in ("micro_mean_reward", "mean_reward"))
    assert (micro.before, micro.after) == (macro.before, macro.after)
    assert micro.difference.value == macro.difference.value
    assert micro.difference.standard_error == pytest.approx(macro.difference.standard_error)


partly = st.lists(
    st.lists(st.tuples(st.none() | share, st.none() | share), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)


def metrics_of(found, which, facts):
    """Return what `gym metrics` computes for one of the sides."""
    aggregator = Aggregator({"quiz": facts})
    for number, task in enumerate(found):
        for attempt, rewards in enumerate(task):
            key = {"env": "quiz", "task_id": f"t{number}", "attempt": attempt}
            if rewards[which] is None:
                error = ErrorRecord(error_class="E", phase="verify")
                aggregator.add_failure(FailureLine(error=error, **key))
            else:
                aggregator.add_scored_lines([ScoredLine(reward=rewards[which], **key)])
    return aggregator.metrics()


@given(partly, st.sampled_from([None, 0, 7]))
def test_strict_mean_reward_is_that_of_both_runs(found, more):
    """With attempts that one or both verifiers left unscored, and attempts that are missing."""
    num_expected = None if more is None else more + sum(map(len, found))
    facts = EnvironmentFacts(max_reward=1.0, num_expected=num_expected)
    effect = effects_of(found, facts)["strict_mean_reward"]
    assert effect.before == pytest.approx(metrics_of(found, 0, facts).strict_mean_reward)
    assert effect.after == pytest.approx(metrics_of(found, 1, facts).strict_mean_reward)
    assert effect.difference.value == pytest.approx(effect.after - effect.before, abs=1e-12)


@pytest.mark.parametrize(
    ("facts", "rewards"),
    [
        (EnvironmentFacts(can_be_negative=True), (0.0, 1.0)),
        (EnvironmentFacts(), (0.5, -0.5)),
    ],
)
def test_rewards_that_can_be_negative_have_no_strict_mean(facts, rewards):
    assert effects_of([[rewards]], facts).keys() == {"mean_reward", "micro_mean_reward", "avg@1"}


def test_one_task_has_no_interval():
    effect = effects_of([[(0.0, 1.0)]])["mean_reward"]
    assert effect.difference.standard_error is None
    assert effect.difference.interval is None


def test_no_end_of_an_interval_lies_beyond_the_range():
    found = [[(0.0, 1.0)], [(0.0, 1.0)], [(0.0, 0.5)]]
    assert effects_of(found)["mean_reward"].difference.interval.high == 1.0
    assert effects_of(found, EnvironmentFacts())["mean_reward"].difference.interval.high > 1.0


def test_pass_at_k_is_over_tasks_with_k_attempts():
    found = [[(0.0, 1.0), (1.0, 1.0)], [(0.0, 1.0)]]
    effects = effects_of(found)
    assert [effects[name].difference.num_clusters for name in ("pass@1", "pass@2")] == [2, 1]
    assert "pass^1" not in effects


def test_numbers_of_k_attempts_are_over_tasks_with_k_attempts():
    """As in `gym metrics`, k is each power of 2 and the largest number of attempts."""
    found = [
        [(0.0, 1.0), (1.0, 1.0), (0.0, 1.0)],
        [(0.5, 0.0)],
        [(0.0, 0.0), (0.0, 0.5), (0.0, 0.0), (0.5, 0.5), (1.0, 1.0)],
    ]
    effects = effects_of(found)
    counts = {name: effect.difference.num_clusters for name, effect in effects.items()}
    assert {name: num for name, num in counts.items() if name.startswith(("avg", "best"))} == {
        "avg@5": 1,
        "best@2": 2,
        "best@4": 1,
        "best@5": 1,
    }
    assert (effects["avg@5"].before, effects["avg@5"].after) == (0.3, 0.4)
    assert (effects["best@5"].before, effects["best@5"].after) == (1.0, 1.0)


def test_rounding_errors_of_equal_means_are_no_difference():
    scores = rescored([[(1.0, 1.0)] * 2, [(1.0, 1.0)]])
    scores.a.extend_named("metrics", 0, [{"n": 0.1 + 0.2}, {"n": 0.3}, {"n": 0.3}])
    scores.b.extend_named("metrics", 0, [{"n": 0.3}, {"n": 0.1 + 0.2}, {"n": 0.1 + 0.2}])
    difference = number_effects(scores)["metrics.n"].difference
    assert (difference.value, difference.standard_error) == (0.0, 0.0)
    assert (difference.interval.low, difference.interval.high) == (0.0, 0.0)


def test_no_task_has_no_effect():
    assert effects_of([]) == {}


def test_attempts_that_failed_are_added_where_there_is_no_rollout():
    scores = rescored([[(1.0, 1.0), (None, 0.0)], [(0.0, 1.0)]])
    scores.add_unscored({("t0", 0), ("t0", 1), ("t1", 5), ("t9", 0)})
    ids = list(scores.task_numbers)
    for table, reward in ((scores.a, math.nan), (scores.b, 0.0)):
        keys = zip(table["task"].tolist(), table["attempt"].tolist(), strict=True)
        rewards = table["reward"].tolist()
        assert dict(zip([(ids[n], attempt) for n, attempt in keys], rewards, strict=True)) == {
            ("t0", 0): 1.0,
            ("t0", 1): pytest.approx(reward, nan_ok=True),
            ("t1", 0): float(table is scores.b),
            ("t1", 5): pytest.approx(math.nan, nan_ok=True),
            ("t9", 0): pytest.approx(math.nan, nan_ok=True),
        }


@given(partly)
def test_means_are_those_of_gym_metrics(found):
    """Over the attempts that both verifiers scored."""
    means = rescored(found).means()
    for which in (0, 1):
        lines = [
            ScoredLine(env="quiz", task_id=f"t{number}", attempt=attempt, reward=both[which])
            for number, task in enumerate(found)
            for attempt, both in enumerate(task)
            if None not in both
        ]
        assert (means and means[which]) == (aggregate(lines).mean_reward if lines else None)


def test_means_refuse_an_attempt_that_is_there_twice():
    scores = PairedAttempts("quiz")
    add_scores(scores, "a", [(0.0, 1.0)] * 2, attempts=[1, 1])
    add_scores(scores, "b", [(0.0, 1.0)])
    with pytest.raises(RunFileError) as caught:
        scores.means()
    assert str(caught.value) == (
        "task 'a' of environment 'quiz', attempt 1, is scored by two lines; delete one of them"
    )


def value_of(name, rewards, threshold):
    """Return the value of one task."""
    found = parse_measure(name).values(TaskRewards(np.array([rewards]), threshold))
    return None if found is None else found.tolist()[0]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("mean_reward", [1.0, 0.0, 0.5], 0.5),
        ("pass@1", [1.0, 0.0, 0.5], 1 / 3),
        ("pass@2", [1.0, 0.0, 0.0], 2 / 3),
        ("pass@4", [1.0, 0.0, 0.0], None),
        ("pass^2", [1.0, 1.0, 0.0], 1 / 3),
        ("avg@2", [1.0, 0.5, 0.0], 0.75),
        ("best@2", [0.0, 1.0], 1.0),
        ("components.format", [1.0, 3.0], 2.0),
        ("metrics.steps", [4.0], 4.0),
    ],
)
def test_value_of_a_task(name, values, expected):
    assert value_of(name, values, 1.0) == (None if expected is None else pytest.approx(expected))


def test_success_needs_a_threshold():
    for name in ("pass@1", "pass^2"):
        assert parse_measure(name).needs_threshold
        assert value_of(name, [1.0, 1.0], None) is None
    assert not parse_measure("best@2").needs_threshold


@pytest.mark.parametrize(
    "name", ["majority@2", "micro_mean_reward", "pass@0", "pass@", "pass@-1", "components.", "cost"]
)
def test_metrics_without_a_value_per_task_are_refused_with_a_list(name):
    with pytest.raises(UsageError, match="mean_reward, pass@K, pass\\^K") as raised:
        parse_measure(name)
    assert f"--metric {name}: " in str(raised.value)


def test_misspelt_metric_gets_a_suggestion():
    with pytest.raises(UsageError, match='did you mean "pass@5"'):
        parse_measure("pas@5")
