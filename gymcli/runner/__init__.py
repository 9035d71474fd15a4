"""Many episodes: checked before anything is sent, bounded, resumable, each given as it ends."""

import importlib
from typing import TYPE_CHECKING

from gymcli.runner.measure import measure

if TYPE_CHECKING:
    from gymcli.runner.collection import Collection
    from gymcli.runner.comparing import compare_runs
    from gymcli.runner.engine import Engine
    from gymcli.runner.flips import RescoringReport
    from gymcli.runner.indexing import index_run
    from gymcli.runner.judging import Judges
    from gymcli.runner.lookup import find_record
    from gymcli.runner.merging import Merging
    from gymcli.runner.options import CollectOptions
    from gymcli.runner.pending import score_pending
    from gymcli.runner.repeats import RepeatReport
    from gymcli.runner.rescoring import Rescoring
    from gymcli.runner.verifying import verify

__all__ = [
    "CollectOptions",
    "Collection",
    "Engine",
    "Judges",
    "Merging",
    "RepeatReport",
    "Rescoring",
    "RescoringReport",
    "compare_runs",
    "find_record",
    "index_run",
    "measure",
    "score_pending",
    "verify",
]

_HOMES = {
    "CollectOptions": "options",
    "Collection": "collection",
    "Engine": "engine",
    "Judges": "judging",
    "Merging": "merging",
    "RepeatReport": "repeats",
    "Rescoring": "rescoring",
    "RescoringReport": "flips",
    "compare_runs": "comparing",
    "find_record": "lookup",
    "index_run": "indexing",
    "score_pending": "pending",
    "verify": "verifying",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module (PEP 562): who only measures needs no client."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
