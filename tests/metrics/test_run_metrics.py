"""Estimates of all numbers, and the advice drawn from them, against scipy, statsmodels and laws."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from gymcli.metrics.at_k import pass_at_k, pass_hat_k
from gymcli.metrics.intervals import NO_SCALE, Scale, interval_of, wilson_effective_interval
from gymcli.metrics.results import Bounds, Interval, Metrics, NoAnswers, Variance
from gymcli.metrics.run_metrics import advice_of, best_num_attempts, estimate_of
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine, ScoredDetails, ScoredLine
from gymcli.types import LARGEST, ErrorRecord
from tests.metrics.aggregating import aggregate

UNIT = {"quiz": EnvironmentFacts(max_reward=1.0)}

groups = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=6), min_size=1, max_size=8
)


def lines_of(rewards, **fields):
    """Return lines of tasks t0, t1, ... with these rewards."""
    return [
        ScoredLine(env="quiz", task_id=f"t{number}", attempt=attempt, reward=reward, **fields)
        for number, task in enumerate(rewards)
        for attempt, reward in enumerate(task)
    ]


def failed(task_id, attempt):
    """Return the failure line of an attempt."""
    error = ErrorRecord(error_class="ServerError", phase="model")
    return FailureLine(env="quiz", task_id=task_id, attempt=attempt, error=error)


def test_estimates_have_the_names_of_gates():
    rewards = [[1.0, 0.0, 1.0], [0.0, 0.0]]
    lines = lines_of(rewards, components={"style": 0.5}, metrics={"seconds": 2.0}, answer="x")
    found = aggregate(lines, facts=UNIT).estimates
    assert set(found) == {
        *("mean_reward", "micro_mean_reward", "strict_mean_reward"),
        *(f"{name}{k}" for name in ("pass@", "pass^", "majority@", "best@") for k in (1, 2, 3)),
        "avg@3",
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
            ("best@", metrics.best_of_k),
        ):
            assert found[f"{name}{k}"].value == curve[k]
            assert found[f"{name}{k}"].num_clusters == num_tasks
    [(most, value)] = metrics.avg_at_k.items()
    assert found[f"avg@{most}"].value == value


@given(groups)
@settings(max_examples=60)
def test_estimates_of_curves_are_over_tasks_with_k_attempts(rewards):
    """The mean and standard error of the tasks' values agree with numpy and scipy."""
    found = aggregate(lines_of(rewards), facts=UNIT).estimates
    most = max(map(len, rewards))
    for k in {1, most}:
        tasks = [task for task in rewards if len(task) >= k]
        counts = [(len(task), sum(reward >= 1.0 for reward in task)) for task in tasks]
        is_graded = any(0.0 < reward < 1.0 for task in rewards for reward in task)
        expected_values = [
            ("pass@", [pass_at_k(n, c, k) for n, c in counts], sum(map(len, tasks))),
            ("pass^", [pass_hat_k(n, c, k) for n, c in counts], sum(map(len, tasks))),
        ]
        if k == most:
            firsts = [float(np.mean(task[:k])) for task in tasks]
            expected_values.append(("avg@", firsts, k * len(tasks)))
        for name, values, num_attempts in expected_values:
            estimate = found[f"{name}{k}"]
            assert estimate.value == pytest.approx(np.mean(values))
            assert estimate.num_values == num_attempts
            if len(tasks) > 1:
                assert estimate.standard_error == pytest.approx(scipy.stats.sem(values), abs=1e-12)
                expected = wilson_effective_interval(
                    estimate.value,
                    estimate.standard_error,
                    num_clusters=len(tasks),
                    max_size=math.inf if is_graded and name == "avg@" else num_attempts,
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
    """With passes and failures exchanged, one is 1 minus the other, with the same error."""
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
def test_clustered_errors_do_not_shrink_with_duplicated_attempts(rewards, times):
    """Duplicated attempts carry no information, so the errors stay."""
    again = [task * times for task in rewards]
    one, other = (aggregate(lines_of(tasks), facts=UNIT).estimates for tasks in (rewards, again))
    for name in ("mean_reward", "micro_mean_reward", "strict_mean_reward", "pass@1"):
        first, second = one[name].standard_error, other[name].standard_error
        assert first == second or second == pytest.approx(first, abs=1e-12)


def test_micro_mean_error_is_that_of_a_clustered_regression():
    """With unequal numbers of attempts: OLS on a constant, CR1 without the factor (N-1)/(N-k)."""
    rewards = [[1.0, 0.0, 1.0], [0.0], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0]]
    flat = np.array(list(itertools.chain.from_iterable(rewards)))
    tasks = np.repeat(np.arange(4), [len(task) for task in rewards])
    fitted = sm.OLS(flat, np.ones(len(flat))).fit(cov_type="cluster", cov_kwds={"groups": tasks})
    found = aggregate(lines_of(rewards), facts=UNIT).estimates["micro_mean_reward"]
    assert found.value == pytest.approx(fitted.params[0])
    assert found.standard_error == pytest.approx(fitted.bse[0])
    assert (found.num_values, found.num_clusters) == (10, 4)


