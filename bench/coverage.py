"""Simulates how often the intervals of `gym metrics` contain the true value, and its plans hold.

Each replication draws new tasks and attempts, and computes the number, its standard error and its
interval with the functions of `gym metrics`. Student's t over tasks, which other tools print, is
simulated for comparison. If all tasks have the same value there is no t interval, and the
replication counts as a hit if the number is the true one.

    python -m bench.coverage            # print the tables
    python -m bench.coverage --write    # also update docs/statistics.md
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gymcli.metrics.at_k import METRICS, TaskRewards
from gymcli.metrics.intervals import NO_SCALE, Scale, interval_of
from gymcli.metrics.paired_differences import difference_interval, paired_estimate
from gymcli.metrics.planning import ASSUMED_CORRELATION, Pilot, plan
from gymcli.metrics.run_comparison import verdict_of

__all__ = [
    "GRADED",
    "KINDS",
    "PASSES",
    "PLANNED",
    "RATES",
    "Graded",
    "Passes",
    "PlannedRuns",
    "Seen",
    "graded_table",
    "main",
    "num_planned",
    "observe",
    "passes_table",
    "planned_table",
    "rates_table",
    "share_of_passes",
]

_LEVEL = 0.95
_NUM_REPLICATIONS = 4000
_PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"

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
        first, second = (own[0] for own in scenario.draw(random, (1, num_tasks)))
        pairs = paired_estimate(first, second, num_values=0, largest=1.0, level=_LEVEL)
        interval = difference_interval(pairs.difference, largest=1.0, level=2.0 * _LEVEL - 1.0)
        num_passes += verdict_of(interval, scenario.margin, is_strict=False) == "PASS"
    return num_passes / num_replications


def planned_table(seen: Mapping[PlannedRuns, tuple[int, float]]) -> str:
    """Return the planned tasks and the share of passes, in percent."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one, (num_tasks, share) in seen.items():
        row = cells.setdefault((one.kind, f"{one.margin:g}"), {})
        changed = "unchanged" if one.is_unchanged else "other model"
        row[f"K = {one.num_attempts}, {changed}"] = f"{num_tasks:,}: {100 * share:.1f}"
    return _table(("rewards", "margin"), cells)


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
    return _table(("p", "tasks"), cells)


def graded_table(seen: Mapping[Graded, Sequence[Seen]]) -> str:
    """Return the shares in percent and the widths of the mean of graded rewards."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one, kinds in seen.items():
        row = cells.setdefault((one.kind, str(one.num_tasks)), {})
        for name, found in zip(("now", "capped", "t"), kinds, strict=True):
            title = f"K = {one.num_attempts}, {name}"
            row[title] = f"{100 * found.share:.1f} ({found.width:.3f})"
    return _table(("rewards", "tasks"), cells)


def _table(head: Sequence[str], cells: Mapping[tuple[str, str], Mapping[str, str]]) -> str:
    titles = [*head, *next(iter(cells.values()))]
    lines = [_row(titles), _row(["---:"] * len(titles))]
    return "".join([*lines, *(_row([*names, *row.values()]) for names, row in cells.items())])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _write(page: Path, name: str, text: str) -> None:
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
    options = parser.parse_args(arguments)
    size = {"num_replications": options.replications, "seed": options.seed}
    said = f"Nominal {_LEVEL:.0%}, {options.replications:,} replications a cell, "
    said += f"seed {options.seed}."

    def show(name: str, text: str) -> None:
        print(f"{name}\n\n{text}")
        if options.write:
            _write(options.page, name, text)

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


if __name__ == "__main__":
    main()
