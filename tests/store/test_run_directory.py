"""The run directory: one writer, whole lines, finished attempts, and new runs that appear whole."""

import errno
import os
import queue
import shutil
import subprocess
import sys
import time
import tracemalloc

import msgspec
import pytest

from gymcli.errors import (
    EpisodeError,
    RunDirectoryError,
    RunFileError,
    RunMismatchError,
    UsageError,
)
from gymcli.secrets import NOTHING_SECRET
from gymcli.store.manifest import Manifest
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    ROLLOUTS,
    VERDICTS,
    Done,
    DoneTasks,
    read_structs,
)
from gymcli.store.run_directory import (
    UNFINISHED,
    BegunFile,
    RunDirectory,
    Suspects,
    check_unused,
    new_run_directory,
)
from gymcli.types import AttemptKey, ErrorRecord, Failure, Message, Rollout


def rollout(task_id="t", attempt=0, **fields):
    return Rollout(
        schema_version=1, env="quiz", task_id=task_id, attempt=attempt, task_hash="h", **fields
    )


def run_with(tmp_path, *rollouts):
    directory = RunDirectory(tmp_path)
    for item in rollouts:
        directory.append_rollout(item)
    directory.close()
    return directory


def test_lock_makes_the_directory_and_close_gives_it_back(tmp_path):
    path = tmp_path / "runs" / "one"
    first, second = RunDirectory(path), RunDirectory(path)
    first.lock()
    with pytest.raises(RunDirectoryError, match="another process is writing this run"):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_lock_is_held_against_other_processes_and_freed_by_their_death(tmp_path):
    command = f"""
import sys
from pathlib import Path
from gymcli.store.run_directory import RunDirectory
RunDirectory(Path({str(tmp_path)!r})).lock()
print("locked", flush=True)
sys.stdin.read()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(RunDirectoryError, match="another process is writing this run"):
            RunDirectory(tmp_path).lock()
        other.kill()
    directory = RunDirectory(tmp_path)
    directory.lock()
    directory.close()


def test_lock_says_that_a_directory_cannot_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunDirectoryError, match=r"cannot be created: .*; use another --out"):
            RunDirectory(path).lock()


def test_check_identity_takes_a_new_directory_and_the_same_run(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.check_identity({"model": "m"})
    directory.write_manifest(Manifest(identity={"model": "m", "stop": ["a"]}))
    directory.check_identity({"model": "m", "stop": ("a",)})


def test_check_identity_names_what_differs(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write_manifest(Manifest(identity={"model": "m", "seed": 1}))
    with pytest.raises(RunMismatchError) as caught:
        directory.check_identity({"model": "n", "seed": None})
    assert str(caught.value) == (
        f'{tmp_path}: this run was made with other settings: model "m" there, "n" here; '
        "seed 1 there, unset here. Use another --out, or --fresh for a new run"
    )


def test_check_identity_refuses_a_directory_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_bytes(b"")
    with pytest.raises(UsageError, match="is not empty and holds no run; use another --out"):
        RunDirectory(tmp_path).check_identity({})


def test_check_identity_takes_a_directory_whose_first_manifest_was_not_finished(tmp_path):
    (tmp_path / ".run.json.tmp").write_bytes(b'{"ident')
    (tmp_path / ".run.json.123.tmp").write_bytes(b"")
    (tmp_path / ".lock").write_bytes(b"123 nowhere\n")
    directory = RunDirectory(tmp_path)
    directory.lock()
    directory.check_identity({})
    directory.write_manifest(Manifest())
    directory.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    "torn",
    [
        b'{"schema_version":1,"task_id":"b',
        b"{",
        b'{"task_id":"\xc3',
        b"\0" * 100,
        b"[" * 100_000,
        b'{"a":"' + b"x" * 200_000,
    ],
)
@pytest.mark.parametrize("name", [ROLLOUTS, FAILURES, GENERATIONS])
def test_mend_cuts_off_a_torn_last_line_and_warns(tmp_path, torn, name):
    whole = msgspec.json.encode(rollout("a")) + b"\n"
    (tmp_path / name).write_bytes(whole + torn)
    directory = RunDirectory(tmp_path)
    directory.mend()
    assert directory.warnings == [
        f"{tmp_path / name}: the last line was not finished when its writer stopped; cut off"
    ]
    assert (tmp_path / name).read_bytes() == whole


def test_mend_of_a_file_that_is_one_torn_line_empties_it(tmp_path):
    (tmp_path / ROLLOUTS).write_bytes(b'{"task')
    directory = RunDirectory(tmp_path)
    directory.mend()
    assert (tmp_path / ROLLOUTS).read_bytes() == b""
    assert directory.done() == {}


def test_mend_ends_a_whole_last_line_that_lacks_its_newline(tmp_path):
    line = msgspec.json.encode(rollout("a"))
    (tmp_path / ROLLOUTS).write_bytes(line + b"\n" + line)
    directory = RunDirectory(tmp_path)
    directory.mend()
    assert directory.warnings == []
    assert (tmp_path / ROLLOUTS).read_bytes() == (line + b"\n") * 2


@pytest.mark.parametrize("data", [b"", b"{}\n", b"{\n"])
def test_mend_leaves_files_that_end_in_a_newline(tmp_path, data):
    (tmp_path / ROLLOUTS).write_bytes(data)
    directory = RunDirectory(tmp_path)
    directory.mend()
    assert directory.warnings == []
    assert (tmp_path / ROLLOUTS).read_bytes() == data


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems allow writing to running programs"
)
def test_mend_says_that_a_file_cannot_be_written(tmp_path):
    """A running program cannot be opened for writing, not even by root."""
    program = shutil.copy(shutil.which("cat"), tmp_path / ROLLOUTS)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as running:
        with pytest.raises(RunDirectoryError, match=r"rollouts\.jsonl: cannot be written: Text"):
            RunDirectory(tmp_path).mend()
        running.kill()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_mend_refuses_what_is_no_regular_file(tmp_path, kind):
    """This must fail before an attempt is paid for that could not be recorded."""
    if kind == "link":
        (tmp_path / FAILURES).symlink_to(tmp_path / "gone")
    else:
        os.mkfifo(tmp_path / FAILURES)
    with pytest.raises(
        RunDirectoryError, match=r"failures\.jsonl is not a regular file .a link, a pipe or a"
    ):
        RunDirectory(tmp_path).mend()


def test_done_knows_every_scored_attempt(tmp_path):
    directory = run_with(tmp_path, rollout("a", 0), rollout("b", 1), rollout("a", 70))
    done = directory.done()
    assert done == {("quiz", "a"): Done("h", 1 | 1 << 70), ("quiz", "b"): Done("h", 2)}
    assert [done["quiz", "a"].has(attempt) for attempt in (0, 1, 70, 71)] == [
        True,
        False,
        True,
        False,
    ]


def test_done_without_rollouts_is_empty(tmp_path):
    assert RunDirectory(tmp_path).done() == {}
    assert RunDirectory(tmp_path).pending({}) == {}


def test_done_names_an_attempt_that_is_there_twice(tmp_path):
    directory = run_with(tmp_path, rollout("a"), rollout("b"), rollout("a"))
    with pytest.raises(
        RunFileError, match=r"rollouts\.jsonl:3: attempt 0 of task a \(quiz\) appears twice"
    ):
        directory.done()


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"task_id": 3}',
        b'{"attempt": -1}',
        b'{"attempt": 99999999999}',
    ],
)
def test_done_names_a_line_that_is_damaged(tmp_path, line):
    whole = msgspec.json.encode(rollout("a"))
    (tmp_path / ROLLOUTS).write_bytes(whole + b"\n\n" + line + b"\n" + whole)
    with pytest.raises(RunFileError, match=r"rollouts\.jsonl:3: is damaged: "):
        RunDirectory(tmp_path).done()


def test_pending_are_the_conversations_that_no_score_supersedes(tmp_path):
    directory = run_with(tmp_path, rollout("a", 0))
    for item in (rollout("a", 0), rollout("a", 1), rollout("b", 0), rollout("b", 0, model="last")):
        directory.append_generation(item)
    directory.close()
    waiting = directory.pending(directory.done())
    assert list(waiting) == [AttemptKey("quiz", "a", 1), AttemptKey("quiz", "b", 0)]
    last = directory.conversation(waiting[AttemptKey("quiz", "b", 0)])
    assert (last.key, last.model) == (AttemptKey("quiz", "b", 0), "last")
    assert directory.conversation(waiting[AttemptKey("quiz", "a", 1)]).key.attempt == 1
    (tmp_path / GENERATIONS).write_bytes(b"")
    with pytest.raises(RunFileError, match="was changed during the run"):
        directory.conversation(waiting[AttemptKey("quiz", "a", 1)])
    directory.close()


def test_waiting_conversations_are_not_held_in_memory(tmp_path):
    """Their texts may be gigabytes."""
    directory = run_with(tmp_path)
    said = [Message(role="assistant", content="x" * 100_000)]
    for number in range(50):
        directory.append_generation(rollout("a", number, messages=said))
    directory.close()
    tracemalloc.start()
    try:
        waiting = directory.pending({})
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(waiting) == 50
    assert num_bytes < 500_000


def test_read_structs_leaves_a_torn_last_line_out(tmp_path):
    directory = RunDirectory(tmp_path)
    error = ErrorRecord(error_class="ServerError", phase="model")
    failure = Failure(env="quiz", task_id="a", error=error)
    directory.append_failure(failure)
    directory.close()
    path = tmp_path / FAILURES
    path.write_bytes(path.read_bytes() * 2 + b'{"task')
    assert list(read_structs(path, msgspec.json.Decoder(Failure))) == [failure] * 2


def test_appended_lines_are_the_records(tmp_path):
    directory = run_with(tmp_path, rollout("a", reward=1.0))
    directory.append_rollout(b'{"task_id":"b"}')
    directory.close()
    lines = list(read_structs(tmp_path / ROLLOUTS, msgspec.json.Decoder(Rollout)))
    assert lines == [rollout("a", reward=1.0), Rollout(task_id="b")]


def test_write_metrics_writes_readable_json(tmp_path):
    RunDirectory(tmp_path).write_metrics(b'{"mean_reward":0.5}')
    assert (tmp_path / "metrics.json").read_text() == '{\n  "mean_reward": 0.5\n}\n'


def test_write_manifest_says_that_it_cannot_be_written(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"run\.json: cannot be written: No such file"):
        RunDirectory(tmp_path / "gone").write_manifest(Manifest())


@pytest.fixture
def unsyncable(tmp_path, monkeypatch):
    """Return a run on a disk that accepts scores and cannot be synced."""

    def fail(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "fdatasync", fail, raising=False)
    directory = RunDirectory(tmp_path)
    directory.lock()
    directory.append_rollout(rollout("a"))
    yield directory
    directory.close()


def test_write_manifest_waits_until_the_lines_are_on_the_disk(unsyncable):
    with pytest.raises(RunDirectoryError, match=r"rollouts\.jsonl: cannot be written: "):
        unsyncable.write_manifest(Manifest(ended_at=1.0))
    assert not (unsyncable.path / "run.json").exists()


def test_append_says_soon_that_earlier_lines_are_not_on_the_disk(unsyncable):
    """A thread syncs about once a second."""

    def append_until_it_fails():
        for _ in range(3_000):
            unsyncable.append_rollout(rollout("b"))
            time.sleep(0.01)

    with pytest.raises(RunDirectoryError, match=r"rollouts\.jsonl: cannot be written: "):
        append_until_it_fails()


def test_lock_tells_soon_that_nothing_more_can_be_written(tmp_path):
    """Also if no file is open yet and nothing is written."""
    failures = queue.SimpleQueue()
    directory = RunDirectory(tmp_path / "run")
    directory.lock(failures.put)
    shutil.rmtree(tmp_path / "run")
    assert "run: was deleted while it was being written" in str(failures.get(timeout=60))
    with pytest.raises(RunDirectoryError, match="run: was deleted while it was being written"):
        directory.append_failure(Failure(env="quiz", task_id="a", error=None))
    directory.close()
    assert failures.empty()


def test_close_says_once_that_the_directory_is_gone(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.lock()
    for append in (directory.append_rollout, directory.append_generation):
        append(rollout("a"))
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="run: was deleted while it was being written"):
        directory.sync()
    directory.close()


def test_long_records_are_refused_left_out_or_shortened(tmp_path):
    """A line that is too long could not be read again."""
    directory = RunDirectory(tmp_path)
    long = [Message(role="assistant", content="x" * (1 << 27))]
    with pytest.raises(EpisodeError, match="the record is longer than the limit of 128 MB"):
        directory.append_rollout(rollout(messages=long))
    directory.append_generation(rollout(messages=long))
    error = ErrorRecord(error_class="ServerError", phase="model")
    directory.append_failure(Failure(env="quiz", task_id="a", error=error, messages=long))
    directory.close()
    assert [path.name for path in tmp_path.iterdir()] == [FAILURES]
    (failure,) = read_structs(tmp_path / FAILURES, msgspec.json.Decoder(Failure))
    assert (failure.task_id, failure.messages) == ("a", [])


def test_a_failure_with_a_long_text_is_written_without_it(tmp_path):
    """The text would make the whole file unreadable, for all later commands."""
    directory = RunDirectory(tmp_path)
    error = ErrorRecord(error_class="E" * 2000, phase="setup", message="x" * (1 << 27))
    written = directory.append_failure(Failure(env="quiz", task_id="a", error=error))
    directory.append_failure(Failure(env="quiz", task_id="b", error=written.error))
    directory.close()
    first, second = read_structs(tmp_path / FAILURES, msgspec.json.Decoder(Failure))
    assert (first, second.task_id) == (written, "b")
    assert first.error.message == "the text of the error is longer than the limit of 128 MB"
    assert first.error.error_class == "E" * 1000


LINE = b'{"schema_version":1}'


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def write(path, *, then=None, keeps_unfinished=True):
    check_unused(path)
    with new_run_directory(path, NOTHING_SECRET, keeps_unfinished=keeps_unfinished) as directory:
        directory.append_rollout(LINE)
        if then is not None:
            then(directory)
        directory.write_manifest(Manifest())


def stop(_):
    raise KeyboardInterrupt


def test_whole_run_shows_nothing_before_its_end(tmp_path):
    run = tmp_path / "runs" / "new"
    seen = []
    write(run, then=lambda _: seen.append(names(run)))
    assert seen == [[".lock", UNFINISHED]]
    assert names(run) == [ROLLOUTS, "run.json"]
    assert (run / ROLLOUTS).read_bytes() == LINE + b"\n"


def test_whole_run_is_done_again_after_one_that_was_broken_off(tmp_path):
    """Verdicts are kept, since they were paid for; their torn end is cut off."""
    run = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt):
        write(run, then=stop)
    assert names(run) == [UNFINISHED]
    (run / UNFINISHED / VERDICTS).write_bytes(b'{"key":"k"}\n{"key')
    (run / UNFINISHED / FAILURES).write_bytes(LINE)
    (run / ".lock").write_bytes(b"7 elsewhere\n")
    write(run)
    assert names(run) == [ROLLOUTS, "run.json", VERDICTS]
    assert (run / ROLLOUTS).read_bytes() == LINE + b"\n"
    assert (run / VERDICTS).read_bytes() == b'{"key":"k"}\n'


def test_whole_run_that_is_not_kept_leaves_nothing_and_takes_nothing(tmp_path):
    run = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt):
        write(run, then=stop, keeps_unfinished=False)
    assert not run.exists()
    (run / UNFINISHED).mkdir(parents=True)
    (run / UNFINISHED / VERDICTS).write_bytes(b'{"key":"k"}\n')
    write(run, keeps_unfinished=False)
    assert names(run) == [ROLLOUTS, "run.json"]


def test_whole_run_replaces_one_that_died_while_it_appeared(tmp_path):
    run = tmp_path / "new"
    (run / UNFINISHED).mkdir(parents=True)
    (run / FAILURES).write_bytes(LINE)
    write(run)
    assert names(run) == [ROLLOUTS, "run.json"]


@pytest.mark.parametrize("keeps_unfinished", [True, False])
def test_whole_run_is_written_by_one_process(tmp_path, keeps_unfinished):
    """A second writer is refused and changes nothing."""

    def again(_):
        with pytest.raises(RunDirectoryError, match="another process is writing this run"):
            write(tmp_path / "new", keeps_unfinished=keeps_unfinished)

    write(tmp_path / "new", then=again)
    assert names(tmp_path / "new") == [ROLLOUTS, "run.json"]


def test_whole_run_whose_lines_are_lost_is_not_shown(tmp_path):
    run = tmp_path / "new"
    with pytest.raises(RunDirectoryError, match=r"rollouts\.jsonl: was truncated"):
        write(run, then=lambda directory: os.truncate(directory.path / ROLLOUTS, 0))
    assert names(run) == [UNFINISHED]


@pytest.mark.parametrize("kind", ["file", "other files", "a run", "a link"])
def test_check_unused_refuses_a_used_path(tmp_path, kind):
    path = tmp_path / "new"
    if kind == "file":
        path.touch()
    else:
        path.mkdir()
        if kind == "other files":
            (path / "thesis.tex").touch()
        elif kind == "a run":
            (path / UNFINISHED).mkdir()
            (path / "run.json").touch()
        else:
            (tmp_path / "elsewhere").mkdir()
            (path / UNFINISHED).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="new: already exists; --out needs a new directory"):
        check_unused(path)


def test_check_unused_takes_what_is_not_there_and_what_is_empty(tmp_path):
    check_unused(tmp_path / "new")
    check_unused(tmp_path)


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
    """Begin attempts, those of `alone` one at a time, as a process that then dies."""
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
    fail(tmp_path, 2)  # an earlier failure: it is tried again
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


def test_only_the_last_member_of_a_group_was_in_flight(tmp_path):
    """The others wait for it; a member that was no suspect becomes one."""
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
