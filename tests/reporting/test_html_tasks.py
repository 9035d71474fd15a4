"""The tasks that a page holds."""

import pytest

from gymcli.metrics import TaskMetrics
from gymcli.reporting.html_parts import Attempts
from gymcli.reporting.html_sections import MAX_ATTEMPTS, MAX_TASKS, task_data


def task(task_id, mean, **fields):
    given = {"num_scored": 0 if mean is None else 1, "num_unscored": 0, **fields}
    ends = {"min_reward": mean, "max_reward": mean}
    return TaskMetrics(env="quiz", task_id=task_id, mean_reward=mean, **ends, **given)


def test_the_worst_tasks_come_first():
    held = task_data([task("b", 1.0), task("c", 0.0), task("a", 1.0), task("d", None)], {}, {})
    assert held.data["id"] == ["d", "c", "a", "b"]


def test_of_many_tasks_the_worst_are_held():
    tasks = [task(f"t{number}", number / MAX_TASKS) for number in range(MAX_TASKS + 5)]
    held = task_data(tasks, {}, {})
    assert (held.num_tasks, held.num_held) == (MAX_TASKS + 5, MAX_TASKS)
    assert len(held.data["mean"]) == MAX_TASKS
    assert max(held.data["mean"]) < 1.0


def test_attempts_stand_in_order_with_gaps():
    attempts = Attempts()
    attempts.add("a", 3, 0.5)
    attempts.add("a", 0, None)
    for number in range(99):
        attempts.add("b", number, 1.0)
    held = task_data([task("a", 0.5), task("b", 1.0)], {"quiz": attempts}, {})
    assert held.data["attempts"][0] == ["x", None, None, 0.5]
    assert len(held.data["attempts"][1]) == MAX_ATTEMPTS
    assert held.num_attempts == 99


def test_long_texts_are_cut():
    held = task_data([task("t" * 500, 0.0, majority_answer="two\nlines " + "x" * 500)], {}, {})
    assert len(held.data["id"][0]) == 200
    assert held.data["answer"][0].startswith("two lines x")
    assert held.data["answer"][0].endswith("…")


@pytest.mark.parametrize(
    ("means", "best", "ends"),
    [
        ([0.0, 0.0], 1.0, [0.0, 1.0]),
        ([0.0, 0.5], 1.0, [0.0, 1.0]),
        ([0.5, 1.0], None, [0.0, 1.0]),
        ([0.0, 0.0], None, [0.0, 0.0]),
        ([-2.0, 3.0], None, [-2.0, 3.0]),
        ([None], 1.0, [0.0, 1.0]),
    ],
)
def test_colours_reach_from_nothing_to_the_best(means, best, ends):
    """So that a run which failed everything does not look like one that did its best."""
    held = task_data([task(str(mean), mean) for mean in means], {}, {"quiz": best})
    assert held.data["ranges"] == [ends]


def test_environments_have_colours_of_their_own():
    other = TaskMetrics(
        env="sums", task_id="a", num_scored=1, num_unscored=0, min_reward=5.0, max_reward=5.0
    )
    held = task_data([task("a", 0.5), other], {}, {"quiz": 1.0, "sums": None})
    assert held.data["environments"] == ["quiz", "sums"]
    assert held.data["ranges"] == [[0.0, 1.0], [0.0, 5.0]]
