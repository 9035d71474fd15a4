"""Tests that exceptions of foreign code end one attempt, with its phase, and never the run."""

import asyncio
import json
import os

import pytest

from gymcli.environment.time_limit import leave_copy
from gymcli.errors import (
    CancelledAttemptError,
    EpisodeError,
    MissingPackageError,
    ModelError,
    ReplayDivergedError,
    RoleError,
    RunDirectoryError,
    VerifierError,
    boundary,
    text_of,
)
from gymcli.tracebacks import frames_of


class PanicException(BaseException):  # PyO3's name for it
    """Stands for what a Rust extension raises when it panics."""


class UnspeakableError(Exception):
    """An exception whose `str()` raises."""

    def __str__(self):
        return str(1 / 0)


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (ValueError("two\nlines"), "ValueError: two lines"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (SystemExit(0), "SystemExit: 0"),
        (GeneratorExit(), "GeneratorExit"),
        (PanicException("index out of bounds"), "PanicException: index out of bounds"),
        (pytest.fail.Exception("no"), "Failed: no"),
        (UnspeakableError(1), "UnspeakableError: (its text cannot be read: ZeroDivisionError)"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_boundary_names_what_was_raised(raised, words):
    async def run():
        with boundary(VerifierError):
            raise raised

    with pytest.raises(VerifierError) as caught:
        asyncio.run(run())
    assert str(caught.value) == words
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize(
    "raised", [RoleError("the judge is ill"), EpisodeError("no"), ReplayDivergedError("other")]
)
def test_boundary_leaves_errors_of_its_phase_and_of_roles(raised):
    with pytest.raises(type(raised)) as caught, boundary(EpisodeError, VerifierError):
        raise raised
    assert caught.value is raised


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (RunDirectoryError("full"), "RunDirectoryError: full"),
        (MissingPackageError("absent"), "MissingPackageError: absent"),
        (ModelError("no answer"), "no answer"),
        (CancelledAttemptError("ended"), "ended"),
    ],
)
def test_boundary_lets_through_nothing_that_ends_a_run(raised, words):
    with pytest.raises(VerifierError) as caught, boundary(VerifierError):
        raise raised
    assert str(caught.value) == words


def test_a_recorded_text_is_short_and_can_be_written():
    assert text_of(ValueError("a\ud800b")) == "a?b"
    text = text_of(ValueError(f"begin{'x' * 140_000_000}end"))
    assert len(text) < 20_100
    assert text.startswith("beginx")
    assert text.endswith("xend")
    assert " [139,980,008 characters left out] " in text


@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit])
def test_boundary_lets_through_what_ends_the_program(raised):
    with pytest.raises(raised), boundary(EpisodeError):
        raise raised


async def test_boundary_lets_the_cancellation_of_its_own_task_through():
    async def wait():
        with boundary(EpisodeError):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_leave_copy_ends_a_forked_process_and_no_other():
    leave_copy(os.getpid())
    process = os.getpid()
    copy = os.fork()
    if copy == 0:
        leave_copy(process)
        os._exit(1)
    assert os.waitpid(copy, 0)[1] == 0


def fail(depth):
    """Fail this many calls deeper, in a file of the standard library."""
    if depth:
        fail(depth - 1)
    json.loads("{")


def caused_by(function, *arguments):
    """Call an author's function as gymcli does; return the error that this causes."""
    try:
        function(*arguments)
    except (RecursionError, ValueError, ArithmeticError) as error:
        error.__traceback__ = error.__traceback__.tb_next
        failed = VerifierError("the verifier failed")
        failed.__cause__ = error
        return failed


def test_frames_are_the_last_calls_in_files_of_the_author():
    frames = frames_of(caused_by(fail, 9))
    first, *others = [line.partition(":")[2] for line in frames]
    line = fail.__code__.co_firstlineno
    assert first == f"{line + 3} in fail"
    assert others == [f"{line + 3} in fail"] * 3 + [f"{line + 4} in fail"]
    assert {frame.partition(":")[0] for frame in frames} == {"tests/test_boundary.py"}


def test_frames_of_an_installed_environment_are_those_of_its_package(tmp_path):
    file = tmp_path / "site-packages" / "riddles.py"
    space = {}
    exec(compile("def ask():\n    return 1 / 0\n", file, "exec"), space)
    assert frames_of(caused_by(space["ask"]))[-1].endswith("site-packages/riddles.py:2 in ask")


def test_frames_of_an_error_that_has_some_are_these():
    error = VerifierError("of a worker")
    error.frames = ("a.py:1 in verify",)
    assert frames_of(error) == ["a.py:1 in verify"]


@pytest.mark.parametrize("kind", [ModelError, CancelledAttemptError])
def test_an_endpoint_and_a_signal_have_no_frames(kind):
    with pytest.raises(kind) as caught:
        raise kind("nobody's fault")
    assert frames_of(caught.value) == []
