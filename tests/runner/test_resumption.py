"""The same command again: what is done stays, what failed is tried again, changes are named."""

import asyncio

import msgspec
import pytest

from gymcli.errors import EndpointGoneError, ModelError, RoleError, RunMismatchError, UsageError
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.runner.attempts import failure_of
from gymcli.runner.collection import Collection
from gymcli.runner.measure import measure
from gymcli.runner.options import CollectOptions
from gymcli.runner.plan import failed_attempts
from gymcli.types import AttemptKey, Rollout
from tests.commands.running import FLAKY, add_up, lines_of, write_sums
from tests.runner.collecting import collect_all


def manifest_of(out) -> dict:
    return msgspec.json.decode((out / "run.json").read_bytes())


def keys_of(out) -> list[tuple[str, int]]:
    return sorted(
        (line["task_id"], line.get("attempt", 0)) for line in lines_of(out / "rollouts.jsonl")
    )


def refuse_odd(request):
    """Refuse every other sum."""
    if int(last_user_text(request).split()[2]) % 2:
        return refusal_of(400, "too odd")
    return add_up(request)


def test_resuming_retries_what_failed_and_nothing_else(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 6), tmp_path / "run"
    collect_all(tasks, refuse_odd, out=out)
    assert measure(out).metrics().failures == {"RequestRefusedError": 3}
    records, server = collect_all(tasks, out=out)
    assert sorted(record.task_id for record in records) == ["sum-1", "sum-3", "sum-5"]
    assert server.num_requests == 3
    assert measure(out).metrics().failures == {}
    assert len(keys_of(out)) == 6


