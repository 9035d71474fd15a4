"""The rollouts of a run of any size: a few numbers of each in memory, all else read where it is."""

from gymcli.index.rows import ROW_NAMES, Place, Row, Status
from gymcli.index.run_index import Refreshed, RunIndex, open_index

__all__ = ["ROW_NAMES", "Place", "Refreshed", "Row", "RunIndex", "Status", "open_index"]
