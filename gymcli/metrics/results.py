"""The numbers of a run, as `gym metrics --json` prints them and metrics.json holds them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from gymcli.types import RoleUse

__all__ = [
    "Bounds",
    "Curve",
    "Effect",
    "Estimate",
    "Interval",
    "IntervalMethod",
    "Latency",
    "Metrics",
    "Percentiles",
    "RunMetrics",
    "TaskMetrics",
    "Variance",
]

Curve: TypeAlias = dict[str, float]
"""A value for each k; the keys are text, as in JSON."""

IntervalMethod = Literal["wilson-neff", "t"]
"""`wilson-neff` where rewards lie between 0 and a known best one, else `t`."""


class Interval(msgspec.Struct, kw_only=True):
    """A confidence interval."""

    low: float
    high: float
    level: float
    method: IntervalMethod


class Estimate(msgspec.Struct, kw_only=True):
    """A number, and how sure it is."""

    value: float
    estimator: str
    """Such as `mean of task means`."""
    num_values: int
    """Attempts that it was computed from."""
    num_clusters: int
    """Tasks that these are of: the independent units behind error and interval."""
    standard_error: float | None = None
    """Over tasks; None for fewer than two."""
    interval: Interval | None = None
    """None for fewer than two tasks, and where `t` would give it no width."""


class Effect(msgspec.Struct, kw_only=True):
    """A number by two verifiers, over the tasks that have it by both."""

    before: float | None = None
    """By the old one; None where that does not give it."""
    after: float | None = None
    difference: Estimate | None = None
    """After - before, with its interval over tasks; None where one of them is not there."""


class Bounds(msgspec.Struct, kw_only=True):
    """Where the mean reward lies, whatever the absent attempts would have got."""

    low: float
    high: float


class Variance(msgspec.Struct, kw_only=True):
    """How much of the variance of rewards lies between tasks, how much within them."""

    between: float
    """Of the tasks' true means."""
    within: float
    """Of one attempt around the true mean of its task."""
    intraclass_correlation: float | None
    """`between / (between + within)`; None where both are 0."""
    design_effect: float | None
    """1 + (K - 1) * ICC: the variance over that of as many independent attempts."""


class Percentiles(msgspec.Struct, kw_only=True):
    """Percentiles of a time, in seconds."""

    p50: float
    p90: float
    p95: float
    p99: float


class Latency(msgspec.Struct, kw_only=True):
    """How long scored attempts took, by the clock and in the model."""

    total_seconds: Percentiles
    model_seconds: Percentiles


class Metrics(msgspec.Struct, kw_only=True):
    """The numbers of one environment, or of all of a run's together.

    What cannot be said is None, `null` in JSON: without scored attempts, and where environments
    with different best rewards are taken together, everything about rewards is.
    """

    num_expected: int | None = None
    """None where it is not known."""
    num_present: int = 0
    """Attempts with a record: scored, or failed and not made up for."""
    num_scored: int = 0
    num_unscored: int = 0
    """Attempts whose last record is a failure."""
    coverage: float | None = None
    """`num_scored / num_expected`."""
    num_tasks: int = 0
    """Tasks with a record."""
    num_clusters: int = 0
    """Tasks with a scored attempt: the independent units behind errors and intervals."""
    mean_reward: float | None = None
    """Mean over tasks of the mean reward of their scored attempts."""
    strict_mean_reward: float | None = None
    """The same with absent attempts as 0; None where rewards can be negative."""
    bounds: Bounds | None = None
    """None unless rewards lie between 0 and a known best one."""
    standard_error: float | None = None
    """Of `mean_reward`, over tasks; None for fewer than two."""
    interval: Interval | None = None
    """Of `mean_reward`; None for fewer than two tasks, and where `t` would give it no width."""
    micro_mean_reward: float | None = None
    """Mean over all scored attempts; another number only where tasks have unequally many."""
    micro_standard_error: float | None = None
    """Of `micro_mean_reward`, clustered by task."""
    variance: Variance | None = None
    """None for fewer than two tasks or where no task has two attempts."""
    num_flaky_tasks: int | None = None
    """Tasks of which some attempts pass and some do not."""
    num_tasks_at_k: dict[str, int] | None = None
    """Tasks with k scored attempts: those that the means below are over."""
    pass_at_k: Curve | None = None
    """Chance that one of k attempts passes; None without a threshold of success."""
    pass_hat_k: Curve | None = None
    """Chance that all of k attempts pass; None without a threshold of success."""
    avg_at_k: Curve | None = None
    """Mean reward of the first k scored attempts."""
    majority_at_k: Curve | None = None
    """Expected reward of the commonest answer of k attempts; None without answers."""
    best_of_k: Curve | None = None
    """Expected best reward of k attempts."""
    components: dict[str, float] | None = None
    """Mean over tasks of each named reward, where it was given."""
    metrics: dict[str, float] | None = None
    """Mean over tasks of each other number of the verifier."""
    failures: dict[str, int] = {}
    """Unscored attempts by the class of their last error."""
    stop_reasons: dict[str, int] = {}
    tool_errors: dict[str, int] = {}
    """Tool calls of scored attempts that could not be carried out, by what was wrong."""
    retries: dict[str, int] = {}
    """Requests that were tried again, by error class."""
    usage: dict[str, int] = {}
    """Tokens of the last try of each attempt counted here; what earlier tries took is not in it."""
    cost: float | None = None
    """Of the policy; None where it is not known of every attempt."""
    role_usage: dict[str, RoleUse] = {}
    """Of models other than the policy, by role, for all attempts counted here."""
    latency: Latency | None = None
    """None where no scored attempt recorded its time."""
    estimates: dict[str, Estimate] = {}
    """Every number about rewards with its error, by the names that gates use: `mean_reward`,
    `micro_mean_reward`, `strict_mean_reward`, `pass@K`, `pass^K`, `avg@K`, `majority@K`,
    `best@K`, `components.NAME`, `metrics.NAME`."""
    slices: dict[str, dict[str, Metrics]] = {}
    """The same numbers by field of the task and its value, for the fields that were asked for."""
    environment_metrics: dict[str, float] = {}
    """The results of `Environment.metrics`."""
    advice: list[str] = []
    """One sentence each."""


class RunMetrics(Metrics, kw_only=True):
    """The numbers of a run: all its environments together, then each of them."""

    environments: dict[str, Metrics] = {}


class TaskMetrics(msgspec.Struct, kw_only=True):
    """The numbers of one task; those about rewards are None where nothing is scored."""

    env: str
    task_id: str
    num_scored: int
    num_unscored: int
    num_passes: int | None = None
    """None without a threshold of success."""
    mean_reward: float | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    majority_answer: str | None = None
    """The commonest answer; of several, the one that came first by attempt."""
