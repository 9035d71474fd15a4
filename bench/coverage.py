"""Simulates how often the intervals of `gym metrics` contain the true value, and its plans hold.

Each replication draws new tasks and attempts, and computes the number, its standard error and its
interval with the functions of `gym metrics`. Student's t over tasks, which other tools print, is
simulated for comparison. If all tasks have the same value there is no t interval, and the
replication counts as a hit if the number is the true one.

    python -m bench.coverage            # print the tables
    python -m bench.coverage --write    # also update docs/statistics.md
    python -m bench.coverage --verdicts # simulate the verdicts of `gym compare` instead
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gymcli.comparison.planning import ASSUMED_CORRELATION, Pilot, plan
from gymcli.metrics.at_k import METRICS, TaskRewards
from gymcli.metrics.intervals import (
    NO_SCALE,
    Scale,
    interval_of,
    regularised_incomplete_beta,
    student_t_quantile,
)

__all__ = [
    "GRADED",
    "GRADED_REWARDS",
    "KINDS",
    "PASSES",
    "PLANNED",
    "RATES",
    "TWO_RUNS",
    "Graded",
    "Passes",
    "Passing",
    "PlannedRuns",
    "Seen",
    "TwoRuns",
    "graded_table",
    "lower_ends",
    "main",
    "num_planned",
    "observe",
    "passes_table",
    "passing_table",
    "planned_table",
    "rates_table",
    "share_of_passes",
    "share_passing",
    "simulated_verdicts",
]

_LEVEL = 0.95
_NUM_REPLICATIONS = 4000
_PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
_COMPARE_PAGE = _PAGE.with_name("compare.md")

Floats: TypeAlias = NDArray[np.float64]


class Seen(NamedTuple):
    """The intervals of one kind over all replications."""

    share: float
    """Of them contained the true value."""
    width: float
    """Their mean width."""


class Passes(NamedTuple):
    """Tasks that pass or fail, with a beta distribution of their true rates around one rate."""

    rate: float
    num_tasks: int
    num_attempts: int
    spread: float
    """The intraclass correlation of attempts."""
    metric: str = "avg_at_k"
    """A key of `METRICS`; with k = `num_attempts`, avg@k is the mean reward."""
    k: int = 0
    """0: `num_attempts`."""

    def shape(self) -> tuple[float, float]:
        """Return the parameters of the beta distribution."""
        # The ICC of a beta-binomial distribution is 1 / (alpha + beta + 1).
        size = 1.0 / self.spread - 1.0
        return self.rate * size, (1.0 - self.rate) * size

    def truth(self) -> float:
        """Return the true value of the number."""
        alpha, beta = self.shape()
        ups = [(alpha + i) / (alpha + beta + i) for i in range(self.k)]
        downs = [(beta + i) / (alpha + beta + i) for i in range(self.k)]
        truths = {"pass_at_k": 1.0 - math.prod(downs), "pass_hat_k": math.prod(ups)}
        return truths.get(self.metric, self.rate)

    def draw(self, random: np.random.Generator, num_replications: int) -> Floats:
        """Return the values of the tasks of each replication."""
        rates = random.beta(*self.shape(), size=(num_replications, self.num_tasks))
        passes = random.binomial(self.num_attempts, rates)
        # The value of a task with each possible number of passes, as `gym metrics` computes it.
        rewards = np.tri(self.num_attempts + 1, self.num_attempts, -1)
        tasks = TaskRewards(rewards, threshold=1.0)
        values = METRICS[self.metric].of_tasks(tasks, self.k or self.num_attempts)
        assert values is not None
        return values[passes]


class _Kind(NamedTuple):
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    truth: float


def _of_values(values: Sequence[float], shares: Sequence[float]) -> _Kind:
    truth = math.fsum(value * share for value, share in zip(values, shares, strict=True))
    return _Kind(lambda random, size: random.choice(values, size, p=shares), truth)


KINDS = {
    "0.8 ± 0.05": _Kind(lambda random, size: random.normal(0.8, 0.05, size).clip(0.0, 1.0), 0.8),
    "F1-like, beta(6, 2)": _Kind(lambda random, size: random.beta(6.0, 2.0, size), 0.75),
    "0, ¼, ½, ¾, 1": _of_values([0.0, 0.25, 0.5, 0.75, 1.0], [0.1, 0.15, 0.2, 0.25, 0.3]),
    "96 % 1, 3 % ½, 1 % 0": _of_values([1.0, 0.5, 0.0], [0.96, 0.03, 0.01]),
    "95 % 1, 2 % ½, 3 % 0": _of_values([1.0, 0.5, 0.0], [0.95, 0.02, 0.03]),
    "skewed, beta(0.3, 2.7)": _Kind(lambda random, size: random.beta(0.3, 2.7, size), 0.1),
}
"""Distributions of graded rewards."""


class Graded(NamedTuple):
    """Tasks with rewards between 0 and 1."""

    kind: str
    num_tasks: int
    num_attempts: int

    def truth(self) -> float:
        """Return the true mean."""
        return KINDS[self.kind].truth

    def draw(self, random: np.random.Generator, num_replications: int) -> Floats:
        """Return the means of the tasks of each replication."""
        kind = KINDS[self.kind]
        size = (num_replications, self.num_tasks, self.num_attempts)
        rewards = kind.draw(random, size)
        # An attempt repeats the reward of its task with this probability, else has its own, so that
        # two attempts of a task correlate by its square and each has the same distribution.
        repeats = random.random(size) < math.sqrt(_GRADED_ICC)
        means: Floats = np.where(repeats, kind.draw(random, (*size[:2], 1)), rewards).mean(axis=2)
        return means


_GRADED_ICC = 0.5
_PLANNED_ICC = 0.5

RATES = [
    Passes(rate, num_tasks, *design)
    for rate, num_tasks, design in itertools.product(
        (0.5, 0.7, 0.9, 0.97),
        (10, 30, 100, 300),
        ((1, 0.1), (2, 0.1), (4, 0.1), (8, 0.1), (2, 0.5), (4, 0.5), (8, 0.5)),
    )
]
"""Of mean rewards. The ICC means nothing for a single attempt."""
PASSES = [
    Passes(rate, num_tasks, 4, spread, metric, k)
    for rate, num_tasks, (metric, k), spread in itertools.product(
        (0.1, 0.5, 0.9, 0.97),
        (10, 30, 100, 300),
        (("pass_at_k", 2), ("pass_at_k", 4), ("pass_hat_k", 2), ("pass_hat_k", 4)),
        (0.2, 0.5),
    )
]
GRADED = [
    Graded(kind, num_tasks, num_attempts)
    for kind, num_tasks, num_attempts in itertools.product(KINDS, (10, 30, 100, 300), (1, 4))
]


class PlannedRuns(NamedTuple):
    """Two runs of a planned size, of models that are equally good."""

    kind: str
    """`p` and a rate, for passes and failures, or a key of `KINDS`."""
    num_attempts: int
    is_unchanged: bool
    """Whether both are the same model; else the true means of tasks correlate by 0.5."""
    margin: float

    def draw(self, random: np.random.Generator, size: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return the means of tasks by A and by B, for as many replications and tasks."""
        ours = self._tasks(random, size)
        is_same = self.is_unchanged | (random.random(size) < ASSUMED_CORRELATION)
        theirs = np.where(is_same, ours, self._tasks(random, size))
        first, second = (self._attempts(random, tasks) for tasks in (ours, theirs))
        return first, second

    def _tasks(self, random: np.random.Generator, size: tuple[int, int]) -> Floats:
        if self.kind in KINDS:
            return KINDS[self.kind].draw(random, size)
        rate = float(self.kind.removeprefix("p = "))
        return random.beta(*Passes(rate, 0, 0, _PLANNED_ICC).shape(), size=size)

    def _attempts(self, random: np.random.Generator, tasks: Floats) -> Floats:
        if self.kind not in KINDS:
            return random.binomial(self.num_attempts, tasks) / self.num_attempts
        size = (*tasks.shape, self.num_attempts)
        repeats = random.random(size) < _PLANNED_ICC
        own = KINDS[self.kind].draw(random, size)
        means: Floats = np.where(repeats, tasks[..., None], own).mean(axis=2)
        return means

    def pilot(self) -> Pilot:
        """Return the true variances."""
        if self.kind in KINDS:
            variance = KINDS[self.kind].draw(np.random.default_rng(0), (1 << 17,)).var()
            share = _PLANNED_ICC**2  # both of two attempts have the task's own reward
        else:
            rate = float(self.kind.removeprefix("p = "))
            variance, share = rate * (1.0 - rate), _PLANNED_ICC
        between, within = float(variance * share), float(variance * (1.0 - share))
        best_reward = None if self.kind in KINDS else 1.0
        return Pilot(num_tasks=100, between=between, within=within, best_reward=best_reward)


