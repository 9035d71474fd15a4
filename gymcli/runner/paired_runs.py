"""Two runs read and compared task by task."""

from __future__ import annotations

import math
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from gymcli.errors import RunError, RunMismatchError, UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.comparison_results import Comparison, Drift, RunSide
from gymcli.metrics.paired_differences import Measure, PairedAttempts, parse_measure
from gymcli.metrics.run_comparison import Rule, compare, doubts
from gymcli.metrics.scored_lines import EnvironmentFacts, FailureLine
from gymcli.metrics.slicing import field_of, slice_name
from gymcli.runner.measure import open_run
from gymcli.runner.provenance import (
    ComparedLine,
    RunProvenance,
    drift_of,
    read_compared_lines,
    settings,
    unknown,
)
from gymcli.store.rollout_files import read_structs
from gymcli.types import JSON_ERRORS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TaskContents", "TaskDrift", "compare_runs", "task_drift"]

_NUM_NAMED = 3
_HIGHEST_LEVEL = 0.999999
_HASH = re.compile(r"[0-9a-f]{16}")
_MASK = (1 << 64) - 1
_NEVER = (1 << 63) - 1


def compare_runs(
    a: Path,
    b: Path,
    *,
    metric: str = "mean_reward",
    rule: Rule | None = None,
    by: Sequence[str] = (),
    env: str | None = None,
    allow_drift: bool = False,
    with_tasks: bool = False,
) -> Comparison:
    """Compare run B with run A: directories, or rollout files of ours or of NeMo Gym.

    Args:
        a: The run that is compared with, such as a baseline.
        b: The run that is judged.
        metric: What of a task is compared, by the names that gates use.
        rule: The margin, the level and how the verdict follows.
        by: Fields of the task rows to slice by.
        env: The environment of lines that name none.
        allow_drift: Compare runs all the same that were not made alike.
        with_tasks: Whether every task is given as well.

    Raises:
        RunMismatchError: What must be alike is not, and `allow_drift` is not given.
        RunError: One of the runs has no score.
        UsageError: A path, a line or an argument is wrong, or the runs share no task.

    """
    measure, by = parse_measure(metric), list(dict.fromkeys(by))
    rule = _checked(rule or Rule())
    reader = _RunReader(measure, by, rule.level)
    first, second = reader.read(a, env, is_a=True), reader.read(b, env, is_a=False)
    environments = sorted(first.contents.keys() & second.contents.keys())
    drift = list(
        drift_of(first.provenance, second.provenance, environments, (first.facts, second.facts))
    )
    not_known = [one for run in (first, second) for one in unknown(run.provenance, environments)]
    # That prompts differ with the seed is up to the environment.
    knows_seeds = bool(first.provenance.identity and second.provenance.identity)
    for name in environments:
        differing = task_drift(first.contents[name], second.contents[name])
        ids = list(reader.pairs[name].task_numbers)
        if differing.contents:
            text = _named([ids[task] for task in differing.contents], "other content")
            drift.append(Drift(kind="tasks", env=name, name=text))
        if differing.prompts:
            what = "another prompt or other tools"
            text = _named([ids[task] for task in differing.prompts], what)
            drift.append(Drift(kind="prompt", env=name, name=text))
        if differing.num_by_seed and not knows_seeds:
            not_known.append(
                f"prompts of {differing.num_by_seed:,} tasks of {name} differ, and so do their "
                "seeds: whether these are the cause is not known"
            )
    if drift and not allow_drift:
        raise RunMismatchError(_refusal(a, b, drift))
    comparison = compare(
        list(reader.pairs.values()),
        a=first.side,
        b=second.side,
        facts={**dict.fromkeys(reader.pairs, EnvironmentFacts()), **second.facts, **first.facts},
        measure=measure,
        rule=rule,
        fields=by,
        with_tasks=with_tasks,
    )
    if not comparison.num_tasks:
        raise UsageError(_nothing_shared(a, b, comparison))
    comparison.drift, comparison.unknown = drift, not_known
    comparison.compared = settings(first.provenance, second.provenance)
    comparison.warnings = doubts(comparison, rule)
    return comparison


