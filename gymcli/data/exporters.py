"""The formats of `gym export`, by name; the lines of runs (jsonl, nemo-gym) are written here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

import msgspec

from gymcli.data.conversations import write_completions, write_dpo, write_sft
from gymcli.data.export_source import ExportedAttempt, ExportSource
from gymcli.data.export_tables import write_csv, write_parquet
from gymcli.errors import UsageError
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.nemo_gym.rows import own_task_id
from gymcli.nemo_gym.wire import response_of, row_of
from gymcli.types import JSONObject

__all__ = ["COMPLETIONS", "EXPORTERS", "Exporter"]


def _write_jsonl(source: ExportSource, file: BinaryIO) -> int:
    """Write the lines of scored rollouts as they are; return how many.

    Raises:
        UsageError: A line of the source cannot be read.

    """
    num_rows = 0
    for attempt in source.scored():
        file.write(attempt.line + b"\n")
        num_rows += 1
    return num_rows


def _write_nemo_gym(source: ExportSource, file: BinaryIO, aggregate_file: BinaryIO) -> int:
    """Write NeMo Gym's line of each scored rollout, then its aggregates; return how many lines.

    Raises:
        UsageError: A line of the source cannot be read, an attempt is in two runs, a number is
            too large to be added up, or the runs are some of NeMo Gym's and some of ours.

    """
    aggregates: dict[str, NemoAggregate] = {}
    task_numbers: dict[tuple[str, str], int] = {}
    attempts: set[tuple[int, int]] = set()
    are_ours: bool | None = None
    for attempt in source.scored():
        run, row = attempt.run, attempt.row
        name = f"{run.path}: attempt {row.attempt} of task {row.task_id} ({row.env})"
        is_ours = run.is_ours(row)
        if are_ours is None:
            are_ours = is_ours
        if is_ours != are_ours:
            raise UsageError(
                f"{run.path}: rollouts of NeMo Gym and of gymcli have indices of their own; "
                "export them one after the other"
            )
        task_number = task_numbers.setdefault((row.env, row.task_id), len(task_numbers))
        if (task_number, row.attempt) in attempts:
            raise UsageError(
                f"{name}: is in another run as well; an aggregate has each attempt once"
            )
        attempts.add((task_number, row.attempt))
        if row.env not in aggregates:
            aggregates[row.env] = NemoAggregate(row.env, run.facts(row.env))
        try:
            line = (
                _nemo_gym_line(attempt, task_number)
                if is_ours
                else msgspec.json.decode(attempt.line, type=JSONObject)
            )
            aggregates[row.env].add(line, attempt.rollout)
        except OverflowError as error:
            raise UsageError(f"{name}: a number is too large: {error}") from error
        file.write(msgspec.json.encode(line) + b"\n")
    _write_aggregates(aggregates, aggregate_file)
    return len(attempts)


def _nemo_gym_line(attempt: ExportedAttempt, task_number: int) -> JSONObject:
    rollout, row = attempt.rollout, row_of(attempt.rollout)
    if own_task_id(row) != rollout.task_id:
        row["task_id"] = rollout.task_id
    response = response_of(rollout, row, rollout.responses, rollout.usage)
    line: JSONObject = {**rollout.metrics, **rollout.details, **row}
    line = {name: value for name, value in line.items() if not name.startswith("_ng_")}
    line |= {"response": response, "reward": attempt.reward}
    if rollout.components:
        line["reward_components"] = dict(rollout.components)
    if rollout.answer is not None:
        line["extracted_answer"] = rollout.answer
    return {
        **line,
        "_ng_task_index": task_number,
        "_ng_rollout_index": rollout.attempt,
        "agent_ref": {"name": attempt.row.env},
    }


def _write_aggregates(aggregates: Mapping[str, NemoAggregate], file: BinaryIO) -> None:
    """Write an array with an object for each environment."""
    file.write(b"[")
    for number, (env, aggregate) in enumerate(aggregates.items()):
        file.write(b"," if number else b"")
        try:
            file.writelines(_encoded_aggregate(env, aggregate))
        except OverflowError as error:
            raise UsageError(f"environment {env}: a number is too large: {error}") from error
    file.write(b"]\n")


def _encoded_aggregate(env: str, aggregate: NemoAggregate) -> Iterator[bytes]:
    """Yield the object piece by piece: it has an entry for each of very many tasks."""
    head = {"agent_ref": {"name": env}, **aggregate.totals()}
    yield msgspec.json.encode(head)[:-1] + b',"group_level_metrics":['
    for number, group in enumerate(aggregate.group_level_metrics()):
        yield (b"," if number else b"") + msgspec.json.encode(group)
    yield b"]}"


class Exporter(NamedTuple):
    """A format: its writer, and the names of its files."""

    write: Callable[..., int]
    """Takes the ExportSource, the file and, where the format has one, the second file; returns
    how many rows it wrote."""
    endings: tuple[str, ...]
    second_ending: str = ""
    """The end of the second file's name, in place of the first one's."""


_JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")

EXPORTERS: Mapping[str, Exporter] = {
    "sft": Exporter(write_sft, _JSON_LINES),
    "dpo": Exporter(write_dpo, _JSON_LINES),
    "jsonl": Exporter(_write_jsonl, _JSON_LINES),
    "parquet": Exporter(write_parquet, (".parquet",)),
    "csv": Exporter(write_csv, (".csv", ".csv.gz", ".csv.zst")),
    "nemo-gym": Exporter(_write_nemo_gym, _JSON_LINES, "_aggregate_metrics.json"),
}

COMPLETIONS = Exporter(write_completions, _JSON_LINES)
"""The other form of `sft`, with the prompt and what came after it in two fields."""
