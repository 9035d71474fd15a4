"""Tests of stopping a run: nothing starts, each attempt has one record, budgets hold."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack, aclosing

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

import gymcli
from gymcli.errors import (
    BudgetAttemptError,
    BudgetReachedError,
    CancelledAttemptError,
    FatalEndpointError,
    InterruptedRunError,
    RunFileError,
    TerminatedRunError,
)
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.models.endpoint import Endpoint
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import Collection
from gymcli.runner.plan import plan_run
from gymcli.runner.stopping import Budget, Stopping, spent_on_record
from gymcli.tasks.task_source import TaskFile
from gymcli.types import ErrorRecord, Failure, RoleUse, Rollout, Timing, Usage
from tests.builders import (
    QUICK,
    add_up,
    collect_all,
    lines_of,
    write_prompts,
    write_rows,
    write_sums,
)
from tests.runner.test_roles import JUDGED, good

STALLED = MockAnswer(text="never", fault="stall")
HOUR = 3600.0


def stalling(*words):
    """Answer sums, but never those about one of these numbers."""

    def behave(request):
        text = last_user_text(request)
        return STALLED if any(word in text for word in words) else add_up(request)

    return behave


async def until(is_reached):
    while not is_reached():
        await asyncio.sleep(0.005)


async def stopped_run(tasks, *, policy, stop, judge=None, cause=None, **options):
    """Collect and call `stop` with the collection and the servers; return records and cause."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(MockServer(policy))
        judging = await stack.enter_async_context(MockServer(judge or good))
        asked = options.pop("endpoint", QUICK)
        endpoint = Endpoint(base_url=server.base_url, model="m", **asked)
        if judge is not None:
            roles = {"judge": Endpoint(base_url=judging.base_url, model="j", **QUICK)}
            options |= {"roles": roles, "env": JUDGED}
        collection = Collection(
            plan_run([TaskFile(tasks)], CollectOptions(endpoint=endpoint, **options))
        )
        records = []

        async def collect():
            async with collection, aclosing(collection.run()) as coming:
                async for record in coming:
                    records.append(record)

        collecting = asyncio.create_task(collect())
        await stop(collection, server, judging)
        with pytest.raises(gymcli.GymError) as raised:
            await collecting
        return records, raised.value, server, judging


def failures_of(records):
    return sorted(
        (record.task_id, record.error.error_class, record.error.phase)
        for record in records
        if isinstance(record, Failure)
    )


def test_what_is_in_flight_ends_by_itself_within_the_grace(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 20), tmp_path / "run"

    made = []
    numbers = itertools.count(1)

    def behave(request):
        if next(numbers) == 3:
            made[0].stopping.stop(InterruptedRunError("interrupted"))
        return add_up(request)

    async def stop(collection, server, _):
        made.append(collection)

    options = {"out": out, "concurrency": 3, "grace": HOUR}
    run = stopped_run(tasks, policy=behave, stop=stop, **options)
    records, cause, server, _ = asyncio.run(run)
    assert type(cause) is InterruptedRunError
    assert {record.reward for record in records} == {1.0}
    # Two more may have started before the third request reached the server.
    assert 3 <= len(records) == server.num_requests <= 5
    assert "ended_at" not in (out / "run.json").read_text()


@pytest.mark.parametrize(
    ("cause", "error_class"),
    [
        (InterruptedRunError("interrupted"), "CancelledAttemptError"),
        (TerminatedRunError("terminated"), "CancelledAttemptError"),
        (FatalEndpointError("it is gone"), "CancelledAttemptError"),
        (BudgetReachedError("too much"), "BudgetAttemptError"),
    ],
)
def test_what_outlasts_the_grace_is_recorded_with_its_cause(tmp_path, cause, error_class):
    tasks, out = write_sums(tmp_path / "t.jsonl", 6), tmp_path / "run"

    async def stop(collection, server, _):
        await until(lambda: collection.num_scored == 4 and server.in_flight == 2)
        collection.stopping.stop(cause)

    behave = stalling("What is 0 ", "What is 3 ")
    options = {"out": out, "concurrency": 3, "grace": 0.0}
    records, raised, _, _ = asyncio.run(stopped_run(tasks, policy=behave, stop=stop, **options))
    assert str(raised).startswith(str(cause))
    assert type(raised) is type(cause)
    assert failures_of(records) == [
        ("sum-0", error_class, "model"),
        ("sum-3", error_class, "model"),
    ]
    for line in lines_of(out / "failures.jsonl"):
        assert line["error"]["message"] == f"the run was ended first: {cause}"
        assert [message["role"] for message in line["messages"]] == ["user"]
    assert len(collect_all(tasks, out=out)[0]) == 2
    assert len(lines_of(out / "rollouts.jsonl")) == 6


