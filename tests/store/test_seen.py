"""Tasks that were read before, told apart by id and content."""

from gymcli.store.seen import SeenTasks
from gymcli.types import TaskRow


def row_of(task_id, content=1, *, env="quiz"):
    return TaskRow(id=task_id, env=env, hash=f"{content:016x}", messages=[])


def test_copies_count_on_and_other_rows_are_told_where_the_first_stood():
    seen = SeenTasks()
    rows = [row_of("a"), row_of("b", 2**64 - 1), row_of("a"), row_of("a", env="other"), row_of("a")]
    assert [seen.add(row, "t.jsonl", line) for line, row in enumerate(rows, 1)] == [None] * 5
    assert [row.first_attempt for row in rows] == [0, 0, 1, 0, 2]
    assert seen.add(row_of("a", 2), "t.jsonl", 6) == "t.jsonl:1"
    assert seen.add(row_of("b", 2), "t.jsonl", 7) == "t.jsonl:2"


def test_the_first_place_is_named_with_its_own_file():
    """Also where a file has a colon in its name, begins with a copy, or is read in turns."""
    seen = SeenTasks()
    places = [("x:1", 3), ("x:1", 4), ("y", 1), ("z", 1), ("z", 2), ("y", 9)]
    names = ["a", "b", "a", "c", "d", "e"]
    for name, (source, line) in zip(names, places, strict=True):
        assert seen.add(row_of(name), source, line) is None
    found = {name: seen.add(row_of(name, 2), "w", 1) for name in "abcde"}
    assert found == {"a": "x:1:3", "b": "x:1:4", "c": "z:1", "d": "z:2", "e": "y:9"}
