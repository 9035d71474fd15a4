"""Computes the numbers of a run in one pass over its scored and failed lines, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gymcli.errors import GymError
from gymcli.metrics.results import Metrics, RunMetrics, TaskMetrics, TokenNumbers
from gymcli.metrics.slicing import NONE, FieldValues, check_num_slices, slice_order
from gymcli.store.scored_lines import (
    EnvironmentFacts,
    FailureLine,
    Group,
    OwnMetrics,
    ScoredLine,
)
from gymcli.types import ErrorRecord

if TYPE_CHECKING:
    from gymcli.metrics.estimators import Floats
    from gymcli.metrics.tally import EnvironmentTally


class Aggregator:
    """Collects lines and returns their numbers.

    Scored lines may come in any order. The last failure of an attempt counts, unless the attempt is
    scored, before or after.

    Args:
        facts: By environment; one without facts has no best reward, no threshold of success and no
            expected count, and one that expects attempts is reported even if none has a line.
        own_metrics: The metrics that environments compute themselves, by environment.
        by: Fields of the task rows to slice the numbers by.
        fields: Further fields of the task rows, for `groups`.
    """

    def __init__(
        self,
        facts: Mapping[str, EnvironmentFacts] | None = None,
        *,
        own_metrics: Mapping[str, OwnMetrics] | None = None,
        by: Sequence[str] = (),
        fields: Sequence[str] = (),
    ) -> None:
        self.warnings: list[str] = []
        """The reasons why metrics could not be computed; `metrics` may add some."""
        self.facts = dict(facts or {})
        """By environment, as given."""
        self.tokens: dict[str, TokenNumbers] = {}
        """By environment, for the caller to fill; empty if no token ids were recorded."""
        self._own_metrics = dict(own_metrics or {})
        own_fields = [
            field for metrics in self._own_metrics.values() for field in metrics.slice_fields
        ]
        self.fields = tuple(dict.fromkeys([*by, *fields, *own_fields]))
        """Fields of the task rows that come with scored lines."""
        self._by = tuple(dict.fromkeys(by))
        self._tallies: dict[str, EnvironmentTally] = {}
        for name, facts_of_environment in self.facts.items():
            if facts_of_environment.num_expected is not None:
                self._tally(name)

    def add_scored(self, line: ScoredLine, values: FieldValues = ()) -> None:
        """Count a scored attempt; `values` has its task row's value for each of `fields`."""
        self.add_scored_lines([line], [values] if self.fields else ())

    def add_scored_lines(
        self, lines: Sequence[ScoredLine], values: Sequence[FieldValues] = ()
    ) -> None:
        """Count many scored attempts in one call, much faster than one by one."""
        envs = [line.env for line in lines]
        for name in dict.fromkeys(envs):
            # Most batches are of one environment: they need no copies.
            if envs.count(name) == len(lines):
                self._tally(name).add_scored(lines, values)
                return
            places = [place for place, env in enumerate(envs) if env == name]
            values_of_own = [values[place] for place in places] if values else ()
            self._tally(name).add_scored([lines[place] for place in places], values_of_own)

    def add_failure(self, line: FailureLine, values: FieldValues | None = None) -> None:
        """Count an attempt that could not be scored, unless it has been scored or will be.

        `values` has its task row's value for each of `fields`; without it, a scored attempt of the
        task provides them.
        """
        self._tally(line.env).add_failure(line, values)

    def metrics(self, *, level: float = 0.95, ks: Sequence[int] = ()) -> RunMetrics:
        """Return the numbers of the run and of each environment, with intervals of this level.

        Metrics of k attempts are computed for the usual k and for those in `ks`.

        Raise RunFileError if two lines score one attempt, UsageError for too many slices.
        """
        from gymcli.metrics.run_metrics import summarise  # late: imports numpy

        tallies = self._in_order()
        parts = [tally.part() for tally in tallies]
        environments = {
            tally.name: summarise([part], level=level, ks=ks)
            for tally, part in zip(tallies, parts, strict=True)
        }
        together = (
            environments[tallies[0].name]
            if len(parts) == 1
            else summarise(parts, level=level, ks=ks)
        )
        for tally in tallies:
            own_metrics = self._own_metrics.get(tally.name)
            if own_metrics is not None and len(tally):
                try:
                    environments[tally.name].environment_metrics = own_metrics.numbers(
                        tally.groups()
                    )
                except GymError as error:
                    self._warn(f"the metrics of environment {tally.name} failed: {error}")
        if self.tokens:
            together.tokens = TokenNumbers()
            for name, tokens in self.tokens.items():
                together.tokens.add(tokens)
                environments[name].tokens = tokens
        for field in self._by:
            self._add_slices(field, together, environments, level=level, ks=ks)
        fields = {name: getattr(together, name) for name in Metrics.__struct_fields__}
        return RunMetrics(**fields, environments=environments)

    def errors(self) -> Iterator[ErrorRecord]:
        """Yield the error of each attempt that has no score."""
        for tally in self._in_order():
            for line in tally.unscored():
                yield line.error

    def groups(self) -> Iterator[tuple[str, Group]]:
        """Yield the scored attempts of each task, with its environment and its row's `fields`."""
        for tally in self._in_order():
            for group in tally.groups():
                yield tally.name, group

    def scores(self, name: str) -> list[Floats]:
        """Return `mean_reward`, or a component or metric, of each attempt that has it.

        Each matrix has the tasks with equally many such attempts: a row is a task.
        """
        parts = [tally.part() for tally in self._in_order()]
        if name == "mean_reward":
            return [rewards for part in parts for rewards in part.scored]
        titles = (name, f"components.{name}", f"metrics.{name}")
        recorded_titles = [title for title in titles if any(title in part.named for part in parts)]
        return [
            numbers
            for part in parts
            for title in recorded_titles[:1]
            for numbers in part.named.get(title, ())
        ]

    def task_rows(self) -> list[TaskMetrics]:
        """Return the numbers of each task, by environment and task id."""
        rows = [row for tally in self._in_order() for row in tally.task_rows()]
        return sorted(rows, key=lambda row: (row.env, row.task_id))

    def _tally(self, name: str) -> EnvironmentTally:
        from gymcli.metrics.tally import EnvironmentTally  # late: imports numpy

        tally = self._tallies.get(name)
        if tally is None:
            facts = self.facts.get(name, EnvironmentFacts())
            tally = self._tallies[name] = EnvironmentTally(name, facts, self.fields, self._by)
        return tally

    def _warn(self, text: str) -> None:
        # `metrics` may be called more than once.
        if text not in self.warnings:
            self.warnings.append(text)

    def _add_slices(
        self,
        field: str,
        together: Metrics,
        environments: Mapping[str, Metrics],
        *,
        level: float,
        ks: Sequence[int],
    ) -> None:
        from gymcli.metrics.run_metrics import summarise  # late: imports numpy

        parts = {tally.name: tally.slices(field) for tally in self._in_order()}
        names = {name for parts_of_slice in parts.values() for name in parts_of_slice}
        check_num_slices(field, len(names))
        if names == {NONE}:
            self._warn(f"--by {field}: no task of this run has the field")
        slices_of_run = together.slices[field] = {}
        # In a run with one environment, the run's slices are the environment's.
        by_environment = {env: environments[env].slices.setdefault(field, {}) for env in parts}
        for name in sorted(names, key=slice_order):
            parts_of_slice = {env: slices[name] for env, slices in parts.items() if name in slices}
            for env, part in parts_of_slice.items():
                slices_of_run[name] = by_environment[env][name] = summarise(
                    [part], level=level, ks=ks
                )
            if len(parts_of_slice) > 1:
                slices_of_run[name] = summarise(list(parts_of_slice.values()), level=level, ks=ks)

    def _in_order(self) -> list[EnvironmentTally]:
        return [self._tallies[name] for name in sorted(self._tallies)]
