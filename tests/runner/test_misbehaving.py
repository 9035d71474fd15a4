"""Tests that an environment that hangs, computes forever or crashes fails only its own attempt."""

import asyncio
import logging
import os
import sys

import pytest

import gymcli
from gymcli.mock import MockAnswer, MockServer
from gymcli.models.endpoint import Endpoint
from gymcli.types import Failure, Rollout
from tests.builders import collect_all, write_rows

ENV = "tests.runner.misbehaving:Misbehaving"
RAISING = "tests.runner.misbehaving:Raising"
PATIENT = "tests.runner.misbehaving:Patient"
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the limit rests on /proc")

WAITING = ["hang", "swallow"]
RAISED = {
    "group": "ExceptionGroup",
    "late_timeout": "TimeoutError",
    "cancel": "CancelledError",
    "leave": "SystemExit",
    "fail": "Failed",
    "panic": "PanicException",
    "unreadable": "UnreadableError",
    "misuse": "UsageError: this row is odd",
    "overflow": "too long",
    "give_up": "gone",
    "refuse": "FatalEndpointError: no request can succeed",
}


def say(request):
    """Call the tool if the prompt asks for it, then say something."""
    if request.messages[0].text != "tool" or len(request.messages) > 1:
        return MockAnswer(text="anything")
    return MockAnswer(tool_calls=[("wait", "{}")])


def collected(tmp_path, place, does, *, env=ENV, **options):
    """Collect one task per way to misbehave at a place, and a sound one before and after."""
    names = ["first", *does, "last"]
    rows = [
        {"id": name, "prompt": place, **({"place": place, "does": name} if name in does else {})}
        for name in names
    ]
    path = tmp_path / "tasks.jsonl"
    write_rows(path, rows)
    records, _ = collect_all(path, say, env=env, **options)
    found = {record.task_id: record for record in records}
    assert sorted(found) == sorted(names)
    assert isinstance(found.pop("first"), Rollout)
    assert isinstance(found.pop("last"), Rollout)
    return found


def errors(found):
    assert all(isinstance(record, Failure) for record in found.values())
    return {
        name: (record.error.error_class, record.error.phase, record.error.message)
        for name, record in found.items()
    }


@pytest.mark.parametrize(
    ("place", "name", "kind", "phase", "limit"),
    [
        ("setup", "setup", "SetupTimeoutError", "setup", "setup_timeout"),
        ("step", "step", "EnvironmentTimeoutError", "environment", "step_timeout"),
        ("final_state", "final_state", "EnvironmentTimeoutError", "environment", "step_timeout"),
    ],
)
def test_collect_ends_what_does_not_end(tmp_path, caplog, place, name, kind, phase, limit):
    with caplog.at_level(logging.WARNING):
        found = errors(collected(tmp_path, place, WAITING))
    waited = (kind, phase, f"{name} took longer than 0.3 seconds ({limit})")
    assert found == {"hang": waited, "swallow": waited}
    assert "was cancelled and is still running after 0.3 seconds; it is abandoned" in caplog.text


def test_collect_scores_what_does_not_close(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        found = collected(tmp_path, "close", WAITING)
    assert [record.reward for record in found.values()] == [1.0, 1.0]
    assert "close failed: close took longer than 0.3 seconds (close_timeout)" in caplog.text
    assert "was cancelled and is still running after 0.3 seconds; it is abandoned" in caplog.text


@pytest.mark.parametrize("place", ["setup", "step", "tool", "verify"])
def test_an_error_that_blames_a_role_ends_no_run(tmp_path, place):
    found = errors(collected(tmp_path, place, ["blame_role"], env=RAISING))
    assert found["blame_role"][1:] == ("role", "judge: gone")


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize(
    ("place", "kind", "phase"),
    [
        ("setup", "SetupError", "setup"),
        ("step", "EpisodeError", "environment"),
        ("verify", "VerifierError", "verify"),
    ],
)
def test_collect_records_whatever_is_raised(tmp_path, concurrency, place, kind, phase):
    """It fails its own attempt, and no worker of the run ends with it."""
    ways = ["old_timeout", *RAISED]
    found = collected(tmp_path, place, ways, env=RAISING, concurrency=concurrency)
    assert found.pop("old_timeout").reward == 1.0
    for name, (error_class, error_phase, message) in errors(found).items():
        assert (error_class, error_phase) == (kind, phase)
        assert message.startswith(RAISED[name])


def test_collect_tells_the_model_whatever_a_tool_raises(tmp_path):
    ways = set(RAISED) - {"overflow", "give_up"}  # an AttemptError ends the attempt
    found = collected(tmp_path, "tool", [*ways], env=RAISING)
    for record in found.values():
        assert record.reward == 1.0
        assert record.tool_errors == {"raised": 1}


async def test_two_collections_in_one_loop_do_not_meet(tmp_path):
    """Each collection has its own watchdog."""

    async def one(name, place):
        rows = [{"id": "0", "prompt": "x", "place": place, "does": "hang"}, {"prompt": "y"}]
        path = tmp_path / name
        write_rows(path, rows)
        async with MockServer(say) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", max_attempts=1)
            records = [r async for r in gymcli.collect(path, endpoint=endpoint, env=ENV)]
        return {type(record).__name__ for record in records}

    assert await asyncio.gather(one("a", "setup"), one("b", "step")) == [{"Failure", "Rollout"}] * 2


def test_collect_tells_the_model_of_a_tool_that_does_not_end(tmp_path):
    found = collected(tmp_path, "tool", WAITING, env=PATIENT)
    assert not {n: r.error for n, r in found.items() if isinstance(r, Failure)}
    for record in found.values():
        assert record.messages[2].text == "wait did not finish within 0.1 seconds."
        assert record.tool_errors == {"timeout": 1}


def test_collect_ends_a_verifier_that_does_not_end(tmp_path):
    found = errors(collected(tmp_path, "verify", [*WAITING, "spin", "spin_on"]))
    late = ("VerifierTimeoutError", "verify")
    assert {name: error[:2] for name, error in found.items()} == dict.fromkeys(found, late)


def test_collect_scores_what_is_slow_in_a_worker(tmp_path):
    found = collected(tmp_path, "verify", ["sleep"], env=PATIENT)
    assert found["sleep"].reward == 1.0
    assert found["sleep"].details["process"] != os.getpid()


@ON_LINUX
def test_collect_survives_a_verifier_that_crashes_or_grows(tmp_path):
    found = errors(collected(tmp_path, "verify", ["crash", "grow"], env=PATIENT))
    assert {error[:2] for error in found.values()} == {("VerifierCrashedError", "verify")}
    assert "SIGSEGV" in found["crash"][2]
    assert "300 MB of memory" in found["grow"][2]


async def test_collect_limits_waiting_in_another_thread(tmp_path):
    """As in a notebook, where another library's loop runs in the main thread."""
    assert (
        errors(await asyncio.to_thread(collected, tmp_path, "setup", ["hang"]))["hang"][0]
        == "SetupTimeoutError"
    )
