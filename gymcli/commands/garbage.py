"""Keeps Python's garbage collector from looking again and again at what a run holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["rarely_collected"]

_NUM_NEW = 50_000
"""Objects that are made before new ones are looked at; 700 is Python's own number. An attempt under
way has some hundred objects that live until it ends, so that each look at them finds nothing, and
thousands of attempts are looked at many times while they start."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Look for garbage seldom while the block lasts, and never at what was there before.

    What is in no cycle of references, and that is nearly all, is freed at once as ever; what is in
    one, at the latest when the block ends, so that its memory serves what comes after.
    """
    import gc  # late: nothing of `gym --help`

    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_NUM_NEW, *before[1:])
    try:
        yield
    finally:
        gc.collect()  # of what is new alone: what was there before is still left out
        gc.set_threshold(*before)
        gc.unfreeze()