PLANNED = [
    PlannedRuns(kind, num_attempts, is_unchanged, margin)
    for kind, num_attempts, is_unchanged, margin in itertools.product(
        ("p = 0.5", "p = 0.9", "0.8 ± 0.05", "0, ¼, ½, ¾, 1"), (1, 4), (True, False), (0.02, 0.05)
    )
]


def num_planned(scenario: PlannedRuns) -> int:
    """Return the number of tasks that `gym metrics --power` plans."""
    found = plan(scenario.pilot(), margins=[scenario.margin])
    name = "unchanged" if scenario.is_unchanged else "other-model"
    [design] = [
        row
        for row in found.designs
        if (row.scenario, row.num_attempts) == (name, scenario.num_attempts)
    ]
    return design.num_tasks[f"{scenario.margin:g}"]


def share_of_passes(
    scenario: PlannedRuns, num_tasks: int, *, num_replications: int, seed: int = 0
) -> float:
    """Return how often runs with so many tasks pass by the interval of `gym compare`."""
    random = np.random.default_rng([seed, *repr(tuple(scenario)).encode()])
    num_passes = 0
    for _ in range(num_replications):
        first, second = scenario.draw(random, (1, num_tasks))
        _, adjusted = _lower_ends(second - first, is_graded=scenario.kind in KINDS)
        num_passes += bool(adjusted[0] > -scenario.margin)
    return num_passes / num_replications


