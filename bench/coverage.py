"""Simulates how often the intervals of `gym metrics` contain the true pass rate.

The true pass rates of tasks follow a beta distribution around the mean p, so that attempts of a
task are correlated: their intraclass correlation (ICC) is the spread. Each replication draws new
tasks and attempts from the seed and the scenario, and computes the interval of the mean reward with
the functions of `gym metrics`. Student's t over tasks, which other tools print, is simulated for
comparison. If all tasks have the same reward there is no interval, and the replication counts as a
hit if the mean equals the rate.

    python -m bench.coverage            # print the table
    python -m bench.coverage --write    # also update docs/statistics.md
    python -m bench.coverage --verdicts # simulate the verdicts of `gym compare` instead
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gymcli.metrics.estimators import mean, standard_error
from gymcli.metrics.intervals import (
    interval_of,
    regularised_incomplete_beta,
    student_t_quantile,
)

__all__ = [
    "GRADED_REWARDS",
    "SCENARIOS",
    "TWO_RUNS",
    "Observed",
    "Passing",
    "Scenario",
    "TwoRuns",
    "lower_ends",
    "main",
    "observe",
    "passing_table",
    "share_passing",
    "simulated_verdicts",
    "table",
]

_RATES = (0.5, 0.7, 0.9, 0.97)
_NUM_TASKS = (10, 30, 100)
_DESIGNS = ((1, 0.1), (2, 0.1), (4, 0.1), (8, 0.1), (2, 0.5), (4, 0.5), (8, 0.5))
"""Attempts of a task, and their ICC, which means nothing for a single attempt."""
_LEVEL = 0.95
_NUM_REPLICATIONS = 4000
_PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
_COMPARE_PAGE = _PAGE.with_name("compare.md")
_START, _END = "<!-- coverage -->\n", "<!-- end -->\n"


class Scenario(NamedTuple):
    """The parameters of a simulation."""

    rate: float
    num_tasks: int
    num_attempts: int
    spread: float


class Observed(NamedTuple):
    """The share of intervals that contained the rate."""

    wilson: float
    student: float


SCENARIOS = [
    Scenario(rate, num_tasks, *design)
    for rate, num_tasks, design in itertools.product(_RATES, _NUM_TASKS, _DESIGNS)
]


def observe(scenario: Scenario, *, num_replications: int, seed: int = 0) -> Observed:
    """Simulate one scenario; equal arguments return equal shares."""
    random = Random(f"{seed}/{scenario}")
    # Equal results share an interval; with few tasks or attempts most results are equal.
    runs = Counter(_draw(scenario, random) for _ in range(num_replications))
    hits = [0, 0]
    for passes, times in runs.items():
        means = [num_passes / scenario.num_attempts for num_passes in passes]
        # Wilson's interval needs a best reward; without one `interval_of` takes Student's t.
        for place, best in enumerate((1.0, None)):
            hits[place] += times * _contains(means, scenario, best)
    return Observed(*(hit / num_replications for hit in hits))


def _draw(scenario: Scenario, random: Random) -> tuple[int, ...]:
    """Draw the number of passes of each task, sorted, since the order of tasks has no meaning."""
    # The ICC of a beta-binomial distribution is 1 / (alpha + beta + 1).
    size = 1.0 / scenario.spread - 1.0
    alpha, beta = scenario.rate * size, (1.0 - scenario.rate) * size
    rates = [random.betavariate(alpha, beta) for _ in range(scenario.num_tasks)]
    attempts = range(scenario.num_attempts)
    return tuple(sorted(sum(random.random() < rate for _ in attempts) for rate in rates))


def _contains(means: Sequence[float], scenario: Scenario, best: float | None) -> bool:
    value = mean(means)
    found = interval_of(
        value,
        standard_error(means),
        best=best,
        num_values=scenario.num_tasks * scenario.num_attempts,
        num_clusters=scenario.num_tasks,
        level=_LEVEL,
    )
    return value == scenario.rate if found is None else found.low <= scenario.rate <= found.high


def table(observed: dict[Scenario, Observed]) -> str:
    """Return the shares as a Markdown table: Wilson's, and Student's in brackets, in percent."""
    designs = dict.fromkeys(scenario[2:] for scenario in observed)
    rows = dict.fromkeys(scenario[:2] for scenario in observed)
    head = ["p", "tasks", *(_title(*design) for design in designs)]
    lines = [_row(head), _row(["---:"] * len(head))]
    for rate, num_tasks in rows:
        found = (observed[Scenario(rate, num_tasks, *design)] for design in designs)
        cells = [f"{100 * one.wilson:.1f} ({100 * one.student:.1f})" for one in found]
        lines.append(_row([f"{rate:g}", str(num_tasks), *cells]))
    return "".join(lines)


def _title(num_attempts: int, spread: float) -> str:
    return "K = 1" if num_attempts == 1 else f"K = {num_attempts}, ICC {spread:g}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _write(page: Path, text: str) -> None:
    """Replace the table between the marks of the page."""
    before, start, rest = page.read_text(encoding="utf-8").partition(_START)
    _, end, after = rest.partition(_END)
    if not (start and end):
        raise SystemExit(f"{page}: has no {_START.strip()} ... {_END.strip()}")
    page.write_text(f"{before}{start}\n{text}\n{end}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--replications", type=int, default=_NUM_REPLICATIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="also update docs/statistics.md")
    parser.add_argument("--page", type=Path, default=_PAGE, help="the page that --write changes")
    parser.add_argument("--verdicts", action="store_true", help="simulate `gym compare` instead")
    options = parser.parse_args(arguments)
    if options.verdicts:
        text = simulated_verdicts(num_replications=options.replications, seed=options.seed)
        print(text, end="")
        if options.write:
            _write(_COMPARE_PAGE, text)
        return
    observed = {
        scenario: observe(scenario, num_replications=options.replications, seed=options.seed)
        for scenario in SCENARIOS
    }
    shares = [one.wilson for one in observed.values()]
    text = table(observed)
    text += (
        f"\nNominal {_LEVEL:.0%}, {options.replications:,} replications a cell, seed "
        f"{options.seed}. The lowest share is {min(shares):.1%}, the mean "
        f"{sum(shares) / len(shares):.1%}.\n"
    )
    print(text, end="")
    if options.write:
        _write(options.page, text)


# The verdicts of `gym compare`: how often B passes if it is worse by the margin, and if it is not.

Quantile: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Returns the rewards below which uniform random numbers lie."""

