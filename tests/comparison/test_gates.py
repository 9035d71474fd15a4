"""Gates: parsing, verdicts on numbers and intervals, and the sample size that would decide."""

import math
import operator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.comparison.comparison_results import Comparison, Difference, RunSide
from gymcli.comparison.gates import (
    PLAIN_NAMES,
    GateVerdict,
    Threshold,
    check_name,
    deciding_size,
    judge,
    number_of,
    numbers,
    parse_gate,
    why_impossible,
    with_differences,
)
from gymcli.errors import FilterError, UsageError
from gymcli.metrics.results import (
    Bounds,
    Estimate,
    Interval,
    Latency,
    NoAnswers,
    Percentiles,
    RunMetrics,
    Variance,
)
from gymcli.store.scored_lines import EnvironmentFacts, ScoredDetails, ScoredLine
from gymcli.types import Usage
from tests.metrics.aggregating import aggregate

TURNED = {">=": "<", ">": "<=", "<": ">=", "<=": ">"}


def measured(value: float, low: float, high: float, *, num_tasks: int = 50) -> RunMetrics:
    """Return numbers of a run whose pass@1 has this interval."""
    interval = Interval(low=low, high=high, level=0.95, method="wilson-neff")
    estimate = Estimate(
        value=value,
        estimator="mean of task means",
        num_values=2 * num_tasks,
        num_clusters=num_tasks,
        standard_error=max(high - low, 0.001) / 4.0,
        interval=interval,
    )
    return RunMetrics(num_scored=2 * num_tasks, estimates={"pass@1": estimate})


def verdict(text: str, metrics: RunMetrics, on: str = "bound") -> str:
    return judge(parse_gate(text), metrics, on=on).verdict


def test_gate_is_a_name_and_what_it_has_to_reach():
    gate = parse_gate("pass@1 >= 0.8")
    assert (gate.name, gate.thresholds) == ("pass@1", (Threshold(">=", 0.8),))
    assert (gate.env, gate.field, gate.value) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "thresholds"),
    [
        ("0.2 <= mean_reward <= 0.9", (Threshold(">=", 0.2), Threshold("<=", 0.9))),
        ("0.9 > mean_reward > .2", (Threshold("<", 0.9), Threshold(">", 0.2))),
        ("0.5 < coverage", (Threshold(">", 0.5),)),
        ("cost<1e2", (Threshold("<", 100.0),)),
        ("mean_reward >= -1", (Threshold(">=", -1.0),)),
        ("failures.ServerError == 0", (Threshold("==", 0.0),)),
    ],
)
def test_gate_may_be_reversed_or_chained(text, thresholds):
    assert parse_gate(text).thresholds == thresholds


@pytest.mark.parametrize(
    ("part", "env", "field", "value"),
    [
        ("[category=hard]", None, "category", "hard"),
        ("[ env = mcqa ]", "mcqa", None, None),
        ("[env=mcqa, task.level=3]", "mcqa", "task.level", "3"),
        ('[category="a, [b]"]', None, "category", "a, [b]"),
        ("[category='(none)']", None, "category", "(none)"),
        ("[category=(none)]", None, "category", "(none)"),
    ],
)
def test_gate_may_be_about_a_part(part, env, field, value):
    gate = parse_gate(f"pass^4{part} > 0.5")
    assert (gate.name, gate.env, gate.field, gate.value) == ("pass^4", env, field, value)


