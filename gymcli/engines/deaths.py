"""What every engine asks of its workers: that they start, fit to this process, and live."""

from __future__ import annotations

import msgspec

from gymcli.engines.messages import Opened
from gymcli.engines.process import WorkerLostError
from gymcli.engines.sending import raised_again
from gymcli.errors import EngineError
from gymcli.version import __version__

__all__ = ["MAX_DEATHS", "Deaths", "check_opened", "not_started"]

MAX_DEATHS = 3
"""So many workers may die with a piece of work before it is given up."""

_MIN_DEATHS_IN_A_ROW = 5


class Deaths:
    """Counts the workers that died since anything came of one."""

    def __init__(self, num_workers: int) -> None:
        self._max_in_a_row = max(_MIN_DEATHS_IN_A_ROW, 2 * num_workers)
        self._num_in_a_row = 0

    def add(self, error: WorkerLostError) -> EngineError | None:
        """Count one; give why there is no use in going on, if there is none."""
        self._num_in_a_row += 1
        if self._num_in_a_row <= self._max_in_a_row:
            return None
        text = f"{self._num_in_a_row} Ray workers died in a row without a result"
        return EngineError(f"{text}, the last of them so: {error}")

    def forget(self) -> None:
        """Take notice of a result."""
        self._num_in_a_row = 0


def check_opened(data: bytes) -> Opened:
    """Give what a worker said when it was ready.

    Raises:
        EngineError: It is another version of gymcli.
        GymError: What it met, such as an environment that is not there.

    """
    opened = msgspec.json.decode(data, type=Opened)
    if opened.error is not None:
        raise raised_again(opened.error)
    if opened.gymcli_version != __version__:
        raise EngineError(
            f"the Ray worker {opened.place} has gymcli {opened.gymcli_version}, not "
            f"{__version__}; install the same version on all nodes"
        )
    return opened


def not_started(seconds: float) -> EngineError:
    """Give the error of a cluster that has no room for any worker."""
    return EngineError(
        f"no Ray worker was started within {seconds:g} seconds: each needs a free core; "
        "give fewer --workers, or wait until the cluster has room"
    )
