"""Two runs read and compared task by task."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gymcli.errors import RunError, RunMismatchError, UsageError
from gymcli.metrics import Aggregator, EnvironmentFacts, FailureLine
from gymcli.metrics.comparison import (
    Comparison,
    Drift,
    EnvironmentScores,
    Measure,
    Rule,
    RunSide,
    compare,
    doubts,
    parse_measure,
)
from gymcli.metrics.slicing import field_of, slice_name
from gymcli.runner.likeness import Making, drift_of, settings, unknown
from gymcli.runner.made_lines import MadeLine, made_lines
from gymcli.runner.measure import RunReading, open_run
from gymcli.runner.task_contents import TaskContents, different_tasks
from gymcli.store.rollout_files import read_structs
from gymcli.types import JSON_ERRORS

__all__ = ["compare_runs"]

_Side: TypeAlias = Literal["a", "b"]

_NUM_NAMED = 3
_HIGHEST_LEVEL = 0.999999


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
    reading = _Reading(measure, by, rule.level)
    first, second = reading.read(a, "a", env), reading.read(b, "b", env)
    drift = list(reading.drift(first, second))
    if drift and not allow_drift:
        raise RunMismatchError(_refusal(a, b, drift))
    comparison = compare(
        itertools.chain.from_iterable(scores.paired() for scores in reading.scores.values()),
        a=first.side,
        b=second.side,
        facts={**dict.fromkeys(reading.scores, EnvironmentFacts()), **second.facts, **first.facts},
        measure=measure,
        rule=rule,
        fields=by,
        with_tasks=with_tasks,
    )
    if not comparison.num_tasks:
        raise UsageError(_nothing_shared(a, b, comparison))
    comparison.drift = drift
    comparison.unknown = reading.unknown(first, second)
    comparison.compared = settings(first.making, second.making)
    comparison.warnings = doubts(comparison, rule)
    return comparison


class _Read(NamedTuple):
    """What was read of one run, beside its scores."""

    side: RunSide
    facts: dict[str, EnvironmentFacts]
    making: Making
    contents: dict[str, TaskContents]


class _Reading:
    """Reads two runs into the same tasks."""

    def __init__(self, measure: Measure, fields: Sequence[str], level: float) -> None:
        self.scores: dict[str, EnvironmentScores] = {}
        self._measure = measure
        self._fields = fields
        self._level = level

    def read(self, path: Path, side: _Side, env: str | None) -> _Read:
        """Read a run, as its side `a` or `b`.

        Raises:
            RunError: It has no score.
            UsageError: The path or a line is wrong.

        """
        run = open_run(path, env=env)
        read = _Read(RunSide(run=str(path)), run.facts, Making(str(path), run.manifest), {})
        aggregator = Aggregator(run.facts)
        for lines in _lines(run):
            scored = [line for line in lines if isinstance(line, MadeLine)]
            for name in dict.fromkeys([line.env for line in scored]):
                self._add(read, side, name, [line for line in scored if line.env == name])
            aggregator.add_scored_lines(scored)
            for line in lines:
                if isinstance(line, FailureLine):
                    aggregator.add_failure(line)
        if run.failures is not None:
            for failure in read_structs(run.failures, msgspec.json.Decoder(FailureLine)):
                aggregator.add_failure(failure)
        _describe(read, aggregator, self._level)
        return read

    def drift(self, a: _Read, b: _Read) -> Iterator[Drift]:
        """Give what should be alike in both runs and is not."""
        shared = sorted(a.contents.keys() & b.contents.keys())
        yield from drift_of(a.making, b.making, shared, (a.facts, b.facts))
        for env in shared:
            found = different_tasks(a.contents[env], b.contents[env])
            if found.contents:
                name = self._named(env, found.contents, "other content")
                yield Drift(kind="tasks", env=env, name=name)
            if found.prompts:
                name = self._named(env, found.prompts, "another prompt or other tools")
                yield Drift(kind="prompt", env=env, name=name)

    def unknown(self, a: _Read, b: _Read) -> list[str]:
        """Say what could not be checked for drift."""
        shared = sorted(a.contents.keys() & b.contents.keys())
        found = [text for run in (a, b) for text in unknown(run.making, shared)]
        if a.making.identity and b.making.identity:
            return found  # that prompts differ with the seed is up to the environment
        for env in shared:
            num = different_tasks(a.contents[env], b.contents[env]).num_by_seed
            if num:
                found.append(
                    f"prompts of {num:,} tasks of {env} differ, and so do their seeds: whether "
                    "these are the cause is not known"
                )
        return found

    def _named(self, env: str, tasks: Sequence[int], what: str) -> str:
        """Say how many tasks have something, and name the first of them."""
        ids = sorted(self.scores[env].tasks[task].decode() for task in tasks)
        more = ", ..." if len(ids) > _NUM_NAMED else ""
        has = "task has" if len(ids) == 1 else "tasks have"
        return f"{len(ids):,} {has} {what} ({', '.join(ids[:_NUM_NAMED])}{more})"

    def _add(self, read: _Read, side: _Side, env: str, lines: Sequence[MadeLine]) -> None:
        """Add lines of one environment."""
        scores = self.scores.get(env)
        if scores is None:
            scores = self.scores[env] = EnvironmentScores(env, len(self._fields))
        numbers, num_tasks = {}, len(scores.tasks)
        for task_id, line in {line.task_id: line for line in lines}.items():
            task = numbers[task_id] = scores.tasks.number_of(task_id.encode())
            if task == num_tasks:
                num_tasks += 1
                scores.add_slices([_slice(line.task, field) for field in self._fields])
        tasks = [numbers[line.task_id] for line in lines]
        own = scores.a if side == "a" else scores.b
        own.extend(tasks, [line.attempt for line in lines], self._values(lines))
        read.making.see(env, lines)
        contents = read.contents.setdefault(env, TaskContents())
        contents.see(tasks, lines, num_tasks)

    def _values(self, lines: Sequence[MadeLine]) -> list[float | None]:
        source, key = self._measure.source, self._measure.key
        if source == "reward":
            return [line.reward for line in lines]
        named = [line.components if source == "components" else line.metrics for line in lines]
        return [None if values is None else values.get(key) for values in named]


def _lines(run: RunReading) -> Iterator[list[MadeLine | FailureLine]]:
    """Give the lines of a run, their environments named as they are recorded."""
    if run.rollouts is None:
        return
    for lines in made_lines(run.rollouts, run.reading):
        if run.names:
            for line in lines:
                line.env = run.names.get(line.env, line.env)
        yield lines


def _slice(task: msgspec.Raw, field: str) -> str:
    """Give the value that a task has of a field, as the name of a slice."""
    try:
        row = msgspec.json.decode(task, type=dict[str, msgspec.Raw]) if bytes(task) else {}
    except JSON_ERRORS as error:
        raise UsageError(f"--by {field}: a task is no JSON object: {error}") from error
    return slice_name(field_of(row, field))


def _describe(read: _Read, aggregator: Aggregator, level: float) -> None:
    """Fill in the numbers of a run by itself.

    Raises:
        RunError: It has no score.

    """
    metrics, side = aggregator.metrics(level=level), read.side
    if not metrics.num_scored:
        raise RunError(f"{side.run}: nothing is scored, so there is nothing to compare")
    side.model = read.making.model
    side.num_expected, side.num_present = metrics.num_expected, metrics.num_present
    side.num_scored, side.coverage = metrics.num_scored, metrics.coverage
    side.num_tasks, side.bounds = metrics.num_clusters, metrics.bounds
    side.mean_reward, side.strict_mean_reward = metrics.mean_reward, metrics.strict_mean_reward


def _checked(rule: Rule) -> Rule:
    """Refuse what is no margin and no level."""
    if rule.margin is not None and not (math.isfinite(rule.margin) and rule.margin >= 0.0):
        raise UsageError(f"--margin {rule.margin:g}: must be a number from 0 on")
    if not 0.5 < rule.level <= _HIGHEST_LEVEL:
        raise UsageError(
            f"--level {rule.level:g}: must lie between 0.5 and {_HIGHEST_LEVEL}, such as 0.95"
        )
    return rule


def _refusal(a: Path, b: Path, drift: Sequence[Drift]) -> str:
    """Name what differs, a line each, and the way out."""
    found = "\n".join(f"  {one}" for one in drift)
    return (
        f"A ({a}) and B ({b}) were not made alike, so that not the model alone may make a "
        f"difference; --allow-drift compares them all the same:\n{found}"
    )


def _nothing_shared(a: Path, b: Path, comparison: Comparison) -> str:
    """Say why there is nothing to compare."""
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
