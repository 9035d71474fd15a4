"""Raises the number of files and connections that this process may have open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymcli.runner.collection import Collection

__all__ = ["allow_collection", "allow_most"]

_SPARE = 128
"""Files beside the connections: the run's, those of Python, of its workers and their pipes."""

_MOST = 65536
"""What a server asks for: as many connections as there are ports."""


def allow_collection(collection: Collection) -> str | None:
    """Raise the limit of open files as far as a run needs it; give what to warn of if it cannot.

    An attempt may have a connection to each model, and to the server that its environment is.
    """
    options = collection.options
    models = (options.endpoint, *options.roles.values())
    num_places = sum(not isinstance(model, str | None) for model in models)
    num_places += (options.env or "").startswith(("http://", "https://"))
    needed = min(options.concurrency, collection.num_left) * num_places + _SPARE
    allowed = _raised_to(needed)
    if allowed >= needed:
        return None
    return (
        f"--concurrency {options.concurrency} may need {needed} open files, and {allowed} are "
        f"allowed here: raise that (ulimit -n {needed}) or lower --concurrency"
    )


def allow_most() -> None:
    """Raise the limit of open files as far as it goes, for a server that knows no number."""
    _raised_to(_MOST)


def _raised_to(needed: int) -> int:
    """Raise the soft limit up to what is needed, within the hard one; give what holds then."""
    import resource  # late: no command that opens little needs it

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
