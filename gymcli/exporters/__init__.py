"""The rollouts of runs in the formats of others: to train on, to look through, to go on with."""

from gymcli.exporters.formats import COMPLETIONS, EXPORTERS, Exporter, Written
from gymcli.exporters.nemo_aggregate import NemoAggregate
from gymcli.exporters.source import Selected, Source

__all__ = [
    "COMPLETIONS",
    "EXPORTERS",
    "Exporter",
    "NemoAggregate",
    "Selected",
    "Source",
    "Written",
]