def test_gate_reads_names_with_other_characters():
    assert parse_gate('components["a=b c"] > 1').name == "components.a=b c"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("pass@1", "does not compare"),
        ("pass@1 = 0.8", "character 8: write =="),
        ("pass@1 != 0.8", "compare with >=, >, <=, < or =="),
        ("pass@1 >= 0.8 and cost < 3", "a separate --gate"),
        ("pass@1 >= cost", "compare a name with a number"),
        ("1 <= 2", "compare a name with a number"),
        ("True < cost", "compare a name with a number"),
        ("mean_reward + 1 > 2", "compare a name with a number"),
        ("pass@1 >= 0.5 <= 0.9", "compare a name with a number"),
        ("pas@1 >= 0.8", 'did you mean "pass@1"?'),
        ("pas@16 >= 0.8", 'did you mean "pass@16"?'),
        ("pass@0 >= 0.8", 'there is no number "pass@0"'),
        ("reward >= 0.8", "there is no number"),
        ("xyz >= 0.8", "there are mean_reward, "),
        ("components > 1", 'there is no number "components"'),
        ("pass@1[a=1, b=2] > 0", "names 2 fields"),
        ("pass@1[a=1, a=2] > 0", "selects no tasks"),
        ("pass@1[a=] > 0", "selects no tasks"),
        ("pass@1[hard] > 0", "is not allowed"),
        (f"pass@1 >= {'9' * 400}", "compare a name with a number"),
        ("pass@1 < 1e999", "compare a name with a number"),
        ("pass@1 == 0.5", "never equals a number; write a chain such as 0.2 <= pass@1 <= 0.9"),
        ("metrics.length == 5", "never equals a number"),
        ("stop_reasons.stopped == 0", "stop_reasons has done, "),
        ("tool_errors.broken == 0", "tool_errors has unknown_tool, "),
        ("usage.tokens < 5", "usage has prompt_tokens, "),
        ("acuracy > 0.5", 'did you mean "accuracy"?'),
        ("pass@1 > 2", "pass@1 lies between 0 and 1"),
        ("pass@1 > 1", "pass@1 lies between 0 and 1"),
        ("0 > pass^3", "pass^3 lies between 0 and 1"),
        ("accuracy >= 80", "accuracy lies between 0 and 1; write 0.8 for 80 %"),
        ("coverage >= 1.5", "coverage lies between 0 and 1"),
        ("failures.ServerError < 0", "failures.ServerError is never below 0"),
        ("latency.p95 == -1", "latency.p95 is never below 0"),
        ("0.9 < mean_reward < 0.2", "no number meets both conditions"),
    ],
)
def test_malformed_gate_is_refused(text, reason):
    with pytest.raises(FilterError) as raised:
        parse_gate(text)
    assert str(raised.value).startswith(f"--gate {text}: ")
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("text", "on_bound", "on_point"),
    [
        ("pass@1 >= 0.7", "PASS", "PASS"),
        ("pass@1 >= 0.75", "PASS", "PASS"),
        ("pass@1 > 0.75", "INCONCLUSIVE", "PASS"),
        ("pass@1 >= 0.8", "INCONCLUSIVE", "PASS"),
        ("pass@1 >= 0.85", "INCONCLUSIVE", "FAIL"),
        ("pass@1 >= 0.95", "FAIL", "FAIL"),
        ("pass@1 <= 0.9", "PASS", "PASS"),
        ("pass@1 <= 0.85", "INCONCLUSIVE", "PASS"),
        ("pass@1 < 0.75", "FAIL", "FAIL"),
        ("0.7 <= pass@1 <= 0.95", "PASS", "PASS"),
        ("0.7 <= pass@1 <= 0.85", "INCONCLUSIVE", "PASS"),
        ("0.92 <= pass@1 <= 0.95", "FAIL", "FAIL"),
    ],
)
def test_gate_is_judged_on_the_end_that_matters(text, on_bound, on_point):
    metrics = measured(0.82, 0.75, 0.9)
    assert verdict(text, metrics) == on_bound
    assert verdict(text, metrics, "point") == on_point


NUMBERS = st.floats(0.0, 1.0).map(lambda number: round(number, 3))
THRESHOLDS = st.floats(0.001, 0.999).map(lambda number: round(number, 3))
"""`pass@1 < 0` and `pass@1 > 1` can never hold, so they are refused."""


@given(st.lists(NUMBERS, min_size=3, max_size=3), THRESHOLDS, st.sampled_from(sorted(TURNED)))
def test_gate_and_its_opposite_never_agree(ends, number, sign):
    """The point confirms what the bound decides; a gate passes where its opposite fails."""
    low, value, high = sorted(ends)
    metrics = measured(value, low, high)
    found = verdict(f"pass@1 {sign} {number}", metrics)
    opposite = verdict(f"pass@1 {TURNED[sign]} {number}", metrics)
    on_point = verdict(f"pass@1 {sign} {number}", metrics, "point")

    assert {found, opposite} in ({"PASS", "FAIL"}, {"INCONCLUSIVE"})
    if found != "INCONCLUSIVE":
        assert on_point == found


