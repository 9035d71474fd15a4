"""Scored attempts put together by task: each once, in order, whatever order they came in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.metrics.attempts import ScoredAttempts

keys = st.lists(st.tuples(st.sampled_from(["a", "bé", "c", "d"]), st.integers(0, 300)), unique=True)
REWARD_OF = {"a": 0.0, "bé": 1.0, "c": 2.0, "d": 3.0}


def scored(pairs):
    attempts = ScoredAttempts("env")
    add(attempts, pairs)
    return attempts


def add(attempts, pairs):
    task_ids, numbers = [task for task, _ in pairs], [number for _, number in pairs]
    attempts.extend(task_ids, numbers, [REWARD_OF[task] + number for task, number in pairs])


def by_task(attempts, apart=()):
    """Give the rewards of each task."""
    found = {}
    for stretch in attempts.stretches(apart):
        lines = stretch.lines[:: stretch.num_attempts]
        assert len(lines) == stretch.num_tasks
        for line, rewards in zip(lines, attempts.rewards_by_task(stretch), strict=True):
            found[attempts.task_id(line)] = rewards
    return found


def expected(pairs):
    tasks = {task for task, _ in pairs}
    return {
        task: tuple(sorted(REWARD_OF[own] + number for own, number in pairs if own == task))
        for task in tasks
    }


@given(keys, st.sets(st.sampled_from(["a", "c", "none"])))
def test_attempts_come_task_by_task_and_in_order(pairs, apart):
    attempts = scored(pairs)

    assert by_task(attempts, apart) == expected(pairs)
    alone = {
        attempts.task_id(stretch.lines[0])
        for stretch in attempts.stretches(apart)
        if stretch.is_apart
    }
    assert alone == apart & {task for task, _ in pairs}
    assert all(s.num_tasks == 1 for s in attempts.stretches(apart) if s.is_apart)


@given(keys, st.integers(0, 9))
def test_attempts_may_be_added_after_they_were_put_together(pairs, num_first):
    attempts = scored(pairs[:num_first])
    by_task(attempts)
    add(attempts, pairs[num_first:])

    assert by_task(attempts) == expected(pairs)


def test_very_many_attempts_come_task_by_task():
    """More than are put together at a time."""
    pairs = [(f"t{number % 1999}", number // 1999) for number in reversed(range(6000))]
    attempts = ScoredAttempts("env")
    attempts.extend(*zip(*pairs, strict=True), [float(number) for _, number in pairs])

    found = by_task(attempts, {"t1998"})

    assert found == {f"t{n}": (0.0, 1.0, 2.0, 3.0)[: 4 if n < 3 else 3] for n in range(1999)}


@given(keys)
def test_with_rewards_leaves_the_attempts_as_they_are(pairs):
    attempts = scored(pairs)
    other = attempts.with_rewards(attempts.rewards[:])

    assert by_task(other) == by_task(attempts) == expected(pairs)


def test_an_attempt_that_is_there_twice_is_named():
    attempts = scored([("c", 1), ("a", 5), ("a", 2), ("c", 1), ("a", 5)])

    for _ in range(2):
        with pytest.raises(RunFileError, match=r"task 'a' of environment 'env', attempt 5, is sco"):
            attempts.stretches()


@given(st.lists(st.sampled_from([None, "A", "B"]), max_size=6))
def test_answers_are_those_of_the_attempts(answers):
    pairs = [("a", number) for number in range(len(answers))]
    attempts = scored(pairs)
    attempts.answers.add_all(0, answers)

    found = [numbers for one in attempts.stretches() for numbers in attempts.answers_by_task(one)]

    texts = [attempts.answers.text(number) for numbers in found for number in numbers]
    assert texts == (answers if any(answers) else [])
