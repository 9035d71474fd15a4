"""The limit of open files and connections of this process."""

from __future__ import annotations

__all__ = ["MOST_OPEN_FILES", "allow_open_files"]

MOST_OPEN_FILES = 65536
"""What a server asks for, which knows no number: as many connections as there are ports."""


def allow_open_files(needed: int) -> int:
    """Raise the soft limit to `needed`, within the hard limit; return what is allowed now."""
    import resource  # late: a command that opens few files does not need it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return needed
    wanted = needed if hard == unlimited else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS says unlimited, and has a limit of its own
        return soft
    return wanted
