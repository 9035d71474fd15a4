"""Attempts collected by task: each once and in order, whatever order they came in."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.store.attempt_table import AttemptTable

keys = st.lists(st.tuples(st.sampled_from(["a", "bé", "c", "d"]), st.integers(0, 300)), unique=True)
REWARD_OF = {"a": 0.0, "bé": 1.0, "c": 2.0, "d": 3.0}


def table_of(*pairs, task_numbers=None):
    """Return a table of tasks and attempts, each with a reward that tells which it is."""
    table = AttemptTable("env", {"reward": "d", "answer": "i"}, task_numbers)
    add(table, pairs)
    return table


def add(table, pairs):
    task_ids, numbers = [task for task, _ in pairs], [number for _, number in pairs]
    rewards = [REWARD_OF[task] + number for task, number in pairs]
    table.extend(task_ids, numbers, reward=rewards, answer=[0] * len(pairs))


def by_task(table, rows=None):
    """Return the rewards of each task."""
    task_ids, rewards = list(table.task_numbers), table["reward"].copy()
    return {
        task_ids[task]: rewards[rows_of_task].tolist()
        for group in table.by_task(rows)
        for task, rows_of_task in zip(group.tasks, group.rows, strict=True)
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
    table = table_of(*pairs[:num_first])
    assert by_task(table) == expected(pairs[:num_first])
    add(table, pairs[num_first:])
    assert by_task(table) == expected(pairs)
    sizes = [group.rows.shape[1] for group in table.by_task()]
    assert sizes == sorted(set(sizes))


@given(keys, st.sets(st.integers(0, 9)))
def test_some_rows_come_by_task_too(pairs, places):
    rows = np.array(sorted(place for place in places if place < len(pairs)), np.intp)
    assert by_task(table_of(*pairs), rows) == expected([pairs[row] for row in rows])


def test_two_runs_may_share_the_numbers_of_tasks():
    first = table_of(("c", 0), ("a", 0))
    second = table_of(("d", 0), ("a", 1), task_numbers=first.task_numbers)
    assert list(first.task_numbers) == ["c", "a", "d"]
    assert [group.tasks.tolist() for group in second.by_task()] == [[1, 2]]


def test_a_number_that_a_row_lacks_is_nan():
    table = table_of(("a", 0), ("a", 1), ("c", 0))
    table.extend_named("metrics", 0, [{"n": 1.0}, None, {"n": 3.0, "m": 0.0}])
    assert table.values("metrics.n").tolist() == pytest.approx([1.0, math.nan, 3.0], nan_ok=True)
    assert np.isnan(table.values("metrics.other")).all()
    assert table.values("reward").tolist() == [0.0, 1.0, 2.0]
    assert [table.named["metrics.m"].at(row) for row in range(3)] == [None, None, 0.0]


def test_a_row_can_be_replaced():
    table = table_of(("a", 0), ("a", 1), ("c", 0))
    table.extend_named("metrics", 0, [{"n": 1.0}, None, {"n": 3.0}])
    table.put(1, {"reward": 7.0})
    table.named["metrics.n"].put(1, 2.0)
    table.named["metrics.n"].put(2, 4.0)
    for row in (0, 0):
        table.named["metrics.n"].remove(row)
    assert table["reward"].tolist() == [0.0, 7.0, 2.0]
    assert [table.named["metrics.n"].at(row) for row in range(3)] == [None, 2.0, 4.0]
    assert (table.item(1, "reward"), table.row(1)) == (
        7.0,
        {"task": 0, "attempt": 1, "reward": 7.0, "answer": 0},
    )


def test_an_attempt_that_is_there_twice_is_named():
    """The first duplicate by task id and number."""
    table = table_of(("c", 1), ("a", 5), ("a", 2), ("c", 1), ("a", 5))
    for _ in range(2):
        with pytest.raises(RunFileError, match=r"task 'a' of environment 'env', attempt 5, is sco"):
            table.by_task()
    table.by_task(np.array([0, 1, 2]))


def test_nothing_has_no_tasks():
    assert table_of().by_task() == []
    assert table_of(("a", 0)).by_task(np.array([], np.intp)) == []


@given(st.lists(st.sampled_from([None, "A", "", "ü"]), max_size=9), st.integers(0, 9))
def test_texts_are_those_of_the_lines(texts, num_first):
    table = AttemptTable("env", {"answer": "i"})
    for some in (texts[:num_first], texts[num_first:]):
        ids, attempts = ["a"] * len(some), range(len(some))
        table.extend(ids, attempts, answer=table.text_numbers(some))
    assert [table.texts()[number] for number in table["answer"]] == texts
    assert len(table.texts()) == len({*texts, None})


def test_an_attempt_takes_at_most_120_bytes():
    """With a reward, two times, an answer, a field and three named numbers."""
    rewards, texts = [0.5] * 1_000, ["A"] * 1_000
    tracemalloc.start()
    try:
        columns = {"reward": "d", "total": "d", "model": "d", "answer": "i", "field": "i"}
        table = AttemptTable("env", columns)
        for _ in range(50):
            first = len(table)
            table.extend(
                ["task"] * 1_000,
                range(first, first + 1_000),
                **dict.fromkeys(["reward", "total", "model"], rewards),
                **dict.fromkeys(["answer", "field"], table.text_numbers(texts)),
            )
            table.extend_named("metrics", first, [{"a": 1.0, "b": 2.0, "c": 3.0}] * 1_000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / 50_000 <= 120
