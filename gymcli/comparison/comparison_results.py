"""The comparison of two runs, as `gym compare --json` prints it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from gymcli.metrics.results import Bounds, Estimate, Interval, NoAnswers

Verdict = Literal["PASS", "INCONCLUSIVE", "FAIL"]
"""From the best to the worst."""

TestName = Literal["mcnemar-mid-p", "sign-flip-exact", "sign-flip"]
"""`mcnemar-mid-p` if every task has one attempt in each run and rewards have two values; else
flips of the signs of the tasks' differences, all of them or random ones."""

Change = Literal["fixed", "broken", "flaky", "passed", "failed"]
"""The change of a task: it failed in all attempts and now passes in all, or the reverse; flaky if
some attempts of a run pass and some fail; passed or failed in all attempts of both runs."""

Direction = Literal["regressed", "improved", "unchanged"]
"""The sign of B - A."""

DriftKind = Literal["prompt", "verifier", "environment", "options", "tasks", "scale", "role"]


class Difference(msgspec.Struct, kw_only=True):
    """The difference between runs A and B over their common tasks: all of them, or a part.

    Unknown numbers are None. Numbers about rewards are unknown without common tasks, or if
    environments with different best rewards are combined.
    """

    num_tasks: int = 0
    """Tasks that have a value in both runs."""
    num_attempts_a: int = 0
    """Scored attempts of these tasks."""
    num_attempts_b: int = 0
    mean_a: float | None = None
    """Mean over these tasks in run A, with equal weights."""
    mean_b: float | None = None
    difference: Estimate | None = None
    """B - A, with its interval over tasks at the level of the comparison."""
    p_value: float | None = None
    """Two-sided."""
    p_adjusted: float | None = None
    """The p-value adjusted by Holm's method for all slices or environments; None for the whole."""
    test: TestName | None = None
    """The test behind the p-value."""
    correlation: float | None = None
    """Correlation of the tasks' means in both runs; None if either has no variance."""
    variance_reduction: float | None = None
    """The share of the variance of the difference that pairing removed."""
    num_unpaired_tasks: float | None = None
    """Tasks per run that would have the same error without pairing; None if pairs have no error."""
    deciding_interval: Interval | None = None
    """The interval of level 1 - 2 alpha, whose ends decide the verdict."""
    margin: float | None = None
    smallest_margin: float | None = None
    """B passes with every margin above this; None without an interval, and if only a margin as
    large as the whole range would do."""
    is_equivalent: bool | None = None
    """Whether the 1 - 2 alpha interval lies within plus and minus the margin."""
    p_equivalent: float | None = None
    """P-value of the two one-sided t tests for equivalence, on the deciding interval's error."""
    verdict: Verdict = "INCONCLUSIVE"
    """`PASS` if B is worse by less than the margin, `FAIL` if B is worse."""
    tasks_needed: int | None = None
    """Tasks, with as many attempts as now, that would decide with a chance of 80 % if the
    difference stays the same; None if it is decided already, or if no number would decide."""
    attempts_needed: int | None = None
    """Attempts per task in each run that would decide likewise; None if it is decided already, if
    no number would decide, or if it is unknown, for example because no task has two attempts."""
    way_out: str = ""
    """Advice on what would decide; empty if it is decided."""
    num_regressed: int = 0
    """Tasks with a smaller value in B, by however little."""
    num_improved: int = 0
    num_unchanged: int = 0
    num_fixed: int | None = None
    """Tasks whose attempts all fail in A and all pass in B; None without a threshold of success."""
    num_broken: int | None = None
    """Tasks whose attempts all pass in A and all fail in B."""
    num_flaky: int | None = None
    """Tasks of which some attempts pass and some fail, in A or in B."""
    num_flaky_a: int | None = None
    """Tasks of which some attempts pass and some fail in A, whatever they do in B."""
    num_flaky_b: int | None = None
    fixed: list[str] = []
    """The first ones by environment and id."""
    broken: list[str] = []
    flaky: list[str] = []


