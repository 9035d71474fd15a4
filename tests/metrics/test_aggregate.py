"""The aggregation of lines into a run's numbers: worked examples, laws, and the JSON's shape."""

import itertools
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.at_k import METRICS
from gymcli.metrics.intervals import wilson_effective_interval
from gymcli.metrics.results import Metrics, RunMetrics, TaskMetrics
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine, ScoredLine, ScoredTiming
from gymcli.types import ErrorRecord, RoleUse, Usage
from tests.metrics.aggregating import aggregate

UNIT = {"quiz": EnvironmentFacts(max_reward=1.0)}

DESIGN_KEYS = {
    "num_expected",
    "num_present",
    "num_scored",
    "num_unscored",
    "mean_reward",
    "strict_mean_reward",
    "standard_error",
    "interval",
    "pass_at_k",
    "pass_hat_k",
    "avg_at_k",
    "majority_at_k",
    "best_of_k",
    "components",
    "failures",
    "usage",
    "environments",
}


def scored(rewards, *, env="quiz", answers=None):
    """Return lines of tasks t0, t1, ... with these rewards."""
    return [
        ScoredLine(
            env=env,
            task_id=f"t{number}",
            attempt=attempt,
            reward=reward,
            answer=answers[number][attempt] if answers else None,
        )
        for number, task in enumerate(rewards)
        for attempt, reward in enumerate(task)
    ]


def failed(task_id, attempt, name="ServerError", *, env="quiz", **fields):
    """Return the failure line of an attempt."""
    error = ErrorRecord(error_class=name, phase="model")
    return FailureLine(env=env, task_id=task_id, attempt=attempt, error=error, **fields)


def test_aggregate_worked_example():
    """Two tasks with four attempts each; every number is computed by hand."""
    metrics = aggregate(
        scored(
            [[1, 0, 1, 0], [0, 0, 1, 1]],
            answers=[["x", "y", "x", None], ["z", "z", "w", "w"]],
        ),
        facts=UNIT,
    )

    assert metrics.mean_reward == 0.5
    assert metrics.pass_at_k == pytest.approx({"1": 0.5, "2": 5 / 6, "4": 1.0})
    assert metrics.pass_hat_k == pytest.approx({"1": 0.5, "2": 1 / 6, "4": 0.0})
    assert metrics.avg_at_k == {"4": 0.5}
    assert metrics.majority_at_k["4"] == 0.75
    assert metrics.best_of_k == pytest.approx(metrics.pass_at_k)
    assert metrics.num_tasks_at_k == {"1": 2, "2": 2, "4": 2}
    assert metrics.num_flaky_tasks == 2
    assert metrics.variance.within == pytest.approx(1 / 3)
    assert metrics.variance.between == 0.0


def test_aggregate_computes_every_requested_k_that_the_attempts_allow():
    """Without a request k is 1, 2, 4 and so on, and avg@k is that of all attempts only."""
    lines = scored([[1, 0, 1, 0, 1], [0, 0, 1, 1, 1]], answers=[[*"xyxyx"], [*"zzwww"]])
    usual = aggregate(lines, facts=UNIT)
    metrics = aggregate(lines, facts=UNIT, ks=[3, 7])

    assert list(usual.pass_at_k) == ["1", "2", "4", "5"]
    assert list(usual.avg_at_k) == ["5"]
    assert metrics.pass_at_k == usual.pass_at_k | {"3": pytest.approx(1.0)}
    assert metrics.pass_hat_k["3"] == pytest.approx(0.1)
    assert metrics.majority_at_k["3"] == pytest.approx(0.7)
    assert metrics.avg_at_k == {"3": pytest.approx(0.5), "5": 0.6}
    assert metrics.num_tasks_at_k == {"1": 2, "2": 2, "3": 2, "4": 2, "5": 2}
    assert metrics.estimates.keys() > usual.estimates.keys()


def test_aggregate_computes_a_requested_k_of_slices_too():
    aggregator = Aggregator(UNIT, by=["kind"])
    lines = scored([[1, 0, 1, 0, 1]])
    aggregator.add_scored_lines(lines, [['"a"']] * 5)
    assert "pass@3" in aggregator.metrics(ks=[3]).slices["kind"]["a"].estimates


