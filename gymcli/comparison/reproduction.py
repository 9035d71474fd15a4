"""Tests whether a run reproduces the published scores of its benchmark.

Two one-sided tests (Schuirmann 1987, doi 10.1007/BF01068419), 5 % each, of the difference of two
means over the same fixed tasks, of which only the attempts are random. A score is reproduced if the
90 % interval of the difference lies within ±margin. The interval combines those of the two scores
(MOVER, Zou and Donner 2008, doi 10.1002/sim.3095).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gymcli.comparison.planning import CHANCE, fewest
from gymcli.metrics.estimators import row_means, row_variances
from gymcli.metrics.intervals import normal_quantile, student_t_quantile, wilson_interval
from gymcli.metrics.results import Interval, NoAnswers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEVEL = 0.9
"""Of the interval of the difference: 5 % on each side."""
_Z = normal_quantile((1.0 + _LEVEL) / 2.0)
_MAX_REPEATS = 10_000


_Line = Annotated[str, AfterValidator(lambda text: " ".join(text.split()))]


class Reference(BaseModel):
    """A score that somebody published, from `[[reference]]` of a benchmark.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: _Line = Field(min_length=1)
    """The model's name, as its maker or its endpoint writes it."""
    score: float = Field(allow_inf_nan=False)
    """In the unit of the benchmark's metric: 0.95, not 95."""
    stderr: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    stderr_over: Literal["tasks", "repeats"] = "tasks"
    """Whether `stderr` includes the variance between tasks, or only that of repeated runs."""
    repeats: int = Field(default=1, ge=1)
    """Attempts of each task behind the score."""
    tasks: int | None = Field(default=None, ge=1)
    """Tasks behind the score; None for all of the benchmark."""
    settings: _Line = ""
    """How the settings differ from the benchmark's, in words; such a score is shown, not tested."""
    harness: _Line = ""
    """The program that measured it, and its version."""
    source: _Line = Field(min_length=1)
    """Where it is published: an address, or a package's file."""
    date: str = Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?$")
    """When it was published."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.stderr is not None and self.stderr_over == "repeats" and self.repeats < 2:
            raise ValueError('stderr_over = "repeats" needs repeats of 2 or more')
        return self


def same_model(name: str, other: str) -> bool:
    """Return whether two names are those of one model, with or without a provider's prefix."""
    return name.rpartition("/")[2].casefold() == other.rpartition("/")[2].casefold()


class Reproduction(msgspec.Struct, kw_only=True):
    """Whether a run reproduces a published score."""

    model: str
    """As the reference writes it."""
    score: float
    source: str
    date: str
    harness: str = ""
    verdict: Literal["reproduced", "not_reproduced", "cannot_tell", "other_settings"]
    """`other_settings`: not tested, since the scores are not comparable."""
    other_settings: list[str] = []
    """How the settings differ, each in words."""
    value: float
    """The run's score."""
    difference: float
    """`value - score`."""
    interval: Interval | None = None
    """Of the difference over the fixed set of tasks; None if it is not tested."""
    margin: float
    """The score is reproduced if the interval lies within ±margin."""
    smallest_margin: float | None = None
    """The smallest margin at which it would be reproduced."""
    repeats_needed: int | None = None
    """Attempts of each task that would decide with a chance of 80 % if the difference stays the
    same; None if it is decided already, or if no number would decide."""
    is_reference_uncertain: bool = False
    """Whether the reference is so uncertain that no number of attempts would decide."""
    way_out: str = ""
    """Advice on what would decide; empty if it is decided."""

    @property
    def verdict_text(self) -> str:
        """The verdict in words."""
        return self.verdict.replace("_", " ")


class BenchmarkScore(msgspec.Struct, kw_only=True):
    """The score of a run of a benchmark, and those that others published for the same model."""

    benchmark: str
    model: str
    metric: str
    value: float | None
    other_settings: list[str] = []
    """How the run differs from the benchmark, each in words; then no reference is tested."""
    problem: str = ""
    """Why there is nothing to compare: the benchmark, its metric or all scores are missing."""
    references: list[Reproduction] = []
    num_published: int = 0
    """Scores that others published, of any model."""
    elsewhere: list[str] = []
    """Other variants of the benchmark with a score of the model that can be tested, if this has
    none."""


class Weights(NamedTuple):
    """How the best scores of tasks differ, whose mean is 1."""

    spread: float = 0.0
    """A quarter of their variance over tasks."""
    heaviest: float = 1.0
    """The largest one."""


EQUAL_WEIGHTS = Weights()


class FixedTasksScore(NamedTuple):
    """A mean from 0 to 1 over a fixed set of tasks, whose attempts are random."""

    value: float
    num_attempts: float
    """Of all tasks together."""
    variance: float | None = None
    """Of the mean, estimated from the repeats; None if there are none."""
    degrees_of_freedom: int | None = None
    """Of the variance if it was estimated from whole runs; None: it was estimated by task."""
    weights: Weights = EQUAL_WEIGHTS


