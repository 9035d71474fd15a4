"""Every number with its estimate: against scipy and statsmodels, and by laws."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.metrics import EnvironmentFacts, FailureLine, ScoredLine, aggregate
from gymcli.metrics.at_k import pass_at_k, pass_hat_k
from gymcli.metrics.curves import Curves
from gymcli.metrics.intervals import wilson_effective_interval
from gymcli.metrics.task_scores import TaskScores
from gymcli.types import ErrorRecord

UNIT = {"quiz": EnvironmentFacts(max_reward=1.0)}

groups = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=6), min_size=1, max_size=8
)


def lines_of(rewards, **fields):
    """Give lines of tasks t0, t1, ... with these rewards."""
    return [
        ScoredLine(env="quiz", task_id=f"t{number}", attempt=attempt, reward=reward, **fields)
        for number, task in enumerate(rewards)
        for attempt, reward in enumerate(task)
    ]


def failed(task_id, attempt):
    """Give a failure line of an attempt."""
    error = ErrorRecord(error_class="ServerError", phase="model")
    return FailureLine(env="quiz", task_id=task_id, attempt=attempt, error=error)


def test_estimates_have_the_names_of_gates():
    rewards = [[1.0, 0.0, 1.0], [0.0, 0.0]]
    lines = lines_of(rewards, components={"style": 0.5}, metrics={"seconds": 2.0}, answer="x")
    found = aggregate(lines, facts=UNIT).estimates
    assert set(found) == {
        *("mean_reward", "micro_mean_reward", "strict_mean_reward"),
        *(
            f"{name}{k}"
            for name in ("pass@", "pass^", "avg@", "majority@", "best@")
            for k in (1, 2, 3)
        ),
        *("components.style", "metrics.seconds"),
    }
    assert all(estimate.estimator for estimate in found.values())


@given(groups)
@settings(max_examples=60)
def test_estimates_are_the_plain_numbers(rewards):
    metrics = aggregate(lines_of(rewards), facts=UNIT)
    found = metrics.estimates
    assert found["mean_reward"].value == metrics.mean_reward
    assert found["mean_reward"].standard_error == metrics.standard_error
    assert found["mean_reward"].interval == metrics.interval
    assert found["micro_mean_reward"].value == metrics.micro_mean_reward
    assert found["micro_mean_reward"].standard_error == metrics.micro_standard_error
    assert found["strict_mean_reward"].value == metrics.strict_mean_reward
    for k, num_tasks in metrics.num_tasks_at_k.items():
        for name, curve in (
            ("pass@", metrics.pass_at_k),
            ("pass^", metrics.pass_hat_k),
            ("avg@", metrics.avg_at_k),
            ("best@", metrics.best_of_k),
        ):
            assert found[f"{name}{k}"].value == curve[k]
            assert found[f"{name}{k}"].num_clusters == num_tasks


@given(groups)
@settings(max_examples=60)
def test_estimates_of_curves_are_over_tasks_with_k_attempts(rewards):
    """Mean and standard error of the tasks' own values, as numpy and scipy have them."""
    found = aggregate(lines_of(rewards), facts=UNIT).estimates
    most = max(map(len, rewards))
    for k in {1, most}:
        tasks = [task for task in rewards if len(task) >= k]
        counts = [(len(task), sum(reward >= 1.0 for reward in task)) for task in tasks]
        for name, values, num_attempts in (
            ("pass@", [pass_at_k(n, c, k) for n, c in counts], sum(map(len, tasks))),
            ("pass^", [pass_hat_k(n, c, k) for n, c in counts], sum(map(len, tasks))),
            ("avg@", [float(np.mean(task[:k])) for task in tasks], k * len(tasks)),
        ):
            estimate = found[f"{name}{k}"]
            assert estimate.value == pytest.approx(np.mean(values))
            assert estimate.num_values == num_attempts
            if len(tasks) > 1:
                assert estimate.standard_error == pytest.approx(scipy.stats.sem(values), abs=1e-12)
                expected = wilson_effective_interval(
                    estimate.value,
                    estimate.standard_error,
                    num_clusters=len(tasks),
                    num_values=num_attempts,
                )
                found_ends = (estimate.interval.low, estimate.interval.high)
                assert found_ends == pytest.approx(expected)


@given(groups)
@settings(max_examples=60)
def test_estimates_lie_in_their_intervals_within_the_range(rewards):
    for estimate in aggregate(lines_of(rewards), facts=UNIT).estimates.values():
        if estimate.interval is not None:
            assert 0.0 <= estimate.interval.low <= estimate.value <= estimate.interval.high <= 1.0
            assert estimate.interval.method == "wilson-neff"


