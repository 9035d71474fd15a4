"""Tests of concurrent attempts: bounded, lazy, and stopped when none can succeed."""

import asyncio
import gc
import itertools
from collections import Counter
from contextlib import aclosing

import msgspec
import pytest

import gymcli
from gymcli.errors import FatalEndpointError, RunDirectoryError
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.runner.attempts import run_together
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import Collection
from gymcli.runner.plan import plan_run
from gymcli.tasks.task_source import TaskFile
from gymcli.types import Failure, Rollout, TaskRow
from tests.builders import FLAKY, QUICK, add_up, collect_all, lines_of, write_prompts, write_sums
from tests.runner.test_groups import TOGETHER, counting
from tests.runner.test_roles import collected, failing_at


def refusing(*, status: int, first: int, last: int = 10**9):
    """Answer sums, but refuse the requests numbered `first` to `last`."""
    numbers = itertools.count(1)

    def behave(request):
        if first <= next(numbers) <= last:
            return refusal_of(status, "no entry")
        return add_up(request)

    return behave


def test_run_attempts_is_bounded(tmp_path):
    _, server = collect_all(write_sums(tmp_path / "t.jsonl", 40), concurrency=3)
    assert server.max_in_flight <= 3


@pytest.mark.slow
async def test_run_attempts_reads_tasks_as_they_are_needed(tmp_path):
    """Only tasks under way and the one being read are in memory, if they are 3 MB as here."""
    tasks = write_sums(tmp_path / "t.jsonl", 300, note="x" * 10_000)
    num_others = _num_rows()
    held = []
    records = gymcli.collect(tasks, model="oracle", concurrency=4)
    async with aclosing(records):
        async for number, record in _numbered(records):
            assert isinstance(record, Rollout)
            if number % 100 == 0:
                held.append(_num_rows() - num_others)
    assert len(held) == 3
    assert max(held) <= 8


def test_run_attempts_ends_when_no_answer_reports_usage(tmp_path):
    """With a limit on tokens, every episode with a second turn would fail in the same way."""
    silent = MockAnswer(body='{"choices": [{"message": {"role": "assistant", "content": "1"}}]}')
    tasks = write_prompts(tmp_path / "t.jsonl", 40)
    with pytest.raises(FatalEndpointError, match=r"did not report .* \(20 tasks in a row met this"):
        collect_all(
            tasks,
            lambda _: silent,
            env="tests.runner.environments:Endless",
            concurrency=1,
            max_episode_tokens=100,
        )


def _num_rows() -> int:
    gc.collect()
    return sum(type(thing) is TaskRow for thing in gc.get_objects())


async def _numbered(records):
    number = 0
    async for record in records:
        yield number, record
        number += 1


async def test_run_attempts_does_not_run_ahead_of_its_consumer(tmp_path):
    """Unread outcomes are bounded; otherwise a slow consumer would make memory grow."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 100), tmp_path / "run"
    options = CollectOptions(model="oracle", concurrency=5, out=out)
    async with (
        Collection(plan_run([TaskFile(tasks)], options)) as opened,
        aclosing(opened.run()) as records,
    ):
        await anext(records)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(lines_of(out / "rollouts.jsonl")) <= 1 + 5 + 5


@pytest.mark.parametrize("status", [401, 404])
def test_run_attempts_ends_with_a_fatal_first_answer(tmp_path, status):
    with pytest.raises(FatalEndpointError, match="no entry"):
        collect_all(
            write_sums(tmp_path / "t.jsonl", 300), refusing(status=status, first=1), concurrency=2
        )


REFUSALS = {
    "key": refusal_of(401, "no entry"),
    "policy": refusal_of(403, "not for this prompt"),
    "model": refusal_of(404, "no endpoint takes pictures"),
    "path": refusal_of(405, "not here"),
    "moved": refusal_of(307, "", Location="/elsewhere"),
    "money": refusal_of(402, "too dear"),
}
"""Answers that may refuse one task, though they sound as if they refused all."""


def refusing_tasks(refusal, *numbers: int):
    """Refuse these tasks immediately and always, and answer the others correctly after a delay."""

    def behave(request):
        if int(last_user_text(request).split()[2]) in numbers:
            return refusal
        return msgspec.structs.replace(add_up(request), delay=0.01)

    return behave


@pytest.mark.parametrize(
    ("kind", "concurrency"), [*((kind, 1) for kind in REFUSALS), ("key", 64), ("policy", 64)]
)
def test_run_attempts_fails_only_the_first_task_if_no_other_is_refused(tmp_path, kind, concurrency):
    """This holds each time the run is resumed."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 30), tmp_path / "run"
    behaviour = refusing_tasks(REFUSALS[kind], 0)
    for num_left in (30, 1):
        records, server = collect_all(tasks, behaviour, concurrency=concurrency, out=out)
        assert (len(records), server.num_requests) == (num_left, num_left)
        assert [record.task_id for record in records if isinstance(record, Failure)] == ["sum-0"]
    assert len(lines_of(out / "rollouts.jsonl")) == 29