def test_aggregate_mean_is_over_tasks_and_micro_mean_over_attempts():
    metrics = aggregate(scored([[1.0], [0.0, 0.0, 0.0]]), facts=UNIT)

    assert metrics.mean_reward == 0.5
    assert metrics.micro_mean_reward == 0.25
    assert metrics.standard_error == pytest.approx(0.5)
    assert metrics.num_clusters == 2


def test_aggregate_counts_every_attempt_once():
    """A failure with a later score does not count; of several failures, the last counts."""
    lines = scored([[1.0, 0.0], [1.0]])
    failures = [
        failed("t0", 0, "RateLimitError"),
        failed("t1", 1, "RateLimitError"),
        failed("t1", 1, "EndpointTimeoutError"),
        failed("t2", 0, "SetupError"),
    ]

    metrics = aggregate(lines, failures, facts=UNIT)

    assert (metrics.num_present, metrics.num_scored, metrics.num_unscored) == (5, 3, 2)
    assert metrics.failures == {"EndpointTimeoutError": 1, "SetupError": 1}
    assert (metrics.num_tasks, metrics.num_clusters) == (3, 2)
    assert metrics.num_expected is None
    assert metrics.coverage is None


def test_aggregate_strict_mean_of_a_bare_file_counts_known_failures():
    """The tasks score 1/2, 1/2 and 0, or 1/2, 1 and 1 if all absent attempts had passed."""
    failures = [failed("t1", 1), failed("t2", 0)]

    metrics = aggregate(scored([[1.0, 0.0], [1.0]]), failures, facts=UNIT)

    assert metrics.mean_reward == 0.75
    assert metrics.strict_mean_reward == pytest.approx(1 / 3)
    assert (metrics.bounds.low, metrics.bounds.high) == pytest.approx((1 / 3, 5 / 6))


def test_aggregate_strict_mean_counts_all_expected_attempts():
    facts = {"quiz": EnvironmentFacts(max_reward=1.0, num_expected=8)}

    metrics = aggregate(scored([[1.0, 1.0], [1.0, 0.0]]), [failed("t2", 0)], facts=facts)

    assert metrics.strict_mean_reward == pytest.approx(3 / 8)
    assert (metrics.bounds.low, metrics.bounds.high) == pytest.approx((3 / 8, 7 / 8))
    assert metrics.coverage == 0.5


def test_aggregate_strict_mean_of_a_complete_run_is_the_mean():
    """Also for tasks with different numbers of attempts, as identical rows share a task."""
    facts = {"quiz": EnvironmentFacts(max_reward=1.0, num_expected=4)}

    metrics = aggregate(scored([[1.0], [0.0, 0.0, 1.0]]), facts=facts)

    assert metrics.strict_mean_reward == metrics.mean_reward == metrics.bounds.high


@pytest.mark.parametrize(
    ("rewards", "facts"),
    [
        ([[-0.5], [1.0]], EnvironmentFacts(max_reward=1.0)),
        ([[0.5], [1.0]], EnvironmentFacts(max_reward=1.0, can_be_negative=True)),
    ],
)
def test_aggregate_strict_mean_is_null_where_rewards_can_be_negative(rewards, facts):
    metrics = aggregate(scored(rewards), facts={"quiz": facts})

    assert metrics.strict_mean_reward is None
    assert metrics.bounds is None
    assert metrics.mean_reward is not None


def test_aggregate_unbounded_rewards_have_a_strict_mean_but_no_bounds():
    metrics = aggregate(scored([[3.0], [1.0]]))

    assert metrics.strict_mean_reward == 2.0
    assert metrics.bounds is None
    assert metrics.interval.method == "t"


def test_aggregate_interval_is_scaled_by_the_best_reward():
    rewards = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    tripled = [[3.0 * reward for reward in task] for task in rewards]
    unit = aggregate(scored(rewards), facts=UNIT)
    large = aggregate(scored(tripled), facts={"quiz": EnvironmentFacts(max_reward=3.0)})
    expected = wilson_effective_interval(
        unit.mean_reward, unit.standard_error, num_clusters=4, max_size=8
    )

    assert (unit.interval.low, unit.interval.high) == expected
    assert unit.interval.method == large.interval.method == "wilson-neff"
    assert large.interval.low == pytest.approx(3.0 * unit.interval.low)
    assert large.interval.high == pytest.approx(3.0 * unit.interval.high)


