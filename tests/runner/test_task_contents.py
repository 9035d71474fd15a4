"""What tasks were, held against those of another run."""

from gymcli.runner.made_lines import MadeLine
from gymcli.runner.task_contents import Different, TaskContents, different_tasks


def made(attempt=0, task_hash="00000000000000aa", prompt=b'"p"', seed=1):
    """Give a line of a task."""
    import msgspec

    return MadeLine(
        schema_version=1,
        task_id="any",
        attempt=attempt,
        reward=1.0,
        task_hash=task_hash,
        messages=[msgspec.Raw(prompt)],
        num_prompt_messages=1,
        seed=seed,
    )


def contents(*lines_by_task):
    """Give the contents of tasks, by the lines of each."""
    found = TaskContents()
    for task, lines in enumerate(lines_by_task):
        found.see([task] * len(lines), lines, task + 1)
    return found


def test_equal_tasks_do_not_differ():
    one = contents([made()], [made(seed=2**63)])
    assert different_tasks(one, contents([made()], [made(seed=2**63)])) == Different([], [], 0)


def test_content_goes_before_prompt_and_seed():
    a = contents([made()], [made()], [made()])
    b = contents(
        [made(task_hash="other", prompt=b'"q"')],
        [made(prompt=b'"q"')],
        [made(prompt=b'"q"', seed=2)],
    )
    assert different_tasks(a, b) == Different([0], [1], 1)
    assert different_tasks(b, a) == Different([0], [1], 1)


def test_the_lowest_attempt_counts_in_whatever_order_lines_come():
    a = contents([made(2, prompt=b'"late"'), made(0), made(1, prompt=b'"late"')])
    assert different_tasks(a, contents([made(0)])) == Different([], [], 0)


def test_another_attempt_has_another_seed():
    found = different_tasks(contents([made(0)]), contents([made(1, prompt=b'"q"')]))
    assert found == Different([], [], 1)


def test_what_is_not_known_does_not_differ():
    a = contents([made(task_hash="")], [made()])
    b = contents([made(task_hash="00000000000000bb")])
    assert different_tasks(a, b) == Different([], [], 0)
    assert different_tasks(b, a) == Different([], [], 0)


def test_a_task_that_only_one_run_has():
    a, b = TaskContents(), contents([made()], [made()])
    a.see([1], [made(task_hash="other")], 2)
    assert not a.is_there(0)
    assert different_tasks(a, b).contents == [1]
