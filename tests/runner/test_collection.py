"""Tests of a collection: what it requests, early ends, resuming, and use from Python."""

import asyncio
import re
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.benchmarks.resolution import task_inputs
from gymcli.errors import (
    EndpointGoneError,
    FatalEndpointError,
    ModelError,
    RoleError,
    RunMismatchError,
    UsageError,
)
from gymcli.metrics.measure import measure
from gymcli.mock import MockServer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.models.endpoint import Endpoint
from gymcli.runner.attempts import failure_of
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import Collection
from gymcli.runner.cost_estimate import first_request
from gymcli.runner.plan import plan_run
from gymcli.runner.resume_state import ResumeState, existing_state, failed_attempts
from gymcli.store.manifest import Manifest
from gymcli.tasks.task_source import TaskFile
from gymcli.training import Sampler
from gymcli.types import AttemptKey, Failure, Rollout
from tests.builders import FLAKY, add_up, collect_all, lines_of, write_rows, write_sums

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@pytest.mark.parametrize("of_row", LIMITS)
@pytest.mark.parametrize("given", LIMITS)
def test_a_token_limit_of_the_options_removes_those_of_the_row(tmp_path, of_row, given):
    row = {"env": "arithmetic", "prompt": "What is 1 + 1?", "answer": 2}
    params = {of_row: 900, "top_p": 0.5}
    tasks = tmp_path / "t.jsonl"
    tasks.write_bytes(msgspec.json.encode({**row, "params": params}))
    for asked, expected in (({given: 7}, {given: 7, "top_p": 0.5}), ({}, params)):
        options = CollectOptions(model="oracle", params=asked)
        plan = plan_run([TaskFile(tasks)], options, has_directory=False)
        assert asyncio.run(first_request(plan)).params == expected


def test_an_interrupted_run_keeps_its_time(tmp_path):
    """The next command adds to it, and the run has no end time yet."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 8), tmp_path / "run"

    async def interrupted():
        async with MockServer(add_up) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m")
            options = CollectOptions(endpoint=endpoint, out=out, concurrency=1)
            async with Collection(plan_run([TaskFile(tasks)], options)) as collection:
                async for _ in collection.run():
                    raise asyncio.CancelledError

    seconds = 0.0
    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(interrupted())
        manifest = msgspec.json.decode((out / "run.json").read_bytes())
        assert manifest["seconds"] > seconds
        assert "ended_at" not in manifest
        seconds = manifest["seconds"]
    collect_all(tasks, out=out)
    manifest = msgspec.json.decode((out / "run.json").read_bytes())
    assert manifest["seconds"] > seconds
    assert manifest["ended_at"] > manifest["started_at"]


def test_a_collection_says_what_is_left_in_flight_and_tried_again(tmp_path):
    """This is what the display of progress reads; a resumed run has only the rest left."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 4), tmp_path / "run"
    options = CollectOptions(model="oracle", out=out, task_ids=("sum-0",))
    assert asyncio.run(_progress(tasks, options)) == ({"arithmetic": 1}, [0], {})
    refused = []

    def refuse_once(request):
        if not refused:
            refused.append(request)
            return refusal_of(429, "once")
        return add_up(request)

    async def resumed():
        async with MockServer(refuse_once) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m")
            options = CollectOptions(endpoint=endpoint, concurrency=1)
            return await _progress(tasks, options)

    left, num_begun, retries = asyncio.run(resumed())
    assert (left, retries) == ({"arithmetic": 4}, {"RateLimitError": 1})
    # The next attempt may have begun before the record of the last one is read.
    assert max(num_begun) <= 1
    options = CollectOptions(model="oracle", out=out)
    assert asyncio.run(_progress(tasks, options))[0] == {"arithmetic": 3}


async def _progress(tasks, options):
    """Return what is left at the start, in flight after each record, and tried again."""
    async with Collection(
        plan_run([TaskFile(tasks)], options, has_directory=options.out is not None)
    ) as collection:
        left, num_begun = collection.left, []
        async for _ in collection.run():
            num_begun.append(len(collection.begun_at))
        assert not collection.begun_at
        return left, num_begun, collection.retries


