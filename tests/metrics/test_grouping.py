"""Lines in the order of their tasks, by counting."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.grouping import Values, line_order, starts_of

tasks_of_lines = st.lists(st.integers(0, 5), max_size=20)


@given(tasks_of_lines)
def test_line_order_is_a_stable_sort_by_task(tasks):
    task_of = array("I", tasks)
    starts = starts_of(task_of, 7)

    assert list(line_order(task_of, starts)) == sorted(range(len(tasks)), key=tasks.__getitem__)
    assert [starts[n + 1] - starts[n] for n in range(7)] == [tasks.count(n) for n in range(7)]


@given(tasks_of_lines)
def test_values_come_task_by_task_of_those_that_have_any(tasks):
    values = Values()
    for number in range(len(tasks)):
        values.add(number, float(number))

    expected = [
        [float(number) for number, task in enumerate(tasks) if task == one]
        for one in sorted(set(tasks))
    ]
    assert [list(group) for group in values.by_task(array("I", tasks), 6)] == expected


def test_values_of_line():
    values = Values()
    for line, value in ((1, 0.5), (4, 0.25)):
        values.add(line, value)
    assert [values.of_line(line) for line in range(6)] == [None, 0.5, None, None, 0.25, None]