@given(st.lists(NUMBERS, min_size=3, max_size=3), NUMBERS, NUMBERS)
def test_weaker_gate_has_no_worse_verdict(ends, number, other):
    low, value, high = sorted(ends)
    metrics, order = measured(value, low, high), ("FAIL", "INCONCLUSIVE", "PASS")
    least, most = sorted((number, other))
    assert order.index(verdict(f"pass@1 >= {least}", metrics)) >= order.index(
        verdict(f"pass@1 >= {most}", metrics)
    )


def test_gate_on_a_number_without_interval_is_judged_as_it_is():
    metrics = RunMetrics(num_scored=9, coverage=0.9, failures={"ServerError": 1})
    found = judge(parse_gate("coverage >= 0.95"), metrics)
    assert (found.verdict, found.value, found.judged_on) == ("FAIL", 0.9, "number")
    assert verdict("failures.ServerError == 0", metrics) == "FAIL"
    assert verdict("failures == 1", metrics) == "PASS"


@pytest.mark.parametrize(
    ("num_tasks", "reason"), [(1, "two or more scored tasks"), (5, "have the same value")]
)
def test_gate_on_an_estimate_without_interval_is_inconclusive(num_tasks, reason):
    metrics = measured(0.9, 0.8, 1.0, num_tasks=num_tasks)
    metrics.estimates["pass@1"].interval = None
    found = judge(parse_gate("pass@1 >= 0.2"), metrics)
    assert found.verdict == "INCONCLUSIVE"
    assert reason in found.way_out
    assert "--gate-on point" in found.way_out
    assert verdict("pass@1 >= 0.2", metrics, "point") == "PASS"


def test_gate_says_what_would_decide():
    found = judge(parse_gate("pass@1 >= 0.8"), measured(0.85, 0.75, 0.92))
    assert found.verdict == "INCONCLUSIVE"
    assert found.tasks_needed > 50
    assert found.way_out == f"about {found.tasks_needed} tasks such as these would decide"


def test_gate_on_graded_rewards_is_decided_by_their_variance():
    """Rewards of 0.8 ± 0.04: what decides follows from 0.04, not from passes and failures."""
    rewards = [0.75, 0.8, 0.85] * 30
    lines = [ScoredLine(env="quiz", task_id=str(n), reward=r) for n, r in enumerate(rewards)]
    metrics = aggregate(lines, facts={"quiz": EnvironmentFacts(max_reward=1.0)})

    assert verdict("mean_reward >= 0.78", metrics) == "PASS"
    found = judge(parse_gate("mean_reward >= 0.796"), metrics)
    assert found.verdict == "INCONCLUSIVE"
    # ((1.96 + 0.84) * 0.041 / 0.004)^2
    assert found.tasks_needed == pytest.approx(824, rel=0.03)


def test_gates_of_a_run():
    """Gates on environments and slices, with numbers that are aggregated from lines."""
    lines = [
        ScoredLine(env=env, task_id=str(task), attempt=attempt, reward=float(task % 4 > 0 or easy))
        for env, easy in (("easy", 1), ("hard", 0))
        for task in range(40)
        for attempt in range(2)
    ]
    facts = {env: EnvironmentFacts(max_reward=1.0) for env in ("easy", "hard")}
    metrics = aggregate(lines, facts=facts)

    assert verdict("pass@1[env=easy] >= 0.9", metrics) == "PASS"
    assert verdict("pass@1[env=hard] >= 0.9", metrics) == "FAIL"
    assert verdict("0.7 <= mean_reward <= 0.97", metrics) == "PASS"
    with pytest.raises(UsageError, match='no task has env=hart; did you mean "hard"'):
        verdict("pass@1[env=hart] >= 0.9", metrics)


def test_gate_is_about_a_slice_of_an_environment():
    slices = {"level": {"3": measured(0.5, 0.4, 0.6)}}
    own = msgspec.structs.replace(measured(0.9, 0.8, 1.0), slices=slices)
    metrics = msgspec.structs.replace(own, environments={"mcqa": own})

    for part in ("level=3", "task.level=3", "env=mcqa, level=3"):
        assert verdict(f"pass@1[{part}] <= 0.7", metrics) == "PASS"
    with pytest.raises(UsageError, match="no task has level=4; there are 3"):
        verdict("pass@1[level=4] <= 0.7", metrics)
    with pytest.raises(UsageError, match="no task has colour=red; there are none"):
        verdict("pass@1[colour=red] <= 0.7", metrics)


