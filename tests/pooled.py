"""One event loop and one pool of workers for all tests that score, so that they start only once."""

import asyncio
import functools

from gymcli.rollout.scoring import Workers


@functools.cache
def _runner():
    return asyncio.Runner()


@functools.cache
def pooled_workers():
    """Return the workers, which belong to the loop of `run_pooled`."""
    return Workers(1)


def run_pooled(coroutine):
    """Run a coroutine in the loop of the workers."""
    return _runner().run(coroutine)


def close_pool():
    """End the workers and the loop."""
    if pooled_workers.cache_info().currsize:
        run_pooled(pooled_workers().close())
        pooled_workers.cache_clear()
    if _runner.cache_info().currsize:
        _runner().close()
        _runner.cache_clear()
