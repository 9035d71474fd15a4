"""Makes up tasks with attempts in two runs, for the tests of comparisons."""

import random
from typing import NamedTuple

from gymcli.comparison.comparison_results import RunSide
from gymcli.comparison.difference_verdict import Rule
from gymcli.comparison.paired_differences import PairedAttempts, parse_measure
from gymcli.comparison.run_comparison import compare
from gymcli.store.scored_lines import EnvironmentFacts

BINARY = EnvironmentFacts(max_reward=1.0)


class PairedTask(NamedTuple):
    """A task with the rewards of its attempts in both runs; None if a run lacks the task."""

    env: str
    task_id: str
    values_a: list[float | None] | None
    values_b: list[float | None] | None
    slices: tuple[str, ...] = ()


def paired(pairs, *, env="e", slices=()):
    """Return tasks from pairs of rewards in A and B; None if a run lacks the task."""
    return [
        PairedTask(env, f"t{number:04}", a, b, slices[number] if slices else ())
        for number, (a, b) in enumerate(pairs)
    ]


def attempts_of(tasks, num_fields=0, *, metric="mean_reward"):
    """Return the attempts of tasks, by environment."""
    by_environment, measure = {}, parse_measure(metric)
    for task in tasks:
        if task.env not in by_environment:
            by_environment[task.env] = PairedAttempts(task.env, num_fields)
        pairs = by_environment[task.env]
        pairs.task_numbers[task.task_id] = len(pairs.task_numbers)
        for values, value in zip(pairs.slices, task.slices, strict=True):
            values.append(value)
        for table, values in ((pairs.a, task.values_a), (pairs.b, task.values_b)):
            add_attempts(table, task.task_id, values or (), measure)
    return list(by_environment.values())


def add_attempts(table, task_id, values, measure):
    """Add attempts of a task with these rewards, or numbers of another name; None is no number."""
    first_row, num_attempts = len(table), len(values)
    is_reward = measure.source == "reward"
    table.extend(
        [task_id] * num_attempts,
        range(num_attempts),
        reward=values if is_reward else [0.5] * num_attempts,
    )
    if not is_reward:
        numbers = [None if value is None else {measure.key: value} for value in values]
        table.extend_named(measure.source, first_row, numbers)


def drawn(num_tasks, num_attempts, gain=0.0, *, seed=1):
    """Draw rewards for tasks of all difficulties; B's chance to pass is higher by `gain`."""
    draw = random.Random(f"{num_tasks}/{num_attempts}/{gain}/{seed}")
    found = []
    for _ in range(num_tasks):
        rate = draw.betavariate(2.0, 2.0)
        found.append(
            tuple(
                [float(draw.random() < own) for _ in range(num_attempts)]
                for own in (rate, rate + gain)
            )
        )
    return found


def compared(
    tasks, *, metric="mean_reward", facts=None, fields=(), a=None, b=None, with_tasks=False, **rule
):
    """Compare tasks, all of the environment `e` unless `facts` names others."""
    return compare(
        attempts_of(tasks, len(fields), metric=metric),
        a=a or RunSide(run="a"),
        b=b or RunSide(run="b"),
        facts={"e": BINARY} if facts is None else facts,
        measure=parse_measure(metric),
        rule=Rule(**rule),
        fields=fields,
        with_tasks=with_tasks,
    )