def test_estimates_of_graded_rewards_are_as_narrow_as_their_variance():
    """100 tasks with rewards of 0.8 ± 0.05: two standard errors, not what passes would have."""
    rewards = np.random.default_rng(1).normal(0.8, 0.05, (100, 2)).clip(0.0, 1.0)
    lines = lines_of(rewards.tolist(), components={"style": 0.5})
    metrics = aggregate(lines, facts=UNIT)
    for name in ("mean_reward", "micro_mean_reward", "strict_mean_reward", "avg@2", "best@2"):
        found = metrics.estimates[name]
        width = found.interval.high - found.interval.low
        assert found.interval.method == "wilson-neff"
        assert width == pytest.approx(2 * 1.984 * found.standard_error, rel=0.02)
    equal = metrics.estimates["components.style"].interval
    assert (equal.low, equal.high) == pytest.approx(
        wilson_effective_interval(0.5, 0.0, num_clusters=100)
    ), "without a spread, each task counts as one trial"


def test_estimates_of_rewards_that_are_0_or_the_best_count_no_more_than_all_attempts():
    """By chance each task passes once in two attempts, so no error is seen between them."""
    found = aggregate(lines_of([[0.0, 1.0]] * 19 + [[1.0, 1.0]]), facts=UNIT)
    expected = wilson_effective_interval(
        found.mean_reward, found.standard_error, num_clusters=20, max_size=40
    )
    assert (found.interval.low, found.interval.high) == expected
    assert found.interval.high - found.interval.low > 0.25


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


def test_estimates_of_named_numbers_have_wilson_or_t_intervals():
    """Only a number that is always between 0 and 1 gets the interval of a proportion."""
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
    """Tasks score 1/2, 1 and 0 with absent attempts as 0; the error comes from these three."""
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


def test_estimates_of_the_largest_rewards_are_finite():
    """`LARGEST` is the largest reward that a line may have."""
    found = aggregate(lines_of([[LARGEST], [-LARGEST], [LARGEST]])).estimates
    assert found["best@1"].value == pytest.approx(LARGEST / 3)
    assert all(math.isfinite(found[name].standard_error) for name in ("avg@1", "mean_reward"))


def test_advice_follows_from_the_numbers():
    advice = aggregate(lines_of([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), facts=UNIT).advice
    text = "\n".join(advice)
    for part in ("fewer than 10 tasks", "lies between tasks", "1 of 3 tasks"):
        assert part in text


means = st.lists(st.just(0.0) | st.floats(1e-100, 1), min_size=2, max_size=40)
thousandths = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=2, max_size=40)
"""Means that are equal or differ by more than rounding errors, also after scaling."""
LEVEL = 0.95


def of(values, *, best, num_attempts=4, is_graded=False):
    """Return the estimate of tasks' values."""
    return estimate_of(
        np.array(values),
        estimator="mean of task means",
        num_values=num_attempts * len(values),
        scale=Scale(best, is_graded),
        level=LEVEL,
    )


@given(means, st.floats(0.01, 1e6))
def test_estimate_interval_contains_the_value_within_the_range(values, best):
    found = of([best * value for value in values], best=best)
    assert found.interval.method == "wilson-neff"
    assert 0.0 <= found.interval.low <= found.value <= found.interval.high <= best


@given(thousandths, st.floats(0.01, 1e3))
def test_estimate_scales_with_its_range(values, best):
    unit, scaled = of(values, best=1.0), of([best * value for value in values], best=best)
    assert scaled.value == pytest.approx(best * unit.value, rel=1e-9, abs=1e-12)
    expected = (best * unit.interval.low, best * unit.interval.high)
    assert (scaled.interval.low, scaled.interval.high) == pytest.approx(expected, abs=1e-6 * best)


