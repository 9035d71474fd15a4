"""Many coroutines at once: all of them have ended before the first error is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

__all__ = ["gather_all"]

T = TypeVar("T")


async def gather_all(calls: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Await all calls, then give their results in order, or raise the first error.

    None goes on when another has failed: what it asks or writes later would belong to nobody.
    """
    results: list[T] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
