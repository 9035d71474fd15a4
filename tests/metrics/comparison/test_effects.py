"""Effects of another verifier: differences as `compare` finds them, means as of `gym metrics`."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymcli.metrics import Aggregator, EnvironmentFacts, FailureLine, ScoredLine
from gymcli.metrics.alike import Alike
from gymcli.metrics.comparison import (
    PairedMoments,
    PairedTask,
    Rule,
    RunSide,
    TwiceScored,
    compare,
    parse_measure,
    reward_effects,
)
from gymcli.metrics.estimators import clustered_standard_error
from gymcli.metrics.intervals import t_interval
from gymcli.types import ErrorRecord

BEST = EnvironmentFacts(max_reward=1.0)

share = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 1000).map(lambda n: n / 1000))
both = st.lists(st.tuples(share, share), min_size=1, max_size=4)
tasks = st.lists(both, min_size=1, max_size=8)


def twice(found):
    return [TwiceScored(*(tuple(own) for own in zip(*task, strict=True))) for task in found]


@given(tasks)
@example([[(0.0, 0.5), (0.5, 0.0)], [(0.0, 1e-231)]])
@example([[(0.3, 0.1 + 0.2)], [(1.0, 1.0)]])
def test_effects_are_the_differences_of_compare(found):
    effects = reward_effects(twice(found), BEST)
    assert {"mean_reward", "strict_mean_reward", "pass@1", "avg@1"} <= effects.keys()
    del effects["micro_mean_reward"]  # which `compare` does not have
    for name, effect in effects.items():
        measure = parse_measure(name.removeprefix("strict_"))
        paired = [
            PairedTask("quiz", f"t{number}", *map(list, zip(*task, strict=True)))
            for number, task in enumerate(found)
        ]
        expected = compare(
            paired,
            a=RunSide(run="a"),
            b=RunSide(run="b"),
            facts={"quiz": BEST},
            measure=measure,
            rule=Rule(),
        )
        assert effect.before == pytest.approx(expected.mean_a)
        assert effect.after == pytest.approx(expected.mean_b)
        own, other = effect.difference, expected.difference
        assert own.num_clusters == other.num_clusters
        if not name.startswith("avg@"):  # of which `compare` counts all attempts, not the first k
            assert own.num_values == other.num_values
        assert own.estimator == other.estimator
        assert own.value == pytest.approx(other.value, abs=1e-9)
        assert own.standard_error == pytest.approx(other.standard_error, abs=1e-7)
        assert (own.interval is None) == (other.interval is None)
        if own.interval is not None:
            assert own.interval.low == pytest.approx(other.interval.low, abs=1e-6)
            assert own.interval.high == pytest.approx(other.interval.high, abs=1e-6)


@given(tasks)
def test_effects_of_the_same_scores_are_none(found):
    same = [TwiceScored(task.before, task.before) for task in twice(found)]
    for effect in reward_effects(same, BEST).values():
        assert effect.before == effect.after
        assert effect.difference.value == 0.0


@given(tasks)
def test_effects_the_other_way_round_are_the_opposite(found):
    there = reward_effects(twice(found), BEST)
    back = reward_effects([TwiceScored(t.after, t.before) for t in twice(found)], BEST)
    for name, effect in there.items():
        assert back[name].before == effect.after
        assert back[name].difference.value == pytest.approx(-effect.difference.value, abs=1e-12)
        assert back[name].difference.standard_error == pytest.approx(
            effect.difference.standard_error, abs=1e-12
        )


@given(tasks)
def test_effects_are_on_every_number_of_rewards_that_gym_metrics_has(found):
    """Before and after as it has them of either side, but for what is there by another name."""
    effects = reward_effects(twice(found), BEST)
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
    effect = reward_effects(twice(found), BEST)["micro_mean_reward"]
    differences = [Alike([after - before for before, after in task]) for task in found]
    values = [value for task in differences for value in task.rewards]
    difference, error = effect.difference, clustered_standard_error(differences)
    assert difference.value == pytest.approx(math.fsum(values) / len(values), abs=1e-12)
    assert difference.standard_error == pytest.approx(error, rel=1e-9, abs=1e-12)
    if difference.standard_error:
        low, high = t_interval(difference.value, error, num_clusters=len(found), level=0.95)
        interval = difference.interval
        assert interval.low == pytest.approx(max(low, -1.0), abs=1e-9)
        assert interval.high == pytest.approx(min(high, 1.0), abs=1e-9)


@given(st.lists(st.tuples(share, share), min_size=2, max_size=8), st.integers(1, 4))
def test_the_micro_mean_of_equally_many_attempts_is_the_mean(found, num_attempts):
    effects = reward_effects(twice([[pair] * num_attempts for pair in found]), BEST)
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
    """Give what `gym metrics` says of one of the runs."""
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
    """With attempts that one verifier, or both, did not score, and others that never came."""
    num_expected = None if more is None else more + sum(map(len, found))
    facts = EnvironmentFacts(max_reward=1.0, num_expected=num_expected)
    twice_scored = [
        TwiceScored(
            tuple(a for a, b in task if a is not None and b is not None),
            tuple(b for a, b in task if a is not None and b is not None),
            tuple(a for a, b in task if a is not None and b is None),
            tuple(b for a, b in task if a is None and b is not None),
            sum(a is None and b is None for a, b in task),
        )
        for task in found
    ]
    effect = reward_effects(twice_scored, facts)["strict_mean_reward"]
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
    effects = reward_effects([TwiceScored((rewards[0],), (rewards[1],))], facts)
    assert effects.keys() == {"mean_reward", "micro_mean_reward", "avg@1"}


def test_one_task_has_no_interval():
    effect = reward_effects([TwiceScored((0.0,), (1.0,))], BEST)["mean_reward"]
    assert effect.difference.standard_error is None
    assert effect.difference.interval is None


def test_no_end_of_an_interval_lies_beyond_the_range():
    found = [TwiceScored((0.0,), (1.0,)), TwiceScored((0.0,), (1.0,)), TwiceScored((0.0,), (0.5,))]
    assert reward_effects(found, BEST)["mean_reward"].difference.interval.high == 1.0
    unknown = reward_effects(found, EnvironmentFacts())["mean_reward"]
    assert unknown.difference.interval.high > 1.0


def test_pass_at_k_is_over_tasks_that_have_so_many_attempts():
    found = [TwiceScored((0.0, 1.0), (1.0, 1.0)), TwiceScored((0.0,), (1.0,))]
    effects = reward_effects(found, BEST)
    assert [effects[name].difference.num_clusters for name in ("pass@1", "pass@2")] == [2, 1]
    assert "pass^1" not in effects


def test_what_k_rewards_are_worth_is_over_tasks_that_have_so_many():
    """For each k of `gym metrics`: powers of 2, and the most attempts of all."""
    found = [
        TwiceScored((0.0, 1.0, 0.0), (1.0, 1.0, 1.0)),
        TwiceScored((0.5,), (0.0,)),
        TwiceScored((0.0, 0.0, 0.0, 0.5, 1.0), (0.0, 0.5, 0.0, 0.5, 1.0)),
    ]
    effects = reward_effects(found, BEST)
    counts = {name: effect.difference.num_clusters for name, effect in effects.items()}
    assert {name: num for name, num in counts.items() if name.startswith(("avg", "best"))} == {
        "avg@1": 3,
        "avg@2": 2,
        "avg@4": 1,
        "avg@5": 1,
        "best@2": 2,
        "best@4": 1,
        "best@5": 1,
    }
    assert (effects["avg@2"].before, effects["avg@2"].after) == (0.25, 0.625)
    assert (effects["best@5"].before, effects["best@5"].after) == (1.0, 1.0)


def test_as_many_tasks_as_are_counted_at_a_time_and_more():
    found = [TwiceScored((n / 20_000,), (1.0 - n / 20_000,)) for n in range(20_000)]
    effect = reward_effects(found, BEST)["mean_reward"]
    assert effect.before == math.fsum(t.before[0] for t in found) / 20_000
    assert effect.difference.num_clusters == 20_000


def test_what_rounding_leaves_of_equal_means_is_no_difference():
    moments = PairedMoments()
    moments.add(0.1 + 0.2, 0.3, num_attempts=2)
    moments.add(0.3, 0.3, num_attempts=2)
    difference = moments.effect(best=None, level=0.95).difference
    assert (difference.value, difference.standard_error) == (0.0, 0.0)
    assert (difference.interval.low, difference.interval.high) == (0.0, 0.0)


def test_no_task_has_no_effect():
    assert PairedMoments().effect(best=None, level=0.95) is None
    assert reward_effects([], BEST) == {}