def planned_table(seen: Mapping[PlannedRuns, tuple[int, float]]) -> str:
    """Return the planned tasks and the share of passes, in percent."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one, (num_tasks, share) in seen.items():
        row = cells.setdefault((one.kind, f"{one.margin:g}"), {})
        changed = "unchanged" if one.is_unchanged else "other model"
        row[f"K = {one.num_attempts}, {changed}"] = f"{num_tasks:,}: {100 * share:.1f}"
    return table(("rewards", "margin"), cells)


_PASS_OR_FAIL = Scale(1.0, is_graded=False)
_BETWEEN = Scale(1.0, is_graded=True)


def observe(
    scenario: Passes | Graded, scales: Sequence[Scale], *, num_replications: int, seed: int = 0
) -> list[Seen]:
    """Simulate a scenario with the intervals of each scale; equal arguments return equal shares."""
    # One stream for each scenario, so that a table does not change when another scenario is added.
    random = np.random.default_rng([seed, *repr(tuple(scenario)).encode()])
    drawn, truth = scenario.draw(random, num_replications), scenario.truth()
    values = drawn.mean(axis=1)
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(scenario.num_tasks)
    errors[np.ptp(drawn, axis=1) == 0.0] = 0.0
    # Equal results share an interval; with few tasks or attempts most results are equal.
    results, times = np.unique(np.round([values, errors], 12), axis=1, return_counts=True)
    seen = []
    for scale in scales:
        hits = width = 0.0
        for value, error, count in zip(*results.tolist(), times.tolist(), strict=True):
            found = interval_of(
                value,
                error,
                scale=scale,
                num_values=scenario.num_tasks * scenario.num_attempts,
                num_clusters=scenario.num_tasks,
                level=_LEVEL,
            )
            if found is None:
                hits += count * (abs(value - truth) < 1e-9)
            else:
                hits += count * (found.low <= truth <= found.high)
                width += count * (found.high - found.low)
        seen.append(Seen(hits / num_replications, width / num_replications))
    return seen


def rates_table(seen: Mapping[Passes, Sequence[Seen]]) -> str:
    """Return the shares of mean rewards: Wilson's, and Student's in brackets, in percent."""

    def title(scenario: Passes) -> str:
        icc = f", ICC {scenario.spread:g}" if scenario.num_attempts > 1 else ""
        return f"K = {scenario.num_attempts}{icc}"

    return _shares(seen, title)


def passes_table(seen: Mapping[Passes, Sequence[Seen]]) -> str:
    """Return the shares of pass@k and pass^k as `rates_table` does."""
    return _shares(seen, lambda one: f"{METRICS[one.metric].name}{one.k}, ICC {one.spread:g}")


def _shares(seen: Mapping[Passes, Sequence[Seen]], title: Callable[[Passes], str]) -> str:
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one, (wilson, student) in seen.items():
        row = cells.setdefault((f"{one.rate:g}", str(one.num_tasks)), {})
        row[title(one)] = f"{100 * wilson.share:.1f} ({100 * student.share:.1f})"
    return table(("p", "tasks"), cells)


def graded_table(seen: Mapping[Graded, Sequence[Seen]]) -> str:
    """Return the shares in percent and the widths of the mean of graded rewards."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one, kinds in seen.items():
        row = cells.setdefault((one.kind, str(one.num_tasks)), {})
        for name, found in zip(("now", "capped", "t"), kinds, strict=True):
            title = f"K = {one.num_attempts}, {name}"
            row[title] = f"{100 * found.share:.1f} ({found.width:.3f})"
    return table(("rewards", "tasks"), cells)