@pytest.mark.slow
def test_what_was_tried_before_the_cut_is_on_record(tmp_path):
    """Retries, and the usage of answers that could not be used."""
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    useless = MockAnswer(body='{"choices": [], "usage": {"prompt_tokens": 7}}')
    answers = iter([useless, refusal_of(500, "no"), STALLED])

    async def stop(collection, server, _):
        await until(lambda: server.num_requests == 3)
        collection.stopping.stop(InterruptedRunError("interrupted"))

    options = {"endpoint": {}, "grace": 0.0}
    run = stopped_run(tasks, policy=lambda _: next(answers), stop=stop, **options)
    (record,), *_ = asyncio.run(run)
    assert record.error.error_class == "CancelledAttemptError"
    assert record.retries == {"InvalidAnswerError": 1, "ServerError": 1}
    assert record.usage.prompt_tokens == 7


def test_a_conversation_whose_judge_is_cut_off_is_not_asked_for_again(tmp_path):
    """It is saved, the failure names the phase, and the next command scores it."""
    tasks, out = write_prompts(tmp_path / "t.jsonl", 3), tmp_path / "run"

    async def stop(collection, server, judging):
        await until(lambda: judging.in_flight == 3)
        collection.stopping.stop(InterruptedRunError("interrupted"))

    run = stopped_run(
        tasks, policy=last_user_text, judge=lambda _: STALLED, stop=stop, out=out, grace=0.0
    )
    records, _, server, _ = asyncio.run(run)
    assert failures_of(records) == [(f"t{n}", "CancelledAttemptError", "role") for n in range(3)]
    assert server.num_requests == len(lines_of(out / "generations.jsonl")) == 3

    async def again():
        async with MockServer(last_user_text) as policy, MockServer(good) as judge:
            endpoint = Endpoint(base_url=policy.base_url, model="m", **QUICK)
            roles = {"judge": Endpoint(base_url=judge.base_url, model="j", **QUICK)}
            collecting = gymcli.collect(tasks, endpoint=endpoint, roles=roles, env=JUDGED, out=out)
            return [record async for record in collecting], policy.num_requests

    records, num_requests = asyncio.run(again())
    assert ([record.reward for record in records], num_requests) == ([1.0] * 3, 0)


def test_attempts_of_a_group_that_never_gets_whole_are_recorded(tmp_path):
    """Attempts that wait for the others keep their conversation."""
    tasks, out = write_prompts(tmp_path / "t.jsonl", 1), tmp_path / "run"
    numbers = iter(range(3))

    def behave(request):
        return STALLED if next(numbers) == 2 else "5"

    async def stop(collection, server, _):
        path = out / "generations.jsonl"
        await until(lambda: path.is_file() and len(lines_of(path)) == 2 and server.in_flight == 1)
        collection.stopping.stop(TerminatedRunError("terminated"))

    ranked = {"env": "tests.runner.environments:Ranked", "repeats": 3}
    run = stopped_run(tasks, policy=behave, stop=stop, out=out, grace=0.0, **ranked)
    records, _, _, _ = asyncio.run(run)
    assert Counter((r.error.error_class, r.error.phase) for r in records) == {
        ("CancelledAttemptError", "verify"): 2,
        ("CancelledAttemptError", "model"): 1,
    }
    assert len({record.key for record in records}) == 3
    again, server = collect_all(tasks, lambda _: "7", out=out, **ranked)
    assert server.num_requests == 1
    assert len(again) == 3


