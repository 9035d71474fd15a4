"""The formats of `gym export`, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO, NamedTuple

from gymcli.data.csv_table import write_csv
from gymcli.data.dpo import write_dpo
from gymcli.data.jsonl import write_jsonl
from gymcli.data.nemo_gym_rollouts import NemoGymWriter
from gymcli.data.parquet import write_parquet
from gymcli.data.sft import write_completions, write_sft
from gymcli.data.source import Source

__all__ = ["COMPLETIONS", "EXPORTERS", "Exporter", "Written"]

_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


class Written(NamedTuple):
    """What an exporter wrote."""

    num_rows: int
    write_beside: Callable[[BinaryIO], None] | None = None
    """Writes the second file of a format that has one."""


class Exporter(NamedTuple):
    """A format: its writer, and how its files are called."""

    write: Callable[[Source, BinaryIO], Written]
    endings: tuple[str, ...]
    beside: str = ""
    """How the name of its second file ends, where it has one."""


def _alone(write: Callable[[Source, BinaryIO], int]) -> Callable[[Source, BinaryIO], Written]:
    return lambda source, file: Written(write(source, file))


def _write_nemo_gym(source: Source, file: BinaryIO) -> Written:
    writer = NemoGymWriter(source)
    return Written(writer.write_rollouts(file), writer.write_aggregate)


EXPORTERS: Mapping[str, Exporter] = {
    "sft": Exporter(_alone(write_sft), _LINES),
    "dpo": Exporter(_alone(write_dpo), _LINES),
    "jsonl": Exporter(_alone(write_jsonl), _LINES),
    "parquet": Exporter(_alone(write_parquet), (".parquet",)),
    "csv": Exporter(_alone(write_csv), (".csv", ".csv.gz", ".csv.zst")),
    "nemo-gym": Exporter(_write_nemo_gym, _LINES, beside="_aggregate_metrics.json"),
}

COMPLETIONS = Exporter(_alone(write_completions), _LINES)
"""The other form of `sft`: what came after the prompt stands apart from it."""
