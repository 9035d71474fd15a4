"""One pass over scored and failed lines, in any order, becomes the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gymcli.metrics.records import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.metrics.results import RunMetrics, TaskMetrics
from gymcli.metrics.summary import summarise, summarise_task
from gymcli.metrics.tally import EnvironmentTally

__all__ = ["Aggregator", "aggregate"]


class Aggregator:
    """Takes lines one by one and gives the numbers of all that it took.

    Scored lines may come in any order. Of the failures of one attempt the last one given counts,
    and none does where the attempt is scored, before or after. `facts` are by environment; one
    without facts has no best reward, no threshold of success and no expected count, and one that
    expects attempts is reported even when none of them has a line.
    """

    def __init__(self, facts: Mapping[str, EnvironmentFacts] | None = None) -> None:
        self._facts = dict(facts or {})
        self._tallies: dict[str, EnvironmentTally] = {}
        for name, known in self._facts.items():
            if known.num_expected is not None:
                self._tally(name)

    def add_scored(self, line: ScoredLine) -> None:
        """Count a scored attempt."""
        self._tally(line.env).add_scored([line])

    def add_scored_lines(self, lines: Sequence[ScoredLine]) -> None:
        """Count many scored attempts at once, in a fraction of the time."""
        names = dict.fromkeys([line.env for line in lines])
        for name in names:
            own = lines if len(names) == 1 else [line for line in lines if line.env == name]
            self._tally(name).add_scored(own)

    def add_failure(self, line: FailureLine) -> None:
        """Count an attempt that could not be scored, unless it is or will be."""
        self._tally(line.env).add_failure(line)

    def metrics(self, *, level: float = 0.95) -> RunMetrics:
        """Give the numbers of the run and of each environment; `level` is that of the intervals.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        tallies = self._in_order()
        environments = {tally.name: summarise([tally], level=level) for tally in tallies}
        if len(tallies) == 1:
            together = environments[tallies[0].name]
        else:
            together = summarise(tallies, level=level)
        fields = {name: getattr(together, name) for name in together.__struct_fields__}
        return RunMetrics(**fields, environments=environments)

    def task_rows(self) -> list[TaskMetrics]:
        """Give the numbers of each task, by environment and task id.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        rows = [summarise_task(task) for tally in self._in_order() for task in tally.tasks()]
        rows.sort(key=lambda row: (row.env, row.task_id))
        return rows

    def _tally(self, name: str) -> EnvironmentTally:
        tally = self._tallies.get(name)
        if tally is None:
            facts = self._facts.get(name, EnvironmentFacts())
            tally = self._tallies[name] = EnvironmentTally(name, facts)
        return tally

    def _in_order(self) -> list[EnvironmentTally]:
        return [self._tallies[name] for name in sorted(self._tallies)]


def aggregate(
    scored: Iterable[ScoredLine],
    failures: Iterable[FailureLine] = (),
    *,
    facts: Mapping[str, EnvironmentFacts] | None = None,
    level: float = 0.95,
) -> RunMetrics:
    """Give the numbers of a run from its lines.

    Args:
        scored: The lines of rollouts.jsonl, in any order.
        failures: The lines of failures.jsonl, in the order they were written.
        facts: What is known of each environment, by its name.
        level: The share of such intervals that contain the true mean.

    Raises:
        RunFileError: An attempt was scored by two lines.

    """
    aggregator = Aggregator(facts)
    for line in scored:
        aggregator.add_scored(line)
    for failure in failures:
        aggregator.add_failure(failure)
    return aggregator.metrics(level=level)