def test_a_fatal_answer_leaves_a_record_of_every_attempt_in_flight(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 50), tmp_path / "run"
    numbers = itertools.count(1)

    def behave(request):
        return refusal_of(401, "no entry") if next(numbers) >= 4 else STALLED

    async def stop(collection, server, _):
        """Do nothing: the refusals stop the run."""

    run = stopped_run(tasks, policy=behave, stop=stop, out=out, concurrency=4, grace=HOUR)
    records, cause, server, _ = asyncio.run(run)
    assert type(cause) is FatalEndpointError
    assert "no entry" in str(cause)
    assert server.num_requests == 3 + 4
    assert Counter((r.error.error_class, r.error.phase) for r in records) == {
        ("CancelledAttemptError", "model"): 3,
        ("AuthenticationError", "model"): 4,
    }
    assert len(lines_of(out / "failures.jsonl")) == 7


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_gravest_cause_ends_the_run_and_the_earliest_moment_counts(new_loop):
    async def run():
        stopping = Stopping(HOUR)
        stopping.stop(FatalEndpointError("gone"))
        stopping.stop(BudgetReachedError("spent"))
        budget = type(stopping.error("model"))
        stopping.stop(InterruptedRunError("interrupted"), grace=0.0)
        stopping.stop(TerminatedRunError("terminated"), grace=0.0)
        with (
            pytest.raises(CancelledAttemptError, match="interrupted") as raised,
            stopping.in_flight(lambda: "role"),
        ):
            await asyncio.Event().wait()
        with (
            pytest.raises(CancelledAttemptError),
            stopping.in_flight(lambda: "verify"),
        ):
            pytest.fail("nothing starts after the cut")
        stopping.close()
        return budget, stopping.cause, raised.value.phase

    with asyncio.Runner(loop_factory=new_loop) as runner:
        budget, cause, phase = runner.run(run())
    assert budget is BudgetAttemptError
    assert (str(cause), phase) == ("interrupted", "role")


