"""Many episodes: checked before anything is sent, bounded, resumable, each given as it ends."""

from gymcli.runner.collection import Collection
from gymcli.runner.judging import Judges
from gymcli.runner.library import collect
from gymcli.runner.lookup import find_record
from gymcli.runner.measure import measure
from gymcli.runner.options import CollectOptions
from gymcli.runner.pending import score_pending
from gymcli.runner.rescoring import Rescoring, RescoringReport
from gymcli.runner.verifying import verify

__all__ = [
    "CollectOptions",
    "Collection",
    "Judges",
    "Rescoring",
    "RescoringReport",
    "collect",
    "find_record",
    "measure",
    "score_pending",
    "verify",
]