@pytest.mark.parametrize("max_reward", [None, 0.0, 1.0])
def test_aggregate_interval_is_t_where_a_reward_is_out_of_bounds(max_reward):
    facts = {"quiz": EnvironmentFacts(max_reward=max_reward)}

    metrics = aggregate(scored([[2.0], [1.0], [0.5]]), facts=facts, level=0.9)

    assert metrics.interval.method == "t"
    assert metrics.interval.level == 0.9


def test_aggregate_t_interval_of_no_width_is_none():
    """Equal means of a few tasks do not show that the variance is 0."""
    metrics = aggregate(scored([[2.0], [2.0], [2.0]]))

    assert metrics.standard_error == 0.0
    assert metrics.interval is None
    assert aggregate(scored([[1.0], [1.0]]), facts=UNIT).interval is not None


def test_aggregate_one_task_has_no_error_and_no_interval():
    metrics = aggregate(scored([[1.0, 0.0]]), facts=UNIT)

    assert metrics.mean_reward == 0.5
    assert metrics.standard_error is None
    assert metrics.micro_standard_error is None
    assert metrics.interval is None
    assert metrics.variance is None


def test_aggregate_success_is_reaching_the_threshold():
    facts = {"quiz": EnvironmentFacts(pass_threshold=0.5)}

    metrics = aggregate(scored([[0.5, 0.49], [0.9, 0.7]]), facts=facts)

    assert metrics.pass_at_k == {"1": 0.75, "2": 1.0}
    assert metrics.num_flaky_tasks == 1


def test_aggregate_without_a_threshold_has_no_pass_at_k():
    metrics = aggregate(scored([[0.5, 1.0]]))

    assert metrics.pass_at_k is None
    assert metrics.pass_hat_k is None
    assert metrics.num_flaky_tasks is None
    assert metrics.avg_at_k == {"2": 0.75}
    assert metrics.is_graded


def test_aggregate_k_is_over_the_tasks_with_as_many_attempts():
    metrics = aggregate(scored([[1.0, 0.0, 0.0], [0.0]]), facts=UNIT)

    assert metrics.num_tasks_at_k == {"1": 2, "2": 1, "3": 1}
    assert metrics.pass_at_k == pytest.approx({"1": 1 / 6, "2": 2 / 3, "3": 1.0})


def test_aggregate_without_answers_has_no_majority():
    assert aggregate(scored([[1.0, 0.0]]), facts=UNIT).majority_at_k is None


def test_aggregate_a_task_without_answers_loses_the_majority_where_others_have_some():
    lines = scored([[1.0], [1.0]], answers=[["a"], [None]])

    assert aggregate(lines, facts=UNIT).majority_at_k == {"1": 0.5}


def test_aggregate_components_and_metrics_are_means_of_task_means():
    lines = [
        ScoredLine(task_id="a", attempt=0, reward=1, components={"form": 1.0}),
        ScoredLine(task_id="a", attempt=1, reward=1, components={"form": 0.0}),
        ScoredLine(task_id="b", reward=1, components={"form": 1.0}, metrics={"words": 30.0}),
        ScoredLine(task_id="c", reward=1),
    ]

    metrics = aggregate(lines)

    assert metrics.components == {"form": 0.75}
    assert metrics.metrics == {"words": 30.0}


def test_aggregate_adds_up_what_attempts_took():
    """The tokens of a failure that was scored later are part of the scored line."""
    lines = [
        ScoredLine(
            task_id="a",
            attempt=attempt,
            reward=1.0,
            stop_reason="done" if attempt else "length",
            usage=Usage(prompt_tokens=10, completion_tokens=2),
            timing=ScoredTiming(total_seconds=float(attempt + 1), model_seconds=0.5),
            tool_errors={"not_json": 1},
            retries={"ServerError": 2},
        )
        for attempt in range(3)
    ]
    failures = [
        failed("a", 0, env="", usage=Usage(prompt_tokens=10)),
        failed("a", 3, env="", usage=Usage(prompt_tokens=7), retries={"RateLimitError": 1}),
    ]

    metrics = aggregate(lines, failures)

    assert metrics.usage == {
        "prompt_tokens": 37,
        "completion_tokens": 6,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
    }
    assert metrics.stop_reasons == {"done": 2, "length": 1}
    assert metrics.tool_errors == {"not_json": 3}
    assert metrics.retries == {"RateLimitError": 1, "ServerError": 6}
    assert metrics.latency.total_seconds.p50 == 2.0
    assert metrics.latency.total_seconds.p90 == pytest.approx(2.8)
    assert metrics.latency.model_seconds.p99 == 0.5