_MARGIN = 0.02
_ICC = 0.5
_GRID = np.linspace(0.0, 1.0, 1001)
_AT_ONCE = 2_000_000
"""The most attempts that are drawn at once."""


def _steps(rewards: Sequence[float], shares: Sequence[float]) -> Quantile:
    ends, values = np.cumsum(shares)[:-1], np.array(rewards)
    return lambda uniform: values[np.searchsorted(ends, uniform, side="right")]


def _normal(loss: float) -> Quantile:
    inside = _GRID[1:-1]
    values = [NormalDist(0.8 - loss, 0.05).inv_cdf(float(share)) for share in inside]
    return lambda uniform: np.interp(uniform, inside, np.clip(values, 0.0, 1.0))


def _f1_like(loss: float) -> Quantile:
    mean = 0.75 - loss
    shares = [regularised_incomplete_beta(float(x), 8.0 * mean, 8.0 - 8.0 * mean) for x in _GRID]
    return lambda uniform: np.interp(uniform, shares, _GRID)


def _quarters(loss: float) -> Quantile:
    before = np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    # So many of the rewards above 0 are worse by a quarter.
    worse = before * loss / 0.25 / (1.0 - before[0])
    worse[0] = 0.0
    return _steps([0.0, 0.25, 0.5, 0.75, 1.0], [*(before - worse + np.append(worse[1:], 0.0))])


def _mostly_ones(halves: float, zeros: float) -> Callable[[float], Quantile]:
    def rewards(loss: float) -> Quantile:
        share = halves / (halves + zeros)
        moved = loss / (1.0 - share / 2.0)
        return _steps(
            [0.0, 0.5, 1.0],
            [zeros + moved * (1.0 - share), halves + moved * share, 1.0 - halves - zeros - moved],
        )

    return rewards


GRADED_REWARDS: dict[str, Callable[[float], Quantile]] = {
    "0.8 ± 0.05": _normal,
    "F1-like, beta(6, 2)": _f1_like,
    "quarters": _quarters,
    "96 % 1, 3 % ½, 1 % 0": _mostly_ones(0.03, 0.01),
    "95 % 1, 2 % ½, 3 % 0": _mostly_ones(0.02, 0.03),
}
"""The rewards of a run by how much worse its mean is."""


