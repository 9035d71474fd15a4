"""Manifests put together: what is refused by name, and what is added up."""

from pathlib import Path

import msgspec
import pytest

from gymcli.errors import RunMismatchError
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.store.merged_runs import (
    RunRecord,
    check_alike,
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
    """Give a run that differs from the others in this."""
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
    check_alike([first, second])
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
    check_alike(runs)
    assert missing_shards(runs) == ["1/4", "3/4"]
    merged = merged_manifest(runs)
    assert merged.num_expected == 8
    assert merged.ended_at is None
    assert merged.missing_shards == ["1/4", "3/4"]


def test_what_was_merged_without_a_shard_is_not_merged_again():
    """It expects the attempts of all shards, and so does every other part."""
    part = run("part", missing_shards=["1/2"])
    message = "^part: was merged without shard 1/2, and expects its attempts; merge all shards at"
    for others in ([run("a", shard="1/2")], [run("b", missing_shards=["2/2"])]):
        with pytest.raises(RunMismatchError, match=message):
            check_alike([part, *others])
    check_alike([part])
    assert merged_manifest([part]).missing_shards == ["1/2"]


def test_a_run_without_an_end_leaves_all_without():
    assert merged_manifest([run("a"), run("b", ended_at=None)]).ended_at is None


def test_runs_of_different_tasks_and_environments_fit():
    other = {"other": EnvironmentRecord(version="2", source_hash="bb", num_expected=7)}
    identity = {**MANIFEST.identity, "environments": {"other": {"version": "2", "options": {}}}}
    tasks = [{"path": "u.jsonl", "sha256": "u", "num_rows": 7}]
    runs = [run("a"), run("b", identity=identity, environments=other, tasks=tasks)]
    check_alike(runs)
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
        check_alike([run("a"), run("b", **changes)])


def test_a_shard_that_is_there_twice_is_refused():
    with pytest.raises(RunMismatchError, match=r"^b: is shard 1/2, and so is a; leave one"):
        check_alike([run("a", shard="1/2"), run("b", shard="1/2")])


def test_shards_of_other_selections_are_refused():
    second = run("b", shard="2/2", environments=environments(num_expected_of_all_shards=16))
    message = "^b: was taken of other attempts than a: sums 8 there, 16 here"
    with pytest.raises(RunMismatchError, match=message):
        check_alike([run("a", shard="1/2"), second])


@pytest.mark.parametrize(
    "changes", [{"shard": "2/3"}, {"shard": "2/2", "tasks": [{"path": "u", "sha256": "u"}]}]
)
def test_shards_that_do_not_belong_together_are_refused(changes):
    with pytest.raises(RunMismatchError, match=r"^a: is shard 1/2, and b is shard 2/"):
        check_alike([run("a", shard="1/2"), run("b", **changes)])


def test_whole_sets_of_shards_of_different_tasks_fit():
    other = [{"path": "u", "sha256": "u"}]
    runs = [
        run(f"{name}{number}", shard=f"{number}/2", tasks=tasks)
        for name, tasks in (("t", MANIFEST.tasks), ("u", other))
        for number in (1, 2)
    ]
    check_alike(runs)
    assert merged_manifest(runs).num_expected == 16


def test_versions_that_differ_are_told_and_left_out():
    second = run("b", gymcli_version="0.0.2", environments=environments(source_hash="bb"))
    assert version_warnings([run("a"), second]) == [
        "gymcli is not the same in all runs: 0.0.1 in a, 0.0.2 in b",
        "the source of environment sums is not the same in all runs: aa in a, bb in b",
    ]
    merged = merged_manifest([run("a"), second]).environments["sums"]
    assert (merged.source_hash, merged.earlier_source_hashes) == ("", ["aa", "bb"])


def test_sources_of_releases_that_hash_otherwise_are_not_compared():
    second = run("b", environments=environments(source_hash="code-aa"))
    assert version_warnings([run("a"), second]) == []
