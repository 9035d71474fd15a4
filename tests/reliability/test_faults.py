"""Tests of every kind of fault: whatever the endpoint does, each planned attempt has one record.

Each test collects in this process from a mock server with one kind of fault; hypothesis draws its
rate, the seed and the number of tasks. Each prompt holds a nonce, which the server repeats, so that
a conversation of another task would show.
"""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.nonces import foreign_nonces, nonce_of, write_tasks
from bench.runs import NONCES, records
from gymcli.errors import FatalEndpointError
from gymcli.mock import MockServer
from gymcli.mock.faults import FaultKind, Faults
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import Collection
from gymcli.runner.plan import plan_run
from gymcli.tasks.task_source import TaskFile
from gymcli.types import Failure, Rollout
from tests.models.asking import FakeTime

pytestmark = pytest.mark.slow

CLASSES = {
    "429": "RateLimitError",
    "429-after": "RateLimitError",
    "429-date": "RateLimitError",
    "429-burst": "RateLimitError",
    "500": "ServerError",
    "500-once": "ServerError",
    "500-always": "ServerError",
    "502": "ServerError",
    "503": "ServerError",
    "529": "ServerError",
    "401": "AuthenticationError",
    "403": "AuthenticationError",
    "403-always": "AuthenticationError",
    "403-rate": "RateLimitError",
    "404": "RequestRefusedError",
    "405": "RequestRefusedError",
    "307": "RequestRefusedError",
    "422-echo": "RequestRefusedError",
    "500-echo": "ServerError",
    "500-page": "ServerError",
    "reset": "EndpointConnectionError",
    "reset-body": "EndpointConnectionError",
    "stall": "EndpointTimeoutError",
    "stall-body": "EndpointTimeoutError",
    "half-json": "InvalidAnswerError",
    "wrong-length": "EndpointConnectionError",
    "empty-choices": "InvalidAnswerError",
    "finish-abort": "ServerError",
    "finish-error": "ServerError",
    "finish-cancelled": "ServerError",
    "finish-insufficient": "ServerError",
    "null-finish": "InvalidAnswerError",
    "empty-message": "InvalidAnswerError",
}
"""The error class of an attempt that a fault left without a score, and of its retries."""

OTHER_WORDS = ("null-content", "huge")
"""A whole and valid answer that is not the correct one."""

TOOL_CALLS = {
    "bad-arguments": "not_json",
    "double-arguments": "not_an_object",
    "array-arguments": "not_an_object",
    "unknown-tool": "unknown_tool",
    "duplicate-ids": "wrong_arguments",  # they lack the tool's argument
}
"""Tool calls that reach the environment, and the key that counts them in `tool_errors`."""

HARMLESS = ("unknown-finish", "open-stream", "interim-100", "interim-103")

IN_CHAT = ("empty-choices",)
"""Not an answer only in the chat dialect: a response may have no output."""

REFUSED = ("401", "403", "403-always", "404", "405", "307", "422-echo")
STALLS = ("stall", "stall-body")
OVERLOADS = ("429", "429-after", "429-date", "429-burst", "403-rate", "503", "529")
ABSENCES = ("502", "reset")
"""After many of these in a row the endpoint counts as gone."""
RETRIED = [kind for kind in CLASSES if kind not in (*REFUSED, *STALLS, *OVERLOADS)]

PATIENT = {"max_attempts": 4, "retry_deadline": 1e9, "outage_deadline": 1e9}
"""Tries are limited, time is not: FakeTime adds up the sleeps of all concurrent requests."""


class Draw(NamedTuple):
    """What hypothesis draws."""

    seed: int
    rate: float
    num_tasks: int
    concurrency: int
    dialect: str
    stream: bool


def draws(max_tasks: int = 20, max_rate: float = 1.0) -> st.SearchStrategy[Draw]:
    return st.builds(
        Draw,
        seed=st.integers(0, 2**32),
        rate=st.floats(0.0, max_rate),
        num_tasks=st.integers(1, max_tasks),
        concurrency=st.integers(1, 24),
        dialect=st.sampled_from(["chat", "responses"]),
        stream=st.booleans(),
    )


