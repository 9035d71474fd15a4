"""Tests of rescoring runs and files, in gymcli's format and in others."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from gymcli.errors import TasksError, UsageError
from gymcli.metrics.measure import measure
from gymcli.rescoring.run_rescoring import Pending, Rescoring, score_pending
from gymcli.types import Failure, Rollout
from tests.builders import FLAKY, collect_all, lines_of, write_rows, write_sums
from tests.metrics.test_measure import NEMO


@pytest.fixture
def run(tmp_path) -> Path:
    """Return a run of four sums, all correct."""
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=tmp_path / "run", repeats=2)
    return tmp_path / "run"


def change(run: Path, **fields) -> None:
    """Change every rollout of a run on disk."""
    lines = [{**line, **fields} for line in lines_of(run / "rollouts.jsonl")]
    write_rows(run / "rollouts.jsonl", lines)


def test_rescoring_finds_nothing_to_change(run):
    report = Rescoring(run).run()
    assert (report.num_rescored, report.num_changed, report.num_failed) == (8, 0, 0)
    assert report.mean_before == report.mean_after == 1.0


def test_rescoring_says_what_changed_and_which_way(run):
    change(run, reward=0.25)
    lines = lines_of(run / "rollouts.jsonl")
    lines[0]["messages"][-1]["content"], lines[0]["reward"] = "It is 99.", 1.0
    write_rows(run / "rollouts.jsonl", lines)
    seen = []
    report = Rescoring(run).run(watch=lambda report: seen.append(report.num_rescored))
    assert (report.num_changed, report.num_up, report.num_down) == (8, 7, 1)
    assert seen == sorted(seen)
    assert seen[-1] == 8
    first = report.changes[0]
    assert (first.task_id, first.old_reward, first.new_reward) == (lines[0]["task_id"], 1.0, 0.0)
    assert report.reasons == {"correct -> correct": 7, "correct -> wrong_answer": 1}


def test_rescoring_leaves_the_run_as_it_is(run):
    change(run, reward=0.25)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    Rescoring(run).run()
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_rescoring_writes_a_run_of_its_own(run, tmp_path):
    """It has metrics, expects as many attempts as the first run, and can be resumed."""
    change(run, reward=0.25, env_version="0")
    out = tmp_path / "again"
    Rescoring(run, out=out).run()
    lines = lines_of(out / "rollouts.jsonl")
    assert {(line["reward"], line["env_version"]) for line in lines} == {(1.0, "2")}
    assert measure(out).metrics().num_expected == 8
    assert msgspec.json.decode((out / "metrics.json").read_bytes())["mean_reward"] == 1.0
    _, server = collect_all(tmp_path / "t.jsonl", out=out, repeats=2)
    assert server.num_requests == 0


def test_rescoring_writes_a_run_of_a_bare_file(run, tmp_path):
    Rescoring(run / "rollouts.jsonl", out=tmp_path / "again").run()
    assert measure(tmp_path / "again").metrics().num_expected == 8


def test_rescoring_takes_failures_and_waiting_conversations_over(tmp_path, working_folder):
    (tmp_path / "flaky.py").write_text(FLAKY)
    tasks, out = write_sums(tmp_path / "t.jsonl", 2, env="flaky"), tmp_path / "run"
    options = {"out": out, "env": "flaky.py:Flaky"}
    collect_all(tasks, lambda _: "x", task_ids=("sum-0",), **options)
    (tmp_path / "broken").touch()
    collect_all(tasks, lambda _: "x", **options)
    (tmp_path / "broken").unlink()
    Rescoring(out, env="flaky.py:Flaky", out=tmp_path / "again").run()
    metrics = measure(tmp_path / "again").metrics()
    assert (metrics.num_expected, metrics.num_scored, metrics.num_unscored) == (2, 1, 1)
    assert asyncio.run(score_pending(tmp_path / "again", env="flaky.py:Flaky")) == Pending(1, 0, 0)
    assert measure(tmp_path / "again").metrics().num_scored == 2


def test_rescoring_counts_what_the_verifier_cannot_score(tmp_path, working_folder):
    (tmp_path / "flaky.py").write_text(FLAKY)
    tasks, out = write_sums(tmp_path / "t.jsonl", 3, env="flaky"), tmp_path / "run"
    collect_all(tasks, lambda _: "x", out=out, env="flaky.py:Flaky")
    (tmp_path / "broken").touch()
    again = tmp_path / "again"
    report = Rescoring(out, env="flaky.py:Flaky", out=again).run()
    assert (report.num_rescored, report.num_failed, report.num_changed) == (0, 3, 3)
    assert report.mean_after is None
    assert report.errors == {"VerifierError: RuntimeError: the verifier is broken": 3}
    assert measure(again).metrics().failures == {"VerifierError": 3}


def test_rescoring_keeps_the_conversation_that_the_verifier_cannot_score(tmp_path, working_folder):
    """The new run holds all of the old one, so that it can be scored when the verifier works."""
    (tmp_path / "flaky.py").write_text(FLAKY)
    tasks, out = write_sums(tmp_path / "t.jsonl", 2, env="flaky"), tmp_path / "run"
    collect_all(tasks, lambda _: "x", out=out, env="flaky.py:Flaky")
    # This file exists if scoring took a second, as on a busy machine.
    (out / "generations.jsonl").unlink(missing_ok=True)
    before = lines_of(out / "rollouts.jsonl")
    (tmp_path / "broken").touch()
    again = tmp_path / "again"
    Rescoring(out, env="flaky.py:Flaky", out=again).run()
    waiting = lines_of(again / "generations.jsonl")
    assert [line["messages"] for line in waiting] == [line["messages"] for line in before]
    assert not any("reward" in line for line in waiting)
    (tmp_path / "broken").unlink()
    assert asyncio.run(score_pending(again, env="flaky.py:Flaky")) == Pending(2, 0, 0)
    assert measure(again).metrics().mean_reward == 1.0


def test_rescoring_keeps_scores_that_cannot_be_recomputed(tmp_path):
    """Lines of an environment that sums its recorded rewards stay unchanged."""
    (tmp_path / "flaky.py").write_text(
        FLAKY.replace('"""Say anything."""', '"""Say anything."""\n\n    rescore = "recorded"')
    )
    spec = f"{tmp_path / 'flaky.py'}:Flaky"
    tasks, out = write_sums(tmp_path / "t.jsonl", 2, env="flaky"), tmp_path / "run"
    collect_all(tasks, lambda _: "x", out=out, env=spec)
    change(out, reward=0.5)
    report = Rescoring(out, env=spec, out=tmp_path / "again").run()
    assert (report.num_rescored, report.num_not_rescored, report.num_changed) == (0, 2, 0)
    assert measure(tmp_path / "again").metrics().mean_reward == 0.5


def test_rescoring_takes_options_of_the_command_line(tmp_path):
    row = {
        "env": "mcqa",
        "prompt": "x",
        "options": [{"A": "1"}, {"B": "2"}],
        "expected_answer": "B",
    }
    (tmp_path / "t.jsonl").write_bytes(msgspec.json.encode(row))
    collect_all(tmp_path / "t.jsonl", lambda _: "Answer: B", out=tmp_path / "run")
    again = tmp_path / "again"
    options = {"grading_mode": "lenient_answer_colon"}
    report = Rescoring(tmp_path / "run", env_args=options, out=again).run()
    assert (report.num_up, report.reasons) == (1, {"no_answer -> correct": 1})
    assert lines_of(again / "rollouts.jsonl")[0]["env_options"] == options
    manifest = msgspec.json.decode((again / "run.json").read_bytes())
    assert manifest["identity"]["environments"]["mcqa"]["options"] == options


def test_rescoring_joins_the_rows_of_others(tmp_path):
    """The row is found by the index that NeMo Gym's collector writes."""
    line = {**NEMO, "agent_ref": {"name": "arithmetic_simple_agent"}, "_ng_task_index": 1}
    del line["answer"]
    (tmp_path / "r.jsonl").write_bytes(msgspec.json.encode(line))
    rows = [
        {"env": "arithmetic", "prompt": "What is 2 + 2?", "answer": 4},
        {"env": "arithmetic", "prompt": "What is 1 + 1?", "answer": 2},
    ]
    write_rows(tmp_path / "t.jsonl", rows)
    assert Rescoring(tmp_path / "r.jsonl").run().num_failed == 1
    report = Rescoring(tmp_path / "r.jsonl", task_files=[tmp_path / "t.jsonl"]).run()
    assert (report.num_rescored, report.num_changed) == (1, 0)