class RunSide(msgspec.Struct, kw_only=True):
    """One of the two runs: all its tasks, including those that the other run lacks."""

    run: str
    model: str = ""
    num_expected: int | None = None
    """None if it is unknown, as for a bare file."""
    num_present: int = 0
    num_scored: int = 0
    coverage: float | None = None
    num_tasks: int = 0
    """Tasks with a scored attempt."""
    mean_reward: float | None = None
    estimate: Estimate | None = None
    """The compared number over all tasks of the run; None if they have no common scale."""
    strict_mean_reward: float | None = None
    """The mean with absent attempts as 0; None if rewards can be negative."""
    bounds: Bounds | None = None
    """The bounds of the mean, for any rewards of the absent attempts."""
    no_answers: dict[str, NoAnswers] = {}
    """By environment, the attempts in which no answer could be read."""

    @property
    def all_no_answers(self) -> NoAnswers:
        """The attempts of all environments in which no answer could be read."""
        total = NoAnswers()
        for part in self.no_answers.values():
            total.add(part)
        return total


class Drift(msgspec.Struct, kw_only=True):
    """A fact that should be the same in both runs but differs: more than the model has changed."""

    kind: DriftKind
    env: str = ""
    """The environment; empty if it concerns all."""
    name: str
    """The fact that differs, such as `verifier version`."""
    a: str = ""
    """Empty if the name is sufficient."""
    b: str = ""

    def __str__(self) -> str:
        of = f"{self.env}: " if self.env else ""
        values = f" {self.a} in A, {self.b} in B" if self.a or self.b else ""
        return f"{of}{self.name}{values}"


class Setting(msgspec.Struct, kw_only=True):
    """A setting that may differ between runs: the model or how it is asked."""

    name: str
    a: str
    b: str


class Unmatched(msgspec.Struct, kw_only=True):
    """Tasks that only one of the runs has scored."""

    num_only_a: int = 0
    num_only_b: int = 0
    only_a: list[str] = []
    """The first ones by environment and id."""
    only_b: list[str] = []
    num_too_few_attempts: int = 0
    """Tasks of both runs that are left out, since one run lacks the attempts or the numbers that
    the metric needs."""


class TaskDifference(msgspec.Struct, kw_only=True):
    """One task in both runs."""

    env: str
    task_id: str
    num_attempts_a: int
    num_attempts_b: int
    num_passes_a: int | None
    """None without a threshold of success."""
    num_passes_b: int | None
    value_a: float
    value_b: float
    difference: float
    direction: Direction = "unchanged"
    flaky_in: Literal["A", "B", "both", ""] = ""
    """The runs in which some attempts pass and some fail; empty if there are none."""
    change: Change | None
    """None without a threshold of success."""


class Comparison(Difference, kw_only=True):
    """Two runs compared: all environments together, each of them, and slices of tasks."""

    metric: str = "mean_reward"
    """The number that is compared, by the name that gates use."""
    level: float = 0.95
    is_strict: bool = False
    """Whether `FAIL` requires a difference worse than the margin."""
    is_same_run: bool = False
    """Whether A and B are the same folder, or hold the same rollouts: then nothing is decided."""
    a: RunSide
    b: RunSide
    bounds: Bounds | None = None
    """The bounds of B - A of the mean rewards of all expected attempts, for any rewards of the
    absent ones; None if they are unknown or no attempt is absent."""
    regressions: list[TaskDifference] = []
    """The ten tasks that lost most, the largest loss first."""
    environments: dict[str, Difference] = {}
    slices: dict[str, dict[str, Difference]] = {}
    """By field of the task, then by its value, for the requested fields."""
    unmatched: Unmatched = msgspec.field(default_factory=Unmatched)
    drift: list[Drift] = []
    """Empty unless drift was allowed."""
    unknown: list[str] = []
    """Facts that could not be checked for drift, since a run does not record them."""
    compared: list[Setting] = []
    """The model, and other settings that may differ."""
    warnings: list[str] = []
    """One sentence each."""
    tasks: list[TaskDifference] = []
    """Empty unless requested."""


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of at least one comparison or gate that decides for all."""
    return max(verdicts, key=get_args(Verdict).index)
