"""Tests that a signal costs attempts in flight at most, and leaves one record of each attempt.

The next command pays for nothing that was finished, and ends as if nothing had happened.
"""

import signal
from pathlib import Path

import pytest

from gymcli.mock import MockServer
from gymcli.mock.process import serving
from tests.builders import gym
from tests.reliability.commands import Selection, collect_arguments, undisturbed, write_settings
from tests.reliability.law import Kept, check_whole, finished, records
from tests.reliability.processes import run_stopped
from tests.reliability.worlds import WORLDS, Model, write_tasks

pytestmark = pytest.mark.slow

SELECTION = Selection(concurrency=4)
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
OTHERS = {signal.SIGINT: signal.SIGTERM, signal.SIGTERM: signal.SIGINT}


@pytest.fixture
def model(tmp_path, working_folder):
    """Yield the model behind the gym.toml of a folder with tasks, and change to the folder."""
    write_tasks(Path("tasks.jsonl"))
    model = Model()
    with serving(MockServer(model)) as server:
        write_settings(tmp_path, server.base_url)
        yield model


def begun(model: Model) -> set[tuple[str, int]]:
    """Return task and seed of the attempts that the policy was asked about."""
    return {asked.attempt for asked in model.asked if asked.role == "policy"}


def recorded(run: Path) -> list[tuple[str, int]]:
    """Return task and seed of every outcome of every attempt."""
    lines = [*records(run / "rollouts.jsonl"), *records(run / "failures.jsonl")]
    return [(line["task_id"], line["seed"]) for line in lines]


def check_the_rest(name: str, model: Model) -> None:
    """Run the command once more; it resumes the run and reaches the undisturbed end."""
    kept, there = Kept(Path("run")), finished(Path("run"))
    model.recover()
    model.begin()
    gym(*collect_arguments(WORLDS[name], SELECTION), exit_code=0)
    kept.check()
    assert not begun(model) & there
    check_whole(Path("run"), undisturbed(name))


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("name", WORLDS)
def test_a_first_signal_lets_those_in_flight_end(model, name, number):
    ended = run_stopped(collect_arguments(WORLDS[name], SELECTION), model, num=6, number=number)
    assert ended.exit_code == CODES[number], ended.stderr
    names = [error["class"] for error in errors()]
    # Only members of an incomplete group are cut off: they have nothing to be compared with.
    assert not names or name == "ranked", names
    assert len(set(recorded(Path("run")))) == len(recorded(Path("run")))
    assert begun(model) <= set(recorded(Path("run")))
    check_the_rest(name, model)


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("name", WORLDS)
def test_attempts_that_outlast_the_grace_are_recorded_as_cancelled(model, name, number):
    # Request 6 is in flight, and never answered, when request 7 sends the signal.
    model.hold_from(6)
    arguments = (*collect_arguments(WORLDS[name], SELECTION), "--grace", "0.2")
    ended = run_stopped(arguments, model, num=7, number=number)
    assert ended.exit_code == CODES[number], ended.stderr
    assert "CancelledAttemptError" in {error["class"] for error in errors()}
    assert len(set(recorded(Path("run")))) == len(recorded(Path("run")))
    assert begun(model) <= set(recorded(Path("run")))
    check_the_rest(name, model)


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("name", WORLDS)
def test_a_second_signal_cuts_off_at_once(model, name, number):
    """The grace is an hour: only the second signal can end this."""
    model.hold_from(6)
    arguments = (*collect_arguments(WORLDS[name], SELECTION), "--grace", "3600")
    ended = run_stopped(arguments, model, num=7, number=number, again=OTHERS[number])
    assert ended.exit_code == CODES[number], ended.stderr
    assert "CancelledAttemptError" in {error["class"] for error in errors()}
    assert begun(model) <= set(recorded(Path("run")))
    check_the_rest(name, model)


@pytest.mark.parametrize("name", WORLDS)
def test_a_kill_loses_only_what_was_in_flight(model, name):
    # Requests 7 to 9 are in flight, and never answered, when the kill comes.
    model.hold_from(7)
    arguments = collect_arguments(WORLDS[name], SELECTION)
    assert run_stopped(arguments, model, num=9, number=signal.SIGKILL).exit_code == -signal.SIGKILL
    assert not errors()
    check_the_rest(name, model)


def errors() -> list[dict]:
    return [failure["error"] for failure in records(Path("run/failures.jsonl"))]