def test_gate_on_the_difference_to_a_baseline():
    """It is judged by the comparison's deciding interval."""
    metrics = measured(0.8, 0.7, 0.9)
    with pytest.raises(UsageError, match="needs --baseline RUN"):
        verdict("difference > -0.02", metrics)

    found = metrics.estimates["pass@1"]
    deciding = Interval(low=-0.01, high=0.05, level=0.9, method="t")
    part = Difference(difference=found, deciding_interval=deciding)
    comparison = Comparison(
        a=RunSide(run="a"),
        b=RunSide(run="b"),
        difference=found,
        deciding_interval=deciding,
        slices={"level": {"3": part}},
    )
    sliced = msgspec.structs.replace(metrics, slices={"level": {"3": metrics, "4": metrics}})
    known = with_differences(sliced, comparison)
    for text in ("difference > -0.02", "difference[level=3] > -0.02"):
        assert verdict(text, known) == "PASS"
    assert verdict("difference > 0", known) == "INCONCLUSIVE"
    with pytest.raises(UsageError, match="needs --baseline"):
        verdict("difference[level=4] > 0", known)
    assert "difference" not in metrics.estimates


def test_verdict_is_what_json_has():
    found = judge(parse_gate("pass@1 >= 0.1"), measured(0.5, 0.4, 0.6))
    assert msgspec.json.decode(msgspec.json.encode(found), type=GateVerdict) == found


SIGNS = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
}
DECIMALS = st.floats(-2.0, 2.0).map(lambda number: round(number, 1))


@given(st.sampled_from(sorted(SIGNS)), DECIMALS, DECIMALS)
def test_threshold_holds_as_python_compares(sign, value, number):
    threshold = Threshold(sign, number)
    assert threshold.holds(value) == SIGNS[sign](value, number)
    assert threshold.mirror().mirror() == threshold
    assert Threshold(sign, value).mirror().holds(number) == SIGNS[sign](value, number)


@pytest.mark.parametrize(
    ("low", "high", "held"), [(0.5, 0.9, True), (0.4, 0.9, None), (0.1, 0.4, False)]
)
def test_threshold_holds_of_all_of_an_interval_or_none(low, high, held):
    interval = Interval(low=low, high=high, level=0.95, method="t")
    assert Threshold(">=", 0.5).holds_within(interval) is held


FACTS = {"e": EnvironmentFacts(max_reward=1.0)}


def run(num_tasks: int, num_attempts: int, *, num_passes: int):
    """Return the numbers of tasks of which a third fails and the rest passes `num_passes` times."""
    lines = [
        ScoredLine(
            env="e",
            task_id=str(task),
            attempt=attempt,
            reward=float(task % 3 > 0 and attempt < num_passes),
        )
        for task in range(num_tasks)
        for attempt in range(num_attempts)
    ]
    return aggregate(lines, facts=FACTS)


def needs(text: str, num_tasks: int = 30):
    metrics = run(num_tasks, 4, num_passes=3)
    return judge(parse_gate(text), metrics)


def test_advised_number_of_tasks_decides():
    """More tasks of the same kind decide: they leave the value unchanged."""
    for text, verdict in (("mean_reward >= 0.4", "PASS"), ("mean_reward >= 0.6", "FAIL")):
        found = needs(text)
        assert found.verdict == "INCONCLUSIVE"
        enough = run(3 * math.ceil(found.tasks_needed / 3), 4, num_passes=3)
        assert judge(parse_gate(text), enough).verdict == verdict
        # A power of 80 % takes more tasks than barely enough, but not many times as many.
        few = run(3 * math.ceil(found.tasks_needed / 15), 4, num_passes=3)
        assert judge(parse_gate(text), few).verdict == "INCONCLUSIVE"


