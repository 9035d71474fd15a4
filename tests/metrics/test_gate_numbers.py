"""Every number that a gate can name is that of the metrics, and what is missing is explained."""

from typing import get_args

import pytest

from gymcli.environment.tool import ToolFault
from gymcli.errors import FilterError, UsageError
from gymcli.metrics.gates import PLAIN_NAMES, TOOL_FAULTS, check_name, number_of, numbers
from gymcli.metrics.results import Bounds, Latency, Percentiles, RunMetrics, Variance
from gymcli.metrics.scored_lines import EnvironmentFacts, ScoredLine
from gymcli.types import Usage
from tests.metrics.aggregating import aggregate

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
def test_what_did_not_come_up_counts_as_none(name):
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
        UsageError, match=r"no task has more than 1 scored attempt; there are pass@1$"
    ):
        number_of(metrics, "pass@8")
    without = aggregate(lines)
    with pytest.raises(UsageError, match="rewards have no threshold of success"):
        number_of(without, "pass@1")


def test_that_environments_share_no_scale_is_said():
    lines = [ScoredLine(env=env, task_id=str(task), reward=1.0) for env in "ab" for task in "12"]
    facts = {"a": EnvironmentFacts(max_reward=1.0), "b": EnvironmentFacts(max_reward=5.0)}
    metrics = aggregate(lines, facts=facts)
    with pytest.raises(UsageError, match=r"different best rewards.*pass@1\[env=NAME\] for a, b"):
        number_of(metrics, "pass@1")
    assert number_of(metrics, "num_scored") == 4.0


def test_every_name_that_a_run_has_can_be_written():
    """What a gate can be judged by is never refused when it is read."""
    lines = [
        ScoredLine(
            env="e",
            task_id=str(task),
            attempt=attempt,
            reward=1.0,
            components={"style": 1.0},
            metrics={"length": 2.0},
            answer="a",
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


def test_kinds_of_tool_errors_are_those_of_environments():
    assert set(TOOL_FAULTS) == set(get_args(ToolFault))
