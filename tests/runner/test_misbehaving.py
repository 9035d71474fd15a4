"""Environments that hang, compute without an end or crash cost their own attempt only."""

import asyncio
import logging
import os
import sys

import msgspec
import pytest

from gymcli.mock import MockAnswer
from gymcli.types import Failure, Rollout
from tests.runner.collecting import collect_all

ENV = "tests.runner.misbehaving:Misbehaving"
PATIENT = "tests.runner.misbehaving:Patient"
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the limit rests on /proc")

WAITING = ["hang", "swallow"]


def say(request):
    """Call the tool where the prompt says so, and then say something."""
    if request.messages[0].text != "tool" or len(request.messages) > 1:
        return MockAnswer(text="anything")
    return MockAnswer(tool_calls=[("wait", "{}")])


def collected(tmp_path, place, does, *, env=ENV, **options):
    """Collect a task for each way to misbehave in a place, and a sound one before and after."""
    names = ["first", *does, "last"]
    rows = [
        {"id": name, "prompt": place, **({"place": place, "does": name} if name in does else {})}
        for name in names
    ]
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
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
        ("close", "close", "EnvironmentTimeoutError", "environment", "close_timeout"),
    ],
)
def test_collect_ends_what_does_not_end(tmp_path, caplog, place, name, kind, phase, limit):
    with caplog.at_level(logging.WARNING):
        found = errors(collected(tmp_path, place, WAITING))
    waited = (kind, phase, f"{name} took longer than 0.3 seconds ({limit})")
    assert found == {"hang": waited, "swallow": waited}
    assert "was cancelled and goes on after 0.3 seconds; it is left behind" in caplog.text


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


def test_collect_limits_waiting_in_another_thread(tmp_path):
    """As in a notebook, whose loop runs in the main thread of another library."""

    async def collect_there():
        return await asyncio.to_thread(collected, tmp_path, "setup", ["hang"])

    assert errors(asyncio.run(collect_there()))["hang"][0] == "SetupTimeoutError"