def test_resuming_a_complete_run_asks_nobody(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    collect_all(tasks, out=out)
    before = manifest_of(out)
    records, server = collect_all(tasks, out=out)
    assert (records, server.num_requests) == ([], 0)
    assert {**manifest_of(out), "options": {}} == {**before, "options": {}}


def test_resuming_adds_repeats_and_tasks(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    _, server = collect_all(write_sums(tmp_path / "t.jsonl", 3), out=out, repeats=2)
    assert server.num_requests == 4
    assert keys_of(out) == [(f"sum-{n}", attempt) for n in range(3) for attempt in range(2)]
    assert manifest_of(out)["num_expected"] == 6


def test_resuming_with_a_selection_expects_no_less(tmp_path):
    """An attempt that failed stays expected, whatever the next command selects."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 6), tmp_path / "run"
    collect_all(tasks, refuse_odd, out=out, repeats=2)
    collect_all(tasks, out=out, task_ids=("sum-1",))
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_scored, metrics.num_unscored) == (12, 7, 5)


def test_resuming_with_other_files_expects_what_they_hold(tmp_path):
    """What was scored and left out of this plan counts, once."""
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=out)
    collect_all(write_sums(tmp_path / "t.jsonl", 9), out=out, limit=2)
    assert manifest_of(out)["num_expected"] == 4


def test_resuming_reports_tasks_that_are_gone(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 6), out=out)
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    collection = Collection([tasks], CollectOptions(model="m", out=out))
    collection.check_existing_run()
    assert collection.warnings == [
        "4 scored tasks are no longer in the files and not expected: sum-2, sum-3, sum-4, ..."
    ]
    assert (collection.num_expected, collection.num_left) == (2, 0)
    collect_all(tasks, out=out)
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_scored) == (2, 6)


def test_resuming_reports_one_task_that_is_gone(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    collection = Collection(
        [write_sums(tmp_path / "t.jsonl", 1)], CollectOptions(model="m", out=out)
    )
    collection.check_existing_run()
    (warning,) = collection.warnings
    assert warning == "1 scored task is no longer in the files and not expected: sum-1"


def test_resuming_keeps_environments_that_are_not_selected(tmp_path):
    """Their best reward stays known, and their attempts expected."""
    sums = write_sums(tmp_path / "sums.jsonl", 2)
    flaky = write_sums(tmp_path / "flaky.jsonl", 2, env="example_single_tool_call")
    flaky.write_text(
        flaky.read_text().replace('"answer"', '"cities": [], "answer"').replace("sum-", "w-")
    )
    out = tmp_path / "run"
    collect_all([sums, flaky], lambda _: "fine", out=out)
    before = manifest_of(out)["environments"]
    collect_all([sums, flaky], lambda _: "fine", out=out, task_ids=("sum-0",))
    collect_all([sums], lambda _: "fine", out=out)
    after = manifest_of(out)["environments"]
    assert after.keys() == before.keys() == {"arithmetic", "example_single_tool_call"}
    assert after["arithmetic"] == before["arithmetic"]


def test_resuming_refuses_other_settings_and_names_them(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"
    collect_all(tasks, out=out)
    with pytest.raises(RunMismatchError, match=r"params\.temperature unset there, 0\.5 here; seed"):
        collect_all(tasks, out=out, seed=3, params={"temperature": 0.5})


@pytest.mark.parametrize("breaks", [False, True])
def test_resuming_refuses_a_changed_task(tmp_path, monkeypatch, breaks):
    """Whether it is scored already or waits for its score."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flaky.py").write_text(FLAKY)
    if breaks:
        (tmp_path / "broken").touch()
    tasks, out = write_sums(tmp_path / "t.jsonl", 2, env="flaky"), tmp_path / "run"
    collect_all(tasks, lambda _: "x", out=out, env="flaky.py:Flaky")
    tasks.write_text(tasks.read_text().replace('"answer":2', '"answer":3'))
    with pytest.raises(RunMismatchError, match=r't\.jsonl:2: task "sum-1" has other content'):
        collect_all(tasks, out=out, env="flaky.py:Flaky")


def test_resuming_scores_waiting_conversations_first(tmp_path, monkeypatch):
    """A verifier that failed costs no second generation."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "broken").touch()
    tasks, out = write_sums(tmp_path / "t.jsonl", 3, env="flaky"), tmp_path / "run"
    options = {"out": out, "env": "flaky.py:Flaky"}
    failures, server = collect_all(tasks, lambda _: "x", **options)
    assert [f.error.phase for f in failures] == ["verify"] * 3
    assert server.num_requests == 3

    again, server = collect_all(tasks, lambda _: "x", **options)
    assert [f.error.message for f in again] == ["RuntimeError: the verifier is broken"] * 3
    assert server.num_requests == 0
    assert len(lines_of(out / "generations.jsonl")) == 3

    (tmp_path / "broken").unlink()
    tasks = write_sums(tmp_path / "t.jsonl", 4, env="flaky")
    rollouts, server = collect_all(tasks, lambda _: "x", concurrency=1, **options)
    assert [rollout.task_id for rollout in rollouts] == ["sum-0", "sum-1", "sum-2", "sum-3"]
    assert server.num_requests == 1
    assert all(rollout.reward == 1.0 for rollout in rollouts)
    assert collect_all(tasks, lambda _: "x", **options)[1].num_requests == 0


def test_resuming_cuts_a_torn_last_line(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    collect_all(tasks, out=out)
    whole = (out / "rollouts.jsonl").read_bytes()
    (out / "rollouts.jsonl").write_bytes(whole[:-30])
    torn = lines_of_torn(whole)
    collection = Collection([tasks], CollectOptions(model="m", out=out))
    collection.check_existing_run()
    assert collection.num_left == 1
    assert (out / "rollouts.jsonl").read_bytes() == whole[:-30], "looking changes nothing"
    records, _ = collect_all(tasks, out=out)
    assert [record.task_id for record in records] == [torn]
    assert len(keys_of(out)) == 3


def lines_of_torn(whole: bytes) -> str:
    return msgspec.json.decode(whole.splitlines()[-1])["task_id"]


def test_resuming_continues_clocks(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"
    collect_all(tasks, out=out)
    before = manifest_of(out)
    collect_all(tasks, out=out, repeats=2)
    after = manifest_of(out)
    assert after["started_at"] == before["started_at"]
    assert after["seconds"] > before["seconds"]
    assert after["ended_at"] >= before["ended_at"]


def test_identical_rows_are_attempts_of_one_task(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    tasks.write_text(tasks.read_text() * 3)
    out = tmp_path / "run"
    collect_all(tasks, out=out, repeats=2)
    assert keys_of(out) == [("sum-0", attempt) for attempt in range(6)]


def test_resuming_names_rows_of_nemo_gym_as_before(tmp_path):
    """Rows with one id, in whatever order they stand now."""
    tasks, out = tmp_path / "t.jsonl", tmp_path / "run"
    rows = [
        {"id": 7, "answer": n + 1, "responses_create_params": {"input": f"What is {n} + 1?"}}
        for n in range(3)
    ]
    tasks.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    options = {"out": out, "env": "arithmetic"}
    assert len(collect_all(tasks, limit=1, **options)[0]) == 1
    records, _ = collect_all(tasks, **options)
    assert [record.reward for record in records] == [1.0, 1.0]
    assert len({task_id for task_id, _ in keys_of(out)}) == 3
    tasks.write_bytes(b"\n".join(msgspec.json.encode(row) for row in reversed(rows)))
    assert collect_all(tasks, **options)[1].num_requests == 0


def test_a_run_is_given_back_when_opening_fails(tmp_path):
    """The lock is gone, and a run that never began left no manifest."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"

    async def open_without_endpoint():
        async with Collection([tasks], CollectOptions(model="m", out=out)):
            pass

    with pytest.raises(UsageError, match="needs an endpoint"):
        asyncio.run(open_without_endpoint())
    assert list(out.iterdir()) == []
    assert len(collect_all(tasks, out=out)[0]) == 1


def test_failed_attempts_are_those_that_failed_by_themselves(tmp_path):
    """Not those whose endpoint was given up, which ended the run; it may be that of a role."""

    def of_role(cause: ModelError) -> RoleError:
        error = RoleError(f"user: {cause}")
        error.__cause__ = cause
        return error

    gone, slow = EndpointGoneError("gone"), ModelError("slow")
    errors = [gone, slow, of_role(gone), of_role(slow)]
    records = [
        failure_of(Rollout(env="e", task_id="t", attempt=number), error)
        for number, error in enumerate(errors)
    ]
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    (tmp_path / "failures.jsonl").write_bytes(lines)
    expected = {AttemptKey("e", "t", 1), AttemptKey("e", "t", 3)}
    assert failed_attempts(tmp_path) == (expected, set())
    assert failed_attempts(tmp_path, only_crashed=True) == (set(), set())
    assert records[2].error.phase == "role"
