"""Tests of rescoring with judges: which one scores, where verdicts go, what a new run records."""

import asyncio
import errno
import itertools
import os
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.environment.registry import Registration, Registry
from gymcli.errors import RunDirectoryError, RunMismatchError, UsageError
from gymcli.mock import MockServer
from gymcli.mock.behaviours import last_user_text
from gymcli.rescoring.file_rescoring import LoopJob, iterate_async, rescore_in_loop
from gymcli.rescoring.run_rescoring import Pending, Rescoring, score_pending
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.identity import rescored_manifest
from gymcli.runner.judges import Judges, open_shared
from gymcli.runner.plan import plan_run
from gymcli.runner.resume_state import existing_state
from gymcli.store.lines import Line
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.rollout_files import RolloutReading
from gymcli.store.run_directory import UNFINISHED
from gymcli.store.verdicts import Verdicts
from gymcli.tasks.task_source import TaskFile
from gymcli.types import SCHEMA_VERSION, Message, Rollout, Verifier
from tests.builders import lines_of, write_prompts, write_rows
from tests.runner.environments import Judged, Talked
from tests.runner.test_roles import JUDGED, collected, endpoint_of, failing_at


def judged_by(use, model="j", *, params=None, verdict="[[GOOD]]"):
    """Run a function with a judge on a server; return its result and the server."""

    async def run():
        async with MockServer(lambda request: verdict) as server:
            sources = {"judge": endpoint_of(server, model)}
            return await use(Judges(sources, {"judge": params} if params else {})), server

    return asyncio.run(run())


def rescored(run, model="j", *, out=None, env=JUDGED, **options):
    async def use(judges):
        rescoring = Rescoring(run, env=env, judges=judges, out=out)
        return await asyncio.to_thread(rescoring.run)

    return judged_by(use, model, **options)


def pending_scored(run, model="j", **options):
    return judged_by(lambda judges: score_pending(run, env=JUDGED, judges=judges), model, **options)


@pytest.fixture
def waiting(tmp_path) -> Path:
    """Return a run in which one of three conversations waits for its score."""
    rows = write_prompts(tmp_path / "t.jsonl", 3)
    collected(rows, judge=failing_at(2), out=tmp_path / "run", concurrency=1)
    return tmp_path / "run"


def test_score_pending_asks_no_judge_but_the_run_s_own(waiting):
    """Waiting conversations belong to the run, whose identity names the judge."""
    before = {path.name: path.read_bytes() for path in waiting.iterdir()}
    with pytest.raises(RunMismatchError, match=r'roles\.judge\.model "j" there, "other" here'):
        pending_scored(waiting, "other")
    with pytest.raises(RunMismatchError, match=r"roles\.judge\.params\.temperature unset there"):
        pending_scored(waiting, params={"temperature": 1.0})
    assert {path.name: path.read_bytes() for path in waiting.iterdir()} == before
    found, server = pending_scored(waiting)
    assert (found, server.num_requests) == (Pending(1, 0, 0), 1)


def test_score_pending_scores_with_no_other_version(waiting):
    manifest = msgspec.json.decode((waiting / "run.json").read_bytes())
    manifest["environments"]["environments"]["version"] = "0"
    (waiting / "run.json").write_bytes(msgspec.json.encode(manifest))
    reasons = []

    async def use(judges):
        return await score_pending(waiting, env=JUDGED, judges=judges, leave=reasons.append)

    found, server = judged_by(use)
    assert (found, server.num_requests) == (Pending(0, 0, 0), 0)
    [reason] = reasons
    assert reason.startswith("1 conversations still wait for their score: ")
    assert 'environments.environments "0" there, "1" here' in reason
    assert "--out DIR" in reason


def test_score_pending_needs_no_manifest(waiting):
    (waiting / "run.json").unlink()
    assert pending_scored(waiting, "other")[0] == Pending(1, 0, 0)


