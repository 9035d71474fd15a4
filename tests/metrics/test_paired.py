"""The means of two rewards of the same attempts are those that `Aggregator` gives of either."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.metrics import PairedMeans, ScoredLine, aggregate

rewards = st.floats(-10.0, 10.0)
tasks = st.dictionaries(
    st.text(max_size=2),
    st.dictionaries(st.integers(0, 4), st.tuples(rewards, rewards), min_size=1),
    min_size=1,
)


def add(means, pieces, env="quiz"):
    """Add pieces: of each a task, and by attempt both rewards."""
    attempts = [(attempt, *both) for _, piece in pieces for attempt, both in piece]
    numbers, firsts, seconds = zip(*attempts, strict=True)
    means.add(
        env,
        [task_id for task_id, _ in pieces],
        num_attempts=[len(piece) for _, piece in pieces],
        attempts=numbers,
        rewards=firsts,
        others=seconds,
    )


def of_aggregator(found, which):
    lines = (
        ScoredLine(env="quiz", task_id=task_id, attempt=attempt, reward=both[which])
        for task_id, attempts in found.items()
        for attempt, both in attempts.items()
    )
    return aggregate(lines).mean_reward


@given(tasks, st.data())
def test_paired_means_are_those_of_the_aggregator(found, data):
    """However many of a task's attempts come at once."""
    means = PairedMeans()
    pieces = []
    for task_id, attempts in found.items():
        items = list(attempts.items())
        cut = data.draw(st.integers(1, len(items)))
        pieces += [(task_id, items[:cut])] + [(task_id, [item]) for item in items[cut:]]
    pieces = data.draw(st.permutations(pieces))
    cut = data.draw(st.integers(1, len(pieces)))
    add(means, pieces[:cut])
    for piece in pieces[cut:]:
        add(means, [piece])

    assert means.means() == (of_aggregator(found, 0), of_aggregator(found, 1))
    rows = {task.task_id: task for task in means.tasks("quiz")}
    assert rows.keys() == found.keys()
    for task_id, (_, *columns) in rows.items():
        in_order = [(attempt, *both) for attempt, both in sorted(found[task_id].items())]
        assert list(zip(*columns, strict=True)) == in_order


def test_paired_means_of_many_tasks():
    """More than are counted at a time."""
    found = {
        f"t{number}": {attempt: (float(number % 3), float(attempt)) for attempt in range(2)}
        for number in range(10_000)
    }
    means = PairedMeans()
    add(means, [(task_id, list(attempts.items())) for task_id, attempts in found.items()])

    assert means.means() == (of_aggregator(found, 0), of_aggregator(found, 1))


def test_paired_means_of_nothing_and_of_several_environments():
    means = PairedMeans()
    assert means.means() == (None, None)
    add(means, [("t", [(0, (1.0, 0.0))])])
    add(means, [("t", [(0, (1.0, 0.0))])], env="code")

    assert means.means() == (None, None)


@pytest.mark.parametrize(
    "pieces",
    [
        [("b", [0, 0]), ("a", [2, 1, 1, 2])],
        [("a", [1, 2]), ("b", [0]), ("a", [0, 2, 1]), ("b", [0])],
        [("a", [1, 1]), ("b", [0]), ("a", [0]), ("b", [0])],
    ],
    ids=["in one piece", "in several", "in either"],
)
def test_paired_means_refuse_an_attempt_that_is_there_twice(pieces):
    means = PairedMeans()
    add(means, [(task, [(number, (0.0, 1.0)) for number in numbers]) for task, numbers in pieces])

    with pytest.raises(RunFileError) as caught:
        means.means()
    assert str(caught.value) == (
        "task 'a' of environment 'quiz', attempt 1, is scored by two lines; keep one of them"
    )


@given(tasks, st.data())
def test_tasks_are_given_whole_and_in_order(found, data):
    """However many of a task's attempts come at once."""
    means = PairedMeans()
    pieces = []
    for task_id, attempts in found.items():
        items = sorted(attempts.items())
        cut = data.draw(st.integers(1, len(items)))
        pieces += [(task_id, items[:cut])] + [(task_id, [item]) for item in items[cut:]]
    for piece in data.draw(st.permutations(pieces)):
        add(means, [piece])
    given_tasks = list(means.tasks("quiz"))
    assert len(given_tasks) == len(found)
    for task in given_tasks:
        expected = sorted(found[task.task_id].items())
        rows = zip(task.attempts, zip(task.rewards, task.others, strict=True), strict=True)
        assert list(rows) == expected
    assert list(means.tasks("other")) == []
