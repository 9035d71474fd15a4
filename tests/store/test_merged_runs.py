"""Merging runs: what is refused, what is added up, and every attempt once."""

import os
from pathlib import Path

import msgspec
import pytest

from gymcli.errors import RunDirectoryError, RunFileError, RunMismatchError
from gymcli.store.locking import RunLock
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.store.merged_runs import (
    MergedLines,
    RunRecord,
    check_mergeable,
    merged_manifest,
    missing_shards,
    version_warnings,
)

ENVIRONMENT = EnvironmentRecord(
    version="1", source_hash="aa", max_reward=1.0, num_expected=3, num_expected_of_all_shards=8
)
MANIFEST = Manifest(
    gymcli_version="0.0.1",
    identity={"model": "m", "seed": 5, "environments": {"sums": {"version": "1", "options": {}}}},
    options={"seed": 5, "out": "a", "concurrency": 8},
    tasks=[{"path": "t.jsonl", "sha256": "t", "num_rows": 4}],
    environments={"sums": ENVIRONMENT},
    model="m",
    libraries={"python": "3.11", "msgspec": "1"},
    git_commit="c",
    num_expected=3,
    num_tasks=2,
    started_at=10.0,
    ended_at=20.0,
    seconds=4.0,
)


def run(name, **changes):
    """Return a run whose manifest differs in these fields."""
    return RunRecord(Path(name), msgspec.structs.replace(MANIFEST, **changes))


def environments(**changes):
    return {"sums": msgspec.structs.replace(ENVIRONMENT, **changes)}


def test_runs_that_fit_are_added_up():
    first = run("a", shard="1/2")
    second = run(
        "b",
        shard="2/2",
        options={"seed": 5, "out": "b", "concurrency": 8},
        tasks=[{"path": "elsewhere/t.jsonl", "sha256": "t", "num_rows": 4}],
        environments=environments(num_expected=5),
        libraries={"python": "3.12", "msgspec": "1"},
        started_at=5.0,
        ended_at=30.0,
        seconds=0.5,
    )
    check_mergeable([first, second])
    assert missing_shards([first, second]) == []
    merged = merged_manifest([first, second])
    assert merged.shard == ""
    assert merged.identity == MANIFEST.identity
    assert merged.options == {"seed": 5, "concurrency": 8}
    assert merged.tasks == MANIFEST.tasks
    assert merged.libraries == {"msgspec": "1"}
    assert (merged.num_expected, merged.num_tasks) == (8, 4)
    assert merged.environments == environments(num_expected=8, num_expected_of_all_shards=0)
    assert (merged.started_at, merged.ended_at, merged.seconds) == (5.0, 30.0, 4.5)


def test_attempts_of_a_missing_shard_are_expected():
    runs = [run("a", shard="2/4"), run("b", shard="4/4")]
    check_mergeable(runs)
    assert missing_shards(runs) == ["1/4", "3/4"]
    merged = merged_manifest(runs)
    assert merged.num_expected == 8
    assert merged.ended_at is None
    assert merged.missing_shards == ["1/4", "3/4"]


def test_an_incomplete_merge_is_not_merged_again():
    """It expects the attempts of all shards, and so does every other part."""
    part = run("part", missing_shards=["1/2"])
    message = "^part: was merged without shard 1/2 and still expects its attempts; merge all shards"
    for others in ([run("a", shard="1/2")], [run("b", missing_shards=["2/2"])]):
        with pytest.raises(RunMismatchError, match=message):
            check_mergeable([part, *others])
    check_mergeable([part])
    assert merged_manifest([part]).missing_shards == ["1/2"]


def test_a_run_without_an_end_leaves_all_without():
    assert merged_manifest([run("a"), run("b", ended_at=None)]).ended_at is None


