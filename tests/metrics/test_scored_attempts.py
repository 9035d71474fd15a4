"""Attempts collected by task: each once and in order, whatever order they came in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.metrics.scored_attempts import Attempts, Texts, rows_by_task

keys = st.lists(st.tuples(st.sampled_from(["a", "bé", "c", "d"]), st.integers(0, 300)), unique=True)
REWARD_OF = {"a": 0.0, "bé": 1.0, "c": 2.0, "d": 3.0}


def add(attempts, pairs):
    task_ids, numbers = [task for task, _ in pairs], [number for _, number in pairs]
    attempts.extend(task_ids, numbers, [REWARD_OF[task] + number for task, number in pairs])


def by_task(attempts):
    """Return the rewards of each task."""
    task_ids, rewards = list(attempts.task_numbers), np.array(attempts.rewards)
    return {
        task_ids[task]: rewards[lines].tolist()
        for group in attempts.by_task()
        for task, lines in zip(group.tasks, group.lines, strict=True)
    }


def expected(pairs):
    tasks = {task for task, _ in pairs}
    return {
        task: sorted(REWARD_OF[own] + number for own, number in pairs if own == task)
        for task in tasks
    }


@given(keys, st.integers(0, 9))
def test_attempts_come_task_by_task_and_in_order(pairs, num_first):
    """Also attempts that are added after the first ones were read."""
    attempts = Attempts("env")
    add(attempts, pairs[:num_first])
    assert by_task(attempts) == expected(pairs[:num_first])
    add(attempts, pairs[num_first:])
    assert by_task(attempts) == expected(pairs)
    sizes = [group.lines.shape[1] for group in attempts.by_task()]
    assert sizes == sorted(set(sizes))


def test_two_runs_may_share_the_numbers_of_tasks():
    first = Attempts("env")
    add(first, [("c", 0), ("a", 0)])
    second = Attempts("env", first.task_numbers)
    add(second, [("d", 0), ("a", 1)])
    assert list(first.task_numbers) == ["c", "a", "d"]
    assert [group.tasks.tolist() for group in second.by_task()] == [[1, 2]]


def test_an_attempt_without_a_number_is_nan():
    attempts = Attempts("env")
    attempts.extend(["a", "a"], [0, 1], [None, 1.0])
    assert np.isnan(attempts.rewards).tolist() == [True, False]


def test_an_attempt_that_is_there_twice_is_named():
    """The first duplicate by task id and number."""
    attempts = Attempts("env")
    add(attempts, [("c", 1), ("a", 5), ("a", 2), ("c", 1), ("a", 5)])
    for _ in range(2):
        with pytest.raises(RunFileError, match=r"task 'a' of environment 'env', attempt 5, is sco"):
            attempts.by_task()


def test_rows_by_task_of_nothing_are_none():
    assert rows_by_task(np.array([], np.intp), np.array([], np.int64)) == []


@given(st.lists(st.sampled_from([None, "A", "", "ü"]), max_size=9), st.integers(0, 9))
def test_texts_are_those_of_the_lines(texts, num_first):
    column = Texts()
    column.extend(texts[:num_first])
    column.extend(texts[num_first:])
    assert [column.known()[number] for number in column.numbers] == texts
    assert len(column.known()) == len({*texts, None})
