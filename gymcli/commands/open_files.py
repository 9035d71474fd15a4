"""The limit of open files and connections of this process."""

from __future__ import annotations

MOST_OPEN_FILES = 65536
"""Requested by a server, which cannot know the number: as many connections as there are ports."""


def allow_open_files(num_files: int) -> int:
    """Raise the soft limit to `num_files`, within the hard limit, and return the new limit."""
    import resource  # late: not needed by a command that opens few files

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= num_files:
        return num_files
    limit = num_files if hard == unlimited else min(num_files, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError):  # macOS reports "unlimited" but has a lower limit
        return soft
    return limit
