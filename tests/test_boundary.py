"""Somebody else's code ends one attempt, in its phase, and never the run."""

import asyncio
import os

import pytest

from gymcli.boundary import boundary, leave_copy
from gymcli.errors import (
    EpisodeError,
    MissingPackageError,
    RoleError,
    RunDirectoryError,
    VerifierError,
)


class PanicException(BaseException):  # the name that PyO3 gives it
    """What a Rust extension raises when it panics."""


class UnspeakableError(Exception):
    """An exception that cannot be put into words."""

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
        (UnspeakableError(1), "UnspeakableError (its text cannot be read: ZeroDivisionError)"),
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


def test_boundary_leaves_our_errors_as_they_are():
    with pytest.raises(RoleError, match="the judge is ill"), boundary(EpisodeError):
        raise RoleError("the judge is ill")


@pytest.mark.parametrize("raised", [RunDirectoryError("full"), MissingPackageError("absent")])
def test_boundary_lets_through_what_ends_a_run(raised):
    with pytest.raises(type(raised)) as caught, boundary(VerifierError):
        raise raised
    assert caught.value is raised


@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit])
def test_boundary_lets_through_what_ends_the_program(raised):
    with pytest.raises(raised), boundary(EpisodeError):
        raise raised


def test_boundary_lets_the_cancellation_of_its_own_task_through():
    async def wait():
        with boundary(EpisodeError):
            await asyncio.Event().wait()

    async def run():
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_leave_copy_ends_a_forked_process_and_no_other():
    leave_copy(os.getpid())
    process = os.getpid()
    copy = os.fork()
    if copy == 0:
        leave_copy(process)
        os._exit(1)
    assert os.waitpid(copy, 0)[1] == 0