def test_rescoring_joins_rows_of_bare_fields_by_their_index(tmp_path):
    line = {**NEMO, "agent_ref": {"name": "arithmetic_simple_agent"}, "_ng_task_index": 7}
    del line["answer"]
    (tmp_path / "r.jsonl").write_bytes(msgspec.json.encode(line))
    rows = [{"answer": 9}, {"answer": 2, "_ng_task_index": 7}]
    write_rows(tmp_path / "t.jsonl", rows)
    report = Rescoring(tmp_path / "r.jsonl", task_files=[tmp_path / "t.jsonl"]).run()
    assert (report.num_rescored, report.num_changed) == (1, 0)


def test_rescoring_compares_means_over_rollouts_with_both_scores(tmp_path, working_folder):
    """A rollout that becomes unscored counts on neither side."""
    picky = 'if rollout.task_id == "sum-0" and Path'
    (tmp_path / "flaky.py").write_text(FLAKY.replace("if Path", picky, 1))
    spec = f"{tmp_path / 'flaky.py'}:Flaky"
    tasks, out = write_sums(tmp_path / "t.jsonl", 2, env="flaky"), tmp_path / "run"
    collect_all(tasks, lambda _: "x", out=out, env=spec)
    lines = [
        {**x, "reward": 1.0 * (x["task_id"] == "sum-0")} for x in lines_of(out / "rollouts.jsonl")
    ]
    write_rows(out / "rollouts.jsonl", lines)
    (tmp_path / "broken").touch()
    report = Rescoring(out, env=spec).run()
    assert (report.num_rescored, report.num_failed) == (1, 1)
    assert (report.mean_before, report.mean_after) == (0.0, 1.0)


