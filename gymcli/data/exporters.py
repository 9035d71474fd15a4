"""The formats of `gym export`, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

import msgspec

from gymcli.data.conversations import write_completions, write_dpo, write_sft
from gymcli.data.export_source import Scored, Source
from gymcli.data.export_tables import write_csv, write_parquet
from gymcli.errors import UsageError
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.nemo_gym.rows import own_task_id
from gymcli.nemo_gym.wire import response_of, row_of
from gymcli.types import JSONObject

__all__ = ["COMPLETIONS", "EXPORTERS", "Exporter", "NemoGymWriter", "Written", "write_jsonl"]


def write_jsonl(source: Source, file: BinaryIO) -> int:
    """Write the lines of scored rollouts; give how many.

    Raises:
        UsageError: A line cannot be read.

    """
    num_rows = 0
    for scored in source.scored():
        file.write(scored.line + b"\n")
        num_rows += 1
    return num_rows


_KEPT = ("responses_create_params", "response", "reward")
"""What no field of a task and no part of a score may stand for."""


class NemoGymWriter:
    """Writes the rollouts of a source, then what they come to."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._aggregates: dict[str, NemoAggregate] = {}
        self._tasks: dict[tuple[str, str], int] = {}
        """The number of each task, by environment and id."""
        self._attempts: set[tuple[int, int]] = set()
        self._is_ours: bool | None = None

    def write_rollouts(self, file: BinaryIO) -> int:
        """Write a line for each scored rollout; give how many.

        Raises:
            UsageError: A line cannot be read, an attempt is there twice, or runs of both programs
                are given.

        """
        num_rows = 0
        for scored in self._source.scored():
            task = self._check(scored)
            try:
                line = self._line(scored, task)
                self._aggregate(scored).add(line, scored.rollout)
            except OverflowError as error:
                raise UsageError(f"{_name(scored)}: a number is too large: {error}") from error
            file.write(msgspec.json.encode(line) + b"\n")
            num_rows += 1
        return num_rows

    def write_aggregate(self, file: BinaryIO) -> None:
        """Write the numbers of what was written: an array with an object for each environment.

        Raises:
            UsageError: They are too large to be added up.

        """
        file.write(b"[")
        for number, (env, aggregate) in enumerate(self._aggregates.items()):
            file.write(b"," if number else b"")
            try:
                file.writelines(_encoded(env, aggregate))
            except OverflowError as error:
                raise UsageError(f"environment {env}: a number is too large: {error}") from error
        file.write(b"]\n")

    def _check(self, scored: Scored) -> int:
        """Return the number of a rollout's task, once it is seen that its attempt is new."""
        row, is_ours = scored.row, scored.run.is_ours(scored.row)
        if self._is_ours not in (None, is_ours):
            raise UsageError(
                f"{scored.run.path}: rollouts of NeMo Gym and of gymcli have indices of their "
                "own; export them one after the other"
            )
        self._is_ours = is_ours
        task = self._tasks.setdefault((row.env, row.task_id), len(self._tasks))
        if (task, row.attempt) in self._attempts:
            raise UsageError(
                f"{_name(scored)}: is in another run as well; an aggregate has each attempt once"
            )
        self._attempts.add((task, row.attempt))
        return task

    def _aggregate(self, scored: Scored) -> NemoAggregate:
        env = scored.row.env
        if env not in self._aggregates:
            self._aggregates[env] = NemoAggregate(env, scored.run.facts(env))
        return self._aggregates[env]

    def _line(self, scored: Scored, task: int) -> JSONObject:
        if not self._is_ours:
            return msgspec.json.decode(scored.line, type=JSONObject)
        rollout, row = scored.rollout, row_of(scored.rollout)
        if own_task_id(row) != rollout.task_id:
            row["task_id"] = rollout.task_id
        answered = rollout.messages[rollout.num_prompt_messages :]
        response = response_of(rollout, row, answered, rollout.usage)
        line: JSONObject = {**rollout.metrics, **rollout.details, **row}
        line = {name: value for name, value in line.items() if not name.startswith("_ng_")}
        line |= {"response": response, "reward": scored.reward}
        if rollout.components:
            line["reward_components"] = dict(rollout.components)
        if rollout.answer is not None:
            line["extracted_answer"] = rollout.answer
        return {
            **line,
            "_ng_task_index": task,
            "_ng_rollout_index": rollout.attempt,
            "agent_ref": {"name": scored.row.env},
        }


def _encoded(env: str, aggregate: NemoAggregate) -> Iterator[bytes]:
    """Give the object of an environment piece by piece: there may be very many tasks."""
    head = {"agent_ref": {"name": env}, **aggregate.totals()}
    yield msgspec.json.encode(head)[:-1] + b',"group_level_metrics":['
    for number, group in enumerate(aggregate.group_level_metrics()):
        yield (b"," if number else b"") + msgspec.json.encode(group)
    yield b"]}"


def _name(scored: Scored) -> str:
    row = scored.row
    return f"{scored.run.path}: attempt {row.attempt} of task {row.task_id} ({row.env})"


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