def test_a_rescored_run_names_the_judge_that_scored_it(waiting, tmp_path):
    """Conversations that wait in it are scored by that judge."""
    out = tmp_path / "out"
    params = {"temperature": 0.5}
    rescored(waiting, "other", out=out, params=params)
    manifest = read_manifest(out)
    assert manifest.identity["roles"] == {"judge": {"model": "other", "params": params}}
    assert manifest.roles["judge"].endswith("#other")
    assert manifest.role_params == {"judge": params}
    before = read_manifest(waiting)
    unchanged = {key: before.identity[key] for key in before.identity if key != "roles"}
    assert {key: manifest.identity[key] for key in unchanged} == unchanged
    with pytest.raises(RunMismatchError, match=r'"other" there, "j" here'):
        pending_scored(out, "j")
    assert pending_scored(out, "other", params=params)[0] == Pending(1, 0, 0)


def test_a_rescored_run_can_be_gone_on_with_under_its_judge(tmp_path):
    rows, run, out = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run", tmp_path / "out"
    collected(rows, out=run)
    rescored(run, "other", out=out, verdict="[[BAD]]")
    policy = gymcli.Endpoint(base_url="http://127.0.0.1:9/v1", model="m")
    for model, is_same in (("other", True), ("j", False)):
        roles = {"judge": gymcli.Endpoint(base_url="http://127.0.0.1:9/v1", model=model)}
        options = CollectOptions(endpoint=policy, env=JUDGED, roles=roles, out=out)
        plan = plan_run([TaskFile(rows)], options)
        if is_same:
            existing_state(plan)
        else:
            with pytest.raises(RunMismatchError, match=r"roles\.judge\.model"):
                existing_state(plan)


def test_a_rescored_run_keeps_the_roles_of_scores_that_it_keeps():
    """A score that is kept was given with the model that the old run names."""
    kept = type("Kept", (Talked,), {"rescore": "recorded"})
    judge, user = {"model": "a", "params": {}}, {"model": "u", "params": {"top_p": 0.5}}
    before = Manifest(
        identity={"roles": {"judge": judge, "user": user}},
        roles={"judge": "a", "user": "u"},
        role_params={"user": {"top_p": 0.5}},
    )
    after = rescored_manifest(
        before,
        {"kept": Registration("kept", kept, ""), "judged": Registration("judged", Judged, "")},
        env_args={},
        judges=Judges({"judge": "oracle", "user": "oracle"}),
        num_lines={},
    )
    assert after.identity["roles"] == {"judge": {"model": "oracle", "params": {}}, "user": user}
    assert after.roles == {"judge": "oracle", "user": "u"}
    assert after.role_params == before.role_params


def test_a_run_made_of_a_bare_file_has_its_verdicts(tmp_path):
    run, bare, out = tmp_path / "run", tmp_path / "r.jsonl", tmp_path / "out"
    collected(write_prompts(tmp_path / "t.jsonl", 3), out=run)
    bare.write_bytes((run / "rollouts.jsonl").read_bytes())
    _, server = rescored(bare, out=out)
    assert server.num_requests == len(lines_of(out / "verdicts.jsonl")) == 3
    assert read_manifest(out).roles["judge"].endswith("#j")
    report, server = rescored(out)
    assert (report.num_rescored, server.num_requests) == (3, 0)


def test_a_full_disk_under_the_verdicts_ends_the_rescoring(tmp_path, monkeypatch):
    """No more verdicts are paid for when one cannot be saved."""
    run = tmp_path / "run"
    collected(write_prompts(tmp_path / "t.jsonl", 200), out=run)
    (run / "verdicts.jsonl").unlink()
    counts = []

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", fail)

    async def use(judges):
        rescoring = Rescoring(run, env=JUDGED, judges=judges._replace(concurrency=1))
        with pytest.raises(RunDirectoryError, match=r"verdicts\.jsonl: cannot be written: No spa"):
            await asyncio.to_thread(rescoring.run)
        counts.append(True)

    _, server = judged_by(use)
    assert counts == [True]
    assert server.num_requests < 10


