"""The numbers of a run, as `gym metrics --json` prints them and metrics.json holds them."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from typing import Literal, Self, TypeAlias

import msgspec

from gymcli.metrics.at_k import METRICS
from gymcli.types import RoleUse

FEW_TASKS = 10
"""With fewer tasks, the spread between them is too uncertain for an exact interval."""

Curve: TypeAlias = dict[str, float]
"""A value for each k; the keys are text, as in JSON."""

IntervalMethod = Literal["wilson-neff", "t", "t-adjusted", "normal", "within-tasks"]
"""`wilson-neff` if rewards lie between 0 and a known best one, else `t`; `t-adjusted` for the
difference of two runs, `normal` for kappa, `within-tasks` for the difference from a reference."""


class Interval(msgspec.Struct, kw_only=True):
    """A confidence interval."""

    low: float
    high: float
    level: float
    method: IntervalMethod


class Estimate(msgspec.Struct, kw_only=True):
    """A number with its error and interval."""

    value: float
    estimator: str
    """Such as `mean of task means`."""
    num_values: int
    """Attempts that the number was computed from."""
    num_clusters: int
    """Tasks of these attempts: the independent units behind error and interval."""
    standard_error: float | None = None
    """Over tasks; None for fewer than two."""
    interval: Interval | None = None
    """None for fewer than two tasks, and if the method `t` would yield no width."""


class Effect(msgspec.Struct, kw_only=True):
    """A number by two verifiers, over the tasks that have it from both."""

    before: float | None = None
    """The number by the old verifier; None if it has none."""
    after: float | None = None
    difference: Estimate | None = None
    """After - before, with its interval over tasks; None if either number is missing."""


class Bounds(msgspec.Struct, kw_only=True):
    """The bounds of the mean reward, for any rewards of the absent attempts."""

    low: float
    high: float


class Variance(msgspec.Struct, kw_only=True):
    """The variance of rewards between tasks and within tasks."""

    between: float
    """The variance of the tasks' true means."""
    within: float
    """The variance of one attempt around the true mean of its task."""
    intraclass_correlation: float | None
    """`between / (between + within)`; None if both are 0."""
    design_effect: float | None
    """1 + (K - 1) * ICC: the variance relative to that of equally many independent attempts."""


class Percentiles(msgspec.Struct, kw_only=True):
    """Percentiles of a time, in seconds."""

    p50: float
    p90: float
    p95: float
    p99: float


class Latency(msgspec.Struct, kw_only=True):
    """The duration of scored attempts: wall-clock time, and the time in the model."""

    total_seconds: Percentiles
    model_seconds: Percentiles


NO_ANSWER = "no_answer"
"""The reason of a score whose verifier could not read an answer in what the model wrote."""
_MANY_NO_ANSWERS = 0.1
_MOST_NO_ANSWERS = 0.5


class _Counts(msgspec.Struct, kw_only=True):
    def add(self, other: Self) -> None:
        """Add the numbers of other attempts."""
        for name in self.__struct_fields__:
            total, more = getattr(self, name), getattr(other, name)
            if isinstance(more, _Counts):
                total = type(more)() if total is None else total
                total.add(more)
            elif isinstance(more, dict):
                total = dict(Counter(total) + Counter(more))
            elif more is not None:
                total += more
            setattr(self, name, total)