class _ReadRun(NamedTuple):
    side: RunSide
    facts: dict[str, EnvironmentFacts]
    provenance: RunProvenance
    contents: dict[str, TaskContents]
    """By environment."""


class _RunReader:
    """Reads the attempts of two runs into one table by environment."""

    def __init__(self, measure: Measure, fields: Sequence[str], level: float) -> None:
        self.pairs: dict[str, PairedAttempts] = {}
        self._measure = measure
        self._fields = fields
        self._level = level

    def read(self, path: Path, env: str | None, *, is_a: bool) -> _ReadRun:
        run = open_run(path, env=env)
        provenance = RunProvenance(str(path), run.manifest)
        contents: dict[str, TaskContents] = {}
        aggregator = Aggregator(run.facts)
        blocks = () if run.rollouts is None else read_compared_lines(run.rollouts, run.reading)
        for lines in blocks:
            by_environment: dict[str, list[ComparedLine]] = {}
            for line in lines:
                line.env = run.names.get(line.env, line.env)
                if isinstance(line, FailureLine):
                    aggregator.add_failure(line)
                else:
                    by_environment.setdefault(line.env, []).append(line)
            for name, own in by_environment.items():
                provenance.add(name, own)
                self._add(own, contents.setdefault(name, TaskContents()), is_a=is_a)
                for line in own:  # a run's side of the comparison has its rewards alone
                    line.components = line.metrics = line.answer = None
                aggregator.add_scored_lines(own)
        if run.failures is not None:
            for failure in read_structs(run.failures, msgspec.json.Decoder(FailureLine)):
                aggregator.add_failure(failure)
        metrics = aggregator.metrics(level=self._level)
        if not metrics.num_scored:
            raise RunError(f"{path}: nothing is scored, so there is nothing to compare")
        side = RunSide(
            run=str(path),
            model=provenance.model,
            num_expected=metrics.num_expected,
            num_present=metrics.num_present,
            num_scored=metrics.num_scored,
            coverage=metrics.coverage,
            num_tasks=metrics.num_clusters,
            mean_reward=metrics.mean_reward,
            strict_mean_reward=metrics.strict_mean_reward,
            bounds=metrics.bounds,
        )
        return _ReadRun(side, run.facts, provenance, contents)

    def _add(self, lines: Sequence[ComparedLine], contents: TaskContents, *, is_a: bool) -> None:
        env = lines[0].env
        if env not in self.pairs:
            self.pairs[env] = PairedAttempts(env, len(self._fields))
        pairs = self.pairs[env]
        numbers = pairs.task_numbers
        for line in lines:
            number = numbers.setdefault(line.task_id, len(numbers))
            contents.add(number, line)
            for field, values in zip(self._fields, pairs.slices, strict=True):
                if number == len(values):
                    values.append(sys.intern(_slice(line.task, field)))
        (pairs.a if is_a else pairs.b).extend(
            [line.task_id for line in lines],
            [line.attempt for line in lines],
            [self._value(line) for line in lines],
        )

    def _value(self, line: ComparedLine) -> float:
        if self._measure.source == "reward":
            return line.reward
        named = line.components if self._measure.source == "components" else line.metrics
        return math.nan if named is None else named.get(self._measure.key, math.nan)


class TaskContents:
    """Content, prompt and seed of the first attempt of each task: 32 bytes a task."""

    def __init__(self) -> None:
        self.attempts = array("q")
        """Of each task by its number; `_NEVER` where the run lacks it."""
        self.contents = array("Q")
        """0 where it is not known, as of the prompt."""
        self.prompts = array("q")
        self.seeds = array("Q")

    def add(self, task: int, line: ComparedLine) -> None:
        """Add a line, with the number of its task."""
        num_new = task + 1 - len(self.attempts)
        if num_new > 0:
            self.attempts.extend([_NEVER] * num_new)
            for column in (self.contents, self.prompts, self.seeds):
                column.frombytes(bytes(column.itemsize * num_new))
        if line.attempt < self.attempts[task]:
            self.attempts[task] = line.attempt
            self.contents[task] = _content_number(line.task_hash)
            self.prompts[task] = line.prompt_hash
            self.seeds[task] = line.seed & _MASK