def test_run_attempts_waits_for_those_that_are_not_refused(tmp_path):
    """Many of the first tasks are refused while the others are still being answered."""
    tasks = write_sums(tmp_path / "t.jsonl", 40)
    behaviour = refusing_tasks(REFUSALS["policy"], *range(10))
    records, _ = collect_all(tasks, behaviour, concurrency=20)
    assert sum(isinstance(record, Rollout) for record in records) == 30


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_run_attempts_ends_where_the_only_task_is_refused(tmp_path, refusal):
    """No second task can tell more, and nothing is scored."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 5), tmp_path / "run"
    with pytest.raises(FatalEndpointError, match=f"answered {refusal.status}"):
        collect_all(tasks, lambda _: refusal, limit=1, repeats=3, out=out)
    assert len(lines_of(out / "failures.jsonl")) == 3


def test_run_attempts_costs_one_request_where_a_resume_has_one_task_left(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    collect_all(tasks, limit=2, out=out)
    [failure], _ = collect_all(tasks, lambda _: REFUSALS["key"], out=out)
    assert failure.error.error_class == "AuthenticationError"


@pytest.mark.parametrize("kind", ["policy", "model", "path", "moved"])
def test_run_attempts_goes_on_after_answers_whatever_it_is_refused(tmp_path, kind):
    """Only a key or an account can be revoked in the middle of a run."""
    numbers = itertools.count()
    tasks = write_sums(tmp_path / "t.jsonl", 40)
    records, server = collect_all(
        tasks, lambda request: REFUSALS[kind] if next(numbers) else add_up(request), concurrency=2
    )
    assert (len(records), server.num_requests) == (40, 40)


def test_run_attempts_counts_tasks_in_a_row_and_not_their_attempts(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 19)
    records, _ = collect_all(tasks, refusing(status=401, first=2), concurrency=1, repeats=3)
    assert len(records) == 19 * 3


def test_run_attempts_ends_where_the_judge_alone_is_not_there(tmp_path):
    """Answers of the policy say nothing about the judge's model."""
    tasks = write_prompts(tmp_path / "t.jsonl", 30)

    def refuse(request):
        return refusal_of(404, "no such model")

    with pytest.raises(FatalEndpointError, match=r"judge: .*no such model"):
        collected(tasks, judge=refuse, out=tmp_path / "run", concurrency=2)
    assert len(lines_of(tmp_path / "run" / "failures.jsonl")) < 10


def test_run_attempts_does_not_count_a_timeout_as_an_answer(tmp_path):
    """An attempt that ran out of time is scored although nothing was ever answered."""
    answers = itertools.chain(
        [MockAnswer(fault="stall")], itertools.repeat(refusal_of(401, "no entry"))
    )
    tasks, out = write_sums(tmp_path / "t.jsonl", 300), tmp_path / "run"
    with pytest.raises(FatalEndpointError, match="no entry"):
        collect_all(tasks, lambda _: next(answers), concurrency=1, max_episode_time=0.1, out=out)
    (line,) = lines_of(out / "rollouts.jsonl")
    assert line["stop_reason"] == "episode_time"


def test_run_attempts_survives_one_refusal_after_an_answer(tmp_path):
    records, _ = collect_all(
        write_sums(tmp_path / "t.jsonl", 30),
        refusing(status=401, first=5, last=9),
        concurrency=1,
    )
    assert sum(isinstance(record, Failure) for record in records) == 5
    assert len(records) == 30


def test_run_attempts_ends_where_the_key_is_refused_from_now_on(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 300), tmp_path / "run"
    with pytest.raises(FatalEndpointError, match="20 tasks in a row met this"):
        collect_all(tasks, refusing(status=401, first=5), concurrency=2, out=out)
    assert len(lines_of(out / "rollouts.jsonl")) == 4
    # An answer that is scored late resets the count of refusals.
    assert 20 <= len(lines_of(out / "failures.jsonl")) < 150