def test_aggregate_rollouts_without_times_have_no_latency():
    assert aggregate(scored([[1.0]])).latency is None


def test_aggregate_pools_environments_that_share_a_best_reward():
    facts = {
        "quiz": EnvironmentFacts(max_reward=1.0, num_expected=2),
        "riddle": EnvironmentFacts(max_reward=1.0, pass_threshold=0.5, num_expected=1),
    }
    lines = scored([[1.0], [0.0]]) + scored([[0.5]], env="riddle")

    metrics = aggregate(lines, facts=facts)

    assert metrics.mean_reward == 0.5
    assert metrics.pass_at_k == pytest.approx({"1": 2 / 3})
    assert (metrics.num_expected, metrics.num_tasks) == (3, 3)
    assert metrics.environments["quiz"].mean_reward == 0.5
    assert metrics.environments["riddle"].pass_at_k == {"1": 1.0}


@pytest.mark.parametrize("max_reward", [None, 10.0])
def test_aggregate_does_not_pool_different_or_unknown_best_rewards(max_reward):
    """Two unknown best rewards do not show that the rewards share a scale."""
    facts = {
        "quiz": EnvironmentFacts(max_reward=None if max_reward is None else 1.0),
        "score": EnvironmentFacts(max_reward=max_reward),
    }
    lines = scored([[1.0], [0.0]]) + scored([[7.0]], env="score")

    metrics = aggregate(lines, [failed("t9", 0)], facts=facts)

    assert metrics.mean_reward is None
    assert metrics.strict_mean_reward is None
    assert metrics.interval is None
    assert metrics.avg_at_k is None
    assert metrics.components is None
    assert (metrics.num_scored, metrics.num_present) == (3, 4)
    assert metrics.failures == {"ServerError": 1}
    assert metrics.environments["score"].mean_reward == 7.0


def test_aggregate_expected_count_is_unknown_unless_every_environment_knows_its_own():
    facts = {
        "quiz": EnvironmentFacts(max_reward=1.0, num_expected=2),
        "riddle": EnvironmentFacts(max_reward=1.0),
    }

    metrics = aggregate(scored([[1.0]]) + scored([[1.0]], env="riddle"), facts=facts)

    assert metrics.num_expected is None
    assert metrics.environments["quiz"].num_expected == 2


def test_aggregate_reports_an_environment_of_which_nothing_is_present():
    facts = {"quiz": EnvironmentFacts(max_reward=1.0, num_expected=4)}

    metrics = aggregate([], facts=facts)

    assert metrics.environments["quiz"].num_expected == 4
    assert metrics.mean_reward is None
    assert metrics.strict_mean_reward == 0.0
    assert metrics.coverage == 0.0
    assert (metrics.bounds.low, metrics.bounds.high) == (0.0, 1.0)


@pytest.mark.parametrize("facts", [{}, {"quiz": EnvironmentFacts(max_reward=1.0, num_expected=0)}])
def test_aggregate_of_nothing_says_nothing(facts):
    metrics = aggregate([], facts=facts)

    assert (metrics.num_present, metrics.num_scored) == (0, 0)
    assert metrics.mean_reward is None
    assert metrics.strict_mean_reward is None
    assert metrics.bounds is None


def test_aggregate_of_failures_alone_has_a_strict_mean_of_zero():
    metrics = aggregate([], [failed("t0", 0), failed("t0", 1)], facts=UNIT)

    assert metrics.mean_reward is None
    assert metrics.pass_at_k is None
    assert metrics.strict_mean_reward == 0.0
    assert metrics.num_unscored == 2