def test_value_farther_from_the_bound_needs_fewer_tasks():
    tasks = [needs(f"mean_reward >= {number}").tasks_needed for number in (0.49, 0.45, 0.41)]
    assert tasks == sorted(tasks, reverse=True)
    assert len(set(tasks)) == 3


def test_both_ends_of_a_chain_are_decided():
    one = needs("mean_reward >= 0.41").tasks_needed
    other = needs("mean_reward <= 0.56").tasks_needed
    assert needs("0.41 <= mean_reward <= 0.56").tasks_needed == max(one, other)


def test_one_failing_end_decides_a_chain():
    """0.5 lies outside 0.55 .. 0.9, however far it is from 0.9."""
    chain, end = needs("0.55 <= mean_reward <= 0.9"), needs("mean_reward >= 0.55")
    assert chain.tasks_needed == end.tasks_needed


def test_nothing_decides_a_value_on_the_bound():
    found = needs("mean_reward >= 0.5")
    assert found.verdict == "INCONCLUSIVE"
    assert (found.tasks_needed, found.attempts_needed) == (None, None)
    assert "no number of tasks would decide" in found.way_out


def test_attempts_decide_where_the_variance_lies_within_tasks():
    """Equal tasks that pass half of the time: more attempts help as much as more tasks."""
    lines = [
        ScoredLine(env="e", task_id=str(task), attempt=attempt, reward=float((task + attempt) % 2))
        for task in range(20)
        for attempt in range(3)
    ]
    found = judge(parse_gate("mean_reward >= 0.45"), aggregate(lines, facts=FACTS))
    assert found.verdict == "INCONCLUSIVE"
    assert found.attempts_needed > 3
    assert f"or {found.attempts_needed:,} attempts a task, would decide" in found.way_out


def test_attempts_do_not_decide_where_tasks_differ():
    lines = [
        ScoredLine(env="e", task_id=str(task), attempt=attempt, reward=float(task % 2))
        for task in range(20)
        for attempt in range(3)
    ]
    found = judge(parse_gate("mean_reward >= 0.45"), aggregate(lines, facts=FACTS))
    assert found.tasks_needed is not None
    assert found.attempts_needed is None


@pytest.mark.parametrize("most", [10.0, 1.0])
def test_rewards_of_any_range_are_decided(most):
    """Also with Student's interval, for rewards that may be negative."""
    lines = [
        ScoredLine(env="e", task_id=str(task), reward=most * (-1.0 if task % 3 else 1.0))
        for task in range(12)
    ]
    metrics = aggregate(lines, facts={"e": EnvironmentFacts(can_be_negative=True)})
    estimate = metrics.estimates["mean_reward"]
    assert estimate.interval.method == "t"
    number = estimate.value - 0.5 * estimate.standard_error
    found = deciding_size(estimate, (Threshold(">=", number),), metrics)
    assert found.num_tasks > 12
    assert found.advice.startswith(f"about {found.num_tasks} tasks")


def test_the_unit_of_rewards_does_not_matter():
    found = []
    for best in (1.0, 10.0):
        lines = [
            ScoredLine(env="e", task_id=str(task), reward=best * (0.95 + 0.01 * (task % 5)))
            for task in range(20)
        ]
        metrics = aggregate(lines, facts={"e": EnvironmentFacts(max_reward=best)})
        found.append(judge(parse_gate(f"mean_reward >= {0.968 * best}"), metrics))
    assert [one.verdict for one in found] == ["INCONCLUSIVE"] * 2
    assert found[0].tasks_needed == found[1].tasks_needed
    assert found[0].tasks_needed is not None


TIMES = Percentiles(p50=1.0, p90=2.0, p95=3.0, p99=4.0)