async def test_a_manifest_that_cannot_be_written_hides_no_error(tmp_path, caplog):
    tasks, out = write_sums(tmp_path / "t.jsonl", 2), tmp_path / "run"
    async with Collection(plan_run([TaskFile(tasks)], CollectOptions(model="oracle", out=out))):
        (out / "run.json").unlink()
        (out / "run.json").mkdir()
        with pytest.raises(FatalEndpointError, match="it is gone"):
            raise FatalEndpointError("it is gone")
    assert "run.json: cannot be written" in caplog.text


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("secrets", "is_told"),
    [
        ({}, True),
        ({"api_key": "my-key"}, False),
        ({"headers": {"X-Key": "my-key"}}, False),
        ({"query": {"key": "my-key"}}, False),
    ],
)
def test_a_refusal_where_no_key_was_sent_says_how_to_send_one(tmp_path, status, secrets, is_told):
    tasks = write_sums(tmp_path / "t.jsonl", 1)

    async def refused():
        async with MockServer(lambda _: refusal_of(status, "no")) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", **secrets)
            options = CollectOptions(endpoint=endpoint)
            async with Collection(
                plan_run([TaskFile(tasks)], options, has_directory=False)
            ) as collection:
                async for _ in collection.run():
                    pass

    with pytest.raises(FatalEndpointError) as raised:
        asyncio.run(refused())
    assert str(raised.value).endswith("no key was sent: set --api-key-env VARIABLE") == is_told


def test_collect_names_an_environment_that_cannot_be_prepared(tmp_path, working_folder):
    Path("unprepared").touch()
    tasks = write_sums(tmp_path / "t.jsonl", 1, env=None)
    options = CollectOptions(model="oracle", env="tests.runner.environments:Unclosed")
    with pytest.raises(UsageError, match="cannot be prepared: OSError: no door"):
        plan_run([TaskFile(tasks)], options)


def test_collect_scores_a_conversation_whose_environment_does_not_close(tmp_path, caplog):
    tasks = write_sums(tmp_path / "t.jsonl", 2, env=None)
    records, server = collect_all(tasks, env="tests.runner.environments:Unclosed")
    assert [record.reward for record in records] == [1.0, 1.0]
    assert server.num_requests == 2
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "close failed: OSError: the door is stuck"
    ] * 2


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
    """A failed attempt stays expected, whatever the next command selects."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 6), tmp_path / "run"
    collect_all(tasks, refuse_odd, out=out, repeats=2)
    collect_all(tasks, out=out, task_ids=("sum-1",))
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_scored, metrics.num_unscored) == (12, 7, 5)


def test_resuming_with_other_files_expects_what_they_hold(tmp_path):
    """An attempt that was scored and is not in the new selection is expected once."""
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=out)
    collect_all(write_sums(tmp_path / "t.jsonl", 9), out=out, limit=2)
    assert manifest_of(out)["num_expected"] == 4


def test_resuming_reports_tasks_that_are_gone(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 6), out=out)
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    plan = plan_run([TaskFile(tasks)], CollectOptions(model="m", out=out))
    state = existing_state(plan)
    assert state.warnings == (
        "4 scored tasks are no longer in the files and not expected: sum-2, sum-3, sum-4, ...",
    )
    assert (plan.num_expected, state.num_left) == (2, 0)
    collect_all(tasks, out=out)
    metrics = measure(out).metrics()
    assert (metrics.num_expected, metrics.num_scored) == (2, 6)


def test_resuming_shows_the_blanks_of_a_task_that_is_gone():
    state = ResumeState(Manifest(), removed_ids=(" sum-1", "sum\n2", "sum-3"))
    assert state.removed_warning == (
        '3 scored tasks are no longer in the files and not expected: " sum-1", "sum\\n2", sum-3'
    )


def test_resuming_reports_one_task_that_is_gone(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), out=out)
    tasks = TaskFile(write_sums(tmp_path / "t.jsonl", 1))
    (warning,) = existing_state(plan_run([tasks], CollectOptions(model="m", out=out))).warnings
    assert warning == "1 scored task is no longer in the files and not expected: sum-1"


def test_resuming_keeps_environments_that_are_not_selected(tmp_path):
    """Their best reward stays recorded, and their attempts stay expected."""
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
def test_resuming_refuses_a_changed_task(tmp_path, working_folder, breaks):
    """This holds for scored tasks and for conversations that wait for their score."""
    (tmp_path / "flaky.py").write_text(FLAKY)
    if breaks:
        (tmp_path / "broken").touch()
    tasks, out = write_sums(tmp_path / "t.jsonl", 2, env="flaky"), tmp_path / "run"
    collect_all(tasks, lambda _: "x", out=out, env="flaky.py:Flaky")
    tasks.write_text(tasks.read_text().replace('"answer":2', '"answer":3'))
    with pytest.raises(
        RunMismatchError, match=r't\.jsonl:2: the content of task "sum-1" has changed'
    ):
        collect_all(tasks, out=out, env="flaky.py:Flaky")


def test_resuming_scores_waiting_conversations_first(tmp_path, working_folder):
    """A verifier that failed does not cost a second generation."""
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
    plan = plan_run([TaskFile(tasks)], CollectOptions(model="m", out=out))
    assert existing_state(plan).num_left == 1
    assert (out / "rollouts.jsonl").read_bytes() == whole[:-30], "checking changes nothing"
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
    """Rows that share an id keep their names in any order."""
    tasks, out = tmp_path / "t.jsonl", tmp_path / "run"
    rows = [
        {"id": 7, "answer": n + 1, "responses_create_params": {"input": f"What is {n} + 1?"}}
        for n in range(3)
    ]
    write_rows(tasks, rows)
    options = {"out": out, "env": "arithmetic"}
    assert len(collect_all(tasks, limit=1, **options)[0]) == 1
    records, _ = collect_all(tasks, **options)
    assert [record.reward for record in records] == [1.0, 1.0]
    assert len({task_id for task_id, _ in keys_of(out)}) == 3
    write_rows(tasks, reversed(rows))
    assert collect_all(tasks, **options)[1].num_requests == 0


def test_a_run_is_released_when_opening_fails(tmp_path):
    """The lock is released, and a run that never began has no manifest."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"

    async def open_without_endpoint():
        async with Collection(plan_run([TaskFile(tasks)], CollectOptions(model="m", out=out))):
            pass

    with pytest.raises(UsageError, match="needs an endpoint"):
        asyncio.run(open_without_endpoint())
    assert list(out.iterdir()) == []
    assert len(collect_all(tasks, out=out)[0]) == 1


