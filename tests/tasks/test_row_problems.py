"""Tests of the problems that rows have for their environments, and of how many are listed."""

import pytest

from gymcli.environment.registry import Registry
from gymcli.errors import TasksError
from gymcli.tasks.task_files import RowProblem
from gymcli.tasks.task_source import Problems, row_problems
from gymcli.types import TaskRow

STEPS = {
    "expected_synonyms": [],
    "expected_synonym_values": [],
    "minefield_label": "x",
    "minefield_label_value": 1,
}


def problems_of(env, **row) -> list[str]:
    found = Registry().find(env)
    task = TaskRow(id="a", env=env, hash="0", messages=[], **row)
    return row_problems(task, found, found.environment.Options())


def test_row_problems_lets_rows_bring_tools_that_are_never_run():
    """Only tools that the environment runs must be its own; others are passed through."""
    assert problems_of("example_multi_step", fields=STEPS, tools=[{"type": "web_search"}]) == []


def test_row_problems_names_fields_and_the_tools_that_there_are():
    tools = [{"type": "function", "function": {"name": "verify"}}]
    missing, wrong = problems_of("example_session_state_mgmt", tools=tools)
    assert missing == (
        '"expected_count" is missing (environment example_session_state_mgmt needs it)'
    )
    assert wrong == (
        'tool "verify" is not one of environment example_session_state_mgmt '
        "(it has: increment_counter, get_counter_value)"
    )


@pytest.mark.parametrize("num_wrong", [1, 10, 12])
def test_problems_list_the_first_ones_and_count_the_other_rows(num_wrong):
    """All problems of one row count as one."""
    problems = Problems()
    problems.check()
    for number in range(num_wrong):
        problems.add(RowProblem(f"t:{number}", f"first {number}"))
        problems.add(RowProblem(f"t:{number}", f"second {number}"))
    with pytest.raises(TasksError) as caught:
        problems.check()
    lines = str(caught.value).splitlines()
    assert lines[:2] == ["t:0: first 0", "t:0: second 0"]
    assert len(lines) == 2 * min(num_wrong, 10) + (num_wrong > 10)
    last = num_wrong - 1
    expected = "and 2 more rows are wrong" if num_wrong > 10 else f"t:{last}: second {last}"
    assert lines[-1] == expected
    assert problems.num_rows == num_wrong


def test_problems_list_what_many_rows_of_a_file_share_once():
    problems = Problems(max_listed=3)
    for number in (1, 2, 2, 7):
        problems.add(RowProblem(f"a:{number}", "short"))
    for number in range(1, 9):
        problems.add(RowProblem(f"b:{number}", "short"))
        problems.add(RowProblem(f"b:{number}", "long" if number == 4 else "odd"))
    problems.add(RowProblem("c:1", "short"))
    assert problems.lines() == [
        "a:1: short (2 more rows: 2, 7)",
        "b:1: short (7 more rows: 2, 3, 4, 5, 6, ...)",
        "b:1: odd (6 more rows: 2, 3, 5, 6, 7, ...)",
        "and 1 more row is wrong",
    ]
    assert problems.num_rows == 12