@given(means)
def test_estimate_of_single_attempts_is_wilson_with_one_trial_less(values):
    """Single passes and failures: the effective size is G - 1, before Student's t is applied."""
    passes = [float(value > 0.5) for value in values]
    num_tasks, rate = len(passes), sum(passes) / len(passes)
    found = of(passes, best=1.0, num_attempts=1)
    ratio = scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, num_tasks - 1)
    size = (num_tasks - 1 if 0 < rate < 1 else num_tasks) * ratio**2
    expected = proportion_confint(rate * size, size, alpha=0.05, method="wilson")
    assert (found.interval.low, found.interval.high) == pytest.approx(expected, abs=1e-9)


def test_estimate_error_is_that_of_a_clustered_regression():
    """With equal numbers of attempts: OLS on a constant, errors clustered by task (CR1)."""
    rewards = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1.0]])
    tasks = np.repeat(np.arange(5), 4)
    model = sm.OLS(rewards.ravel(), np.ones(20))
    # statsmodels multiplies by G/(G-1) * (N-1)/(N-k), which is CR1's factor for a constant.
    fitted = model.fit(cov_type="cluster", cov_kwds={"groups": tasks})
    found = of(list(rewards.mean(axis=1)), best=1.0)
    assert found.standard_error == pytest.approx(fitted.bse[0])
    assert (found.num_values, found.num_clusters) == (20, 5)


def test_estimate_of_values_outside_the_range_has_a_t_interval():
    values = [0.5, 1.5, 2.0, -1.0]
    found = of(values, best=1.0)
    expected = scipy.stats.t.interval(LEVEL, 3, np.mean(values), scipy.stats.sem(values))
    assert found.interval.method == "t"
    assert (found.interval.low, found.interval.high) == pytest.approx(expected)


@pytest.mark.parametrize("best", [None, 0.0, 1.0])
def test_estimate_of_one_task_has_no_interval(best):
    found = of([0.5], best=best)
    assert (found.standard_error, found.interval) == (None, None)


def test_interval_of_t_without_width_is_none():
    assert interval_of(3.0, 0.0, scale=NO_SCALE, num_values=9, num_clusters=3, level=LEVEL) is None


@given(means, st.integers(2, 8))
def test_estimate_is_no_surer_with_duplicated_attempts(values, times):
    """Duplicated attempts change neither the error nor the interval."""
    passes = [float(value > 0.3) for value in values]
    once, again = of(passes, best=1.0, num_attempts=1), of(passes, best=1.0, num_attempts=times)
    assert once.standard_error == again.standard_error
    assert once.interval == again.interval


def numbers(*, num_tasks=50, between=0.1, within=0.1, **fields):
    """Return numbers of a run that call for no advice except on how to spend the budget."""
    total = between + within
    parts = Variance(
        between=between,
        within=within,
        intraclass_correlation=between / total if total else None,
        design_effect=None,
    )
    given = {"variance": parts, "num_clusters": num_tasks, "num_tasks": num_tasks, **fields}
    return Metrics(**given)


def told(metrics, *, num_attempts=1.0):
    """Return the advice as one text."""
    return "\n".join(advice_of(metrics, num_attempts=num_attempts))


def test_advice_of_nothing_is_nothing():
    assert advice_of(Metrics(), num_attempts=0.0) == []


@pytest.mark.parametrize(
    ("between", "within", "num_attempts", "expected"),
    [
        (0.2, 0.0, 4, "100% of the variance lies between tasks: the best use of the next request"),
        (0.1, 0.1, 1, "50% of the variance lies between tasks: the best use of the next request"),
        (0.01, 0.25, 8, "4% of the variance lies between tasks: the best use of the next request"),
        (0.01, 0.25, 2, "4% of the variance lies between tasks: another attempt of a task is"),
        (0.0, 0.25, 8, "0% of the variance lies between tasks: another attempt of a task is worth"),
    ],
)
def test_advice_says_where_to_spend(between, within, num_attempts, expected):
    metrics = numbers(between=between, within=within)
    assert told(metrics, num_attempts=num_attempts).startswith(expected)


def test_advice_says_nothing_of_a_variance_that_is_0():
    assert told(numbers(between=0.0, within=0.0)) == ""


def test_advice_asks_for_a_second_attempt():
    assert "--repeats 2 would show it" in told(numbers(variance=None))


@given(st.floats(0.001, 1.0), st.floats(0.0, 1.0), st.integers(1, 30))
def test_best_num_attempts_makes_the_most_of_a_budget(between, within, other):
    """(1 + K) * (between + within/K), the variance at a given cost, is smallest there."""
    best = best_num_attempts(between, within)

    def variance_at(num_attempts):
        return (1 + num_attempts) * (between + within / num_attempts)

    if best >= 1e-6:
        assert variance_at(best) <= variance_at(other) * (1 + 1e-9)