def test_aggregate_refuses_an_attempt_that_is_scored_twice():
    lines = [*scored([[1.0, 0.0]]), *scored([[0.0]])]

    with pytest.raises(RunFileError, match="'t0' of environment 'quiz', attempt 0"):
        aggregate(lines, facts=UNIT)
    aggregator = Aggregator()
    for line in lines:
        aggregator.add_scored(line)
    with pytest.raises(RunFileError, match="delete one of them"):
        aggregator.task_rows()


def test_aggregate_names_the_first_of_several_attempts_that_are_scored_twice():
    """The first by task id and attempt number, whatever the order of the lines."""
    twice = [*scored([[1.0] * 3] * 3)[::-1], *scored([[1.0] * 3] * 3)[4:]]

    with pytest.raises(RunFileError, match="task 't1' of environment 'quiz', attempt 1, is scored"):
        aggregate(twice)


def test_aggregator_takes_more_lines_after_its_numbers_were_asked_for():
    lines = scored([[1.0, 0.0, 0.5], [0.25, 0.0]], answers=[["b", "a", None], [None, "a"]])
    lines[3].components = {"form": 1.0}
    aggregator = Aggregator(UNIT)
    for number, line in enumerate(lines[::-1]):
        aggregator.add_scored(line)
        assert aggregator.metrics() == aggregate(lines[::-1][: number + 1], facts=UNIT)
        assert len(aggregator.task_rows()) == (1 if number < 2 else 2)
    aggregator.add_failure(failed("t1", 2))

    assert aggregator.metrics() == aggregate(lines, [failed("t1", 2)], facts=UNIT)
    assert aggregator.task_rows()[0].majority_answer == "b"


def test_task_rows_are_by_environment_and_task_id():
    aggregator = Aggregator()
    names = [("quiz", "t1"), ("quiz", "t0"), ("maths", "t2"), ("quiz", "t\u00fc"), ("quiz", "tz")]
    for env, task_id in names:
        aggregator.add_scored(ScoredLine(env=env, task_id=task_id, reward=1.0))

    assert [(row.env, row.task_id) for row in aggregator.task_rows()] == sorted(names)


def test_task_rows_say_what_each_task_did():
    aggregator = Aggregator({"quiz": EnvironmentFacts(max_reward=1.0)})
    lines = scored([[1.0, 0.0, 0.5], [0.25]], answers=[["b", "a", "a"], [None]])
    for line in reversed(lines):
        aggregator.add_scored(line)
    aggregator.add_failure(failed("t2", 0))
    aggregator.add_failure(failed("t1", 0))

    assert aggregator.task_rows() == [
        TaskMetrics(
            env="quiz",
            task_id="t0",
            num_scored=3,
            num_unscored=0,
            num_passes=1,
            mean_reward=0.5,
            min_reward=0.0,
            max_reward=1.0,
            majority_answer="a",
        ),
        TaskMetrics(
            env="quiz",
            task_id="t1",
            num_scored=1,
            num_unscored=0,
            num_passes=0,
            mean_reward=0.25,
            min_reward=0.25,
            max_reward=0.25,
        ),
        TaskMetrics(env="quiz", task_id="t2", num_scored=0, num_unscored=1, num_passes=0),
    ]


def test_task_rows_majority_tie_goes_to_the_first_attempt():
    aggregator = Aggregator()
    for line in reversed(scored([[0.0, 1.0]], answers=[["late", "early"]])):
        aggregator.add_scored(line)

    assert aggregator.task_rows()[0].majority_answer == "late"
    assert aggregator.task_rows()[0].num_passes is None


def test_metrics_encode_to_the_keys_of_the_design():
    metrics = aggregate(scored([[1.0, 0.0], [1.0, 1.0]]), facts=UNIT)
    decoded = msgspec.json.decode(msgspec.json.encode(metrics))

    assert set(decoded) >= DESIGN_KEYS
    assert set(decoded["environments"]["quiz"]) == set(decoded) - {"environments"}
    assert set(decoded["interval"]) == {"low", "high", "level", "method"}
    assert list(decoded["pass_at_k"]) == ["1", "2"]


def test_every_metric_has_its_field():
    assert set(METRICS) <= set(Metrics.__struct_fields__)


reward_values = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
attempts = st.lists(
    st.tuples(reward_values, st.sampled_from(["a", "b", "c", None])), min_size=1, max_size=5
)
runs = st.lists(attempts, min_size=1, max_size=6)