def test_failed_attempts_are_those_that_failed_by_themselves(tmp_path):
    """A failure does not count if its endpoint, or a role's, was given up: that ends the run."""

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


def test_collect_gives_every_rollout(tmp_path):
    records, server = collect_all(write_sums(tmp_path / "t.jsonl", 5), repeats=2)
    assert sorted((r.task_id, r.attempt, r.reward) for r in records) == [
        (f"sum-{n}", attempt, 1.0) for n in range(5) for attempt in range(2)
    ]
    assert {r.model for r in records} == {"m"}
    assert server.num_requests == 10


def test_collect_keeps_nothing_without_out(tmp_path, working_folder):
    collect_all(write_sums(tmp_path / "t.jsonl", 2))
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


async def test_a_collection_that_keeps_nothing_has_nothing_to_finish(tmp_path, working_folder):
    collection = Collection(
        plan_run(task_inputs(["arithmetic"]), CollectOptions(model="oracle"), has_directory=False)
    )
    async with collection:
        num = len([record async for record in collection.run()])
        collection.finish(b"{}", 0.0)
        assert num == collection.num_scored == 60
    assert list(tmp_path.iterdir()) == []


def test_collect_resumes_where_out_is_given(tmp_path):
    """Scored attempts are not yielded again, and the run's files are complete."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    assert len(collect_all(tasks, out=out)[0]) == 3
    assert collect_all(tasks, out=out)[0] == []
    assert len(lines_of(out / "rollouts.jsonl")) == 3
    assert msgspec.json.decode((out / "metrics.json").read_bytes())["num_scored"] == 3
    assert msgspec.json.decode((out / "run.json").read_bytes())["ended_at"] > 0


def test_collect_that_a_budget_ends_leaves_its_metrics(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 9), tmp_path / "run"
    with pytest.raises(gymcli.GymError, match="--max-tokens-total 1 is reached"):
        collect_all(tasks, out=out, concurrency=1, max_tokens_total=1)
    assert msgspec.json.decode((out / "metrics.json").read_bytes())["num_scored"] == 1
    assert "ended_at" not in msgspec.json.decode((out / "run.json").read_bytes())


def test_collect_that_failures_end_leaves_its_metrics(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 9), tmp_path / "run"
    options = {"concurrency": 1, "max_failures": 2}
    with pytest.raises(gymcli.GymError, match=r"stopped after 2 failed attempts \(--max-fail"):
        collect_all(tasks, lambda _: refusal_of(400, "no"), out=out, **options)
    assert len(lines_of(out / "failures.jsonl")) == 2
    metrics = msgspec.json.decode((out / "metrics.json").read_bytes())
    assert metrics["failures"] == {"RequestRefusedError": 2}
    assert collect_all(tasks, **options)[0]


async def test_collect_takes_the_name_of_an_environment():
    assert [
        r.reward for r in [r async for r in gymcli.collect("arithmetic", model="oracle", limit=3)]
    ] == [1.0] * 3


async def test_collect_gives_failures_too(tmp_path, working_folder):
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "broken").touch()
    tasks = write_sums(tmp_path / "t.jsonl", 2, env="flaky")
    failures = [r async for r in gymcli.collect(tasks, model="oracle", env="flaky.py:Flaky")]
    assert all(isinstance(failure, Failure) for failure in failures)
    assert {(f.error.phase, f.error.error_class) for f in failures} == {("verify", "VerifierError")}


@pytest.mark.parametrize("closes", [True, False])
async def test_collect_left_early_leaves_no_tasks_behind(tmp_path, mock_server, closes):
    """Without `aclosing` the event loop closes the generator a moment later."""
    mock_server.behaviour, mock_server.latency = add_up, 0.01
    tasks = write_sums(tmp_path / "t.jsonl", 200)
    endpoint = gymcli.Endpoint(base_url=mock_server.base_url, model="m")

    async def take_one():
        records = gymcli.collect(tasks, endpoint=endpoint, concurrency=8)
        if closes:
            async with aclosing(records):
                await anext(records)
                return
        async for _ in records:
            break

    def others():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        return [task for task in tasks if not task.done()]

    await take_one()
    if closes:
        assert not others()
    async with asyncio.timeout(10):
        while left := others():
            await asyncio.wait(left)
    assert mock_server.num_requests < 50


def test_collect_left_early_keeps_what_ended(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 50), tmp_path / "run"

    async def run():
        async with MockServer(add_up) as server:
            endpoint = gymcli.Endpoint(base_url=server.base_url, model="m")
            records = gymcli.collect(tasks, endpoint=endpoint, concurrency=4, out=out)
            async with aclosing(records):
                return (await anext(records)).key

    key = asyncio.run(run())
    assert key.task_id in {line["task_id"] for line in lines_of(out / "rollouts.jsonl")}
    records, _ = collect_all(tasks, out=out)
    lines = lines_of(out / "rollouts.jsonl")
    assert len({line["task_id"] for line in lines}) == len(lines) == 50
    assert len(records) < 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "oracle", "speed": 9}, "collect: there is no option speed"),
        (
            {"model": "oracle", "limt": 3},
            'collect: there is no option limt; did you mean "limit"?',
        ),
        ({"model": "oracle", "repeats": 0}, "collect: repeats: must be 1 or more"),
        ({"model": "oracle", "repeats": "x"}, "collect: repeats: is not a whole number"),
        (
            {"model": "oracle", "repeats": "x", "sed": 1},
            'collect: repeats: is not a whole number; there is no option sed; did you mean "seed"?',
        ),
        ({}, "collect: needs endpoint= or model="),
        (
            {"model": "n", "endpoint": gymcli.Endpoint(base_url="http://h", model="m")},
            "collect: the endpoint serves m, not n",
        ),
        (
            {"model": "oracle", "roles": {"judge": {"base_url": "http://h", "api_key": "sk-1"}}},
            "collect: roles.judge.",
        ),
    ],
)
def test_collect_refuses_wrong_options(options, message):
    async def run():
        return [r async for r in gymcli.collect("arithmetic", **options)]

    with pytest.raises(gymcli.UsageError) as caught:
        asyncio.run(run())
    assert str(caught.value).startswith(message)
    assert "sk-1" not in str(caught.value)


def test_other_functions_with_these_options_refuse_wrong_ones_too():
    message = 'there is no option limt; did you mean "limit"?'
    with pytest.raises(gymcli.UsageError, match=re.escape(f"benchmark: {message}")):
        gymcli.benchmark("gsm8k", model="oracle", limt=3)
    with pytest.raises(gymcli.UsageError, match="Sampler: max_turns: must be 1 or more"):
        Sampler("arithmetic", model="oracle", max_turns=0)


def test_collect_needs_an_endpoint(working_folder, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    async def run():
        return [r async for r in gymcli.collect("arithmetic", model="m")]

    with pytest.raises(gymcli.UsageError, match="no endpoint for model m: use --model local"):
        asyncio.run(run())


def test_verify_gives_every_score_again(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=out)
    found = list(gymcli.rescore(out))
    assert [item.key.task_id for item in found] == [
        line["task_id"] for line in lines_of(out / "rollouts.jsonl")
    ]
    assert not any(item.is_changed for item in found)
    assert [item.new_reward for item in found] == [1.0] * 4