def test_rescoring_refuses_wrong_task_rows(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text("[]\n")
    with pytest.raises(TasksError, match=r"bad\.jsonl:1: must be a JSON object"):
        Rescoring(run, task_files=[tmp_path / "bad.jsonl"])


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_rescoring_writes_over_nothing(run, tmp_path, kind):
    out = tmp_path / "out"
    if kind == "file":
        out.touch()
    else:
        out.mkdir()
        (out / "x").touch()
    with pytest.raises(UsageError, match="--out needs a new directory"):
        Rescoring(run, out=out)


def test_rescoring_lists_the_first_changes(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 1_010), out=out)
    change(out, reward=0.0)
    report = Rescoring(out).run()
    assert (report.num_changed, len(report.changes)) == (1_010, 1_000)


def test_score_pending_appends_scores_and_failures(tmp_path, working_folder):
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "broken").touch()
    tasks, out = write_sums(tmp_path / "t.jsonl", 2, env="flaky"), tmp_path / "run"
    collect_all(tasks, lambda _: "x", out=out, env="flaky.py:Flaky")
    assert asyncio.run(score_pending(out, env="flaky.py:Flaky")) == Pending(0, 2, 0)
    decoder = msgspec.json.Decoder(Failure)
    failures = [decoder.decode(x) for x in (out / "failures.jsonl").read_bytes().splitlines()]
    assert len(failures) == 4
    (tmp_path / "broken").unlink()
    assert asyncio.run(score_pending(out, env="flaky.py:Flaky")) == Pending(2, 0, 0)
    lines = (out / "rollouts.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(x, type=Rollout).reward for x in lines] == [1.0, 1.0]
    assert asyncio.run(score_pending(out, env="flaky.py:Flaky")) == Pending(0, 0, 0)


def test_score_pending_leaves_a_run_alone_where_nothing_waits(run):
    before = sorted(path.name for path in run.iterdir())
    assert asyncio.run(score_pending(run)) == Pending(0, 0, 0)
    assert sorted(path.name for path in run.iterdir()) == before
