"""Somebody else's code ends one attempt, in its phase, and never the run."""

import asyncio

import pytest

from gymcli.boundary import boundary, is_cancellation
from gymcli.errors import (
    EpisodeError,
    MissingPackageError,
    RoleError,
    RunDirectoryError,
    VerifierError,
)


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (ValueError("two\nlines"), "ValueError: two lines"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (SystemExit(0), "SystemExit: 0"),
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


def test_a_cancellation_outside_of_any_task_is_one():
    assert not is_cancellation(ValueError())

    async def run():
        return is_cancellation(asyncio.CancelledError())

    assert not asyncio.run(run())