def half_width(score: FixedTasksScore) -> float:
    """Return half of the width of the 90 % interval of a score.

    Of attempts between 0 and 1 with the mean p, none have a larger variance than p(1 - p); of the p
    in Wilson's interval, the one nearest to 1/2 counts. If the best scores b of tasks differ, with
    the mean 1, it is at most p(1 - p) + var(b)/4, which the method of Lagrange shows: it is largest
    where the mean of each task is p + (b - 1)/2. The estimated variance is used if it is
    smaller, by its upper limit: where failures are rare it counts them, and a Poisson count x has
    the upper score limit x + z²/2 + z·sqrt(x + z²/4). Half an attempt is added, since a score
    moves in steps of attempts. Where tasks weigh differently, all attempts count as if they were
    those of the heaviest task, of which there are fewer.
    """
    size = score.num_attempts / score.weights.heaviest
    wilson = wilson_interval(score.value, size, level=_LEVEL)
    rate = min(max(0.5, wilson.low), wilson.high)
    variance, quantile = (rate * (1.0 - rate) + score.weights.spread) / score.num_attempts, _Z
    if score.variance is not None:
        count = score.variance * size**2
        limit = count + _Z**2 / 2.0 + _Z * math.sqrt(count + _Z**2 / 4.0)
        variance = min(variance, limit / size**2)
        if score.degrees_of_freedom is not None:
            quantile = student_t_quantile((1.0 + _LEVEL) / 2.0, score.degrees_of_freedom)
    return quantile * math.sqrt(variance) + 0.5 / size


def score_of_run(
    groups: Sequence[Floats],
    *,
    benchmark: str,
    model: str,
    metric: str,
    margin: float,
    best: float | None,
    references: Sequence[Reference],
    weights: Weights = EQUAL_WEIGHTS,
    other_settings: Sequence[str] = (),
    no_answers: NoAnswers | None = None,
) -> BenchmarkScore:
    """Return the score of a run, compared with the published scores of the same model.

    The arguments are those of `reproduction` and `BenchmarkScore`; nothing can be told if most of
    the answers could not be read.
    """
    num_tasks = sum(map(len, groups))
    outcomes = []
    for reference in references:
        if not same_model(reference.model, model):
            continue
        settings = [*other_settings, *filter(None, [reference.settings])]
        if reference.tasks not in (None, num_tasks):
            settings.append(f"the reference is a score of {reference.tasks:,} tasks")
        outcome = reproduction(
            reference, groups, margin=margin, best=best, weights=weights, other_settings=settings
        )
        if no_answers is not None and no_answers.are_most and outcome.interval is not None:
            outcome.verdict, outcome.way_out = "cannot_tell", no_answers.sentence
            outcome.repeats_needed, outcome.is_reference_uncertain = None, False
        outcomes.append(outcome)
    return BenchmarkScore(
        benchmark=benchmark,
        model=model,
        metric=metric,
        value=_mean(groups),
        other_settings=[*other_settings],
        references=outcomes,
        num_published=len(references),
    )


def mean_of_metrics(metrics: Sequence[str], scores: Mapping[str, Sequence[Floats]]) -> list[Floats]:
    """Return the mean of metrics for each attempt, whose mean over tasks is that of the metrics.

    "A / B" is a ratio of sums over tasks: each attempt's A is divided by the mean of B over all
    tasks. `scores` has the matrices of each name; none are returned if they are not those of the
    same attempts.
    """
    if len({tuple(group.shape for group in groups) for groups in scores.values()}) > 1:
        return []
    totals: list[Floats] = []
    for metric in metrics:
        name, _, divisor = metric.partition(" / ")
        by = _mean(scores[divisor]) if divisor and scores[divisor] else 1.0
        if by == 0.0:
            return []
        parts = [group / (by * len(metrics)) for group in scores[name]]
        totals = [a + b for a, b in zip(totals, parts, strict=True)] if totals else parts
    return totals


def weights_of_metrics(metrics: Sequence[str], scores: Mapping[str, Sequence[Floats]]) -> Weights:
    """Return how the best means of metrics differ between tasks.

    The best value of a metric is 1, and that of "A / B" is B over its mean: a task with more to
    count weighs more.
    """
    ratios = [metric.partition(" / ")[2] for metric in metrics if " / " in metric]
    matrices = mean_of_metrics([f"{divisor} / {divisor}" for divisor in ratios], scores)
    share = len(ratios) / len(metrics)
    excess = [share * (best - 1.0) for group in matrices for best in row_means(group).tolist()]
    if not excess:
        return EQUAL_WEIGHTS
    return Weights(math.fsum(part**2 for part in excess) / len(excess) / 4.0, 1.0 + max(excess))


