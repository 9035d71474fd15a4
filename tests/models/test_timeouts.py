"""Time limits that share one timer."""

import asyncio

import pytest

from gymcli.models.http import Timeouts


async def hang(timeouts: Timeouts) -> None:
    with timeouts.limit():
        await asyncio.Event().wait()


def test_limit_ends_what_never_ends():
    async def run() -> None:
        timeouts = Timeouts(0.01)
        tasks = [asyncio.create_task(hang(timeouts)) for _ in range(3)]
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in ended] == [TimeoutError] * 3
        with pytest.raises(TimeoutError):  # the timer starts anew
            await hang(timeouts)
        timeouts.close()

    asyncio.run(run())


def test_limit_lets_go_what_ends_in_time_and_goes_on_for_the_others():
    async def run() -> None:
        timeouts = Timeouts(0.01)
        late = asyncio.create_task(hang(timeouts))
        with timeouts.limit():
            pass
        with pytest.raises(TimeoutError):
            await late
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    asyncio.run(run())


def test_limit_passes_on_a_cancellation_of_somebody_else():
    async def run() -> None:
        timeouts = Timeouts(3600)
        task = asyncio.create_task(hang(timeouts))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        timeouts.close()

    asyncio.run(run())


def test_limit_passes_on_a_cancellation_at_the_same_moment():
    async def run() -> None:
        timeouts = Timeouts(3600)
        limit = timeouts.limit()

        async def wait() -> None:
            with limit:
                await asyncio.Event().wait()

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        limit.expire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        timeouts.close()

    asyncio.run(run())


def test_limit_leaves_other_errors_as_they_are():
    async def run() -> None:
        timeouts = Timeouts(3600)
        with pytest.raises(KeyError), timeouts.limit():
            raise KeyError
        timeouts.close()

    asyncio.run(run())