def test_numbers_are_those_of_the_metrics():
    metrics = RunMetrics(
        num_expected=10,
        num_scored=8,
        coverage=0.8,
        num_flaky_tasks=2,
        cost=1.5,
        failures={"ServerError": 1, "RateLimitError": 1},
        stop_reasons={"length": 3},
        tool_errors={"raised": 2, "timeout": 1},
        usage={"prompt_tokens": 100, "completion_tokens": 50, "reasoning_tokens": 40},
        bounds=Bounds(low=0.5, high=0.7),
        variance=Variance(between=0.1, within=0.2, intraclass_correlation=None, design_effect=None),
        latency=Latency(total_seconds=TIMES, model_seconds=TIMES),
        environment_metrics={"win rate": 0.25},
    )
    for name, value in {
        "num_expected": 10,
        "coverage": 0.8,
        "flaky": 2,
        "cost": 1.5,
        "tokens": 150,
        "failures": 2,
        "failures.ServerError": 1,
        "tool_errors": 3,
        "tool_errors.timeout": 1,
        "stop_reasons.length": 3,
        "usage.reasoning_tokens": 40,
        "bounds.low": 0.5,
        "variance.within": 0.2,
        "latency.p95": 3.0,
        "latency.model.p50": 1.0,
        "environment_metrics.win rate": 0.25,
    }.items():
        assert number_of(metrics, name) == value, name


@pytest.mark.parametrize(
    "name",
    [
        "failures.RateLimitError",
        "failures.RuntimeError",
        "retries.ServerError",
        "stop_reasons.max_turns",
        "tool_errors.not_json",
    ],
)
def test_outcomes_that_did_not_occur_count_as_zero(name):
    assert number_of(RunMetrics(num_scored=1), name) == 0.0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("failures.ServerEror", 'did you mean "failures.ServerError"'),
        ("failures.int", "no number has this name"),
        ("stop_reasons.stopped", "no number has this name"),
        ("tool_errors.broken", "no number has this name"),
        ("usage.tokens", "no number has this name"),
        ("components.style", "no number has this name; there are "),
        ("cost", "set prices in gym.toml"),
        ("coverage", "unknown for slices"),
        ("difference", "needs --baseline RUN"),
    ],
)
def test_what_is_not_known_is_explained(name, reason):
    metrics = RunMetrics(num_scored=1, failures={"ServerError": 2})
    with pytest.raises(UsageError) as raised:
        number_of(metrics, name)
    assert reason in str(raised.value)


def test_that_nothing_is_scored_is_said():
    with pytest.raises(UsageError, match=r"^nothing is scored$"):
        number_of(RunMetrics(), "pass@1")


def test_that_a_run_has_too_few_attempts_is_said():
    lines = [ScoredLine(env="e", task_id=str(task), reward=1.0) for task in range(3)]
    metrics = aggregate(lines, facts={"e": EnvironmentFacts(max_reward=1.0)})
    with pytest.raises(
        UsageError, match=r"^no task has more than 1 attempt; --repeats 8 would make 8 of each$"
    ):
        number_of(metrics, "pass@8")
    without = aggregate(lines)
    with pytest.raises(UsageError, match="rewards have no threshold of success"):
        number_of(without, "pass@1")
    with pytest.raises(UsageError, match="no answer was extracted from any attempt"):
        number_of(metrics, "majority@1")


@pytest.mark.parametrize("name", ["pass@3", "pass^5", "best@7", "majority@3", "avg@9"])
def test_any_k_up_to_the_number_of_attempts_can_be_a_gate(name):
    gate = parse_gate(f"0.1 < {name} < 0.9")
    lines = [
        ScoredLine(
            env="e", task_id=str(n), attempt=a, reward=float((a + n) % 3 == 0), answer=f"{a}"
        )
        for n in range(20)
        for a in range(10)
    ]
    facts = {"e": EnvironmentFacts(max_reward=1.0)}
    assert name not in aggregate(lines, facts=facts).estimates
    metrics = aggregate(lines, facts=facts, ks=[gate.k])
    assert judge(gate, metrics, on="point").value == metrics.estimates[name].value


def test_accuracy_is_the_mean_of_rewards_of_0_and_1():
    lines = [ScoredLine(env="e", task_id=str(n), reward=float(n > 3)) for n in range(20)]
    facts = {"e": EnvironmentFacts(max_reward=1.0)}
    metrics = aggregate(lines, facts=facts)
    found = judge(parse_gate("accuracy > 0.5"), metrics)
    assert (found.verdict, found.value) == ("PASS", 0.8)
    assert found.interval == metrics.interval
    lines[0].reward = 0.5
    with pytest.raises(UsageError, match="some rewards are neither 0 nor 1; use mean_reward, or"):
        judge(parse_gate("accuracy > 0.5"), aggregate(lines, facts=facts))


