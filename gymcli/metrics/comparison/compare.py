"""Tasks in both runs, one after another, become the comparison of the runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gymcli.errors import UsageError
from gymcli.metrics.comparison.measures import Measure
from gymcli.metrics.comparison.paired import among, counted, difference_of
from gymcli.metrics.comparison.results import (
    Comparison,
    Difference,
    RunSide,
    TaskDifference,
    Unmatched,
    Verdict,
)
from gymcli.metrics.comparison.values import (
    PairedTask,
    PairedValues,
    TaskValue,
    TaskValues,
    change_of,
    keep_first,
)
from gymcli.metrics.comparison.verdict import Rule
from gymcli.metrics.records import EnvironmentFacts
from gymcli.metrics.results import Bounds
from gymcli.metrics.slicing import MAX_SLICES, slice_order

__all__ = ["compare"]


def compare(
    tasks: Iterable[PairedTask],
    *,
    a: RunSide,
    b: RunSide,
    facts: Mapping[str, EnvironmentFacts],
    measure: Measure,
    rule: Rule,
    fields: Sequence[str] = (),
    with_tasks: bool = False,
) -> Comparison:
    """Compare two runs task by task.

    Args:
        tasks: The tasks of either run, in any order.
        a: The run that is compared with.
        b: The run that is judged.
        facts: What is known of each environment of the tasks, by its name.
        measure: What of a task is compared.
        rule: How the verdict is reached.
        fields: The fields that `PairedTask.slices` are the values of.
        with_tasks: Whether every task is given as well.

    Raises:
        UsageError: The metric takes a threshold of success that no environment has, or a field
            has more than `MAX_SLICES` values.

    """
    gathering = _Gathering(facts, measure, fields, with_tasks=with_tasks)
    for task in tasks:
        gathering.add(task)
    return gathering.comparison(a, b, rule)


class _Gathering:
    """Takes tasks one by one: into the whole, their environment, and their slices."""

    def __init__(
        self,
        facts: Mapping[str, EnvironmentFacts],
        measure: Measure,
        fields: Sequence[str],
        *,
        with_tasks: bool,
    ) -> None:
        self._facts = facts
        self._measure = measure
        self._whole = PairedValues()
        # The values of a single environment are those of the whole.
        single = facts if len(facts) == 1 else ()
        self._environments: dict[str, PairedValues] = dict.fromkeys(single, self._whole)
        self._values: dict[str, TaskValues] = {}
        self._slices: dict[str, dict[str, PairedValues]] = {field: {} for field in fields}
        self._unmatched = Unmatched()
        self._tasks: list[TaskDifference] | None = [] if with_tasks else None

    def add(self, task: PairedTask) -> None:
        """Take a task of either run."""
        name = f"{task.env}/{task.task_id}" if len(self._facts) > 1 else task.task_id
        if not self._is_matched(task, name):
            return
        values = self._values.get(task.env)
        if values is None:
            threshold = self._facts[task.env].success_threshold
            values = self._values[task.env] = TaskValues(self._measure, threshold)
        a, b = values.of(task.values_a), values.of(task.values_b)
        if a is None or b is None:
            self._unmatched.num_too_few_attempts += 1
            return
        change = change_of(a, b)
        for pairs in self._parts(task):
            pairs.environments.add(task.env)
            pairs.add(name, a, b, change)
        if self._tasks is not None:
            self._tasks.append(_task_difference(task, a, b))

    def comparison(self, a: RunSide, b: RunSide, rule: Rule) -> Comparison:
        """Give the numbers of all that was taken."""
        self._check_thresholds()
        name = self._measure.name
        whole = self._difference(self._whole, rule, name)
        if len(self._environments) == 1:
            environments = dict.fromkeys(self._environments, whole)
        else:
            environments = {
                env: self._difference(pairs, rule, f"{name}/{env}")
                for env, pairs in sorted(self._environments.items())
            }
        environments = among(environments, rule.level)
        if not self._is_on_one_scale(self._whole):
            whole.verdict, whole.way_out = _verdict_of_all(environments)
        slices = {
            (field, value): self._difference(own[value], rule, f"{name}/{field}/{value}")
            for field, own in self._slices.items()
            for value in sorted(own, key=slice_order)
        }
        found = Comparison(
            **{field: getattr(whole, field) for field in whole.__struct_fields__},
            metric=name,
            level=rule.level,
            is_strict=rule.is_strict,
            a=a,
            b=b,
            bounds=_bounds(a, b),
            environments=environments,
            unmatched=self._unmatched,
            tasks=sorted(self._tasks or (), key=lambda task: (task.env, task.task_id)),
        )
        for (field, value), difference in among(slices, rule.level).items():
            found.slices.setdefault(field, {})[value] = difference
        return found

    def _is_matched(self, task: PairedTask, name: str) -> bool:
        unmatched = self._unmatched
        if task.is_in_a and not task.is_in_b:
            unmatched.num_only_a += 1
            keep_first(unmatched.only_a, name)
        elif task.is_in_b and not task.is_in_a:
            unmatched.num_only_b += 1
            keep_first(unmatched.only_b, name)
        return task.is_in_a and task.is_in_b

    def _parts(self, task: PairedTask) -> Iterator[PairedValues]:
        """Give all that a task belongs to."""
        yield self._whole
        if len(self._facts) > 1:
            yield _part_of(self._environments, task.env)
        for (field, own), value in zip(self._slices.items(), task.slices, strict=True):
            yield _part_of(own, value)
            if len(own) > MAX_SLICES:
                raise UsageError(
                    f"--by {field}: has more than {MAX_SLICES:,} values; give a field of which "
                    "many tasks have the same"
                )

    def _check_thresholds(self) -> None:
        """Refuse to count successes where nothing says what one is."""
        lacking = [env for env in self._values if self._facts[env].success_threshold is None]
        if self._measure.needs_threshold and lacking:
            raise UsageError(
                f"--metric {self._measure.name}: of environment {lacking[0]!r} no reward is known "
                "from which an attempt passes; compare mean_reward"
            )

    def _is_on_one_scale(self, pairs: PairedValues) -> bool:
        """Say whether a task of one environment weighs the same as one of another, everywhere."""
        best = self._best(pairs)
        return len(pairs.environments) < 2 or (len(best) == 1 and None not in best)

    def _best(self, pairs: PairedValues) -> set[float | None]:
        return {self._facts[env].max_reward for env in pairs.environments}

    def _difference(self, pairs: PairedValues, rule: Rule, name: str) -> Difference:
        if not self._is_on_one_scale(pairs):
            found = counted(pairs)
            found.way_out = "the best rewards of its environments differ; each is judged by itself"
            return found
        largest = self._largest(pairs)
        is_mean = self._measure.is_mean
        return difference_of(pairs, rule, largest=largest, is_mean=is_mean, name=name)

    def _largest(self, pairs: PairedValues) -> float | None:
        """Give what the values lie below, from 0 on; None where that is not known."""
        if self._measure.scale == "reward":
            best = self._best(pairs)
            return best.pop() if len(best) == 1 else None
        # A component or number that never leaves 0 to 1 counts as a share, as in `gym metrics`.
        is_share = self._measure.scale == "share" or self._whole.lie_within(1.0)
        return 1.0 if is_share else None


def _part_of(parts: dict[str, PairedValues], name: str) -> PairedValues:
    if name not in parts:
        parts[name] = PairedValues()
    return parts[name]


def _verdict_of_all(environments: Mapping[str, Difference]) -> tuple[Verdict, str]:
    """Give the verdict where there are only those of environments.

    All have to pass, which needs no adjustment (Berger 1982, intersection-union tests); that one
    fails is borne out by its adjusted p-value already.
    """
    verdicts = [found.verdict for found in environments.values()]
    if "FAIL" in verdicts:
        return "FAIL", ""
    open_ = [f"{env}: {found.way_out}" for env, found in environments.items() if found.way_out]
    return ("INCONCLUSIVE", "; ".join(open_)) if open_ else ("PASS", "")


def _bounds(a: RunSide, b: RunSide) -> Bounds | None:
    """Give where the difference lies whatever the absent attempts would have got."""
    sides = (a, b)
    if all(side.coverage == 1.0 for side in sides) or not (a.bounds and b.bounds):
        return None
    return Bounds(low=b.bounds.low - a.bounds.high, high=b.bounds.high - a.bounds.low)


def _task_difference(task: PairedTask, a: TaskValue, b: TaskValue) -> TaskDifference:
    return TaskDifference(
        env=task.env,
        task_id=task.task_id,
        num_attempts_a=a.num_attempts,
        num_attempts_b=b.num_attempts,
        num_passes_a=a.num_passes,
        num_passes_b=b.num_passes,
        value_a=a.value,
        value_b=b.value,
        difference=b.value - a.value,
        change=change_of(a, b),
    )