def test_runs_of_different_tasks_and_environments_fit():
    other = {"other": EnvironmentRecord(version="2", source_hash="bb", num_expected=7)}
    identity = {**MANIFEST.identity, "environments": {"other": {"version": "2", "options": {}}}}
    tasks = [{"path": "u.jsonl", "sha256": "u", "num_rows": 7}]
    runs = [run("a"), run("b", identity=identity, environments=other, tasks=tasks)]
    check_mergeable(runs)
    merged = merged_manifest(runs)
    assert list(merged.environments) == ["other", "sums"]
    assert list(merged.identity["environments"]) == ["sums", "other"]
    assert merged.num_expected == 10
    assert [file["sha256"] for file in merged.tasks] == ["t", "u"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"identity": {**MANIFEST.identity, "seed": 6}}, "seed 5 there, 6 here"),
        ({"identity": {**MANIFEST.identity, "model": "n"}}, 'model "m" there, "n" here'),
        ({"environments": environments(version="2")}, 'environments.sums.version "1" there'),
        ({"environments": environments(options={"a": 1})}, "environments.sums.options.a unset"),
        ({"environments": environments(max_reward=2.0)}, "environments.sums.max_reward 1.0 there"),
        ({"schema_version": 2}, "schema_version 1 there, 2 here"),
    ],
)
def test_other_settings_are_named_with_the_runs(changes, named):
    with pytest.raises(RunMismatchError, match=f"^b: was made with other settings than a: {named}"):
        check_mergeable([run("a"), run("b", **changes)])


def test_a_shard_that_is_there_twice_is_refused():
    with pytest.raises(RunMismatchError, match=r"^b: is shard 1/2, and so is a; leave out one"):
        check_mergeable([run("a", shard="1/2"), run("b", shard="1/2")])


def test_shards_of_other_selections_are_refused():
    second = run("b", shard="2/2", environments=environments(num_expected_of_all_shards=16))
    message = "^b: selects other attempts than a: sums 8 there, 16 here"
    with pytest.raises(RunMismatchError, match=message):
        check_mergeable([run("a", shard="1/2"), second])


@pytest.mark.parametrize(
    "changes", [{"shard": "2/3"}, {"shard": "2/2", "tasks": [{"path": "u", "sha256": "u"}]}]
)
def test_shards_that_do_not_belong_together_are_refused(changes):
    with pytest.raises(RunMismatchError, match=r"^a: is shard 1/2, and b is shard 2/"):
        check_mergeable([run("a", shard="1/2"), run("b", **changes)])


def test_whole_sets_of_shards_of_different_tasks_fit():
    other = [{"path": "u", "sha256": "u"}]
    runs = [
        run(f"{name}{number}", shard=f"{number}/2", tasks=tasks)
        for name, tasks in (("t", MANIFEST.tasks), ("u", other))
        for number in (1, 2)
    ]
    check_mergeable(runs)
    assert merged_manifest(runs).num_expected == 16


def test_versions_that_differ_are_told_and_left_out():
    second = run("b", gymcli_version="0.0.2", environments=environments(source_hash="bb"))
    assert version_warnings([run("a"), second]) == [
        "gymcli differs between runs: 0.0.1 in a, 0.0.2 in b",
        "the source of environment sums differs between runs: aa in a, bb in b",
    ]
    merged = merged_manifest([run("a"), second]).environments["sums"]
    assert (merged.source_hash, merged.earlier_source_hashes) == ("", ["aa", "bb"])


def write(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def line(task_id, attempt=0, more=b""):
    """Return a line with an unknown field and redundant spaces."""
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
        f"{third / here}:3: attempt 3 of task 2 (e) is also recorded in {first / there}:2; "
        "merge runs with different attempts"
    )


def test_an_attempt_that_one_run_scored_twice_is_damage(tmp_path):
    first = write(tmp_path / "a", "rollouts.jsonl", line(b"1"))
    second = write(tmp_path / "b", "rollouts.jsonl", line(b"2"), line(b"3"), line(b"2"))
    place = f"{second}/rollouts.jsonl"
    with pytest.raises(RunFileError, match=f"^{place}:3: attempt 0 of task 2 .* {place}:1"):
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
    with pytest.raises(RunFileError, match=r"rollouts\.jsonl: is not a regular file"):
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