def reproduction(
    reference: Reference,
    groups: Sequence[Floats],
    *,
    margin: float,
    best: float | None,
    weights: Weights = EQUAL_WEIGHTS,
    other_settings: Sequence[str] = (),
) -> Reproduction:
    """Return whether the scores of attempts reproduce a reference.

    Args:
        reference: The published score.
        groups: Matrices of our scores, one for the tasks with equally many attempts: a row is a
            task, a column an attempt.
        margin: The largest difference that counts as reproduced.
        best: The best possible score of an attempt; None if it is unknown.
        weights: How the best scores of tasks differ, whose mean is 1.
        other_settings: Why the scores are not comparable; then they are not tested.
    """
    num_tasks, value = sum(map(len, groups)), _mean(groups)
    outcome = Reproduction(
        model=reference.model,
        score=reference.score,
        source=reference.source,
        date=reference.date,
        harness=reference.harness,
        verdict="other_settings",
        other_settings=[*other_settings],
        value=value,
        difference=value - reference.score,
        margin=margin,
    )
    if other_settings:
        return outcome
    low, high = (0.0, 1.0) if weights.spread else _range(groups, reference.score, best)
    scale = (high - low) or 1.0
    reference_score = FixedTasksScore(
        (reference.score - low) / scale, num_tasks * reference.repeats, weights=weights
    )
    if reference.stderr is not None and reference.stderr_over == "repeats":
        reference_score = reference_score._replace(
            variance=(reference.stderr / scale) ** 2, degrees_of_freedom=reference.repeats - 1
        )
    run_score = _run_score([(scores - low) / scale for scores in groups])._replace(weights=weights)
    _decide(outcome, run_score, reference_score, num_tasks, scale)
    return outcome


def _range(groups: Sequence[Floats], reference: float, best: float | None) -> tuple[float, float]:
    """Return 0 and the best score; ends of the scores where they lie outside or it is unknown."""
    ends = [reference, *(float(end) for scores in groups for end in (scores.min(), scores.max()))]
    low, high = min(ends), max(ends)
    return (low, high) if best is None else (min(0.0, low), max(best, high))


def _mean(groups: Sequence[Floats]) -> float:
    """Return the mean of task means."""
    means = [mean for group in groups for mean in row_means(group).tolist()]
    return math.fsum(means) / len(means)


def _run_score(groups: Sequence[Floats]) -> FixedTasksScore:
    """Return the score of attempts from 0 to 1."""
    num_tasks, value = sum(map(len, groups)), _mean(groups)
    # Unequal numbers of attempts count by their harmonic mean, as in the variance of the mean.
    size = num_tasks**2 / math.fsum(len(group) / group.shape[1] for group in groups)
    if all(group.shape[1] == 1 for group in groups):
        return FixedTasksScore(value, size)
    variances = []
    for group in groups:
        num_repeats = group.shape[1]
        # The variance of a task with one attempt is unknown, so the largest possible one counts.
        task_variances = (
            row_variances(group) if num_repeats > 1 else [value * (1.0 - value)] * len(group)
        )
        variances += [variance / num_repeats for variance in task_variances]
    return FixedTasksScore(value, size, math.fsum(variances) / num_tasks**2)


def _decide(
    outcome: Reproduction,
    run_score: FixedTasksScore,
    reference_score: FixedTasksScore,
    num_tasks: int,
    scale: float,
) -> None:
    """Add the interval, the verdict, and what would decide."""
    margin, distance = outcome.margin / scale, abs(outcome.difference) / scale
    uncertainty = half_width(reference_score)
    interval_half_width = math.hypot(half_width(run_score), uncertainty)
    outcome.interval = Interval(
        low=outcome.difference - scale * interval_half_width,
        high=outcome.difference + scale * interval_half_width,
        level=_LEVEL,
        method="within-tasks",
    )
    outcome.smallest_margin = scale * (distance + interval_half_width)
    if distance + interval_half_width <= margin:
        outcome.verdict = "reproduced"
        return
    if distance - interval_half_width > margin:
        outcome.verdict = "not_reproduced"
        return
    outcome.verdict = "cannot_tell"
    room = abs(margin - distance)
    repeats = run_score.num_attempts / num_tasks

    def is_decided(num_repeats: int, uncertainty: float = uncertainty) -> bool:
        factor = num_repeats / repeats
        variance = None if run_score.variance is None else run_score.variance / factor
        size = run_score.num_attempts * factor
        run_half_width = half_width(run_score._replace(num_attempts=size, variance=variance))
        # As for gates, chance moves the difference towards the margin.
        return (
            math.hypot(run_half_width, uncertainty) + run_half_width * normal_quantile(CHANCE) / _Z
            <= room
        )

    outcome.repeats_needed = fewest(is_decided, math.floor(repeats) + 1, _MAX_REPEATS)
    if outcome.repeats_needed is not None:
        outcome.way_out = f"about {outcome.repeats_needed:,} repeats would decide"
    elif is_decided(_MAX_REPEATS, 0.0):  # with an exact reference
        outcome.is_reference_uncertain = True
        outcome.way_out = "the reference is too uncertain; more repeats cannot decide"
    else:
        outcome.way_out = "the difference is too close to the margin; more repeats cannot decide"
