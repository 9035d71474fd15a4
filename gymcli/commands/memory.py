"""Keeps memory that was freed from staying with the process."""

from __future__ import annotations

__all__ = ["give_back_large_blocks"]

_M_MMAP_THRESHOLD = -3
"""What glibc calls it: malloc.h, mallopt(3)."""
_LARGE_BYTES = 1 << 17
"""Where glibc's own threshold starts."""


def give_back_large_blocks() -> None:
    """Have every large block go back to the system when it is freed, where the allocator can.

    glibc raises its threshold to the size of the largest block that was freed, and from then on
    keeps smaller ones for itself, in pieces that do not fit the next arrays. This saves 4 of
    80 MB of a run of 200,000 tasks.
    """
    import ctypes  # late: nothing of `gym --help`

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # macOS has none, and needs none
        set_option(_M_MMAP_THRESHOLD, _LARGE_BYTES)
