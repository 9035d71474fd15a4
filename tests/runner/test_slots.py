"""Attempts that the endpoint refuses again and again lend their slots to others."""

import asyncio
from collections import Counter
from contextlib import aclosing

import msgspec
import pytest

import gymcli
from gymcli.mock import MockServer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.models.endpoint import Endpoint
from gymcli.training import Sampler
from gymcli.types import Rollout
from tests.builders import add_up, write_prompts, write_sums
from tests.runner.test_roles import good

JUDGED = "tests.runner.environments:Judged"
TOO_MANY = refusal_of(429, "slow down")


class Refusing:
    """Refuse what asks about one of these texts with 429 for the first `num` times."""

    def __init__(self, answer, *texts: str, num: int = 10**9, refusal=TOO_MANY) -> None:
        self.counts: Counter[str] = Counter()
        """Requests, by their last user text."""
        self._answer = answer
        self._texts = texts
        self._num = num
        self._refusal = refusal

    def __call__(self, request):
        text = last_user_text(request)
        self.counts[text] += 1
        is_refused = any(one in text for one in self._texts) and self.counts[text] <= self._num
        return self._refusal if is_refused else self._answer(request)


def first_records(num, tasks, behaviour, *, judge=None, concurrency=1, **options):
    """Return the first records of a run; the rest of it is cancelled."""

    async def run():
        async with MockServer(behaviour) as server, MockServer(judge or good) as judging:
            endpoint = Endpoint(base_url=server.base_url, model="m")
            if judge is not None:
                options["roles"] = {"judge": Endpoint(base_url=judging.base_url, model="j")}
            records = gymcli.collect(tasks, endpoint=endpoint, concurrency=concurrency, **options)
            async with asyncio.timeout(30), aclosing(records):
                return [await anext(records) for _ in range(num)], server

    return asyncio.run(run())


def sum_of(number):
    """Return what only the prompt of this sum says."""
    return f"What is {number} "


@pytest.mark.parametrize(("concurrency", "numbers"), [(1, [0]), (2, [0, 7])])
def test_a_task_that_is_always_refused_holds_up_no_other(tmp_path, concurrency, numbers):
    tasks = write_sums(tmp_path / "t.jsonl", 40)
    refused = Refusing(add_up, *map(sum_of, numbers))
    records, server = first_records(40 - len(numbers), tasks, refused, concurrency=concurrency)
    assert all(isinstance(record, Rollout) and record.reward == 1.0 for record in records)
    assert server.max_in_flight <= concurrency
    assert max(refused.counts.values()) < 20  # they are asked again, but less and less often


def test_a_refused_attempt_ends_in_the_slot_of_another(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 12)
    refused = Refusing(add_up, sum_of(0), num=4)
    records, server = first_records(12, tasks, refused)
    assert all(record.reward == 1.0 for record in records)
    assert server.max_in_flight == 1
    assert Counter(record.retries.get("RateLimitError", 0) for record in records) == {0: 11, 4: 1}


def test_a_question_that_a_judge_always_refuses_holds_up_no_other_attempt(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 12)
    refused = Refusing(good, "about 0.")
    records, _ = first_records(11, tasks, last_user_text, judge=refused, env=JUDGED)
    assert all(isinstance(record, Rollout) for record in records)


def test_equal_questions_of_attempts_wait_for_one_answer_and_not_for_a_slot(tmp_path):
    """The attempt that asked has lent its slot to one that waits for its answer."""
    tasks = write_prompts(tmp_path / "t.jsonl", 6)
    refused = Refusing(good, "the same", num=4)
    records, _ = first_records(6, tasks, lambda _: "the same", judge=refused, env=JUDGED)
    assert all(isinstance(record, Rollout) for record in records)
    assert refused.counts.total() == 5


@pytest.mark.slow
async def test_few_attempts_begin_while_the_endpoint_refuses_all(tmp_path):
    """Others would be refused as well, and take memory."""
    tasks = write_sums(tmp_path / "t.jsonl", 100)
    # The wait that it asks for is short, or each refusal would double the limiter's pause.
    soon = refusal_of(429, "slow down", **{"Retry-After": "0.01"})
    refused = Refusing(add_up, "What is", refusal=soon)
    is_enough = asyncio.Event()

    def behave(request):
        if refused.counts.total() == 60:
            is_enough.set()
        return refused(request)

    async with MockServer(behave) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m")
        records = gymcli.collect(tasks, endpoint=endpoint, concurrency=2)
        reading = asyncio.ensure_future(anext(records))
        async with asyncio.timeout(30):
            await is_enough.wait()
        reading.cancel()
        await asyncio.wait([reading])
        await records.aclose()
    assert 2 + 4 <= len(refused.counts) <= 2 + 8


async def test_a_group_lends_its_slot_to_another_group(tmp_path):
    """The limit of a sampler holds for all of its groups together."""
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    ids = [msgspec.json.decode(line)["id"] for line in tasks.read_bytes().splitlines()]
    refused = Refusing(last_user_text, sum_of(0))
    async with MockServer(refused) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m")
        async with Sampler(tasks=tasks, endpoint=endpoint, concurrency=1) as sampler:
            waiting = asyncio.create_task(sampler.group(ids[0], attempts=1))
            await asyncio.sleep(0)
            async with asyncio.timeout(30):
                group = await sampler.group(ids[1], attempts=2)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert [one.reward for one in group] == [0.0, 0.0]
