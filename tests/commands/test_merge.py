"""Tests of `gym merge` and `gym collect --shard`."""

import gzip
import shutil
from pathlib import Path

import msgspec
import pytest

from gymcli.mock import MockServer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.mock.process import serving
from gymcli.secrets import NOTHING_SECRET
from gymcli.store.locking import RunLock
from gymcli.store.run_directory import new_run_directory
from tests.builders import add_up, gym, lines_of, write_rows, write_sums

TIMES = ("latency",)


@pytest.fixture
def ask(working_folder, mock_server):
    """Return the arguments that collect 20 sums, of which a few are wrong and a few fail."""
    mock_server.behaviour = add_up_mostly
    tasks = write_sums(Path("sums.jsonl"), 20)
    endpoint = ("--model", "m", "--base-url", mock_server.base_url)
    return ("collect", tasks, *endpoint, "--seed", "5", "--min-coverage", "0")


def add_up_mostly(request):
    number = int(last_user_text(request).split()[2])
    if number % 7 == 3:
        return refusal_of(400, "not this sum")
    return add_up(request) if number % 5 else "It is -1."


def collect_shards(ask, num_shards, *more):
    """Collect each shard into its own run."""
    runs = [f"s{number}" for number in range(1, num_shards + 1)]
    for number, run in enumerate(runs, 1):
        gym(*ask, *more, "--shard", f"{number}/{num_shards}", "--out", run, exit_code=0)
    return runs


def metrics_of(run):
    """Return the output of `gym metrics --json` for a run, without its name and times."""
    printed = gym("metrics", run, "--json").stdout
    numbers = msgspec.json.decode(printed)
    numbers["run"] = ""
    for one in (numbers, *numbers["environments"].values()):
        for name in TIMES:
            del one[name]
    return msgspec.json.encode(numbers)


def manifest_of(run):
    return msgspec.json.decode(Path(run, "run.json").read_bytes())


def tasks_of(run):
    """Return the tasks that a run has recorded, scored or not."""
    files = (Path(run, name) for name in ("rollouts.jsonl", "failures.jsonl"))
    return {line["task_id"] for path in files if path.exists() for line in lines_of(path)}


@pytest.mark.parametrize("order", ["1234", "3142"])
def test_shards_merged_equal_the_run_of_all(ask, order):
    """Metrics equal those of the whole run, and lines keep their bytes, in any order of shards."""
    Path("more.jsonl").write_bytes(
        b'{"env": "string_match", "prompt": "What is 1 + 0?", "expected_answer": "It is 1."}\n'
        b'{"env": "string_match", "prompt": "What is 2 + 0?", "expected_answer": "It is 2."}\n'
    )
    ask = (*ask, "more.jsonl", "--repeats", "3", "--limit", "18")
    gym(*ask, "--out", "whole", exit_code=0)
    collect_shards(ask, 4)
    done = gym("merge", *(f"s{number}" for number in order), "-o", "merged", exit_code=0)
    assert "are not scored; run them with gym collect" in done.stderr
    assert metrics_of("merged") == metrics_of("whole")
    whole, merged = manifest_of("whole"), manifest_of("merged")
    for key in ("identity", "environments", "num_expected", "num_tasks", "tasks", "model"):
        assert merged[key] == whole[key], key
    assert "shard" not in merged
    for name in ("rollouts.jsonl", "failures.jsonl"):
        parts = [Path(f"s{number}", name) for number in order]
        there = b"".join(part.read_bytes() for part in parts if part.exists())
        assert Path("merged", name).read_bytes() == there


def test_shards_hold_each_task_once_whatever_is_beside_it(ask):
    runs = collect_shards(ask, 3, "--repeats", "2")
    tasks = [tasks_of(run) for run in runs]
    assert all(tasks)
    assert sum(map(len, tasks)) == len(set.union(*tasks))
    rows = lines_of(Path("sums.jsonl"))
    write_rows("sums.jsonl", rows[::-2])
    left = {row["id"] for row in rows[::-2]}
    gym(*ask, "--shard", "2/3", "--out", "again", exit_code=0)
    assert tasks_of("again") == tasks[1] & left


def test_a_shard_says_what_it_is(ask):
    assert "\nshard         2/4\n" in gym(*ask, "--shard", "2/4", "--dry-run").stdout
    gym(*ask, "--shard", "2/4", exit_code=0)
    (run,) = Path("runs").iterdir()
    assert run.name.endswith("-shard-2-of-4")
    manifest = msgspec.json.decode((run / "run.json").read_bytes())
    assert manifest["shard"] == "2/4"
    assert 0 < manifest["num_expected"] < 20
    assert manifest["environments"]["arithmetic"]["num_expected_of_all_shards"] == 20


