"""Lines of several runs: as they are, each attempt once, and a duplicate named with both places."""

import os

import pytest

from gymcli.errors import RunDirectoryError, RunFileError, RunMismatchError
from gymcli.store.locking import RunLock
from gymcli.store.merged_runs import MergedLines


def write(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def line(task_id, attempt=0, more=b""):
    """Give a line with fields that nobody knows, and spaces that nobody needs."""
    return (
        b'{"new": [1.50], "env":"e", "task_id":"%s", "attempt":%d, "reward":1.0, '
        b'"error":{"class":"ServerError","phase":"model"}%s}' % (task_id, attempt, more)
    )


def test_lines_come_as_they_are(tmp_path):
    first = write(tmp_path / "a", "rollouts.jsonl", line(b"1"), line(b"1", 1))
    write(first, "generations.jsonl", line(b"1"), line(b"2"))
    write(first, "failures.jsonl", line(b"1"), line(b"3"), line(b"3"))
    second = write(tmp_path / "b", "rollouts.jsonl", line(b"4"))
    assert list(MergedLines([first, second]).read()) == [
        ("rollouts.jsonl", line(b"1")),
        ("rollouts.jsonl", line(b"1", 1)),
        ("generations.jsonl", line(b"1")),
        ("generations.jsonl", line(b"2")),
        ("failures.jsonl", line(b"1")),
        ("failures.jsonl", line(b"3")),
        ("failures.jsonl", line(b"3")),
        ("rollouts.jsonl", line(b"4")),
    ]


@pytest.mark.parametrize("there", ["rollouts.jsonl", "generations.jsonl", "failures.jsonl"])
@pytest.mark.parametrize("here", ["rollouts.jsonl", "generations.jsonl", "failures.jsonl"])
def test_an_attempt_of_two_runs_is_named_with_both_places(tmp_path, there, here):
    first = write(tmp_path / "a", there, line(b"1"), line(b"2", 3))
    second = write(tmp_path / "b", "rollouts.jsonl", line(b"5"))
    third = write(tmp_path / "c", here, line(b"6"), line(b"7"), line(b"2", 3))
    with pytest.raises(RunMismatchError) as refused:
        list(MergedLines([first, second, third]).read())
    assert str(refused.value) == (
        f"{third / here}:3: attempt 3 of task 2 (e) is on record in {first / there}:2 as well; "
        "merge runs of other attempts"
    )


def test_an_attempt_that_one_run_scored_twice_is_damage(tmp_path):
    first = write(tmp_path / "a", "rollouts.jsonl", line(b"1"))
    second = write(tmp_path / "b", "rollouts.jsonl", line(b"2"), line(b"3"), line(b"2"))
    place = f"{second}/rollouts.jsonl"
    with pytest.raises(RunFileError, match=f"^{place}:3: attempt 0 of task 2 .* {place}:1 as well"):
        list(MergedLines([first, second]).read())


def test_answers_of_judges_that_two_runs_have_come_once(tmp_path):
    verdicts = [b'{"key":"%d","message":{"role":"assistant"}}' % n for n in range(4)]
    first = write(tmp_path / "a", "verdicts.jsonl", verdicts[0], verdicts[1], verdicts[0])
    second = write(tmp_path / "b", "verdicts.jsonl", verdicts[1], verdicts[2])
    third = write(tmp_path / "c", "verdicts.jsonl", verdicts[2], verdicts[3])
    found = [data for _, data in MergedLines([first, second, third]).read()]
    assert found == [verdicts[n] for n in (0, 1, 0, 2, 3)]


def test_an_unfinished_last_line_is_left_out_and_told(tmp_path):
    run = write(tmp_path / "a", "rollouts.jsonl", line(b"1"))
    with (run / "rollouts.jsonl").open("ab") as file:
        file.write(line(b"2")[:-9])
    lines = MergedLines([run])
    assert [data for _, data in lines.read()] == [line(b"1")]
    assert [text.split(": ")[1] for text in lines.warnings] == [
        "the last line was not finished when its writer stopped; left out"
    ]


DAMAGED = (
    b"no JSON",
    line(b"2", -1),
    b'{"env":"e","attempt":1,"reward":1.0,"error":{"class":"ServerError","phase":"model"}}',
    line(b"2", more=b', "usage":7'),
    line(b"2").replace(b'"reward":1.0', b'"reward":"1"').replace(b'"error"', b'"other"'),
)


@pytest.mark.parametrize("damaged", DAMAGED)
@pytest.mark.parametrize("name", ["rollouts.jsonl", "failures.jsonl"])
def test_a_damaged_line_is_named(tmp_path, name, damaged):
    run = write(tmp_path / "a", name, line(b"1"), damaged, line(b"3"))
    with pytest.raises(RunFileError, match=rf"/a/{name}:2: is damaged: "):
        list(MergedLines([run]).read())


@pytest.mark.parametrize("kind", ["folder", "pipe", "lost link"])
def test_what_stands_in_the_place_of_a_file_is_not_passed_over(tmp_path, kind):
    run = write(tmp_path / "a", "failures.jsonl", line(b"1"))
    path = run / "rollouts.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("gone")
    with pytest.raises(RunFileError, match=r"rollouts\.jsonl: is no regular file"):
        list(MergedLines([run]).read())


def test_a_run_that_is_being_written_is_refused(tmp_path):
    run = write(tmp_path / "a", "rollouts.jsonl", line(b"1"))
    lock = RunLock(run)
    lock.take()
    with pytest.raises(RunDirectoryError, match="is being written by another process"):
        list(MergedLines([run]).read())
    lock.free()
    reading = MergedLines([run]).read()
    next(reading)
    with pytest.raises(RunDirectoryError, match="another process is writing this run"):
        lock.take()
    reading.close()
    lock.take()
    lock.free()
    assert {path.name for path in run.iterdir()} == {"rollouts.jsonl"}