def _content_number(task_hash: str) -> int:
    """Return a number for the content of a task; 0 where it is not known."""
    if _HASH.fullmatch(task_hash):
        return int(task_hash, 16)
    return hash(task_hash) & _MASK if task_hash else 0


class TaskDrift(NamedTuple):
    """Tasks that both runs have and that are not the same, by their numbers."""

    contents: list[int]
    prompts: list[int]
    """Of the same content and seed."""
    num_by_seed: int
    """Tasks with other prompts and other seeds, of which either may be the cause."""


def task_drift(a: TaskContents, b: TaskContents) -> TaskDrift:
    """Return the tasks of one environment that differ between two runs."""
    num_tasks = min(len(a.attempts), len(b.attempts))

    def columns(values_a: array[int], values_b: array[int]) -> Iterator[NDArray[np.int64]]:
        return (np.asarray(values)[:num_tasks] for values in (values_a, values_b))

    attempts_a, attempts_b = columns(a.attempts, b.attempts)
    contents_a, contents_b = columns(a.contents, b.contents)
    prompts_a, prompts_b = columns(a.prompts, b.prompts)
    seeds_a, seeds_b = columns(a.seeds, b.seeds)
    is_shared = (attempts_a != _NEVER) & (attempts_b != _NEVER)
    has_other_content = (
        is_shared & (contents_a != contents_b) & (contents_a != 0) & (contents_b != 0)
    )
    has_other_prompt = is_shared & (prompts_a != prompts_b) & (prompts_a != 0) & (prompts_b != 0)
    has_other_prompt &= ~has_other_content
    has_other_seed = (attempts_a != attempts_b) | (seeds_a != seeds_b)
    return TaskDrift(
        np.flatnonzero(has_other_content).tolist(),
        np.flatnonzero(has_other_prompt & ~has_other_seed).tolist(),
        int((has_other_prompt & has_other_seed).sum()),
    )


def _named(ids: Sequence[str], what: str) -> str:
    more = ", ..." if len(ids) > _NUM_NAMED else ""
    has = "task has" if len(ids) == 1 else "tasks have"
    return f"{len(ids):,} {has} {what} ({', '.join(sorted(ids)[:_NUM_NAMED])}{more})"


def _slice(task: msgspec.Raw, field: str) -> str:
    try:
        row = msgspec.json.decode(task, type=dict[str, msgspec.Raw]) if bytes(task) else {}
    except JSON_ERRORS as error:
        raise UsageError(f"--by {field}: a task is no JSON object: {error}") from error
    return slice_name(field_of(row, field))


def _checked(rule: Rule) -> Rule:
    if rule.margin is not None and not (math.isfinite(rule.margin) and rule.margin >= 0.0):
        raise UsageError(f"--margin {rule.margin:g}: must be a number from 0 on")
    if not 0.5 < rule.level <= _HIGHEST_LEVEL:
        raise UsageError(
            f"--level {rule.level:g}: must lie between 0.5 and {_HIGHEST_LEVEL}, such as 0.95"
        )
    return rule


def _refusal(a: Path, b: Path, drift: Sequence[Drift]) -> str:
    found = "\n".join(f"  {one}" for one in drift)
    return (
        f"A ({a}) and B ({b}) were not made alike, so that not the model alone may make a "
        f"difference; --allow-drift compares them all the same:\n{found}"
    )


def _nothing_shared(a: Path, b: Path, comparison: Comparison) -> str:
    unmatched = comparison.unmatched
    if unmatched.num_too_few_attempts:
        return (
            f"--metric {comparison.metric}: none of {unmatched.num_too_few_attempts:,} tasks has "
            "it in both runs; gym metrics says what there is"
        )
    return (
        f"{a} and {b} share no task: there is {unmatched.only_a[0]} in the one and "
        f"{unmatched.only_b[0]} in the other; runs of the same tasks can be compared"
    )
