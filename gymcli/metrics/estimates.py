"""Numbers with how sure they are: estimator, size, standard error, interval and its method."""

from __future__ import annotations

from collections.abc import Iterable

from gymcli.metrics.intervals import t_interval, wilson_effective_interval
from gymcli.metrics.moments import Moments
from gymcli.metrics.results import Estimate, Interval

__all__ = ["MEAN_OF_TASKS", "estimate", "estimate_of", "interval_of", "moments_of"]

MEAN_OF_TASKS = "mean of task means"


def estimate(
    value: float,
    error: float | None,
    *,
    estimator: str,
    best: float | None,
    num_values: int,
    num_clusters: int,
    level: float,
) -> Estimate:
    """Give a number with its interval; the arguments are those of `interval_of`."""
    interval = interval_of(
        value, error, best=best, num_values=num_values, num_clusters=num_clusters, level=level
    )
    return Estimate(
        value=value,
        estimator=estimator,
        num_values=num_values,
        num_clusters=num_clusters,
        standard_error=error,
        interval=interval,
    )


def estimate_of(
    moments: Moments, *, estimator: str, best: float | None, level: float
) -> Estimate | None:
    """Give the mean of the tasks' values with its interval; None of no value.

    Args:
        moments: The tasks' values.
        estimator: What the mean is called.
        best: The top of their range, which begins at 0; None where they have none.
        level: The share of such intervals that contain the true number.

    """
    if not moments.num_values:
        return None
    is_within = best is not None and moments.lowest >= 0.0 and moments.highest <= best
    return estimate(
        moments.mean,
        moments.standard_error,
        estimator=estimator,
        best=best if is_within else None,
        num_values=moments.num_attempts,
        num_clusters=moments.num_values,
        level=level,
    )


def interval_of(
    value: float,
    error: float | None,
    *,
    best: float | None,
    num_values: int,
    num_clusters: int,
    level: float,
) -> Interval | None:
    """Give the interval of a mean; None where nothing can be said.

    Wilson's on the effective size where all that it is the mean of lies between 0 and a known best
    value, else Student's. The value lies in it, and it lies in the range.

    Args:
        value: The mean.
        error: Its standard error; None: it is not known.
        best: The top of the range, which begins at 0; None where there is none.
        num_values: Attempts that the mean was made of.
        num_clusters: Tasks, which are independent of each other.
        level: The share of such intervals that contain the true number.

    """
    if error is None or num_clusters < 2:
        return None
    if best is None or best <= 0.0:
        if error == 0.0:
            return None
        student = t_interval(value, error, num_clusters=num_clusters, level=level)
        return Interval(low=student.low, high=student.high, level=level, method="t")
    wilson = wilson_effective_interval(
        value / best, error / best, num_clusters=num_clusters, num_values=num_values, level=level
    )
    # Scaling there and back may round an end that equals the mean, or the best, to just beside it.
    return Interval(
        low=min(value, wilson.low * best),
        high=max(value, min(best, wilson.high * best)),
        level=level,
        method="wilson-neff",
    )


def moments_of(values: Iterable[tuple[float, int, int]]) -> Moments:
    """Give the moments of tasks' values: each with its number of attempts, and of such tasks."""
    moments = Moments()
    for value, num_attempts, num_tasks in values:
        moments.add(value, num_tasks, num_attempts=num_attempts)
    return moments