class NoAnswers(_Counts, kw_only=True):
    """Scored attempts in which the verifier could not read an answer."""

    num_attempts: int = 0
    """Attempts whose score has a reason."""
    num: int = 0
    """Attempts whose score has the reason `no_answer`."""
    num_cut: int = 0
    """Of these, the attempts that a limit on tokens cut off."""

    @property
    def share(self) -> float:
        """The share of the attempts; 0 without any."""
        return self.num / self.num_attempts if self.num_attempts else 0.0

    @property
    def are_many(self) -> bool:
        """Whether they are more than a tenth, so that a low reward may be about the form."""
        return self.share > _MANY_NO_ANSWERS

    @property
    def are_most(self) -> bool:
        """Whether they are more than half, so that rewards decide nothing about the answers."""
        return self.share > _MOST_NO_ANSWERS

    @property
    def sentence(self) -> str:
        """How many there are, in words."""
        text = f"no answer could be read in {self.num:,} of {self.num_attempts:,} attempts"
        return (
            f"{text}, {self.num_cut:,} of them cut off by a token limit" if self.num_cut else text
        )

    def sentence_with_command(self, run: str = "RUN") -> str:
        """Return the sentence, and the command that shows three of the attempts."""
        where = f"--where 'details.reason == \"{NO_ANSWER}\"'"
        return f"{self.sentence}; for three of them: gym show {shlex.quote(run)} {where} -n 3"


class TokenDrift(_Counts, kw_only=True):
    """What a trainer would get wrong that renders conversations again instead of using the ids.

    A call is changed if its conversation, up to and including the answer, does not begin with the
    engine's prompt and sample when it is rendered; of its sampled ids, those from the first
    difference on. A sequence is changed if one of its calls is.
    """

    num_calls: int = 0
    num_changed_calls: int = 0
    num_sequences: int = 0
    num_changed_sequences: int = 0
    num_sampled: int = 0
    num_changed_sampled: int = 0
    num_unrendered: int = 0
    """Attempts whose assistant messages are not those of their calls; not counted above."""


class TokenNumbers(_Counts, kw_only=True):
    """What of the scored attempts can be trained, by the recorded token ids."""

    num_attempts: int = 0
    num_in_one_sequence: int = 0
    num_forked: int = 0
    """Attempts in several sequences: their history was rewritten."""
    num_without_ids: int = 0
    """Attempts in no sequence."""
    off_policy: dict[str, int] = {}
    """Attempts in sequences whose log-probabilities are not those of the distribution that was
    sampled from, by the first reason."""
    problems: dict[str, int] = {}
    """Calls that cannot be trained, by reason; `N` stands for any number in it."""
    num_sampled: int = 0
    """Sampled ids of all other calls."""
    num_masked: int = 0
    """Of these, the ids that a later prompt had re-tokenised, which are context therefore."""
    drift: TokenDrift | None = None
    """With `--tokenizer`."""


MEANS = ("mean_reward", "strict_mean_reward", "micro_mean_reward")