UNIT_FACTS = EnvironmentFacts(max_reward=1.0)


@pytest.mark.parametrize(
    ("text", "environments", "reason"),
    [
        ("pass@5 > 0.1", {"e": UNIT_FACTS}, "no task has more than 4 attempts; --repeats 5 would"),
        ("pass@4 > 0.1", {"e": UNIT_FACTS}, ""),
        ("majority@4 > 0.1", {"e": UNIT_FACTS}, ""),
        ("mean_reward >= 80", {"e": UNIT_FACTS}, "mean_reward is never above 1, the best reward"),
        ("best@2 > 1", {"e": UNIT_FACTS}, "best@2 is never above 1"),
        ("mean_reward > 3", {"e": EnvironmentFacts(max_reward=5.0)}, ""),
        ("mean_reward > 3", {"e": EnvironmentFacts()}, ""),
        ("pass@1 > 0.3", {"e": EnvironmentFacts()}, "no threshold of success"),
        ("pass@1 > 0.3", {"e": EnvironmentFacts(pass_threshold=3.0)}, ""),
        (
            "pass@1 > 0.3",
            {"e": UNIT_FACTS, "f": EnvironmentFacts()},
            "write pass@1[env=NAME] for e",
        ),
        ("pass@1[level=3] > 0.3", {"e": UNIT_FACTS, "f": EnvironmentFacts()}, ""),
        ("pass@1[env=e] > 0.3", {"e": UNIT_FACTS, "f": EnvironmentFacts()}, ""),
        ("cost[env=mcq] < 1", {"mcqa": UNIT_FACTS}, 'no task has env=mcq; did you mean "mcqa"?'),
        ("components.style > 80", {"e": UNIT_FACTS}, ""),
    ],
)
def test_what_no_run_can_meet_is_known_before_it(text, environments, reason):
    found = why_impossible(parse_gate(text), environments, most_attempts=4)
    assert reason in found
    assert bool(found) == bool(reason)


def test_threshold_above_the_best_reward_is_refused_unless_a_reward_is_above_it_too():
    lines = [ScoredLine(env="e", task_id=str(n), reward=1.0) for n in range(20)]
    facts = {"e": EnvironmentFacts(max_reward=1.0)}
    gate = parse_gate("mean_reward > 1.5")
    with pytest.raises(UsageError, match="mean_reward is never above 1"):
        judge(gate, aggregate(lines, facts=facts))
    better = [*lines[1:], ScoredLine(env="e", task_id="0", reward=9.0)]
    assert judge(gate, aggregate(better, facts=facts)).verdict == "INCONCLUSIVE"


def test_that_environments_share_no_scale_is_said():
    lines = [ScoredLine(env=env, task_id=str(task), reward=1.0) for env in "ab" for task in "12"]
    facts = {"a": EnvironmentFacts(max_reward=1.0), "b": EnvironmentFacts(max_reward=5.0)}
    metrics = aggregate(lines, facts=facts)
    with pytest.raises(UsageError, match=r"different best rewards.*pass@1\[env=NAME\] for a, b"):
        number_of(metrics, "pass@1")
    assert number_of(metrics, "num_scored") == 4.0


def test_every_number_of_a_run_can_be_a_gate():
    """No number of a run has a name that the parser of gates rejects."""
    lines = [
        ScoredLine(
            env="e",
            task_id=str(task),
            attempt=attempt,
            reward=1.0,
            components={"style": 1.0},
            metrics={"length": 2.0},
            answer="a",
            details=ScoredDetails("correct"),
            usage=Usage(prompt_tokens=1),
            cost=1.0,
        )
        for task in range(3)
        for attempt in range(4)
    ]
    metrics = aggregate(lines, facts={"e": EnvironmentFacts(max_reward=1.0, num_expected=12)})
    known = numbers(metrics)
    for name in known:
        check_name(name, name)
    assert {"pass@4", "pass^2", "components.style", "metrics.length"} <= known.keys()
    assert known.keys() >= set(PLAIN_NAMES)


@pytest.mark.parametrize("name", ["pass@", "pass@x", "latency", "latency.p42", "usage", "rewards"])
def test_names_that_no_run_has_are_refused(name):
    with pytest.raises(FilterError, match="there is no number"):
        check_name(name, "text")


