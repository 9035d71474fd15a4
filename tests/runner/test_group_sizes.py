"""Attempts that are scored together, counted by task."""

from gymcli.runner.group_sizes import GroupSizes


def test_sizes_add_up_by_task_where_attempts_are_scored_together():
    sizes = GroupSizes()
    sizes.watch("relative")
    for env, task_id in (("relative", "a"), ("quiz", "a"), ("relative", "b"), ("relative", "a")):
        sizes.add(env, task_id, 4)
    assert sizes.of("relative", "a") == 8
    assert sizes.of("relative", "b") == 4
    assert sizes.of("relative", "gone") == 0
    assert sizes.of("quiz", "a") == 0


def test_sizes_are_counted_anew_in_the_same_environments():
    sizes = GroupSizes()
    sizes.watch("relative")
    sizes.add("relative", "a", 4)
    sizes.clear()
    assert sizes.of("relative", "a") == 0
    sizes.add("relative", "a", 2)
    assert sizes.of("relative", "a") == 2
