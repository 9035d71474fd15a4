"""Simulates how often a run is said to reproduce a score from which it differs by the margin.

The tasks are fixed; attempts of a run, and those behind the reference, are drawn again for each
replication. The true scores differ by exactly the margin, in both directions, with margins of 1.7
to 6 standard errors of the difference: with a smaller one, nothing is ever said to be reproduced.

    python -m bench.equivalence         # print the table
    python -m bench.equivalence --write # also update docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bench.coverage import table, write_between
from gymcli.comparison.reproduction import FixedTasksScore, half_width

__all__ = ["CELLS", "KINDS", "REFERENCES", "Cell", "equivalence_table", "main", "shares"]

_NUM_REPLICATIONS = 4000
_PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_STEPS = (1.7, 2.0, 2.5, 3.0, 4.0, 6.0)
"""Margins, in standard errors of the difference."""
_NUM_AGAIN = 10
_AT_ONCE = 8_000_000
"""The most attempts that are drawn at once."""

Floats: TypeAlias = NDArray[np.float64]


def _halves(random: np.random.Generator, num_tasks: int) -> Floats:
    rates = np.zeros(num_tasks)
    rates[num_tasks // 2 :] = 1.0
    rates[: max(1, num_tasks // 20)] = 0.5
    return rates


KINDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "all 0.5": lambda random, num_tasks: np.full(num_tasks, 0.5),
    "all 0.95": lambda random, num_tasks: np.full(num_tasks, 0.95),
    "half 0, half 1, few 0.5": _halves,
    "beta(0.5, 0.5)": lambda random, num_tasks: random.beta(0.5, 0.5, num_tasks).round(2),
    "beta(2, 1)": lambda random, num_tasks: random.beta(2.0, 1.0, num_tasks).round(2),
    "graded, beta(2, 1)": lambda random, num_tasks: random.beta(2.0, 1.0, num_tasks).round(2),
}
"""The tasks' probabilities of success; if graded, the tasks' mean rewards. They are rounded, since
the sum of equal tasks is quickly drawn."""
_GRADED = "graded, beta(2, 1)"
_NUM_GRADES = 4
"""A graded reward is the share of this many parts of the answer that are right."""


_EXACT = 1_000_000
"""Repeats that leave no uncertainty."""


class _Published(NamedTuple):
    num_repeats: int
    has_stderr: bool = False
    """Whether its standard error over the repeats is known."""


REFERENCES = {
    "1": _Published(1),
    "4": _Published(4),
    "16": _Published(16),
    "4, with stderr": _Published(4, has_stderr=True),
    "16, with stderr": _Published(16, has_stderr=True),
    "exact": _Published(_EXACT),
}


class Cell(NamedTuple):
    """A run of tasks of one kind."""

    kind: str
    num_tasks: int
    num_repeats: int


CELLS = [
    Cell(kind, num_tasks, num_repeats)
    for kind, num_tasks, num_repeats in itertools.product(
        KINDS, (10, 30, 100, 300, 1319), (1, 2, 4, 8, 16)
    )
]


class _Drawn(NamedTuple):
    """Scores, one for each replication, and half the widths of their intervals."""

    values: Floats
    halves: Floats


def shares(
    cell: Cell, reference: str, *, num_replications: int, seed: int = 0
) -> dict[tuple[int, float], float]:
    """Return the share of false "reproduced" for each direction and margin.

    Equal arguments return equal shares.
    """
    random = np.random.default_rng([seed, *f"{cell}/{reference}".encode()])
    published = REFERENCES[reference]
    rates = KINDS[cell.kind](random, cell.num_tasks)
    num_parts = _NUM_GRADES if cell.kind == _GRADED else 1
    ours = _ours(random, rates, cell.num_repeats, num_replications, num_parts=num_parts)
    mean = float(rates.mean())
    error = math.sqrt(
        _variance(rates, cell.num_repeats, num_parts=num_parts)
        + _variance(rates, published.num_repeats, num_parts=num_parts)
    )
    found = {}
    for side, step in itertools.product((-1, 1), _STEPS):
        # As far as a score from 0 to 1 allows: all of the reference's attempts fail, or succeed.
        margin = min(step * error, mean if side < 0 else 1.0 - mean)
        away = rates / mean if side < 0 else (1.0 - rates) / (1.0 - mean)
        other = (rates + side * margin * away).clip(0.0, 1.0)
        theirs = _theirs(random, other, published, num_replications, num_parts=num_parts)
        differences = np.abs(ours.values - theirs.values)
        is_reproduced = differences + np.hypot(ours.halves, theirs.halves) <= margin
        found[side, step] = float(is_reproduced.mean())
    return found


def _variance(rates: Floats, num_repeats: int, *, num_parts: int) -> float:
    """Return the true variance of a score."""
    return float((rates * (1.0 - rates)).sum()) / num_parts / len(rates) ** 2 / num_repeats


def _ours(
    random: np.random.Generator,
    rates: Floats,
    num_repeats: int,
    num_replications: int,
    *,
    num_parts: int,
) -> _Drawn:
    """Return the scores of runs, with the variance of the repeats of each task."""
    values, variances = [], []
    num_tasks = len(rates)
    at_once = max(1, _AT_ONCE // (num_repeats * num_tasks))
    for start in range(0, num_replications, at_once):
        size = (min(at_once, num_replications - start), num_tasks)
        if num_parts == 1:
            means = squares = random.binomial(num_repeats, rates, size) / num_repeats
        else:
            rewards = random.binomial(num_parts, rates, (num_repeats, *size)) / num_parts
            means, squares = rewards.mean(axis=0), (rewards**2).mean(axis=0)
        values.append(means.mean(axis=1))
        within = (squares - means**2) / max(1, num_repeats - 1)
        variances.append(within.sum(axis=1) / num_tasks**2)
    return _with_halves(
        np.concatenate(values),
        num_tasks * num_repeats,
        np.concatenate(variances) if num_repeats > 1 else None,
    )


def _theirs(
    random: np.random.Generator,
    rates: Floats,
    published: _Published,
    num_replications: int,
    *,
    num_parts: int,
) -> _Drawn:
    """Return the scores of references."""
    num_repeats = published.num_repeats
    num_attempts = len(rates) * num_repeats
    if num_repeats == _EXACT:
        return _with_halves(np.full(num_replications, rates.mean()), num_attempts)
    rates, counts = np.unique(rates, return_counts=True)
    num_runs = num_repeats if published.has_stderr else 1
    # Equal tasks are drawn together.
    counts *= num_parts * num_repeats // num_runs
    size = (num_runs, num_replications, len(rates))
    runs = random.binomial(counts, rates, size).sum(axis=2) / counts.sum()
    if num_runs == 1:
        return _with_halves(runs[0], num_attempts)
    variances = runs.var(axis=0, ddof=1) / num_runs
    return _with_halves(runs.mean(axis=0), num_attempts, variances, num_runs - 1)


def _with_halves(
    values: Floats,
    num_attempts: int,
    variances: Floats | None = None,
    degrees_of_freedom: int | None = None,
) -> _Drawn:
    """Compute the intervals; equal results, of which few attempts have many, share one."""
    columns = [values] if variances is None else [values, variances]
    unique, places = np.unique(np.round(columns, 14), axis=1, return_inverse=True)
    halves = [
        half_width(
            FixedTasksScore(
                one[0], num_attempts, one[1] if len(one) > 1 else None, degrees_of_freedom
            )
        )
        for one in unique.T.tolist()
    ]
    return _Drawn(values, np.array(halves)[places.ravel()])


def equivalence_table(seen: Mapping[tuple[Cell, str], Mapping[tuple[int, float], float]]) -> str:
    """Return the shares of false "reproduced" in percent, the largest of each kind and size."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    largest: dict[tuple[str, int, str], float] = {}
    for (cell, reference), found in seen.items():
        key = cell.kind, cell.num_tasks, reference
        largest[key] = max(*found.values(), largest.get(key, 0.0))
    for (kind, num_tasks, reference), share in largest.items():
        row = cells.setdefault((kind, str(num_tasks)), {})
        row[reference] = f"{100 * share:.1f}"
    return table(("probabilities", "tasks"), cells)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--replications", type=int, default=_NUM_REPLICATIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="also update docs/benchmarks.md")
    parser.add_argument("--page", type=Path, default=_PAGE, help="the page that --write changes")
    options = parser.parse_args(arguments)
    size = {"num_replications": options.replications, "seed": options.seed}
    seen = {
        (cell, reference): shares(cell, reference, **size)
        for cell in CELLS
        for reference in REFERENCES
    }
    # The largest of many shares is too large by chance, unless it is drawn again.
    cases = {(*key, case): share for key, found in seen.items() for case, share in found.items()}
    largest = sorted(cases, key=lambda one: -cases[one])[:_NUM_AGAIN]
    more = {"num_replications": 10 * options.replications, "seed": options.seed + 1}
    again = [shares(cell, reference, **more)[case] for cell, reference, case in largest]
    num_again = 10 * options.replications * _NUM_AGAIN
    mean = math.fsum(again) / len(again)
    text = (
        f"{equivalence_table(seen)}\n{options.replications:,} replications of each of "
        f"{len(cases):,} cases, seed {options.seed}. A share is the largest of 60: runs with 1, 2, "
        "4, 8 and 16 repeats, both directions and six margins. It is "
        f"{max(cases.values()):.1%} at most, by chance: the {_NUM_AGAIN} largest cases, drawn "
        f"again with ten times as many replications, are {min(again):.1%} to {max(again):.1%}, "
        f"{mean:.2%} on average, with a standard error of {math.sqrt(mean / num_again):.2%}.\n"
    )
    print(text, end="")
    if options.write:
        write_between(options.page, "equivalence", text)


if __name__ == "__main__":
    main()