def lines_of(run):
    """Return lines of a run from tasks given as (reward, answer) pairs."""
    return [
        ScoredLine(
            env="quiz",
            task_id=f"t{number}",
            attempt=attempt,
            reward=reward,
            answer=answer,
            components={"part": reward / 3.0},
            timing=ScoredTiming(total_seconds=reward + 0.1),
        )
        for number, task in enumerate(run)
        for attempt, (reward, answer) in enumerate(task)
    ]


@given(runs, st.integers(0, 1000))
def test_aggregate_does_not_depend_on_the_order_of_lines(run, seed):
    lines = lines_of(run)
    failures = [failed("t0", 17), failed("t9", 3, "RoleError")]
    shuffled = random.Random(seed).sample(lines, len(lines))

    first = msgspec.json.encode(aggregate(lines, failures, facts=UNIT))
    second = msgspec.json.encode(aggregate(shuffled, failures[::-1], facts=UNIT))

    assert first == second


def test_what_roles_took_does_not_depend_on_the_order_of_lines():
    """Byte for byte: costs are rounded once, and names are sorted."""
    uses = [
        RoleUse(model="m", num_calls=1, cost=cost, seconds=cost, retries={name: 1})
        for cost, name in ((1e16, "TimeoutError"), (1.0, "RateLimitError"), (1.0, "ServerError"))
    ]
    lines = scored([[1.0]] * 3, env="a") + scored([[1.0]] * 3, env="b")
    for number, line in enumerate(lines):
        line.role_usage = {("user", "judge")[number % 2]: uses[number // 2]}
    there = aggregate(lines)
    total = [there.role_usage[role] for role in ("judge", "user")]
    assert [(use.cost, use.seconds, use.num_calls) for use in total] == [
        (1e16 + 2, 1e16 + 2, 3)
    ] * 2
    for order in itertools.permutations(range(6)):
        again = aggregate([lines[number] for number in order])
        assert msgspec.json.encode(again) == msgspec.json.encode(there)


@given(runs)
def test_failures_may_come_before_the_scored_lines(run):
    lines = lines_of(run)
    before, after = Aggregator(UNIT), Aggregator(UNIT)
    before.add_failure(failed("t0", 0))
    for aggregator, line in itertools.product((before, after), lines):
        aggregator.add_scored(line)
    after.add_failure(failed("t0", 0))

    assert before.metrics() == after.metrics()
    assert before.metrics().num_unscored == 0


@given(runs)
def test_aggregate_obeys_the_laws_of_its_estimators(run):
    metrics = aggregate(lines_of(run), facts=UNIT)

    if metrics.interval is not None:
        assert 0.0 <= metrics.interval.low <= metrics.mean_reward <= metrics.interval.high <= 1.0
    assert metrics.strict_mean_reward == pytest.approx(metrics.mean_reward)
    assert metrics.best_of_k["1"] == pytest.approx(metrics.mean_reward)
    if len({len(task) for task in run}) == 1:
        assert metrics.avg_at_k[list(metrics.avg_at_k)[-1]] == pytest.approx(metrics.mean_reward)
        assert metrics.micro_mean_reward == pytest.approx(metrics.mean_reward)
        assert metrics.micro_standard_error == pytest.approx(metrics.standard_error, abs=1e-12)
        values = list(metrics.pass_at_k.values())
        assert values == sorted(values)


@given(runs, st.integers(0, 10))
def test_bounds_contain_the_strict_mean_and_the_mean_of_equal_tasks(run, num_absent):
    size = min(len(task) for task in run)
    lines = lines_of([task[:size] for task in run])
    facts = EnvironmentFacts(max_reward=1.0, num_expected=len(lines) + num_absent)

    metrics = aggregate(lines, facts={"quiz": facts})

    assert metrics.bounds.low == metrics.strict_mean_reward
    assert metrics.bounds.low <= metrics.mean_reward + 1e-12
    assert metrics.mean_reward <= metrics.bounds.high + 1e-12


@given(runs)
def test_metrics_survive_json(run):
    metrics = aggregate(lines_of(run), [failed("t0", 9)], facts=UNIT)

    assert msgspec.json.decode(msgspec.json.encode(metrics), type=RunMetrics) == metrics