def test_a_rescoring_that_was_broken_off_asks_nothing_twice(tmp_path):
    """Verdicts on a bare file are saved in the new run before it is complete."""
    run, bare, out = (tmp_path / name for name in ("run", "r.jsonl", "again"))
    collected(write_prompts(tmp_path / "t.jsonl", 5), out=run)
    bare.write_bytes((run / "rollouts.jsonl").read_bytes())

    def stop(report):
        raise KeyboardInterrupt

    async def use(judges):
        judges = judges._replace(concurrency=1)
        rescoring = Rescoring(bare, env=JUDGED, judges=judges, out=out)
        with pytest.raises(KeyboardInterrupt):
            await asyncio.to_thread(rescoring.run, watch=stop)

    judged_by(use)
    assert [path.name for path in out.iterdir()] == [UNFINISHED]
    num_kept = len(lines_of(out / UNFINISHED / "verdicts.jsonl"))
    assert num_kept >= 1
    report, server = rescored(bare, out=out)
    assert report.num_rescored == len(lines_of(out / "verdicts.jsonl")) == 5
    assert server.num_requests == 5 - num_kept


@pytest.fixture
def mixed(tmp_path) -> Path:
    """Return a run whose judged and computed rollouts alternate."""
    rows = []
    for number in range(3):
        rows.append({"id": f"s{number}", "prompt": "Say 2.", "env": "arithmetic", "answer": 2})
        rows.append({"id": f"t{number}", "prompt": f"Say 2, {number}.", "env": "environments"})
    tasks = tmp_path / "t.jsonl"
    write_rows(tasks, rows)
    collected(tasks, out=tmp_path / "run", concurrency=1, policy=last_user_text)
    return tmp_path / "run"


async def test_verify_of_a_mixed_run_scores_computed_rollouts_first(mixed):
    """Computed rollouts are scored first, in worker processes if there are many."""
    (mixed / "verdicts.jsonl").unlink()
    recorded = [line["env"] for line in lines_of(mixed / "rollouts.jsonl")]
    assert recorded == ["arithmetic", "environments"] * 3
    async with MockServer(lambda request: "[[GOOD]]") as server:
        judge = {"judge": endpoint_of(server, "j")}
        found = []
        results = gymcli.rescore(mixed, env=JUDGED, roles=judge)
        while (result := await asyncio.to_thread(next, results, None)) is not None:
            found.append((result.key.env, result.key.task_id, server.num_requests > 0))
            assert result.is_rescored
            assert not result.is_changed
        num_requests = server.num_requests
    assert found[:3] == [("arithmetic", f"s{number}", False) for number in range(3)]
    assert {env for env, _, _ in found[3:]} == {"environments"}
    assert (len(found), num_requests) == (6, 3)


def test_verify_finds_environments_that_the_manifest_does_not_know(mixed):
    """Each line is rescored once, with or without a judge."""
    manifest = msgspec.json.decode((mixed / "run.json").read_bytes())
    del manifest["environments"]["arithmetic"]
    (mixed / "run.json").write_bytes(msgspec.json.encode(manifest))
    report, _ = rescored(mixed)
    assert (report.num_rescored, report.num_changed) == (6, 0)


def test_verify_refuses_a_role_that_nobody_has(mixed):
    judge = {"judge": "oracle"}
    with pytest.raises(UsageError, match=r'jugde.*did you mean "judge"'):
        gymcli.rescore(mixed, env=JUDGED, roles={**judge, "jugde": "oracle"})
    with pytest.raises(UsageError, match='did you mean "judge"'):
        gymcli.rescore(mixed, env=JUDGED, roles=judge, role_params={"jugde": {"a": 1}})


def find(name):
    found = Registry((f"tests.runner.environments:{name}",)).find("environments")
    return found._replace(name=name)


class Lines:
    """Lines of a file that count how often, and how far, they are read."""

    def __init__(self, rollouts):
        self._data = [msgspec.json.encode(rollout) for rollout in rollouts]
        self.num_readings = 0
        self.num_read = 0

    def read(self):
        self.num_readings += 1
        for number, data in enumerate(self._data, start=1):
            self.num_read += 1
            yield Line(number, data, is_complete=True)


def record_of(env, number, **fields):
    said = Message(role="assistant", content=f"{number} gold")
    fields = {"attempt": 0, "reward": 0.5, "messages": [said], **fields}
    return Rollout(
        schema_version=SCHEMA_VERSION, env=env, env_version="1", task_id=f"t{number}", **fields
    )