@given(groups, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_estimates_do_not_depend_on_the_order_of_lines(rewards, shuffling):
    lines = lines_of(rewards, components={"style": 0.1}, answer="x")
    shuffled = shuffling.sample(lines, len(lines))
    assert aggregate(lines, facts=UNIT) == aggregate(shuffled, facts=UNIT)


@given(groups, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_pass_estimates_do_not_depend_on_the_order_of_attempts(rewards, shuffling):
    mixed = [shuffling.sample(task, len(task)) for task in rewards]
    one, other = (aggregate(lines_of(tasks), facts=UNIT).estimates for tasks in (rewards, mixed))
    for name in one:
        if not name.startswith("avg@"):
            assert one[name] == other[name]


@given(groups)
@settings(max_examples=40)
def test_pass_at_k_and_pass_hat_k_are_dual(rewards):
    """What passes exchanged with what fails: one is 1 minus the other, with the same error."""
    passes = [[float(reward >= 1.0) for reward in task] for task in rewards]
    fails = [[1.0 - reward for reward in task] for task in passes]
    one, other = (aggregate(lines_of(tasks), facts=UNIT).estimates for tasks in (passes, fails))
    for k in (name.removeprefix("pass@") for name in one if name.startswith("pass@")):
        at, hat = one[f"pass@{k}"], other[f"pass^{k}"]
        assert at.value == pytest.approx(1.0 - hat.value, abs=1e-12)
        if at.standard_error is not None:
            assert at.standard_error == pytest.approx(hat.standard_error, abs=1e-9)
        if at.interval is not None:
            assert at.interval.low == pytest.approx(1.0 - hat.interval.high, abs=1e-9)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_pass_estimates_grow_with_the_passes(num_attempts, k, data):
    num_passes = data.draw(st.integers(0, num_attempts - 1))
    for estimator in (pass_at_k, pass_hat_k):
        fewer, more = (estimator(num_attempts, c, k) for c in (num_passes, num_passes + 1))
        assert (fewer is None and more is None) if k > num_attempts else fewer <= more


@given(groups, st.integers(2, 5))
@settings(max_examples=40)
def test_clustered_errors_do_not_shrink_by_attempts_that_repeat(rewards, times):
    """The same attempts again say nothing new: errors stay as they are."""
    again = [task * times for task in rewards]
    one, other = (aggregate(lines_of(tasks), facts=UNIT).estimates for tasks in (rewards, again))
    for name in ("mean_reward", "micro_mean_reward", "strict_mean_reward", "pass@1"):
        first, second = one[name].standard_error, other[name].standard_error
        assert first == second or second == pytest.approx(first, abs=1e-12)


@given(groups, st.integers(2, 40))
@settings(max_examples=40)
def test_kinds_of_tasks_give_what_each_task_would(rewards, times):
    """Tasks that are alike are taken together: the same numbers, to the last digit."""
    metrics = aggregate(lines_of([task for task in rewards for _ in range(times)]), facts=UNIT)
    curves = Curves(max(map(len, rewards)))
    for task in rewards:
        num_passes = sum(reward >= 1.0 for reward in task)
        for number in range(times):
            curves.add(TaskScores("quiz", str(number), task, None, num_passes))
    for name, title in (("pass_at_k", "pass@"), ("avg_at_k", "avg@"), ("best_of_k", "best@")):
        assert getattr(metrics, name) == curves.curve(name)
        for k, moments in curves.moments(name):
            found = metrics.estimates[f"{title}{k}"]
            assert (found.value, found.standard_error) == (moments.mean, moments.standard_error)
            assert (found.num_values, found.num_clusters) == (
                moments.num_attempts,
                moments.num_values,
            )


def test_micro_mean_error_is_that_of_a_clustered_regression():
    """Unequally many attempts: OLS on a constant, CR1 without statsmodels' (N-1)/(N-k)."""
    rewards = [[1.0, 0.0, 1.0], [0.0], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0]]
    flat = np.array(list(itertools.chain.from_iterable(rewards)))
    tasks = np.repeat(np.arange(4), [len(task) for task in rewards])
    fitted = sm.OLS(flat, np.ones(len(flat))).fit(cov_type="cluster", cov_kwds={"groups": tasks})
    found = aggregate(lines_of(rewards), facts=UNIT).estimates["micro_mean_reward"]
    assert found.value == pytest.approx(fitted.params[0])
    assert found.standard_error == pytest.approx(fitted.bse[0])
    assert (found.num_values, found.num_clusters) == (10, 4)


def test_estimates_scale_with_the_best_reward():
    rewards = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    tens = [[10.0 * reward for reward in task] for task in rewards]
    one = aggregate(lines_of(rewards), facts=UNIT).estimates
    ten = aggregate(lines_of(tens), facts={"quiz": EnvironmentFacts(max_reward=10.0)}).estimates
    for name in ("mean_reward", "avg@2", "best@2", "micro_mean_reward"):
        assert ten[name].interval.high == pytest.approx(10.0 * one[name].interval.high)
        assert ten[name].interval.method == "wilson-neff"
    assert ten["pass@2"].interval == one["pass@2"].interval


def test_estimates_of_unbounded_rewards_are_by_t():
    rewards = [[3.0], [-1.0], [5.0]]
    found = aggregate(lines_of(rewards)).estimates
    expected = scipy.stats.t.interval(0.95, 2, np.mean(rewards), scipy.stats.sem(rewards)[0])
    for name in ("mean_reward", "avg@1", "best@1"):
        assert found[name].interval.method == "t"
        assert (found[name].interval.low, found[name].interval.high) == pytest.approx(expected)
    assert not any(name.startswith("pass") for name in found)
    assert "strict_mean_reward" not in found


def test_estimates_of_named_numbers_are_shares_or_by_t():
    """Only what lies between 0 and 1 throughout is taken for a share."""
    lines = lines_of([[1.0], [0.0], [1.0]])
    for line, style, seconds in zip(lines, (0.5, 1.0, 0.0), (0.5, 30.0, 2.0), strict=True):
        line.components = {"style": style}
        line.metrics = {"seconds": seconds}
    found = aggregate(lines, facts=UNIT).estimates
    assert found["components.style"].interval.method == "wilson-neff"
    assert found["metrics.seconds"].interval.method == "t"
    expected = scipy.stats.t.interval(0.95, 2, 32.5 / 3, scipy.stats.sem([0.5, 30.0, 2.0]))
    interval = found["metrics.seconds"].interval
    assert (interval.low, interval.high) == pytest.approx(expected)


def test_strict_mean_counts_known_failures_by_task():
    """Tasks 1/2, 1, 0 with their absent attempts as 0: sd over the three tasks."""
    failures = [failed("t0", 1), failed("t2", 0)]
    found = aggregate(lines_of([[1.0], [1.0]]), failures, facts=UNIT).estimates
    strict = found["strict_mean_reward"]
    assert strict.value == pytest.approx(0.5)
    assert strict.standard_error == pytest.approx(scipy.stats.sem([0.5, 1.0, 0.0]))
    assert (strict.num_values, strict.num_clusters) == (4, 3)
    assert strict.interval.low >= 0.0


def test_strict_mean_of_attempts_without_a_record_is_the_mean_times_the_coverage():
    facts = {"quiz": EnvironmentFacts(max_reward=1.0, num_expected=8)}
    metrics = aggregate(lines_of([[1.0, 1.0], [1.0, 0.0]]), facts=facts)
    strict = metrics.estimates["strict_mean_reward"]
    assert strict.value == pytest.approx(metrics.micro_mean_reward / 2)
    assert strict.standard_error == pytest.approx(metrics.micro_standard_error / 2)
    assert (strict.num_values, strict.num_clusters) == (8, 2)


def test_strict_mean_of_failures_alone_is_0():
    facts = {"quiz": EnvironmentFacts(max_reward=1.0, num_expected=3)}
    failures = [failed(f"t{number}", 0) for number in range(3)]
    found = aggregate([], failures, facts=facts).estimates
    assert list(found) == ["strict_mean_reward"]
    assert found["strict_mean_reward"].value == 0.0
    assert found["strict_mean_reward"].interval.low == 0.0


def test_estimates_of_huge_rewards_end_no_run():
    """Too large to square: there is a mean, and what can be said of its error."""
    found = aggregate(lines_of([[1e200], [1e200], [1e200]])).estimates
    assert found["avg@1"].value == 1e200
    assert found["avg@1"].standard_error is None
    assert math.isfinite(found["mean_reward"].value)


def test_advice_follows_from_the_numbers():
    advice = aggregate(lines_of([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), facts=UNIT).advice
    text = "\n".join(advice)
    for part in ("fewer than 10 tasks", "lies between tasks", "pass@2 takes", "1 of 3 tasks"):
        assert part in text
