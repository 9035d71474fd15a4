"""Tests of attempts that are scored together: what is saved when, and what completes a group."""

import asyncio
import itertools

import msgspec
import pytest

import gymcli
from gymcli.errors import RunMismatchError
from gymcli.metrics.measure import measure
from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.rescoring.run_rescoring import Pending, Rescoring, score_pending
from gymcli.types import Failure
from tests.builders import collect_all, lines_of, write_prompts, write_rows
from tests.runner.test_roles import collected, failing_at

RANKED = "tests.runner.environments:Ranked"
TOGETHER = "tests.runner.environments:JudgedTogether"


def counting(*, failing=()):
    """Answer 1, 2, 3, ... in the order of requests; refuse those whose numbers are failing."""
    numbers = itertools.count(1)

    def behave(request):
        number = next(numbers)
        return refusal_of(400, "no") if number in failing else str(number)

    return behave


def test_a_group_is_scored_when_its_last_attempt_is_there(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run"
    records, _ = collect_all(tasks, counting(), env=RANKED, repeats=3, concurrency=1, out=run)
    rewards = [(record.task_id, record.attempt, record.reward) for record in records]
    assert rewards == [
        *(("t0", n, float(n == 2)) for n in range(3)),
        *(("t1", n, float(n == 2)) for n in range(3)),
    ]
    assert {record.group_size for record in records} == {3}
    assert len(lines_of(run / "generations.jsonl")) == 6


@pytest.mark.slow
async def test_a_straggler_holds_nothing_up_but_its_own_group(tmp_path):
    """Everything else is on disk while it is awaited, including the others of its group."""
    tasks, run = write_prompts(tmp_path / "t.jsonl", 4), tmp_path / "run"
    seen = []

    def behave(request):
        is_straggler = last_user_text(request).endswith("about 0.") and not seen
        seen.append(request)
        return MockAnswer(text="5", delay=1.5 if is_straggler else 0.0)

    from gymcli.mock import MockServer
    from gymcli.models.endpoint import Endpoint

    async with MockServer(behave) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m")
        records = gymcli.collect(
            tasks, endpoint=endpoint, env=RANKED, repeats=2, concurrency=8, out=run
        )
        states = []
        async for record in records:
            generations = lines_of(run / "generations.jsonl")
            states.append((record.task_id, len(generations)))
    assert [task for task, _ in states][-2:] == ["t0", "t0"]
    # Six attempts of the other groups, and the one that waits for the straggler.
    assert states[5][1] == 7, "all but the straggler are saved first"
    assert states[7][1] == 8


def test_a_failed_member_leaves_its_group_unscored_until_a_resume(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 3), tmp_path / "run"
    options = {"env": RANKED, "repeats": 2, "out": run, "concurrency": 1}
    records, _ = collect_all(tasks, counting(failing={3}), **options)
    failures = {
        (record.task_id, record.attempt): record.error.error_class
        for record in records
        if isinstance(record, Failure)
    }
    assert failures == {("t1", 0): "RequestRefusedError", ("t1", 1): "IncompleteGroupError"}
    assert len(lines_of(run / "rollouts.jsonl")) == 4
    waiting = [line for line in lines_of(run / "generations.jsonl") if line["task_id"] == "t1"]
    assert [line["attempt"] for line in waiting] == [1]

    assert asyncio.run(score_pending(run, env=RANKED)) == Pending(0, 1, 0)
    records, server = collect_all(tasks, counting(), **options)
    assert server.num_requests == 1
    assert {(r.task_id, r.attempt, r.reward) for r in records} == {("t1", 0, 0.0), ("t1", 1, 1.0)}


def test_no_retry_leaves_a_group_alone_that_it_cannot_complete(tmp_path):
    """Its other attempts are neither requested nor recorded as failed a second time."""
    tasks, run = write_prompts(tmp_path / "t.jsonl", 3), tmp_path / "run"
    options = {"env": RANKED, "repeats": 2, "out": run, "concurrency": 1}
    collect_all(tasks, counting(failing={3}), **options)
    before = (run / "failures.jsonl").read_bytes()
    assert collect_all(tasks, counting(), no_retry=True, **options)[0] == []
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_bytes((run / "run.json").read_bytes())
    (other / "failures.jsonl").write_bytes(before.splitlines(keepends=True)[0])
    records, server = collect_all(tasks, counting(), no_retry=True, **{**options, "out": other})
    assert {record.task_id for record in records} == {"t0", "t2"}
    assert server.num_requests == 4
    assert (run / "failures.jsonl").read_bytes() == before


def test_a_group_is_completed_after_a_process_dies_between_its_lines(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 1), tmp_path / "run"
    options = {"env": RANKED, "repeats": 3, "out": run, "concurrency": 1}
    collect_all(tasks, counting(), **options)
    lines = (run / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rollouts.jsonl").write_bytes(lines[2])
    other = tmp_path / "other"
    other.mkdir()
    for path in run.iterdir():
        (other / path.name).write_bytes(path.read_bytes())

    records, server = collect_all(tasks, counting(), **options)
    assert server.num_requests == 0
    assert [(record.attempt, record.reward) for record in records] == [(0, 0.0), (1, 0.0)]
    assert asyncio.run(score_pending(other, env=RANKED)) == Pending(2, 0, 0)
    for folder in (run, other):
        assert sorted(line["attempt"] for line in lines_of(folder / "rollouts.jsonl")) == [0, 1, 2]


def test_repeats_belong_to_the_identity_of_groups(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 1), tmp_path / "run"
    collect_all(tasks, counting(), env=RANKED, repeats=2, out=run)
    with pytest.raises(RunMismatchError, match="repeats 2 there, 3 here"):
        collect_all(tasks, counting(), env=RANKED, repeats=3, out=run)


def test_identical_rows_are_one_group(tmp_path):
    row = msgspec.json.encode({"id": "a", "prompt": "Say."}) + b"\n"
    tasks = tmp_path / "t.jsonl"
    tasks.write_bytes(row * 2)
    records, _ = collect_all(tasks, counting(), env=RANKED, repeats=2, concurrency=1)
    assert [record.reward for record in records] == [0.0, 0.0, 0.0, 1.0]
    assert {record.group_size for record in records} == {4}


def test_groups_are_rescored_together(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run"
    collect_all(tasks, counting(), env=RANKED, repeats=3, out=run)
    lines = lines_of(run / "rollouts.jsonl")
    lines[0]["reward"] = 0.75
    write_rows(run / "rollouts.jsonl", lines)
    report = Rescoring(run, env=RANKED, out=tmp_path / "out").run()
    assert (report.num_rescored, report.num_changed) == (6, 1)
    again = Rescoring(tmp_path / "out", env=RANKED).run()
    assert (again.num_rescored, again.num_changed) == (6, 0)


def test_rescoring_leaves_a_group_without_all_its_attempts_unscored(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run"
    collect_all(tasks, counting(), env=RANKED, repeats=2, concurrency=1, out=run)
    lines = (run / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    bare = tmp_path / "bare.jsonl"
    bare.write_bytes(b"".join(lines[:3]))
    report = Rescoring(bare, env=RANKED).run()
    assert (report.num_rescored, report.num_failed) == (2, 1)
    assert list(report.errors) == [
        "IncompleteGroupError: only 1 of 2 attempts of this task are finished"
    ]


def test_rescoring_groups_all_records_of_a_task_without_a_group_size(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run"
    collect_all(tasks, counting(), env=RANKED, repeats=2, out=run)
    lines = [line | {"group_size": 0} for line in lines_of(run / "rollouts.jsonl")]
    bare = tmp_path / "bare.jsonl"
    write_rows(bare, lines)
    report = Rescoring(bare, env=RANKED).run()
    assert (report.num_rescored, report.num_changed) == (4, 0)


def test_a_group_counts_what_its_judge_took(tmp_path):
    """Each attempt counts its own call; the call about all of them counts with the first."""
    tasks = write_prompts(tmp_path / "t.jsonl", 2)
    records, _, judge = collected(tasks, env=TOGETHER, policy=counting(), repeats=3)
    assert [record.reward for record in records] == [pytest.approx(1 / 3)] * 6
    calls = [(record.attempt, record.role_usage["judge"].num_calls) for record in records]
    assert calls == [(0, 2), (1, 1), (2, 1)] * 2
    assert judge.num_requests == 8


def test_a_group_that_fails_counts_what_its_judge_took(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 1), tmp_path / "run"
    options = {"env": TOGETHER, "policy": counting(), "repeats": 3, "out": run}
    records, _, judge = collected(tasks, judge=failing_at(2), **options)
    assert [record.error.error_class for record in records] == ["RoleError"] * 3
    assert judge.num_requests == 3
    use = measure(run).metrics().role_usage["judge"]
    assert (use.num_calls, use.num_failed) == (2, 1)


def test_judge_calls_of_scored_attempts_count_with_the_rest_of_the_group(tmp_path):
    """Their lines are already written, so their repeated calls count with the other attempts."""
    tasks, run = write_prompts(tmp_path / "t.jsonl", 1), tmp_path / "run"
    options = {"env": TOGETHER, "policy": counting(), "repeats": 3, "out": run}
    collected(tasks, **options)
    lines = (run / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rollouts.jsonl").write_bytes(lines[0])
    (run / "verdicts.jsonl").unlink()
    records, _, judge = collected(tasks, **options)
    assert judge.num_requests == 4
    calls = [(record.attempt, record.role_usage["judge"].num_calls) for record in records]
    assert calls == [(1, 3), (2, 1)]


def write_copies(path, num):
    path.write_bytes((msgspec.json.encode({"id": "a", "prompt": "Say."}) + b"\n") * num)
    return path


def test_a_group_that_is_scored_cannot_grow(tmp_path):
    """Rewards from groups of two sizes are not comparable; a smaller selection changes nothing."""
    run, options = tmp_path / "run", {"env": RANKED, "repeats": 2}
    collect_all(write_copies(tmp_path / "t.jsonl", 2), counting(), out=run, **options)
    with pytest.raises(RunMismatchError, match=r'6 attempts of task "a" .* this run began with 4'):
        collect_all(write_copies(tmp_path / "t.jsonl", 3), counting(), out=run, **options)
    records, server = collect_all(tmp_path / "t.jsonl", counting(), out=run, limit=1, **options)
    assert (records, server.num_requests) == ([], 0)


def test_a_group_that_waits_cannot_change_its_size(tmp_path):
    run, options = tmp_path / "run", {"env": RANKED, "concurrency": 1}
    tasks = tmp_path / "t.jsonl"
    collect_all(write_copies(tasks, 2), counting(failing={2}), out=run, **options)
    with pytest.raises(
        RunMismatchError, match=r"t\.jsonl:1: 3 attempts .* began with 2; .* --fresh"
    ):
        collect_all(write_copies(tasks, 3), counting(), out=run, **options)
    with pytest.raises(RunMismatchError, match='1 attempts of task "a"'):
        collect_all(write_copies(tasks, 1), counting(), out=run, **options)
    records, _ = collect_all(write_copies(tasks, 2), counting(), out=run, **options)
    assert sorted(record.attempt for record in records) == [0, 1]


def test_a_group_without_a_conversation_may_change_its_size(tmp_path):
    run, options = tmp_path / "run", {"env": RANKED, "concurrency": 1}
    tasks = tmp_path / "t.jsonl"
    collect_all(write_copies(tasks, 2), counting(failing={1, 2}), out=run, **options)
    records, _ = collect_all(write_copies(tasks, 3), counting(), out=run, **options)
    assert [record.reward for record in records] == [0.0, 0.0, 1.0]


async def test_a_group_whose_verifier_fails_waits_as_a_whole(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 1), tmp_path / "run"
    env = "tests.runner.environments:Miscounted"
    roles = {"judge": "oracle"}
    records = gymcli.collect(tasks, model="oracle", env=env, roles=roles, repeats=2, out=run)
    records = [record async for record in records]
    assert [record.error.message for record in records] == [
        "verify_group returned 1 scores for 2 attempts"
    ] * 2
    assert len(lines_of(run / "generations.jsonl")) == 2


def test_a_group_waits_where_one_of_its_verifiers_fails(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 1)
    records, _ = collect_all(
        tasks, lambda request: "no number", env=RANKED, repeats=2, out=tmp_path / "run"
    )
    assert {record.error.error_class for record in records} == {"VerifierError"}
