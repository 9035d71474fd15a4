"""Lets an exception pass through every `except` on its way, where Python can do that (3.12)."""

from __future__ import annotations

import sys
import threading
from types import CodeType

__all__ = ["catch_again", "catch_nothing"]

_NAME = "gymcli"
_NUM_TOOLS = 6
"""As many may watch a process: docs.python.org/3/library/sys.monitoring.html."""


def catch_nothing(error: type[BaseException], last: CodeType) -> None:
    """Raise an exception anew wherever this thread catches one, up to a function that may."""
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        if _place(_NAME) is not None or (place := _place(None)) is None:
            return
        thread = threading.get_ident()

        def caught(code: CodeType, offset: int, exception: BaseException) -> None:
            if threading.get_ident() == thread and code is not last:
                raise error

        monitoring.use_tool_id(place, _NAME)
        monitoring.register_callback(place, monitoring.events.EXCEPTION_HANDLED, caught)
        monitoring.set_events(place, monitoring.events.EXCEPTION_HANDLED)


def catch_again() -> None:
    """Let exceptions be caught as always."""
    if sys.version_info >= (3, 12) and (place := _place(_NAME)) is not None:
        monitoring = sys.monitoring
        monitoring.set_events(place, monitoring.events.NO_EVENTS)
        monitoring.register_callback(place, monitoring.events.EXCEPTION_HANDLED, None)
        monitoring.free_tool_id(place)


def _place(name: str | None) -> int | None:
    """Give the place that has a name among those who watch; of None, one that is free."""
    if sys.version_info >= (3, 12):
        for place in range(_NUM_TOOLS):
            if sys.monitoring.get_tool(place) == name:
                return place
    return None