class Seen(NamedTuple):
    """What a run wrote, and the requests that the server got."""

    scored: list[Rollout]
    failed: list[Failure]
    num_requests: Counter[str]
    """Requests by nonce."""


def run(kind: FaultKind, drawn: Draw, *, environment: str = "Nonces", **limits: object) -> Seen:
    """Collect against a server with one kind of fault, without waiting between tries."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder), kind, drawn, environment, limits))


async def _run(
    folder: Path, kind: FaultKind, drawn: Draw, environment: str, limits: dict[str, object]
) -> Seen:
    write_tasks(folder / "tasks.jsonl", drawn.num_tasks, seed=drawn.seed)
    faults = Faults.parse([f"{kind}={drawn.rate}"])
    async with MockServer(faults=faults, seed=drawn.seed) as server:
        endpoint = Endpoint(
            base_url=server.base_url,
            model="m",
            dialect=drawn.dialect,
            stream=drawn.stream,
            **{**PATIENT, **limits},
        )
        options = CollectOptions(
            endpoint=endpoint,
            env=f"{NONCES}:{environment}",
            out=folder / "run",
            concurrency=drawn.concurrency,
        )
        time = FakeTime()
        async with (
            Client(
                endpoint, concurrency=drawn.concurrency, clock=time.clock, sleep=time.sleep
            ) as client,
            Collection(plan_run([TaskFile(folder / "tasks.jsonl")], options)) as collection,
        ):
            # The client that the collection opened would really sleep between tries.
            collection._shared = collection._shared._replace(policy=client)
            given = [record async for record in collection.run()]
        raw = [request.raw.decode() for request in server.requests]
    scored = list(records(folder / "run" / "rollouts.jsonl", Rollout))
    failed = list(records(folder / "run" / "failures.jsonl", Failure))
    assert Counter(record.key for record in given) == Counter(
        record.key for record in (*scored, *failed)
    )
    nonces = [nonce_of(drawn.seed, number) for number in range(drawn.num_tasks)]
    return Seen(scored, failed, Counter(n for body in raw for n in nonces if n in body))


def check_records(seen: Seen, drawn: Draw) -> None:
    """Check that each attempt has one record, and no conversation another task's nonce."""
    keys = sorted(record.task_id for record in (*seen.scored, *seen.failed))
    assert keys == sorted(f"task-{number}" for number in range(drawn.num_tasks))
    for record in (*seen.scored, *seen.failed):
        assert not foreign_nonces(record.messages, own=nonce_in_prompt(record))


def check_right(rollout: Rollout) -> None:
    """Check that a scored rollout equals that of a run without faults."""
    nonce = nonce_in_prompt(rollout)
    assert rollout.last_text == f"Say back: {nonce}"
    assert (rollout.reward, rollout.stop_reason) == (1.0, "done")


def nonce_in_prompt(record: Rollout | Failure) -> str:
    return record.messages[0].text.removeprefix("Say back: ")


def check_retried(seen: Seen, drawn: Draw, error_class: str) -> None:
    check_records(seen, drawn)
    for rollout in seen.scored:
        check_right(rollout)
        assert len(rollout.messages) == 2
    for failure in seen.failed:
        assert (failure.error.error_class, failure.error.phase) == (error_class, "model")
        assert len(failure.messages) == 1
    for record in (*seen.scored, *seen.failed):
        assert set(record.retries) <= {error_class}


@pytest.mark.parametrize("kind", RETRIED)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_fault_that_may_pass_is_tried_again_and_counted(kind, data):
    drawn = data.draw(draws(max_rate=0.5 if kind in ABSENCES else 1.0))
    if kind in IN_CHAT:
        drawn = drawn._replace(dialect="chat")
    if kind == "empty-message":
        drawn = drawn._replace(stream=False)
    seen = run(kind, drawn)
    check_retried(seen, drawn, CLASSES[kind])
    for record in (*seen.scored, *seen.failed):
        assert seen.num_requests[nonce_in_prompt(record)] == 1 + sum(record.retries.values())


