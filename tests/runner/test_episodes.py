"""The start of many workers: in one turn of the loop, unless that takes too long."""

import asyncio
import itertools

from gymcli.runner.attempts import Shared
from gymcli.runner.episodes import _Work
from gymcli.runner.stopping import Stopping


def turns_of_starts(num_workers, clock):
    """Start workers together; give the turns of the loop in which each may begin."""
    starts = []

    async def run():
        turn = 0

        def count():
            nonlocal turn
            turn += 1
            if len(starts) < num_workers:
                asyncio.get_running_loop().call_soon(count)

        async def start():
            await work._let_loop_turn()
            starts.append(turn)

        shared = Shared(None, None, None, lambda _: None, Stopping(1.0), None)
        work = _Work(iter(()), shared, None, num_workers, clock)
        count()
        await asyncio.gather(*(start() for _ in range(num_workers)))

    asyncio.run(run())
    return starts


def test_workers_start_in_one_turn():
    assert len(set(turns_of_starts(100, lambda: 0.0))) == 1


def test_workers_let_the_loop_turn_where_their_start_takes_long():
    """A second passes with each: after a few of them the loop sees what became of them."""
    starts = turns_of_starts(40, itertools.count().__next__)
    sizes = [len(list(group)) for _, group in itertools.groupby(starts)]
    assert sum(sizes) == 40
    assert max(sizes) <= 5
