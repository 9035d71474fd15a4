"""Estimators over rewards: means, variances, standard errors, percentiles.

A task is the sampling unit: attempts of one task are never taken as independent. Sums are
`math.fsum`, which rounds once, so no result depends on the order of its terms; variances take two
passes. `groups` are matrices of rewards, one for the tasks with equally many attempts: a row is a
task, a column an attempt.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

_ROWS_AT_A_TIME = 1 << 13
"""Rows that are converted to Python floats together, which take four times the memory."""


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    rounded = math.fsum(values) / len(values)
    # The mean of equal values must be that value, even though the division may round.
    return min(max(rounded, min(values)), max(values))


def variance(values: Sequence[float] | Floats) -> float:
    """Return the sample variance (divided by n - 1) of at least two values."""
    import numpy as np  # late: heavy

    squares = np.asarray(values, np.float64)
    squares = squares - mean_of(squares)
    squares *= squares
    return sum_of(squares) / (len(squares) - 1)


def standard_error(task_means: Sequence[float] | Floats) -> float | None:
    """Return the standard error of the mean of task means; None for fewer than two tasks.

    sd(task means) / sqrt(G): Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640. With
    equally many attempts per task it is the clustered (CR1) standard error of all attempts.
    """
    num_tasks = len(task_means)
    return math.sqrt(variance(task_means) / num_tasks) if num_tasks > 1 else None


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return a percentile of values in ascending order, interpolated between neighbours.

    Type 7 of Hyndman and Fan 1996, "Sample quantiles in statistical packages".
    """
    place = (len(ordered) - 1) * fraction
    below = math.floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low + (place - below) * (high - low)


def sum_of(values: Floats) -> float:
    """Return the sum of an array, rounded once."""
    return math.fsum(values.data)


def mean_of(values: Floats) -> float:
    """Return the mean of an array, as `mean` does."""
    return min(max(sum_of(values) / len(values), float(values.min())), float(values.max()))


def row_sums(matrix: Floats) -> Floats:
    """Return the sum of each row, rounded once."""
    import numpy as np  # late: heavy

    if matrix.shape[1] == 1:  # one attempt a task, as in most runs
        return matrix[:, 0]
    sums: Floats = matrix.sum(axis=1)
    if (
        np.array_equal(matrix, np.rint(matrix))
        and np.abs(matrix).sum(axis=1).max(initial=0.0) < 2**53
    ):
        return sums  # whole numbers, as most rewards are: numpy's sum is exact
    starts = range(0, len(matrix), _ROWS_AT_A_TIME)
    rows = (row for start in starts for row in matrix[start : start + _ROWS_AT_A_TIME].tolist())
    return np.fromiter(map(math.fsum, rows), np.float64, count=len(matrix))


def row_means(matrix: Floats) -> Floats:
    """Return the mean of each row of at least one value, as `mean` does."""
    means: Floats = row_sums(matrix) / matrix.shape[1]
    return means.clip(matrix.min(axis=1), matrix.max(axis=1))


def row_variances(matrix: Floats) -> Floats:
    """Return the sample variance of each row of at least two values."""
    squares = matrix - row_means(matrix)[:, None]
    squares *= squares
    variances: Floats = row_sums(squares) / (matrix.shape[1] - 1)
    return variances


def mean_of_attempts(groups: Sequence[Floats]) -> float:
    """Return the mean of all rewards, with equal weights for all attempts (the micro mean)."""
    flat = itertools.chain.from_iterable(group.ravel().data for group in groups)
    rounded = math.fsum(flat) / sum(group.size for group in groups)
    low = min(float(group.min()) for group in groups)
    return min(max(rounded, low), max(float(group.max()) for group in groups))


def clustered_standard_error(groups: Sequence[Floats]) -> float | None:
    """Return the standard error of the mean of all rewards, clustered by task.

    SE^2 = G/(G - 1) / N^2 * sum over clusters of (sum of deviations)^2: Miller 2024,
    arXiv 2411.00640, with the CR1 factor of Liang and Zeger 1986. None for fewer than two
    tasks.
    """
    num_tasks = sum(map(len, groups))
    if num_tasks < 2:
        return None
    centre = mean_of_attempts(groups)
    squares = ((row_sums(group - centre) ** 2).data for group in groups)
    total = math.fsum(itertools.chain.from_iterable(squares))
    num_attempts = sum(group.size for group in groups)
    return math.sqrt(total * num_tasks / (num_tasks - 1)) / num_attempts
