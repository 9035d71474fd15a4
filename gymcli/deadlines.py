"""Time limits around somebody else's code, whether it waits or computes."""

from __future__ import annotations

__all__: list[str] = []