def test_run_attempts_ends_where_nothing_can_be_written(tmp_path):
    """The error arrives as it was raised, not inside an exception group of a worker."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 20), tmp_path / "run"
    collect_all(tasks, out=out, limit=1)
    (out / "rollouts.jsonl").unlink()
    (out / "rollouts.jsonl").mkdir()
    with pytest.raises(RunDirectoryError, match=r"rollouts\.jsonl"):
        collect_all(tasks, out=out)


def test_run_attempts_ends_where_the_tasks_vanish(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    collection = Collection(
        plan_run([TaskFile(tasks)], CollectOptions(model="oracle"), has_directory=False)
    )
    tasks.unlink()

    async def run():
        async with collection:
            return [record async for record in collection.run()]

    with pytest.raises(gymcli.GymError, match=r"t\.jsonl: cannot be read"):
        asyncio.run(run())


async def test_run_attempts_records_failures_of_environments(tmp_path, working_folder):
    """The record has the class and the phase, and the run continues."""
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "closed").touch()
    tasks = write_sums(tmp_path / "t.jsonl", 3, env="flaky")
    failures = [r async for r in gymcli.collect(tasks, model="oracle", env="flaky.py:Flaky")]
    assert [failure.error.phase for failure in failures] == ["environment"] * 3
    assert {f.error.message for f in failures} == {"RuntimeError: the oracle is closed"}


def test_run_attempts_records_the_status_of_a_refusal(tmp_path):
    def behave(request):
        return refusal_of(422, "not like this")

    (failure,), _ = collect_all(write_sums(tmp_path / "t.jsonl", 1), behave)
    assert (failure.error.error_class, failure.error.status) == ("RequestRefusedError", 422)
    assert [message.role for message in failure.messages] == ["user"]


def test_run_attempts_tells_an_unreachable_endpoint_at_once(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 50)

    async def run():
        async with MockServer() as server:
            address = server.base_url
        endpoint = gymcli.Endpoint(base_url=address, model="m", **QUICK)
        return [r async for r in gymcli.collect(tasks, endpoint=endpoint)]

    with pytest.raises(FatalEndpointError, match="is the server running"):
        asyncio.run(run())


def refusing_judge(*, first, last=10**9):
    """Call everything good, but refuse the key for the requests `first` to `last`."""
    numbers = itertools.count(1)

    def behave(request):
        return refusal_of(401, "no key") if first <= next(numbers) <= last else "[[GOOD]]"

    return behave


def waiting_run(tmp_path, num):
    """Return a run in which all conversations wait for their judge."""
    tasks, run = write_prompts(tmp_path / "t.jsonl", num), tmp_path / "run"
    collected(tasks, judge=failing_at(*range(1, num + 1)), out=run, concurrency=1)
    return tasks, run


def test_run_attempts_survives_one_refusal_of_what_waits(tmp_path):
    """A judge that scored one waiting conversation has answered, just like a policy."""
    tasks, run = waiting_run(tmp_path, 6)
    records, policy, _ = collected(tasks, judge=refusing_judge(first=3, last=3), out=run)
    assert policy.num_requests == 0
    assert sorted(type(record) is Failure for record in records) == [False] * 5 + [True]


def test_run_attempts_ends_with_a_fatal_first_answer_to_what_waits(tmp_path):
    tasks, run = waiting_run(tmp_path, 40)
    with pytest.raises(FatalEndpointError, match="no key"):
        collected(tasks, judge=refusing_judge(first=1), out=run, concurrency=1)
    assert len(lines_of(run / "failures.jsonl")) < 40 + 5


def test_run_attempts_ends_where_nothing_that_waits_is_scored_any_more(tmp_path):
    tasks, run = waiting_run(tmp_path, 40)
    with pytest.raises(FatalEndpointError, match="20 tasks in a row met this"):
        collected(tasks, judge=refusing_judge(first=2), out=run, concurrency=1)
    assert len(lines_of(run / "rollouts.jsonl")) == 1
    # 40 failures of the first run, and the 20 in a row that end this one.
    assert 60 <= len(lines_of(run / "failures.jsonl")) < 65


def test_run_attempts_counts_a_refusal_once_for_a_group(tmp_path):
    """A group of twelve attempts counts as one task, however many of them wait."""
    tasks = write_prompts(tmp_path / "t.jsonl", 3)
    # The judge is asked 13 times for a group: about each attempt, and about all of them.
    options = {"env": TOGETHER, "policy": counting(), "repeats": 12, "concurrency": 1}
    records, _, _ = collected(tasks, judge=refusing_judge(first=14, last=25), **options)
    failed = [record.task_id for record in records if isinstance(record, Failure)]
    assert failed == ["t1"] * 12
    assert len(records) == 36


def test_run_attempts_ends_where_many_groups_in_a_row_are_refused(tmp_path):
    """Attempts that failed only because of their group do not reset the count."""
    tasks, run = write_prompts(tmp_path / "t.jsonl", 30), tmp_path / "run"
    options = {"env": TOGETHER, "policy": counting(), "repeats": 2, "concurrency": 1, "out": run}
    with pytest.raises(FatalEndpointError, match="20 tasks in a row met this"):
        collected(tasks, judge=refusing_judge(first=4), **options)
    assert len(lines_of(run / "rollouts.jsonl")) == 2
    assert 40 <= len(lines_of(run / "failures.jsonl")) <= 44


async def test_workers_let_the_loop_turn_while_they_start():
    """Otherwise no answer is processed meanwhile, and the first requests time out."""
    started_in = Counter()
    turn = 0

    def count():
        nonlocal turn
        turn += 1
        if started_in.total() < 2000:
            asyncio.get_running_loop().call_soon(count)

    async def start():
        started_in[turn] += 1

    count()
    await run_together(start() for _ in range(2000))
    assert started_in.total() == 2000
    assert max(started_in.values()) <= 500
