"""Ends code that catches every exception, by one where no `try` is around it (from 3.12 on)."""

from __future__ import annotations

import dis
import functools
import sys
import threading
from types import CodeType

__all__ = ["catch_again", "catch_nothing", "is_watcher"]

_NAME = "gymcli"
_NUM_TOOLS = 6
"""As many may watch a process: docs.python.org/3/library/sys.monitoring.html."""


def catch_nothing(error: type[BaseException], last: CodeType) -> bool:
    """Raise an exception in all that this thread runs, wherever it is not caught in that function.

    Says whether that is possible. A loop that catches everything comes to such a place when it
    begins anew.

    Args:
        error: The exception.
        last: A function that may catch it; all of its file goes on as always.

    """
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        if _place(_NAME) is not None:
            return True
        if (place := _place(None)) is None:
            return False
        thread = threading.get_ident()

        def reached(code: CodeType, offset: int) -> None:
            if (
                threading.get_ident() == thread
                and code.co_filename != last.co_filename
                and not is_watcher(code)
                and not any(offset in covered for covered in _covered(code))
            ):
                raise error

        monitoring.use_tool_id(place, _NAME)
        monitoring.register_callback(place, monitoring.events.INSTRUCTION, reached)
        monitoring.set_events(place, monitoring.events.INSTRUCTION)
        return True
    return False


def catch_again() -> None:
    """Let code run as always."""
    if sys.version_info >= (3, 12) and (place := _place(_NAME)) is not None:
        monitoring = sys.monitoring
        monitoring.set_events(place, monitoring.events.NO_EVENTS)
        monitoring.register_callback(place, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(place)


def is_watcher(code: CodeType) -> bool:
    """Say whether a function belongs to this module."""
    return code.co_filename == _place.__code__.co_filename


def _place(name: str | None) -> int | None:
    """Give the place that has a name among those who watch; of None, one that is free."""
    if sys.version_info >= (3, 12):
        for place in range(_NUM_TOOLS):
            if sys.monitoring.get_tool(place) == name:
                return place
    return None


@functools.lru_cache(256)
def _covered(code: CodeType) -> list[range]:
    """Give the instructions of a function with a `try` around them.

    All of a generator or a coroutine has a handler that only turns StopIteration into an error.
    """
    passing_on = dis.opmap.get("CALL_INTRINSIC_1")
    return [
        range(entry.start, entry.end)
        for entry in dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
        if code.co_code[entry.target] != passing_on
    ]