@pytest.mark.parametrize("kind", OVERLOADS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=draws(max_tasks=10, max_rate=0.5))
def test_too_much_to_do_costs_time_and_no_rollout(kind, drawn):
    """These tries do not count against a request, however many there are."""
    seen = run(kind, drawn, max_attempts=2)
    check_retried(seen, drawn, CLASSES[kind])
    assert not seen.failed
    for rollout in seen.scored:
        assert seen.num_requests[nonce_in_prompt(rollout)] == 1 + sum(rollout.retries.values())


@pytest.mark.parametrize("kind", STALLS)
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=draws(max_tasks=6, max_rate=0.5))
def test_what_stalls_is_given_up_and_tried_again(kind, drawn):
    """A slow machine may see more stalls; each is one more retry, and nothing else changes."""
    seen = run(kind, drawn, total_timeout=0.3, idle_timeout=0.2, max_attempts=3)
    check_retried(seen, drawn, CLASSES[kind])
    for record in (*seen.scored, *seen.failed):
        assert seen.num_requests[nonce_in_prompt(record)] <= 1 + sum(record.retries.values())


@pytest.mark.parametrize("kind", REFUSED)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=draws())
def test_what_is_refused_for_good_is_never_asked_again(kind, drawn):
    """The run may end early with the provider's message; every attempt that ran is on record."""
    try:
        seen = run(kind, drawn)
    except FatalEndpointError as error:
        words = str(error)
    else:
        words = ""
    if words:
        assert f"answered {kind[:3]}" in words
        return
    check_retried(seen, drawn, CLASSES[kind])
    assert all(not record.retries for record in (*seen.scored, *seen.failed))
    assert set(seen.num_requests.values()) == {1}


@pytest.mark.parametrize("kind", TOOL_CALLS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=draws(max_tasks=8, max_rate=0.5))
def test_a_wrong_tool_call_is_answered_and_counted(kind, drawn):
    """The model is told and continues; the attempt is scored as without the fault."""
    seen = run(kind, drawn, environment="NoncesWithTool")
    check_records(seen, drawn)
    assert not seen.failed
    for rollout in seen.scored:
        check_right(rollout)
        num_turns = sum(message.role == "assistant" for message in rollout.messages)
        assert seen.num_requests[nonce_in_prompt(rollout)] == num_turns
        calls = [call.id for message in rollout.messages for call in message.tool_calls]
        assert [m.tool_call_id for m in rollout.messages if m.role == "tool"] == calls
        assert len(calls) == (num_turns - 1) * (2 if kind == "duplicate-ids" else 1)
        assert rollout.tool_errors == ({TOOL_CALLS[kind]: len(calls)} if calls else {})


@pytest.mark.parametrize("kind", [*OTHER_WORDS, *IN_CHAT])
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=draws(max_tasks=6))
def test_a_valid_answer_of_other_words_is_scored_as_it_is(kind, drawn):
    if kind in IN_CHAT:
        drawn = drawn._replace(dialect="responses")
    seen = run(kind, drawn)
    check_records(seen, drawn)
    assert not seen.failed
    for rollout in seen.scored:
        is_right = nonce_in_prompt(rollout) in rollout.last_text
        assert rollout.reward == float(is_right)
        assert seen.num_requests[nonce_in_prompt(rollout)] == 1


@pytest.mark.parametrize("kind", HARMLESS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=draws())
def test_an_odd_answer_that_says_all_is_scored_as_any(kind, drawn):
    """A response that is incomplete for an unknown reason counts as cut off and is scored too."""
    seen = run(kind, drawn)
    check_records(seen, drawn)
    assert not seen.failed
    stops = {"done"} if drawn.dialect == "chat" else {"done", "length"}
    for rollout in seen.scored:
        assert rollout.last_text == f"Say back: {nonce_in_prompt(rollout)}"
        assert rollout.reward == 1.0
        assert rollout.stop_reason in stops
        assert not rollout.retries
    assert set(seen.num_requests.values()) == {1}


def test_every_kind_of_fault_has_its_law():
    kinds = [*CLASSES, *OTHER_WORDS, *TOOL_CALLS, *HARMLESS]
    assert sorted(kinds) == sorted(get_args(FaultKind))
