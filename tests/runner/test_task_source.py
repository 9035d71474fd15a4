"""Which rows of files are selected, and in what order they come."""

from gymcli.environment.registry import Registry
from gymcli.runner.options import CollectOptions
from gymcli.runner.task_source import TaskSource
from tests.commands.running import write_sums


def source_of(paths, **options) -> TaskSource:
    """Give a source whose files were read once."""
    source = TaskSource(paths, CollectOptions(model="oracle", **options), Registry())
    list(source.read())
    return source


def selected(paths, **options) -> list[str]:
    return [row.id for row in source_of(paths, **options).selected()]


def test_selected_shuffles_the_same_for_one_seed(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 20)
    in_order = selected([tasks])
    first = selected([tasks], shuffle=True, seed=1)
    assert first == selected([tasks], shuffle=True, seed=1)
    assert first != in_order
    assert sorted(first) == sorted(in_order)
    assert selected([tasks], shuffle=True, seed=2) != first


def test_selected_takes_the_first_rows_of_each_file(tmp_path):
    first = write_sums(tmp_path / "a.jsonl", 2)
    second = tmp_path / "b.jsonl"
    second.write_text(write_sums(second, 3).read_text().replace("sum", "more"))
    assert selected([first, second], limit=2) == ["sum-0", "sum-1", "more-0", "more-1"]
    assert selected([first, second], limit=3)[2:] == ["more-0", "more-1", "more-2"]
    assert len(selected([first, second], limit=1, shuffle=True)) == 2


def test_rows_that_were_added_after_the_first_reading_are_read_and_checked(tmp_path):
    """As where a run is left waiting: what is wrong is left out, what is a copy counts on."""
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    source = source_of([tasks])
    lines = tasks.read_text().splitlines()
    tasks.write_text("\n".join([*lines, lines[0], "{", lines[1].replace("sum-1", "sum-9")]))
    rows = [(row.id, row.first_attempt) for row in source.selected()]
    assert rows == [("sum-0", 0), ("sum-1", 0), ("sum-2", 0), ("sum-0", 1), ("sum-9", 0)]