def rescoring(lines, **options):
    job = LoopJob(RolloutReading("rollouts.jsonl"), find, **{"concurrency": 4, **options})
    judges = Judges({"judge": "oracle"})
    batches = rescore_in_loop(lines.read, job, lambda: open_shared(judges, Verdicts()))
    return (result for batch in iterate_async(batches) for result in batch)


@pytest.mark.parametrize("envs", [["Recorded"], ["Judged"], ["Judged", "Recorded", "Recorded"]])
def test_rescore_judged_reads_lines_as_they_are_needed(envs):
    """Memory does not grow with the file, whatever its lines hold."""
    named = itertools.islice(itertools.cycle(envs), 200)
    lines = Lines([record_of(env, n) for n, env in enumerate(named)])
    ahead = [lines.num_read - number for number, _ in enumerate(rescoring(lines), start=1)]
    assert len(ahead) == 200
    assert max(ahead) <= 4 + 4 + 1
    assert lines.num_readings == 1


def test_rescore_judged_gives_a_result_for_every_line():
    lines = Lines([record_of(("Judged", "Recorded")[n % 2], n) for n in range(20)])
    results = {int(result.key.task_id[1:]): result for result in rescoring(lines)}
    assert len(results) == 20
    for number, result in results.items():
        is_judged = number % 2 == 0
        assert result.is_rescored is is_judged
        assert (result.old_reward, result.new_reward) == (0.5, 1.0 if is_judged else 0.5)


def test_rescore_judged_keeps_lines_as_they_are():
    record = record_of("Recorded", 1)
    [result] = rescoring(Lines([record]), keeps_lines=True)
    assert result.line == msgspec.json.encode(record)


def test_rescore_judged_keeps_order_and_lines_where_no_model_is_asked():
    """A line with an unchanged score stays the same byte for byte."""
    verifier = Verifier("1", find("Unclosed").source_hash)
    records = [record_of("Unclosed", n, reward=float(n % 2), verifier=verifier) for n in range(9)]
    results = list(rescoring(Lines(records), keeps_lines=True, asks_nobody=True))
    assert [result.key.task_id for result in results] == [record.task_id for record in records]
    for record, result in zip(records, results, strict=True):
        assert result.new_reward == 1.0
        assert (result.line == msgspec.json.encode(record)) is (record.reward == 1.0)


def test_rescore_judged_tells_lines_of_one_key_apart():
    """A concatenated file may hold an attempt twice."""
    lines = Lines([record_of("Judged", 1, reward=reward) for reward in (0.25, 0.75)])
    assert [result.old_reward for result in rescoring(lines, concurrency=1)] == [0.25, 0.75]


@pytest.mark.parametrize(("group_size", "num_readings"), [(2, 1), (0, 2)])
def test_rescore_judged_counts_groups_only_without_a_recorded_size(group_size, num_readings):
    said = [Message(role="assistant", content="5")]
    group = [
        record_of("Ranked", 1, attempt=n, group_size=group_size, messages=said) for n in range(2)
    ]
    lines = Lines([*group, record_of("Judged", 2)])
    results = list(rescoring(lines))
    assert lines.num_readings == num_readings
    assert [result.new_reward for result in results] == [1.0] * 3


def test_rescore_judged_scores_a_record_alone_where_its_environment_has_no_groups_any_more():
    [result] = rescoring(Lines([record_of("Judged", 1, group_size=3)]))
    assert (result.new_reward, result.error) == (1.0, None)


def test_verify_refuses_what_would_have_no_effect(mixed):
    """Options without the name of their environment ended every worker process."""
    judge = {"judge": "oracle"}
    for env_args in ({"places": "2"}, {"arithmetik": {"places": "2"}}):
        with pytest.raises(UsageError, match=r"below the name of their environment \(arithmetic, "):
            gymcli.rescore(mixed, env=JUDGED, roles=judge, env_args=env_args)
    with pytest.raises(UsageError, match='did you mean "arithmetic"'):
        gymcli.rescore(mixed, env="arithmetik", roles=judge)
