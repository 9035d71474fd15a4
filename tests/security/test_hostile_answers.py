"""Tests that a hostile answer costs its own rollout at most: not the run, minutes, or a file."""

import math
import signal
from contextlib import contextmanager

import msgspec
import pytest

from gymcli.environment.registry import Registry, shipped_tasks
from gymcli.errors import AttemptError
from gymcli.rollout.episode import EpisodeFailedError
from gymcli.tasks.task_files import read_tasks
from gymcli.tasks.task_row import TaskReading
from tests.envs.episodes import calls, played, says, scored
from tests.security.hostile import arguments, texts, values

SECONDS = 60
"""Processor time, so that a busy machine does not matter.

What takes time in proportion to the text needs far less, anything else far more.
"""

OPTIONS = {"math_with_judge": {"library_timeout": 1.0}}
"""Limits of workers, which some of the texts reach."""

NAMES = sorted(Registry.names())


@contextmanager
def within(seconds):
    """Fail if the block takes longer, even in the middle of a computation."""

    def stop(number, frame):
        raise AssertionError(f"took more than {seconds} seconds of the processor")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def some_rows(name, num):
    """Return tasks of an environment from all over its file, since the first ones are alike."""
    rows = list(read_tasks([shipped_tasks(name)], TaskReading(default_env=name)))
    return rows[:: -(-len(rows) // num)]


def has_ended(row, *messages):
    """Play and score; the result is a finite reward or an error of this attempt."""
    with within(SECONDS):
        try:
            rollout = played(row, *messages, max_turns=3)
            reward = scored(rollout, **OPTIONS.get(row.env, {})).reward
        except (AttemptError, EpisodeFailedError):
            return
    assert math.isfinite(reward)
    msgspec.json.decode(msgspec.json.encode(rollout))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_hostile_texts(name, tmp_path, working_folder):
    for row in some_rows(name, 2):
        for text in texts().values():
            has_ended(row, says(text))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_hostile_arguments(name, tmp_path, working_folder):
    """This covers every tool of a task, with its own argument names among others."""
    row = some_rows(name, 1)[0]
    with within(SECONDS):
        specs = played(row, says("Hello."), max_turns=1).tools or []
    for function in (spec["function"] for spec in specs[:6]):
        names = function.get("parameters", {}).get("properties", {})
        own = [
            "{" + ",".join(f"{_quoted(key)}:{value}" for key in names) + "}" for value in values()
        ]
        for text in (*arguments().values(), *own):
            has_ended(row, calls((function["name"], text)), says("Done."))
    assert list(tmp_path.iterdir()) == []


def test_no_tool_call_reaches_the_python_of_an_environment():
    """Arguments with names of the machinery are refused like any other."""
    row = some_rows("example_single_tool_call", 1)[0]
    rollout = played(row, calls(("get_weather", arguments()["dunders"])), says("Done."))
    assert sum(rollout.tool_errors.values()) == 1


def _quoted(name):
    return msgspec.json.encode(name).decode()