def table(head: Sequence[str], cells: Mapping[tuple[str, str], Mapping[str, str]]) -> str:
    titles = [*head, *next(iter(cells.values()))]
    lines = [_row(titles), _row(["---:"] * len(titles))]
    return "".join([*lines, *(_row([*names, *row.values()]) for names, row in cells.items())])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def write_between(page: Path, name: str, text: str) -> None:
    """Replace the text between the marks of the page."""
    start, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, has_start, rest = page.read_text(encoding="utf-8").partition(start)
    _, has_end, after = rest.partition(end)
    if not (has_start and has_end):
        raise SystemExit(f"{page}: has no {start.strip()} ... {end.strip()}")
    page.write_text(f"{before}{start}\n{text}\n{end}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, and print the tables."""
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
            write_between(_COMPARE_PAGE, "verdicts", text)
        return
    size = {"num_replications": options.replications, "seed": options.seed}
    said = f"Nominal {_LEVEL:.0%}, {options.replications:,} replications a cell, "
    said += f"seed {options.seed}."

    def show(name: str, text: str) -> None:
        print(f"{name}\n\n{text}")
        if options.write:
            write_between(options.page, name, text)

    def note(shares: Sequence[float]) -> str:
        mean = sum(shares) / len(shares)
        return f"{said} The lowest share is {min(shares):.1%}, the mean {mean:.1%}.\n"

    for name, scenarios, table in (
        ("coverage", RATES, rates_table),
        ("coverage of pass@k", PASSES, passes_table),
    ):
        rates = {one: observe(one, (_PASS_OR_FAIL, NO_SCALE), **size) for one in scenarios}
        show(name, f"{table(rates)}\n{note([wilson.share for wilson, _ in rates.values()])}")
    graded = {one: observe(one, (_BETWEEN, _PASS_OR_FAIL, NO_SCALE), **size) for one in GRADED}
    now = [found[0].share for found in graded.values()]
    show("coverage of graded rewards", f"{graded_table(graded)}\n{note(now)}")
    sizes = {one: num_planned(one) for one in PLANNED}
    planned = {one: (num, share_of_passes(one, num, **size)) for one, num in sizes.items()}
    show("planned runs", planned_table(planned))


# The verdicts of `gym compare`: how often B passes if it is worse by the margin, and if it is not.

Quantile: TypeAlias = Callable[[Floats], Floats]
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
    ) -> tuple[Floats, Floats]:
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
        ("0.5", "0.7", "0.9", "0.97", *GRADED_REWARDS), (10, 30, 100, 300), (1, 4)
    )
]


def share_passing(
    runs: TwoRuns, *, loss: float, num_replications: int, seed: int = 0, margin: float = _MARGIN
) -> Passing:
    """Simulate comparisons, by default with the default margin of rewards up to 1.

    Equal arguments return equal shares.
    """
    random = np.random.default_rng([seed, *f"{runs}/{loss}".encode()])
    before = now = done = 0
    at_once = max(1, _AT_ONCE // (runs.num_tasks * runs.num_attempts))
    while done < num_replications:
        a, b = runs.draw(random, min(at_once, num_replications - done), loss)
        student, adjusted = lower_ends(a, b)
        before += int((student > -margin).sum())
        now += int((adjusted > -margin).sum())
        done += len(a)
    return Passing(before / done, now / done)


def lower_ends(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the lower ends of the 90 % intervals of B - A: by Student's t, and adjusted.

    This is the arithmetic of `comparison/difference_verdict.py` for many comparisons at once; the
    tests compare the two.
    """
    is_graded = np.any([((own > 0.0) & (own < 1.0)).any(axis=(1, 2)) for own in (a, b)], axis=0)
    return _lower_ends(b.mean(axis=2) - a.mean(axis=2), is_graded=is_graded)


def _lower_ends(
    differences: Floats, *, is_graded: NDArray[np.bool_] | bool
) -> tuple[Floats, Floats]:
    """Return the lower ends from the differences of tasks, by comparison."""
    differences[np.abs(differences) < 1e-12] = 0.0
    num_tasks = differences.shape[1]
    mean, spread = differences.mean(axis=1), differences.var(axis=1, ddof=1)
    spread[spread < 1e-24] = 0.0
    student = mean - student_t_quantile(0.95, num_tasks - 1) * np.sqrt(spread / num_tasks)
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
