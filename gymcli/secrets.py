"""Takes secrets out of what is written or shown, by their value."""

from __future__ import annotations

__all__: list[str] = []