def test_best_num_attempts_of_tasks_that_agree_is_infinite():
    assert math.isinf(best_num_attempts(0.0, 0.1))


def test_advice_on_few_tasks():
    interval = Interval(low=0.1, high=0.9, level=0.95, method="wilson-neff")
    rough = "fewer than 10 tasks: the interval is rough"
    assert rough in told(numbers(num_tasks=9, interval=interval))
    assert rough not in told(numbers(num_tasks=10, interval=interval))
    assert "needs two or more scored tasks" in told(numbers(num_tasks=1, variance=None))


def test_advice_on_unscored_attempts_gives_their_bounds():
    metrics = numbers(num_expected=1000, num_scored=900, bounds=Bounds(low=0.45, high=0.55))
    assert (
        "100 of 1,000 attempts are not scored: whatever their rewards, the mean lies in "
        "0.450 .. 0.550"
    ) in told(metrics)
    unbounded = told(numbers(num_present=10, num_scored=9))
    assert unbounded.startswith("1 of 10 attempts are not scored\n")


@pytest.mark.parametrize(
    ("rate", "num_tasks", "expected"),
    [
        (1.0, 100, "all 100 tasks passed in every attempt: a failure rate of up to 3.0%"),
        (0.0, 10, "all 10 tasks failed in every attempt: a pass rate of up to 25.9%"),
        (1.0, 1, "the only task passed in every attempt: a failure rate of up to 95.0%"),
    ],
)
def test_advice_gives_the_rule_of_three(rate, num_tasks, expected):
    """1 - 0.05^(1/n) is 2.95 % for 100 tasks; the rule of three approximates it as 3/100."""
    metrics = numbers(
        num_tasks=num_tasks, between=0.0, within=0.0, pass_at_k={"1": rate}, mean_reward=rate
    )
    assert expected in told(metrics)
    assert "still plausible (rule of three, one-sided 95% bound)" in told(metrics)


@pytest.mark.parametrize(("num_tasks", "tasks"), [(100, "the 100 tasks"), (1, "the only task")])
def test_advice_on_graded_rewards_below_the_threshold_names_it(num_tasks, tasks):
    """Attempts that score 0.8 of 1 did not fail altogether."""
    rewards = [[0.8, 0.8]] * num_tasks
    advice = aggregate(lines_of(rewards), facts=UNIT).advice
    text = "\n".join(advice)
    assert f"no attempt of {tasks} reached the pass threshold 1.0: a pass rate of up to" in text
    assert "failed" not in text


@pytest.mark.parametrize(
    ("num_flaky", "expected"),
    [(1, "1 of 50 tasks passes only"), (7, "7 of 50 tasks pass only"), (None, "")],
)
def test_advice_on_flaky_tasks(num_flaky, expected):
    assert expected in told(numbers(num_flaky_tasks=num_flaky))


def test_answers_that_could_not_be_read_are_counted_by_their_reason():
    reasons = ["correct", "no_answer", "no_answer", None, 7]
    lines = [
        ScoredLine(env="quiz", task_id=f"t{n}", reward=0.0, details=ScoredDetails(reason), **more)
        for n, (reason, more) in enumerate(
            zip(reasons, [{}, {"stop_reason": "length"}, {}, {}, {}], strict=True)
        )
    ]
    found = aggregate([*lines, ScoredLine(env="quiz", task_id="x", reward=0.0)], facts=UNIT)
    assert found.no_answers == NoAnswers(num_attempts=3, num=2, num_cut=1)
    assert not any("rule of three" in advice for advice in found.advice)
    assert found.advice[0] == (
        "no answer could be read in 2 of 3 attempts, 1 of them cut off by a token limit; "
        "for three of them: gym show RUN --where 'details.reason == \"no_answer\"' -n 3"
    )


@pytest.mark.parametrize(("num", "are_many", "are_most"), [(10, False, False), (11, True, False)])
def test_a_tenth_of_the_answers_is_not_many(num, are_many, are_most):
    found = NoAnswers(num_attempts=100, num=num)
    assert (found.are_many, found.are_most) == (are_many, are_most)
    assert NoAnswers(num_attempts=100, num=51).are_most
    assert not NoAnswers(num_attempts=100, num=50).are_most
    assert not NoAnswers().are_many
