"""Simulates how often the intervals of `gym metrics` contain the true pass rate.

The true pass rates of tasks follow a beta distribution around the mean p, so that attempts of a
task are correlated: their intraclass correlation (ICC) is the spread. Each replication draws new
tasks and attempts from the seed and the scenario, and computes the interval of the mean reward with
the functions of `gym metrics`. Student's t over tasks, which other tools print, is simulated for
comparison. If all tasks have the same reward there is no interval, and the replication counts as a
hit if the mean equals the rate.

    python -m bench.coverage            # print the table
    python -m bench.coverage --write    # also update docs/statistics.md
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from gymcli.metrics.estimators import mean, standard_error
from gymcli.metrics.intervals import interval_of

__all__ = ["SCENARIOS", "Observed", "Scenario", "main", "observe", "table"]

_RATES = (0.5, 0.7, 0.9, 0.97)
_NUM_TASKS = (10, 30, 100)
_DESIGNS = ((1, 0.1), (2, 0.1), (4, 0.1), (8, 0.1), (2, 0.5), (4, 0.5), (8, 0.5))
"""Attempts of a task, and their ICC, which means nothing for a single attempt."""
_LEVEL = 0.95
_NUM_REPLICATIONS = 4000
_PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
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
    options = parser.parse_args(arguments)
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


if __name__ == "__main__":
    main()
