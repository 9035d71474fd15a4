"""One pass over scored and failed lines, in any order, becomes the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gymcli.errors import GymError
from gymcli.metrics.results import Metrics, RunMetrics, TaskMetrics
from gymcli.metrics.scored_lines import EnvironmentFacts, FailureLine, OwnMetrics, ScoredLine
from gymcli.metrics.slicing import NONE, FieldValues, check_num_slices, slice_order
from gymcli.metrics.tally import EnvironmentTally
from gymcli.types import ErrorRecord

__all__ = ["Aggregator", "aggregate"]


class Aggregator:
    """Takes lines and returns the numbers of all that it took.

    Scored lines may come in any order. Of the failures of one attempt the last one given counts,
    and none does where the attempt is scored, before or after. `facts` are by environment; one
    without facts has no best reward, no threshold of success and no expected count, and one that
    expects attempts is reported even when none of them has a line.

    Args:
        facts: What is known of each environment, by its name.
        own: What environments compute themselves, by their names.
        by: Fields of the task rows to slice the numbers by.

    """

    def __init__(
        self,
        facts: Mapping[str, EnvironmentFacts] | None = None,
        *,
        own: Mapping[str, OwnMetrics] | None = None,
        by: Sequence[str] = (),
    ) -> None:
        self.warnings: list[str] = []
        """What could not be computed, and why; more may come with `metrics`."""
        self._facts = dict(facts or {})
        self._own = dict(own or {})
        wanted = (field for one in self._own.values() for field in one.slice_fields)
        self.fields = tuple(dict.fromkeys([*by, *wanted]))
        """Fields of the task rows that are to come with scored lines."""
        self._by = tuple(dict.fromkeys(by))
        self._tallies: dict[str, EnvironmentTally] = {}
        for name, known in self._facts.items():
            if known.num_expected is not None:
                self._tally(name)

    def add_scored(self, line: ScoredLine, values: FieldValues = ()) -> None:
        """Count a scored attempt; `values` has what its task row says of each of `fields`."""
        self.add_scored_lines([line], [values] if self.fields else ())

    def add_scored_lines(
        self, lines: Sequence[ScoredLine], values: Sequence[FieldValues] = ()
    ) -> None:
        """Count many scored attempts at once, in a fraction of the time.

        Raises:
            UsageError: A field to slice by has too many values.

        """
        names = dict.fromkeys([line.env for line in lines])
        for name in names:
            own = lines if len(names) == 1 else [line for line in lines if line.env == name]
            values_of_own = values
            if values and own is not lines:
                pairs = zip(lines, values, strict=True)
                values_of_own = [found for line, found in pairs if line.env == name]
            self._tally(name).add_scored(own, values_of_own)

    def add_failure(self, line: FailureLine, values: FieldValues | None = None) -> None:
        """Count an attempt that could not be scored, unless it is or will be.

        Args:
            line: The failure.
            values: What its task row says of each of `fields`; without it that of a scored attempt
                of the task counts.

        """
        self._tally(line.env).add_failure(line, values)

    def metrics(self, *, level: float = 0.95) -> RunMetrics:
        """Return the numbers of the run and of each environment; `level` is that of the intervals.

        Raises:
            RunFileError: An attempt was scored by two lines.
            UsageError: A field to slice by has too many values.

        """
        from gymcli.metrics.estimates import summarise  # late: imports numpy

        tallies = self._in_order()
        parts = [tally.part() for tally in tallies]
        environments = {
            tally.name: summarise([part], level=level)
            for tally, part in zip(tallies, parts, strict=True)
        }
        together = (
            next(iter(environments.values())) if len(parts) == 1 else summarise(parts, level=level)
        )
        for tally in tallies:
            environments[tally.name].environment_metrics = self._computed(tally)
        for field in self._by:
            of_all, by_environment = self._slices(field, level)
            together.slices[field] = of_all
            for env, slices in by_environment.items():
                environments[env].slices[field] = slices
        fields = {name: getattr(together, name) for name in Metrics.__struct_fields__}
        return RunMetrics(**fields, environments=environments)

    def errors(self) -> Iterator[ErrorRecord]:
        """Yield why each attempt failed that has no score."""
        for tally in self._in_order():
            for line in tally.unscored():
                yield line.error

    def task_rows(self) -> list[TaskMetrics]:
        """Return the numbers of each task, by environment and task id.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        rows = [row for tally in self._in_order() for row in tally.task_rows()]
        return sorted(rows, key=lambda row: (row.env, row.task_id))

    def _tally(self, name: str) -> EnvironmentTally:
        tally = self._tallies.get(name)
        if tally is None:
            facts = self._facts.get(name, EnvironmentFacts())
            tally = self._tallies[name] = EnvironmentTally(name, facts, self.fields, self._by)
        return tally

    def _computed(self, tally: EnvironmentTally) -> dict[str, float]:
        """Return what the environment computes itself; a warning where it cannot."""
        own = self._own.get(tally.name)
        if own is None or not len(tally):
            return {}
        try:
            return own.numbers(tally.groups())
        except GymError as error:
            self._warn(f"the metrics of environment {tally.name} failed: {error}")
            return {}

    def _warn(self, text: str) -> None:
        """Add a warning, also where the numbers are asked for again only once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def _slices(
        self, field: str, level: float
    ) -> tuple[dict[str, Metrics], dict[str, dict[str, Metrics]]]:
        """Return the numbers by value of a field, of all environments together and of each."""
        from gymcli.metrics.estimates import summarise  # late: imports numpy

        parts = {tally.name: tally.slices(field) for tally in self._in_order()}
        names = {name for own in parts.values() for name in own}
        check_num_slices(field, len(names))
        if names == {NONE}:
            self._warn(f"--by {field}: no task of this run has the field")
        of_all: dict[str, Metrics] = {}
        by_environment: dict[str, dict[str, Metrics]] = {env: {} for env in parts}
        for name in sorted(names, key=slice_order):
            own = {env: slices[name] for env, slices in parts.items() if name in slices}
            for env, part in own.items():
                of_all[name] = by_environment[env][name] = summarise([part], level=level)
            if len(own) > 1:
                of_all[name] = summarise(list(own.values()), level=level)
        return of_all, by_environment

    def _in_order(self) -> list[EnvironmentTally]:
        return [self._tallies[name] for name in sorted(self._tallies)]


def aggregate(
    scored: Iterable[ScoredLine],
    failures: Iterable[FailureLine] = (),
    *,
    facts: Mapping[str, EnvironmentFacts] | None = None,
    level: float = 0.95,
) -> RunMetrics:
    """Return the numbers of a run from its lines.

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