class Metrics(msgspec.Struct, kw_only=True):
    """The numbers of one environment, or of all environments of a run together.

    Unknown numbers are None, `null` in JSON. Numbers about rewards are unknown without scored
    attempts, or if environments with different best rewards are combined.
    """

    num_expected: int | None = None
    """None if it is unknown."""
    num_present: int = 0
    """Attempts with a record: scored, or failed and not scored since."""
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
    """The same, counting absent attempts as 0; None if rewards can be negative."""
    bounds: Bounds | None = None
    """None unless rewards lie between 0 and a known best one."""
    standard_error: float | None = None
    """The standard error of `mean_reward` over tasks; None for fewer than two tasks."""
    interval: Interval | None = None
    """Of `mean_reward`; None for fewer than two tasks, and if `t` would yield no width."""
    micro_mean_reward: float | None = None
    """Mean over all scored attempts; it differs only if tasks have different numbers of them."""
    micro_standard_error: float | None = None
    """Of `micro_mean_reward`, clustered by task."""
    variance: Variance | None = None
    """None for fewer than two tasks, or if no task has two attempts."""
    max_reward: float | None = None
    """The best possible reward; None if it is unknown, unbounded or not the same everywhere."""
    is_graded: bool | None = None
    """Whether some reward is neither 0 nor 1; None if nothing is scored."""
    num_flaky_tasks: int | None = None
    """Tasks of which some attempts pass and some fail."""
    num_tasks_at_k: dict[str, int] | None = None
    """Tasks with k or more scored attempts, over which the means below are taken."""
    pass_at_k: Curve | None = None
    """Chance that at least one of k attempts passes; None without a threshold of success."""
    pass_hat_k: Curve | None = None
    """Chance that all of k attempts pass; None without a threshold of success."""
    avg_at_k: Curve | None = None
    """Mean reward of the first k scored attempts: only for all attempts and for requested k."""
    majority_at_k: Curve | None = None
    """Expected reward of the commonest answer of k attempts; None without answers."""
    best_of_k: Curve | None = None
    """Expected best reward of k attempts."""
    components: dict[str, float] | None = None
    """Mean of each named reward over the tasks that have it."""
    metrics: dict[str, float] | None = None
    """Mean over tasks of each other number of the verifier."""
    failures: dict[str, int] = {}
    """Unscored attempts by the class of their last error."""
    no_answers: NoAnswers = msgspec.field(default_factory=NoAnswers)
    stop_reasons: dict[str, int] = {}
    tool_errors: dict[str, int] = {}
    """Tool calls of scored attempts that could not be executed, by kind of error."""
    retries: dict[str, int] = {}
    """Retried requests, by error class."""
    usage: dict[str, int] = {}
    """Tokens of the last try of each attempt counted here; earlier tries are not included."""
    cost: float | None = None
    """The policy's cost; None unless it is known for every attempt."""
    role_usage: dict[str, RoleUse] = {}
    """Usage of the models other than the policy, by role, for all attempts counted here."""
    latency: Latency | None = None
    """None if no scored attempt recorded its time."""
    tokens: TokenNumbers | None = None
    """None if the run recorded no token ids."""
    estimates: dict[str, Estimate] = {}
    """Every number about rewards with its error, by the names that gates use: `mean_reward`,
    `micro_mean_reward`, `strict_mean_reward`, the metrics of `METRICS` such as `pass@K`,
    `components.NAME`, `metrics.NAME`."""
    slices: dict[str, dict[str, Metrics]] = {}
    """The same numbers by field of the task and its value, for the requested fields."""
    environment_metrics: dict[str, float] = {}
    """The results of `Environment.metrics`."""
    advice: list[str] = []
    """One sentence each."""

    @property
    def usual_num_attempts(self) -> int:
        """The k of the numbers that are shown first: half of the tasks have at least k attempts."""
        counts = self.num_tasks_at_k or {}
        return max((int(k) for k, num in counts.items() if 2 * num >= self.num_clusters), default=0)

    @property
    def distinct(self) -> dict[str, Estimate]:
        """The estimates that do not repeat another one under a second name, means first."""
        means = [*MEANS, f"avg@{max(map(int, self.num_tasks_at_k or ['0']))}"]
        distinct = {name: self.estimates[name] for name in means if name in self.estimates}
        first = distinct.get(MEANS[0])
        # Other means differ only where attempts are missing or tasks have unequally many.
        for name in means[1:]:
            if first and name in distinct and math.isclose(distinct[name].value, first.value):
                del distinct[name]
        for metric in METRICS.values():
            # Of rewards of 0 and 1, best@k is pass@k.
            is_pass_at_k = metric.key == "best_of_k" and self.pass_at_k and not self.is_graded
            for k in self.num_tasks_at_k or ():
                # One attempt has its reward, and passes if that reaches the threshold.
                is_mean = k == "1" and not (metric.key == "pass_at_k" and self.is_graded)
                name = f"{metric.name}{k}"
                if name in self.estimates and not (metric.takes_first or is_pass_at_k or is_mean):
                    distinct[name] = self.estimates[name]
        named = (name for name in self.estimates if name.startswith(("components.", "metrics.")))
        return distinct | {name: self.estimates[name] for name in named}


class RunMetrics(Metrics, kw_only=True):
    """The numbers of a run: of all environments together and of each one."""

    environments: dict[str, Metrics] = {}


class TaskMetrics(msgspec.Struct, kw_only=True):
    """The numbers of one task; numbers about rewards are None if no attempt is scored."""

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
    """The commonest answer; among ties, the one from the earliest attempt."""
