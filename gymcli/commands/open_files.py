"""The limit of open files and connections of this process."""

from __future__ import annotations

MOST_OPEN_FILES = 65536
"""Requested by a server, which cannot know the number: as many connections as there are ports."""


def allow_open_files(needed: int) -> int:
    """Raise the soft limit to `needed`, within the hard limit, and return the new limit."""
    import resource  # late: not needed by a command that opens few files

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return needed
    wanted = needed if hard == unlimited else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS reports "unlimited" but has a lower limit
        return soft
    return wanted
