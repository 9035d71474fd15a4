"""The tasks of a run as data of the page: what its table and its heat map are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gymcli.metrics import TaskMetrics
from gymcli.reporting.html_reading import Attempts
from gymcli.types import JSONObject

__all__ = ["MAX_ATTEMPTS", "MAX_TASKS", "TaskData", "task_data"]

MAX_TASKS = 20_000
"""Tasks of one run that a page holds; of more, those with the lowest mean rewards."""
MAX_ATTEMPTS = 64
"""Attempts of one task that the heat map shows."""
_MAX_ANSWER = 80
_MAX_ID = 200


class TaskData(NamedTuple):
    """The tasks of one run, as far as the page holds them."""

    data: JSONObject
    num_tasks: int
    """Of the run."""
    num_held: int
    num_attempts: int
    """The most that a task has."""

    @property
    def note(self) -> str:
        """What of the run is left out; empty: nothing."""
        if self.num_held == self.num_tasks:
            return ""
        return (
            f"This page holds the {self.num_held:,} tasks with the lowest mean rewards of "
            f"{self.num_tasks:,}; gym metrics --by-task prints all."
        )

    @property
    def attempts_note(self) -> str:
        """What the heat map shows, and what it leaves out."""
        notes = [
            "A row for each task, the worst first; a column for each attempt; a cross is an "
            "attempt without a score. Dark orange is 0 or the lowest reward of the environment, "
            "dark blue the best that there can be or, where that is not known, the highest."
        ]
        if self.num_attempts > MAX_ATTEMPTS:
            notes.append(
                f"Shown: the first {MAX_ATTEMPTS} of up to {self.num_attempts:,} attempts."
            )
        return " ".join([*notes, self.note]).rstrip()


def task_data(
    tasks: Sequence[TaskMetrics],
    attempts: Mapping[str, Attempts],
    best_rewards: Mapping[str, float | None],
) -> TaskData:
    """Give the tasks, worst first: those without a score, then by mean reward.

    Args:
        tasks: All tasks of the run.
        attempts: Their attempts, by environment.
        best_rewards: The best reward that there can be, by environment, where it is known.

    """
    ordered = sorted(tasks, key=_worst_first)[:MAX_TASKS]
    environments = sorted({task.env for task in ordered})
    place = {env: number for number, env in enumerate(environments)}
    most = 0
    strips: list[list[float | str | None]] = []
    of_tasks = {
        env: own.of_tasks(task.task_id for task in ordered if task.env == env)
        for env, own in attempts.items()
    }
    for task in ordered:
        strip, num = _strip(of_tasks.get(task.env, {}).get(task.task_id, {}))
        strips.append(strip)
        most = max(most, num)
    data: JSONObject = {
        "environments": environments,
        "env": [place[task.env] for task in ordered],
        "id": [_cut(task.task_id, _MAX_ID) for task in ordered],
        "scored": [task.num_scored for task in ordered],
        "unscored": [task.num_unscored for task in ordered],
        "passed": [task.num_passes for task in ordered],
        "mean": [task.mean_reward for task in ordered],
        "min": [task.min_reward for task in ordered],
        "max": [task.max_reward for task in ordered],
        "answer": [_cut(task.majority_answer or "", _MAX_ANSWER) for task in ordered],
        "attempts": strips,
        "ranges": [_range(tasks, env, best_rewards.get(env)) for env in environments],
    }
    return TaskData(data, len(tasks), len(ordered), most)


def _strip(attempts: Mapping[int, float | None]) -> tuple[list[float | str | None], int]:
    """Give the reward of attempts 0, 1, 2, ...: "x" where there is none, None without a record."""
    num = max(attempts, default=-1) + 1
    strip: list[float | str | None] = []
    for number in range(min(num, MAX_ATTEMPTS)):
        reward = attempts.get(number)
        strip.append("x" if reward is None and number in attempts else reward)
    return strip, num


def _range(tasks: Sequence[TaskMetrics], env: str, best: float | None) -> list[float]:
    """Give the rewards of an environment between which colours are shared out."""
    ends = [end for task in tasks if task.env == env for end in (task.min_reward, task.max_reward)]
    rewards = [end for end in ends if end is not None]
    high = max(rewards, default=0.0)
    return [min([0.0, *rewards]), high if best is None else max(high, best)]


def _worst_first(task: TaskMetrics) -> tuple[float, str, str]:
    mean = float("-inf") if task.mean_reward is None else task.mean_reward
    return (mean, task.env, task.task_id)


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
