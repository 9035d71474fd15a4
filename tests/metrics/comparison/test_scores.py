"""Attempts of two runs, put together by task."""

from gymcli.metrics.comparison import EnvironmentScores


def scores_of(a, b, num_fields=0):
    """Fill in lines of `(task, attempt, value)`, those of A first."""
    found = EnvironmentScores("e", num_fields)
    for side, lines in ((found.a, a), (found.b, b)):
        numbers = [found.tasks.number_of(task.encode()) for task, _, _ in lines]
        side.extend(numbers, [line[1] for line in lines], [line[2] for line in lines])
    return found


def test_attempts_come_in_order_whatever_the_order_of_lines():
    found = scores_of(
        [("x", 2, 0.3), ("y", 0, 1.0), ("x", 0, 0.1), ("x", 300, 0.4), ("x", 1, 0.2)],
        [("x", 0, 0.5)],
    )
    x, y = found.paired()
    assert (x.env, x.task_id, x.values_a, x.values_b) == ("e", "x", [0.1, 0.2, 0.3, 0.4], [0.5])
    assert (y.task_id, y.values_a, y.is_in_a, y.is_in_b) == ("y", [1.0], True, False)
    assert (len(found.a), len(found.b)) == (5, 1)


def test_a_task_may_be_in_the_second_run_only():
    x, y = scores_of([("x", 0, 1.0)], [("y", 0, 0.0)]).paired()
    assert (x.is_in_b, y.is_in_a, y.values_b) == (False, False, [0.0])


def test_an_attempt_without_the_number_is_there_all_the_same():
    (x,) = scores_of([("x", 0, None), ("x", 1, 2.0)], [("x", 0, None)]).paired()
    assert (x.values_a, x.values_b) == ([2.0], [])
    assert x.is_in_a
    assert x.is_in_b


def test_slices_are_those_of_the_tasks_in_order():
    found = scores_of([("x", 0, 1.0), ("ä", 0, 0.0)], [("ä", 0, 1.0)], 2)
    found.add_slices(["hard", "é"])
    found.add_slices(["easy", "é"])
    assert [task.slices for task in found.paired()] == [["hard", "é"], ["easy", "é"]]