@pytest.mark.parametrize(("first", "second"), [("1/2", "2/2"), ("1/2", ""), ("", "1/2")])
def test_another_shard_does_not_go_on_with_a_run(ask, first, second):
    shard = {text: ("--shard", text) if text else () for text in (first, second)}
    gym(*ask, *shard[first], "--out", "run", exit_code=0)
    before = Path("run", "rollouts.jsonl").read_bytes()
    done = gym(*ask, *shard[second], "--out", "run", exit_code=2)
    assert "to resume it, or use another --out" in done.stderr
    assert Path("run", "rollouts.jsonl").read_bytes() == before
    gym(*ask, *shard[first], "--out", "run", exit_code=0)


@pytest.mark.parametrize("text", ["0/2", "3/2", "2"])
def test_a_shard_that_there_is_not_is_refused(ask, text):
    assert "--shard" in gym(*ask, "--shard", text, exit_code=2).stderr


def test_a_shard_without_tasks_is_a_run_that_merges(ask, mock_server):
    """No job of a matrix fails because there are more jobs than tasks."""
    ask = (*ask, "--task", "sum-1")
    runs = collect_shards(ask, 3)
    empty = [run for run in runs if not Path(run, "rollouts.jsonl").exists()]
    assert len(empty) == 2
    assert mock_server.num_requests == 1
    number = empty[0].removeprefix("s")
    again = gym(*ask, "--shard", f"{number}/3", "--out", empty[0], exit_code=0)
    assert f"{empty[0]}: no task is in shard {number}/3; nothing to do\n" in again.stderr
    gym(*ask, "--shard", f"{number}/3", "--out", "new", "--dry-run", exit_code=0)
    as_json = gym(*ask, "--shard", f"{number}/3", "--out", "new", "--dry-run", "--json")
    assert msgspec.json.decode(as_json.stdout)["request"] is None
    done = gym("merge", *runs, "-o", "merged", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    numbers = msgspec.json.decode(done.stdout)
    assert (numbers["run"], numbers["num_expected"], numbers["num_scored"]) == ("merged", 1, 1)
    gym("merge", *empty, "-o", "nothing", "--json", exit_code=0)


def test_what_a_merged_run_lacks_is_collected_into_it(ask, mock_server):
    """A missing shard is named and expected; the command without --shard runs only that shard."""
    collect_shards(ask, 4)
    shutil.rmtree("s3")
    done = gym("merge", "s1", "s2", "s4", "-o", "merged", "--json", exit_code=0)
    assert "1 shard is missing, whose attempts are expected: 3/4\n" in done.stderr
    assert msgspec.json.decode(done.stdout)["num_expected"] == 20
    mock_server.behaviour = add_up
    num_there = len(lines_of(Path("merged", "rollouts.jsonl")))
    num_before = mock_server.num_requests
    late = gym("merge", "merged", "s1", "-o", "late", exit_code=2)
    assert "merged: was merged without shard 3/4" in late.stderr
    gym(*ask, "--out", "merged", exit_code=0)
    assert "missing_shards" not in manifest_of("merged")
    assert mock_server.num_requests - num_before == 20 - num_there
    assert len(lines_of(Path("merged", "rollouts.jsonl"))) == 20


def test_runs_of_two_halves_merge(ask):
    write_sums(Path("half.jsonl"), 30)
    Path("half.jsonl").write_bytes(b"".join(Path("half.jsonl").read_bytes().splitlines(True)[20:]))
    gym(*ask, "--out", "a", exit_code=0)
    gym("collect", "half.jsonl", *ask[2:], "--out", "b", exit_code=0)
    numbers = msgspec.json.decode(gym("merge", "a", "b", "-o", "merged", "--json").stdout)
    assert numbers["num_expected"] == 30
    manifest = msgspec.json.decode(Path("merged", "run.json").read_bytes())
    assert [file["path"] for file in manifest["tasks"]] == ["sums.jsonl", "half.jsonl"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_rollouts_alone_go_into_a_file(ask, suffix):
    collect_shards(ask, 2)
    done = gym("merge", "s1", "s2", "-o", f"all.jsonl{suffix}", exit_code=0)
    written = Path(f"all.jsonl{suffix}").read_bytes()
    there = b"".join(Path(run, "rollouts.jsonl").read_bytes() for run in ("s1", "s2"))
    assert (gzip.decompress(written) if suffix else written) == there
    assert f"rollouts      {there.count(b'}' + bytes([10]))}\n" in done.stdout
    again = gym("merge", "s1", "s2", "-o", f"all.jsonl{suffix}", exit_code=2)
    assert "already exists" in again.stderr


def test_merge_refuses_and_leaves_nothing(ask):
    collect_shards(ask, 2)
    gym(*ask, "--out", "whole", exit_code=0)
    for runs, code, text in (
        (("s1", "whole"), 2, "is also recorded in s1/"),
        (("s1", "s1"), 2, "s1: is given twice"),
        (("s1", "./s2/../s1"), 2, "is given twice"),
        (("s1", "sums.jsonl"), 2, "sums.jsonl: is not a run directory"),
        (("s1", "."), 2, ".: holds no run.json"),
        (("s1", "gone"), 2, "gone: is not a run directory"),
    ):
        done = gym("merge", *runs, "-o", "merged")
        assert done.exit_code == code, runs
        assert text in done.stderr
        assert not Path("merged").exists()
    Path("merged").mkdir()
    gym("merge", "s1", "whole", "-o", "merged", exit_code=2)
    assert list(Path("merged").iterdir()) == []
    before = Path("whole", "rollouts.jsonl").read_bytes()
    done = gym("merge", "s1", "s2", "-o", "whole", exit_code=2)
    assert "whole: already exists" in done.stderr
    assert Path("whole", "rollouts.jsonl").read_bytes() == before


def test_merge_refuses_other_settings_by_name(ask):
    gym(*ask, "--shard", "1/2", "--out", "s1", exit_code=0)
    gym(*ask, "--shard", "2/2", "--temperature", "1", "--out", "s2", exit_code=0)
    done = gym("merge", "s1", "s2", "-o", "merged", exit_code=2)
    assert "s2: was made with other settings than s1: params.temperature unset there" in done.stderr


def test_merge_refuses_a_run_that_is_being_written(ask):
    collect_shards(ask, 2)
    lock = RunLock(Path("s2"))
    lock.take()
    done = gym("merge", "s1", "s2", "-o", "merged")
    lock.free()
    assert done.exit_code == 4
    assert "s2: is being written by another process; wait until it ends" in done.stderr
    assert not Path("merged").exists()


def test_merge_starts_over_after_a_killed_merge(ask):
    """A merge that was killed leaves nothing but its folder."""
    collect_shards(ask, 2)
    left = Path("merged", ".unfinished")
    left.mkdir(parents=True)
    shutil.copy(Path("s1", "rollouts.jsonl"), left)
    Path(left, "verdicts.jsonl").write_bytes(b'{"key":"of another run"}\n')
    gym("merge", "s1", "s2", "-o", "merged", exit_code=0)
    num_lines = sum(len(lines_of(Path(run, "rollouts.jsonl"))) for run in ("s1", "s2"))
    assert len(lines_of(Path("merged", "rollouts.jsonl"))) == num_lines
    assert not left.exists()
    assert not Path("merged", "verdicts.jsonl").exists()


def test_merge_leaves_a_folder_that_another_process_writes(ask):
    collect_shards(ask, 2)
    with new_run_directory(Path("merged"), NOTHING_SECRET) as directory:
        directory.append_rollout(b'{"of":"the other"}')
        done = gym("merge", "s1", "s2", "-o", "merged", exit_code=4)
        assert "merged: another process is writing this run" in done.stderr
        assert lines_of(directory.path / "rollouts.jsonl") == [{"of": "the other"}]


def test_a_damaged_manifest_is_named(ask):
    (run,) = collect_shards(ask, 1)
    Path(run, "run.json").write_bytes(msgspec.json.encode({**manifest_of(run), "shard": "2/1"}))
    done = gym("merge", run, "-o", "merged", exit_code=2)
    assert "s1/run.json: shard '2/1' is not one of 1/N to N/N" in done.stderr


def test_merged_answers_of_judges_are_not_asked_again(working_folder, mock_server):
    rows = [
        {"id": str(n), "env": "equivalence_llm_judge", "question": f"What is {n} + 1?"}
        | {"expected_answer": str(n + 1), "prompt": f"What is {n} + 1?"}
        for n in range(6)
    ]
    write_rows("t.jsonl", rows)

    with serving(MockServer(lambda request: "[[A=B]]")) as judge:
        role = ("--role", f"judge={judge.base_url}#j")
        ask = ("collect", "t.jsonl", "--model", "m", "--base-url", mock_server.base_url, *role)
        runs = collect_shards(ask, 2)
        gym("merge", *runs, "-o", "merged", exit_code=0)
        num_asked = judge.num_requests
        assert num_asked
        done = gym("verify", "merged", *role, "--quiet", exit_code=0)
        assert "6 rescored, 0 changed" in done.stdout
        assert judge.num_requests == num_asked
