"""Many calls at once: results in order, and no call that outlives another's error."""

import asyncio

import pytest

from gymcli.environment.time_limit import gather_all


async def _said(text, *, after=0, ended=None):
    """Give a text after some turns of the loop; note that it came to its end."""
    for _ in range(after):
        await asyncio.sleep(0)
    if ended is not None:
        ended.append(text)
    return text


async def _failing(text, *, after=0):
    await _said(text, after=after)
    raise ValueError(text)


def test_gather_all_gives_results_in_order():
    calls = (_said(str(n), after=5 - n) for n in range(5))
    assert asyncio.run(gather_all(calls)) == ["0", "1", "2", "3", "4"]


def test_gather_all_raises_the_first_error_when_all_have_ended():
    """The first in order, also where a later one failed earlier."""
    ended = []
    calls = [_failing("a", after=3), _failing("b"), _said("c", after=9, ended=ended)]
    with pytest.raises(ValueError, match="a"):
        asyncio.run(gather_all(calls))
    assert ended == ["c"]


def test_gather_all_that_is_cancelled_cancels_its_calls():
    ended = []

    async def run():
        task = asyncio.create_task(gather_all([_said("a", after=1_000, ended=ended)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended == []
