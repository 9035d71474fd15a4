"""What was in flight when the process of a run died."""

import msgspec

from gymcli.store.rollout_files import DoneTasks
from gymcli.store.run_directory import BegunFile, Suspects
from gymcli.types import AttemptKey, ErrorRecord, Failure


def key(number: int, attempt: int = 0) -> AttemptKey:
    return AttemptKey("e", f"t{number}", attempt)


def fail(folder, number: int) -> None:
    """Append a failure."""
    failure = Failure(
        env="e",
        task_id=f"t{number}",
        attempt=0,
        error=ErrorRecord(error_class="ModelError", phase="model", message=""),
    )
    with (folder / "failures.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(failure) + b"\n")


def begin(folder, *keys: AttemptKey, suspects=(), alone=()) -> None:
    """Begin attempts, some of them one at a time, in a process that dies then."""
    file = BegunFile(folder)
    file.open(suspects)
    for one in keys:
        file.add(one)
    if alone:
        file.begin_alone()
    for one in alone:
        file.add(one)


def found(folder) -> Suspects:
    return BegunFile(folder).suspects(DoneTasks())


def test_without_a_file_nothing_is_suspected(tmp_path):
    assert found(tmp_path) == Suspects()


def test_what_began_and_has_no_outcome_is_suspected(tmp_path):
    fail(tmp_path, 2)  # before: it is tried again
    begin(tmp_path, key(1), key(2), key(3))
    fail(tmp_path, 3)
    assert found(tmp_path) == Suspects(frozenset({key(1), key(2)}))


def test_suspects_of_earlier_deaths_stay(tmp_path):
    begin(tmp_path, key(1), suspects={key(8), key(9)})
    fail(tmp_path, 9)
    assert found(tmp_path) == Suspects(frozenset({key(1), key(8)}))


def test_a_suspect_that_was_alone_is_proved(tmp_path):
    begin(tmp_path, suspects={key(1), key(2)}, alone=[key(1)])
    assert found(tmp_path) == Suspects(frozenset({key(2)}), key(1))


def test_one_that_was_alone_by_chance_is_only_suspected(tmp_path):
    begin(tmp_path, key(1), suspects={key(2)})
    assert found(tmp_path) == Suspects(frozenset({key(1), key(2)}))


def test_of_a_group_only_the_last_one_was_in_flight(tmp_path):
    """The others wait for it; one that was no suspect becomes one."""
    begin(tmp_path, suspects={key(1, 1)}, alone=[key(1, 0), key(1, 1)])
    assert found(tmp_path) == Suspects(frozenset(), key(1, 1))
    begin(tmp_path, suspects={key(1, 0)}, alone=[key(1, 0), key(1, 1)])
    assert found(tmp_path) == Suspects(frozenset({key(1, 0), key(1, 1)}))


def test_a_torn_last_line_is_left_out(tmp_path):
    begin(tmp_path, key(1))
    with (tmp_path / "begun").open("ab") as file:
        file.write(b'{"key":{"env":"e","ta')
    assert found(tmp_path) == Suspects(frozenset({key(1)}))


def test_a_clean_end_removes_it(tmp_path):
    file = BegunFile(tmp_path)
    file.open(())
    (tmp_path / "blocked.stack").touch()
    file.remove()
    assert not list(tmp_path.iterdir())