def test_gates_on_rewards_decide_nothing_where_most_answers_were_not_read():
    few, many, most = (NoAnswers(num_attempts=100, num=num) for num in (10, 11, 51))
    metrics = measured(0.2, 0.1, 0.3)
    metrics.environment_metrics, metrics.bounds = {"f1": 0.2}, Bounds(low=0.2, high=0.3)
    for gate in ("pass@1 >= 0.5", "pass@1 <= 0.5", "environment_metrics.f1 >= 0", "bounds.low > 0"):
        decided = judge(parse_gate(gate), msgspec.structs.replace(metrics, no_answers=few))
        assert decided.verdict in ("PASS", "FAIL")
        assert decided.way_out == ""
        marked = judge(parse_gate(gate), msgspec.structs.replace(metrics, no_answers=many))
        assert (marked.verdict, marked.way_out) == (decided.verdict, many.sentence)
        for on in ("bound", "point"):
            unread = msgspec.structs.replace(metrics, no_answers=most)
            withheld = judge(parse_gate(gate), unread, on=on)
            assert (withheld.verdict, withheld.way_out) == ("INCONCLUSIVE", most.sentence)


@pytest.mark.parametrize("gate", ["num_scored >= 1", "no_answer <= 0.6", "failures == 0"])
def test_other_gates_are_judged_however_many_answers_were_not_read(gate):
    metrics = measured(0.2, 0.1, 0.3)
    metrics.no_answers = NoAnswers(num_attempts=100, num=51)
    assert verdict(gate, metrics) == "PASS"
    assert verdict("no_answer <= 0.5", metrics) == "FAIL"


def test_the_difference_is_undecided_where_most_answers_of_the_baseline_were_not_read():
    comparison = Comparison(
        a=RunSide(run="a", no_answers={"quiz": NoAnswers(num_attempts=10, num=6)}),
        b=RunSide(run="b"),
    )
    interval = Interval(low=0.1, high=0.2, level=0.9, method="t-adjusted")
    metrics = measured(0.2, 0.1, 0.3)
    metrics.estimates["difference"] = msgspec.structs.replace(
        metrics.estimates["pass@1"], interval=interval
    )
    gate = parse_gate("difference >= 0")
    assert judge(gate, metrics).verdict == "PASS"
    found = judge(gate, metrics, comparison=comparison)
    assert found.verdict == "INCONCLUSIVE"
    assert found.way_out == "in the baseline, no answer could be read in 6 of 10 attempts"
    # What is pooled depends on each environment of the baseline, however small.
    comparison.a.no_answers["sums"] = NoAnswers(num_attempts=90)
    for on in ("bound", "point"):
        again = judge(gate, metrics, on=on, comparison=comparison)
        assert (again.verdict, again.way_out) == ("INCONCLUSIVE", found.way_out)
    metrics.environments = {"sums": metrics}
    of_sums = judge(parse_gate("difference[env=sums] >= 0"), metrics, comparison=comparison)
    assert of_sums.verdict == "PASS"


def test_a_gate_on_all_environments_depends_on_each_of_them():
    metrics = measured(0.2, 0.1, 0.3)
    unread, read = NoAnswers(num_attempts=10, num=6), NoAnswers(num_attempts=90)
    metrics.no_answers = NoAnswers(num_attempts=100, num=6)
    metrics.environments = {
        name: msgspec.structs.replace(measured(0.2, 0.1, 0.3), no_answers=own)
        for name, own in (("quiz", unread), ("sums", read))
    }
    found = judge(parse_gate("pass@1 <= 0.5"), metrics)
    assert (found.verdict, found.way_out) == ("INCONCLUSIVE", f"quiz: {unread.sentence}")
    assert verdict("pass@1[env=sums] <= 0.5", metrics) == "PASS"
    assert verdict("pass@1[env=quiz] <= 0.5", metrics) == "INCONCLUSIVE"


def test_the_share_is_unknown_where_no_score_has_a_reason():
    with pytest.raises(UsageError, match="no score has a reason in its details"):
        judge(parse_gate("no_answer <= 0.5"), measured(0.2, 0.1, 0.3))