async def test_a_cancellation_by_somebody_else_passes():
    """Even at the moment of the cut: a caller who leaves does not end the run."""

    async def attempt(stopping, is_waiting):
        with stopping.in_flight(lambda: "model"):
            is_waiting.set()
            await asyncio.Event().wait()

    stopping, is_waiting = Stopping(), asyncio.Event()
    task = asyncio.create_task(attempt(stopping, is_waiting))
    await is_waiting.wait()
    stopping.stop(InterruptedRunError("interrupted"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stopping.close()
    assert stopping.num_in_flight == 0


async def test_work_that_ends_in_the_moment_of_the_cut_keeps_its_result():
    async def attempt(stopping):
        with stopping.in_flight(lambda: "verify"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "done"

    stopping = Stopping()
    task = asyncio.create_task(attempt(stopping))
    await asyncio.sleep(0)
    stopping.stop(InterruptedRunError("interrupted"))
    result = await task
    stopping.close()
    assert (result, task.cancelling()) == ("done", 0)


async def test_a_library_user_who_leaves_finds_no_invented_records(tmp_path):
    """Finished conversations are saved, even if their judge was still being asked."""
    tasks, out = write_prompts(tmp_path / "t.jsonl", 4), tmp_path / "run"

    def judge(request):
        return good(request) if "about 0" in last_user_text(request) else STALLED

    async with MockServer(last_user_text) as policy, MockServer(judge) as judging:
        endpoint = Endpoint(base_url=policy.base_url, model="m", **QUICK)
        roles = {"judge": Endpoint(base_url=judging.base_url, model="j", **QUICK)}
        options = {"endpoint": endpoint, "roles": roles, "env": JUDGED, "out": out}
        async with aclosing(gymcli.collect(tasks, **options)) as records:
            await anext(records)
            await until(lambda: judging.in_flight == 3)
    assert not (out / "failures.jsonl").exists()
    assert len(lines_of(out / "rollouts.jsonl")) == 1
    assert len(lines_of(out / "generations.jsonl")) == 4


@pytest.mark.slow
@settings(max_examples=25)
@given(
    num_tasks=st.integers(1, 12),
    concurrency=st.integers(1, 6),
    num_before=st.integers(0, 12),
    grace=st.sampled_from([0.0, 0.01, HOUR]),
)
def test_every_attempt_that_started_has_one_record(
    tmp_path_factory, num_tasks, concurrency, num_before, grace
):
    """The run may be stopped at any time; the same command completes it."""
    folder = tmp_path_factory.mktemp("stopped")
    tasks, out = write_sums(folder / "t.jsonl", num_tasks), folder / "run"
    asked = set()

    def behave(request):
        asked.add(last_user_text(request))
        return add_up(request)

    async def run():
        async with MockServer(behave) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", **QUICK)
            options = CollectOptions(
                endpoint=endpoint, out=out, concurrency=concurrency, grace=grace
            )
            records = []
            async with Collection(plan_run([TaskFile(tasks)], options)) as collection:
                try:
                    async with aclosing(collection.run()) as coming:
                        async for record in coming:
                            records.append(record)
                            if len(records) == num_before:
                                collection.stopping.stop(InterruptedRunError("interrupted"))
                except InterruptedRunError:
                    pass
            return records

    records = asyncio.run(run())
    keys = [record.key for record in records]
    assert len(keys) == len(set(keys))
    on_disk = [
        line["task_id"]
        for name in ("rollouts.jsonl", "failures.jsonl")
        if (out / name).is_file()
        for line in lines_of(out / name)
    ]
    assert sorted(on_disk) == sorted(key.task_id for key in keys)
    assert len(asked) <= len(keys)
    collect_all(tasks, out=out)
    scored = [line["task_id"] for line in lines_of(out / "rollouts.jsonl")]
    assert len(scored) == len(set(scored)) == num_tasks


def line(kind, attempt, *, at=1.0, policy=10, **roles):
    """Return the record of an attempt whose conversation began at a given time."""
    rest = {"error": ErrorRecord(error_class="RoleError", phase="role")} if kind is Failure else {}
    use = {role: RoleUse(model="j", usage=tokens(number)) for role, number in roles.items()}
    return kind(
        task_id="t",
        env="e",
        attempt=attempt,
        usage=tokens(policy),
        role_usage=use,
        timing=Timing(started_at=at),
        **rest,
    )


def tokens(number):
    return Usage(prompt_tokens=number - 1, completion_tokens=1)


def write(folder, name, *records):
    write_rows(folder / name, records)


def test_a_conversation_counts_once_and_each_of_its_scorings(tmp_path):
    """The judge failed twice, after a call each time; the simulated user was asked once."""
    write(tmp_path, "generations.jsonl", line(Rollout, 0, user=5))
    write(
        tmp_path,
        "failures.jsonl",
        line(Failure, 0, user=5, judge=3),
        line(Failure, 0, user=5, judge=4),
    )
    write(tmp_path, "rollouts.jsonl", line(Rollout, 0, user=5, judge=7))
    spent = spent_on_record(tmp_path)
    assert spent.policy == tokens(10)
    assert spent.roles["user"] == tokens(5)
    assert spent.roles["judge"] == Usage(prompt_tokens=3 + 4 + 7 - 3, completion_tokens=3)


def test_each_try_of_an_attempt_counts(tmp_path):
    write(tmp_path, "failures.jsonl", line(Failure, 0, at=1.0), line(Failure, 0, at=2.0, policy=4))
    write(tmp_path, "rollouts.jsonl", line(Rollout, 0, at=3.0), line(Rollout, 1, at=3.0))
    assert spent_on_record(tmp_path).policy == Usage(prompt_tokens=30, completion_tokens=4)


def test_what_was_saved_twice_counts_once(tmp_path):
    write(tmp_path, "generations.jsonl", line(Rollout, 0, judge=2), line(Rollout, 0, judge=2))
    spent = spent_on_record(tmp_path)
    assert (spent.policy, spent.roles) == (tokens(10), {"judge": tokens(2)})


def test_a_run_of_which_nothing_is_on_record_spent_nothing(tmp_path):
    assert spent_on_record(tmp_path) == (Usage(), {})


def test_a_damaged_line_is_told(tmp_path):
    (tmp_path / "failures.jsonl").write_text('{"env": 3}\n')
    with pytest.raises(RunFileError, match=r"failures\.jsonl:1: is damaged"):
        spent_on_record(tmp_path)


def test_a_budget_says_which_of_two_is_reached():
    causes = []
    options = CollectOptions(model="oracle", max_tokens_total=100, max_cost=2.5)
    budget = Budget(options, causes.append)
    budget.add(tokens(60), 1.0)
    assert not causes
    budget.add(tokens(10), 1.5)
    (cause,) = causes
    assert isinstance(cause, BudgetReachedError)
    assert str(cause) == "the budget --max-cost 2.5 is reached"
    budget.add(tokens(30), None)
    assert str(causes[-1]) == "the budget --max-tokens-total 100 is reached"
    assert budget.spent_text() == "100 tokens and a cost of 2.5 are spent"


def test_a_budget_stops_where_it_cannot_count():
    causes = []
    budget = Budget(CollectOptions(model="oracle", max_cost=1.0, max_tokens_total=9), causes.append)
    budget.add(Usage(), 0.0)
    (cause,) = causes
    assert "so --max-tokens-total and --max-cost cannot be enforced" in str(cause)
    assert budget.spent_text() == ""