class TwoRuns(NamedTuple):
    """The parameters of a simulated comparison."""

    rewards: str
    """A key of `GRADED_REWARDS`, or a pass rate."""
    num_tasks: int
    num_attempts: int
    icc: float = _ICC

    def draw(
        self, random: np.random.Generator, num_replications: int, loss: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rewards of A and B by replication, task and attempt; B's mean is lower."""
        size = (num_replications, self.num_tasks, self.num_attempts)
        first = (num_replications, self.num_tasks, 1)
        if self.rewards not in GRADED_REWARDS:
            rate, count = float(self.rewards), 1.0 / self.icc - 1.0
            rates = random.beta(rate * count, (1.0 - rate) * count, first)
            passes = [random.random(size) < rates * (1.0 - own / rate) for own in (0.0, loss)]
            return passes[0].astype(np.float64), passes[1].astype(np.float64)
        # An attempt has the reward of its task with this probability, in either run, else its own.
        of_task, share = random.random(first), math.sqrt(self.icc)
        a, b = (
            GRADED_REWARDS[self.rewards](own)(
                np.where(random.random(size) < share, of_task, random.random(size))
            )
            for own in (0.0, loss)
        )
        return a, b


class Passing(NamedTuple):
    """The shares of comparisons that pass: by Student's interval alone, and as `gym compare`."""

    before: float
    now: float


TWO_RUNS = [
    TwoRuns(rewards, num_tasks, num_attempts)
    for rewards, num_tasks, num_attempts in itertools.product(
        (*map(str, _RATES), *GRADED_REWARDS), (10, 30, 100, 300), (1, 4)
    )
]


def share_passing(runs: TwoRuns, *, loss: float, num_replications: int, seed: int = 0) -> Passing:
    """Simulate comparisons with the default margin; equal arguments return equal shares."""
    random = np.random.default_rng([seed, *f"{runs}/{loss}".encode()])
    before = now = done = 0
    at_once = max(1, _AT_ONCE // (runs.num_tasks * runs.num_attempts))
    while done < num_replications:
        a, b = runs.draw(random, min(at_once, num_replications - done), loss)
        student, adjusted = lower_ends(a, b)
        before += int((student > -_MARGIN).sum())
        now += int((adjusted > -_MARGIN).sum())
        done += len(a)
    return Passing(before / done, now / done)


def lower_ends(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower ends of the 90 % intervals of B - A: by Student's t, and adjusted.

    This is the arithmetic of `gymcli.metrics.run_comparison` for many comparisons at once; the
    tests compare the two.
    """
    differences = b.mean(axis=2) - a.mean(axis=2)
    differences[np.abs(differences) < 1e-12] = 0.0
    num_tasks = differences.shape[1]
    mean, spread = differences.mean(axis=1), differences.var(axis=1, ddof=1)
    spread[spread < 1e-24] = 0.0
    student = mean - student_t_quantile(0.95, num_tasks - 1) * np.sqrt(spread / num_tasks)
    is_graded = np.any([((own > 0.0) & (own < 1.0)).any(axis=(1, 2)) for own in (a, b)], axis=0)
    is_common = (differences == 0.0).mean(axis=1) < 2.0 / 3.0
    size = np.where(is_graded & is_common, np.abs(differences).max(axis=1) / 2.0, 0.5)
    squares = (num_tasks - 1) * spread + 2.0 * size**2 + 2.0 * num_tasks * mean**2 / (num_tasks + 2)
    error = np.sqrt(squares / (num_tasks + 1) / (num_tasks + 2))
    adjusted = mean * num_tasks / (num_tasks + 2) - student_t_quantile(0.95, num_tasks + 1) * error
    # Equal differences decide only if all signs are hardly equal by chance.
    is_unsure = (spread == 0.0) & (mean != 0.0) & (0.5**num_tasks > 0.05)
    adjusted = np.maximum(np.minimum(student, adjusted), -1.0)
    return np.where(is_unsure, -1.0, student), np.where(is_unsure, -1.0, adjusted)


def passing_table(observed: Mapping[TwoRuns, tuple[Passing, Passing]]) -> str:
    """Return false and true passes as a Markdown table, in percent, before and now."""
    rows = dict.fromkeys(runs[:2] for runs in observed)
    attempts = dict.fromkeys(runs[2:] for runs in observed)
    head = ["rewards", "tasks"]
    head += [
        f"{what}, K = {num_attempts}" for num_attempts, _ in attempts for what in ("false", "true")
    ]
    lines = [_row(head), _row(["---"] + ["---:"] * (len(head) - 1))]
    for rewards, num_tasks in rows:
        cells = [
            f"{100 * one.before:.1f} → {100 * one.now:.1f}"
            for own in attempts
            for one in observed[TwoRuns(rewards, num_tasks, *own)]
        ]
        name = rewards if rewards in GRADED_REWARDS else f"0 or 1, p = {rewards}"
        lines.append(_row([name, str(num_tasks), *cells]))
    return "".join(lines)


def simulated_verdicts(*, num_replications: int, seed: int = 0) -> str:
    """Simulate all comparisons; return their table, with a sentence about it."""
    observed: dict[TwoRuns, tuple[Passing, Passing]] = {}
    for runs in TWO_RUNS:
        false, true = (
            share_passing(runs, loss=loss, num_replications=num_replications, seed=seed)
            for loss in (_MARGIN, 0.0)
        )
        observed[runs] = false, true
    worst = max(false.now for false, _ in observed.values())
    return (
        f"{passing_table(observed)}\nMargin {_MARGIN}, ICC {_ICC}, {num_replications:,} "
        f"replications a cell, seed {seed}. The largest share of false passes is {worst:.1%}.\n"
    )


if __name__ == "__main__":
    main()
