"""The formats of `gym export`: tables, lines of runs, NeMo Gym's, and the dict of all."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import msgspec

from gymcli.data.export_source import ExportedAttempt, ExportSource, LeftOutError, has_tokens
from gymcli.data.training_formats import (
    places_of_calls,
    write_dpo,
    write_kto,
    write_openenv,
    write_sft,
    write_tokens,
)
from gymcli.errors import UsageError
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.nemo_gym.rows import own_task_id
from gymcli.nemo_gym.wire import add_token_fields, response_of, row_of
from gymcli.store.run_index import ROW_NAMES
from gymcli.store.tokens import prompts, tokens_file
from gymcli.tasks.table_files import needs_pyarrow
from gymcli.types import JSONObject, Rollout

_Kind = Literal["text", "count", "number", "truth"]

_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(("num_turns", "num_tool_calls", "num_attempts", "num_passed"), "count"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "attempt"), "count"),
    **dict.fromkeys(("reward", "cost", "seconds", "avg", "best", "worst"), "number"),
    "passed": "truth",
}

COLUMNS: Mapping[str, _Kind] = {
    "run": "text",
    **{name: _KINDS.get(name, "text") for name in ROW_NAMES},
    "last_text": "text",
}
"""The columns of every table, followed by `components.NAME`, `metrics.NAME` and `task.FIELD`."""
_MAX_TASK_COLUMNS = 64

JSON_COLUMNS = ("messages", "tools", "task", "details")
"""Further columns of a Parquet file, as JSON text: readers load only the columns they need."""

# Full-width characters and signs after invisible characters count too.
_FORMULA = re.compile(r"[\s\x00-\x1f\u200b\ufeff]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 4096
"""A row group of a Parquet file ends at this many rows or bytes of conversations."""


def _write_csv(source: ExportSource, file: BinaryIO) -> int:
    columns = _columns(source)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        # Before Python 3.13 a cell with \r is quoted only if the line terminator contains it.
        table = csv.writer(text, lineterminator="\r\n")
        table.writerow([_cell(name) for name in columns])
        num_rows = 0
        for attempt in source.attempts():
            table.writerow([_cell(value) for value in _values(attempt, columns).values()])
            num_rows += 1
    finally:
        text.detach()  # else garbage collection would close the file
    return num_rows


def _cell(value: object) -> object:
    # A model must not be able to write a formula: text that a spreadsheet would read as one gets
    # the prefix `'`, with which spreadsheets themselves mark text. See
    # https://owasp.org/www-community/attacks/CSV_Injection.
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return "" if value is None else value


def _write_parquet(source: ExportSource, file: BinaryIO) -> int:
    with needs_pyarrow("a Parquet file"):
        import pyarrow as pa  # late: heavy, and an extra
        from pyarrow.parquet import ParquetWriter
    columns = _columns(source)
    types = {"text": pa.string(), "count": pa.int64(), "number": pa.float64(), "truth": pa.bool_()}
    fields = [(name, types[kind]) for name, kind in columns.items()]
    schema = pa.schema([*fields, *((name, pa.string()) for name in JSON_COLUMNS)])
    num_rows = num_bytes = 0
    batch: list[dict[str, object]] = []
    with ParquetWriter(file, schema) as writer:
        for attempt in source.attempts():
            batch.append({**_values(attempt, columns), **_json_values(attempt)})
            num_bytes += len(attempt.line)
            num_rows += 1
            if num_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch, num_bytes = [], 0
        writer.write_table(pa.Table.from_pylist(batch, schema))
    return num_rows


def _columns(source: ExportSource) -> dict[str, _Kind]:
    for run, _ in source.runs:
        if run.has_more_names:
            source.warnings.append(
                f"{run.path}: has more components and metrics than the table can hold; only "
                f"the first {len(run.named_numbers)} names are in it"
            )
    number_names = {name: None for run, _ in source.runs for name in run.named_numbers}
    return {**COLUMNS, **dict.fromkeys(sorted(number_names), "number"), **_task_columns(source)}


def _task_columns(source: ExportSource) -> dict[str, _Kind]:
    """Return a column for every field of the tasks that holds no list or object in any of them."""
    kinds: dict[str, set[_Kind]] = {}
    nested_names: set[str] = set()
    for task in source.task_fields():
        for name, value in task.items():
            if isinstance(value, list | dict):
                nested_names.add(name)
            else:
                kinds.setdefault(name, set()).update(() if value is None else [_kind_of(value)])
    columns = {
        f"task.{name}": field_kinds.pop() if len(field_kinds) == 1 else _common(field_kinds)
        for name, field_kinds in kinds.items()
        if name not in nested_names
    }
    if len(columns) > _MAX_TASK_COLUMNS:
        source.warnings.append(
            f"the tasks have {len(columns)} fields; only the first {_MAX_TASK_COLUMNS} are in the "
            "table"
        )
    return dict(itertools.islice(columns.items(), _MAX_TASK_COLUMNS))


def _kind_of(value: object) -> _Kind:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "count" if -(1 << 63) <= value < 1 << 63 else "text"
    return "number" if isinstance(value, float) else "text"


def _common(kinds: set[_Kind]) -> _Kind:
    return "number" if kinds == {"count", "number"} else "text"


def _values(attempt: ExportedAttempt, columns: Mapping[str, _Kind]) -> dict[str, object]:
    record = attempt.record
    values: dict[str, object] = {name: getattr(attempt.row, name) for name in ROW_NAMES}
    values["run"] = str(attempt.run.path)
    texts = (message.text for message in reversed(record.messages) if message.role == "assistant")
    values["last_text"] = next(texts, None)
    if isinstance(record, Rollout):
        values["answer"] = record.answer
        values |= {f"components.{name}": number for name, number in record.components.items()}
        values |= {f"metrics.{name}": number for name, number in record.metrics.items()}
        for name, value in record.task.items():
            is_other = columns.get(f"task.{name}") == "text" and not isinstance(value, str | None)
            values[f"task.{name}"] = msgspec.json.encode(value).decode() if is_other else value
    return {name: values.get(name) for name in columns}


def _json_values(attempt: ExportedAttempt) -> dict[str, object]:
    record = attempt.record
    values: dict[str, object] = {"messages": record.messages}
    if isinstance(record, Rollout):
        values |= {"tools": record.tools, "task": record.task, "details": record.details}
    return {
        name: msgspec.json.encode(values[name]).decode() if values.get(name) else None
        for name in JSON_COLUMNS
    }


def _write_jsonl(source: ExportSource, file: BinaryIO, open_tokens: Callable[[], BinaryIO]) -> int:
    num_rows = 0
    token_file: BinaryIO | None = None
    for attempt in source.scored_attempts():
        line = attempt.line
        if token_lines := source.token_lines(attempt):
            token_file = token_file or open_tokens()
            token_file.writelines(token_lines)
        elif attempt.rollout.play:  # the file of token ids would lack it
            fields = msgspec.json.decode(line, type=JSONObject)
            del fields["play"]
            line = msgspec.json.encode(fields)
        file.write(line + b"\n")
        num_rows += 1
    return num_rows


def _aggregate_file(out: Path) -> Path:
    suffix = next(suffix for suffix in _JSON_LINES if out.name.endswith(suffix))
    return out.with_name(out.name.removesuffix(suffix) + "_aggregate_metrics.json")


def _write_nemo_gym(
    source: ExportSource, file: BinaryIO, open_aggregate: Callable[[], BinaryIO]
) -> int:
    missing_counts: Counter[str] = Counter()
    aggregates: dict[str, NemoAggregate] = {}
    task_numbers: dict[tuple[str, str], int] = {}
    attempts: set[tuple[int, int]] = set()
    kinds: set[bool] = set()
    for attempt in source.scored_attempts():
        run, row = attempt.run, attempt.row
        name = f"{run.path}: attempt {row.attempt} of task {row.task_id} ({row.env})"
        is_ours = run.is_ours(row)
        kinds.add(is_ours)
        if len(kinds) > 1:
            raise UsageError(
                f"{run.path}: rollouts of NeMo Gym and gymcli count their indices separately; "
                "export them separately"
            )
        task_number = task_numbers.setdefault((row.env, row.task_id), len(task_numbers))
        if (task_number, row.attempt) in attempts:
            raise UsageError(f"{name}: is also in another run; an aggregate has each attempt once")
        attempts.add((task_number, row.attempt))
        if row.env not in aggregates:
            aggregates[row.env] = NemoAggregate(row.env, run.facts(row.env))
        try:
            line = (
                _nemo_gym_line(attempt, task_number, _token_fields(source, attempt, missing_counts))
                if is_ours
                else msgspec.json.decode(attempt.line, type=JSONObject)
            )
            aggregates[row.env].add(line, attempt.rollout)
        except OverflowError as error:
            raise UsageError(f"{name}: a number is too large: {error}") from error
        file.write(msgspec.json.encode(line) + b"\n")
    if missing_counts:
        reasons = ", ".join(
            f"{reason}: {number}" for reason, number in missing_counts.most_common()
        )
        source.warnings.append(f"rows without token ids, which NeMo RL refuses: {reasons}")
    _write_aggregates(aggregates, open_aggregate())
    return len(attempts)


def _token_fields(
    source: ExportSource, attempt: ExportedAttempt, missing_counts: Counter[str]
) -> list[JSONObject]:
    """Return the token fields of each call; none, and the reason is counted, if they do not fit."""
    if not has_tokens(attempt.run):
        return []
    try:
        calls = source.token_calls(attempt)
        places_of_calls(attempt.rollout, calls)
        recorded_ids: list[int] = []
        fields: list[JSONObject] = []
        for call, prompt in zip(calls, prompts(calls), strict=True):
            if call.problem:  # NeMo RL skips items without these fields
                fields.append({})
                continue
            # NeMo RL asserts it (nemo_rl/environments/nemo_gym.py), and would stop training.
            if call.num_shared != len(recorded_ids):
                raise LeftOutError("a prompt that does not begin with all before it")
            recorded_ids = prompt + call.sampled
            fields.append(
                {
                    "prompt_token_ids": prompt,
                    "generation_token_ids": call.sampled,
                    "generation_log_probs": call.logprobs,
                }
            )
    except LeftOutError as reason:
        missing_counts[str(reason)] += 1
        return []
    return fields


def _nemo_gym_line(
    attempt: ExportedAttempt, task_number: int, token_fields: Sequence[JSONObject]
) -> JSONObject:
    rollout, row = attempt.rollout, row_of(attempt.rollout)
    if own_task_id(row) != rollout.task_id:
        row["task_id"] = rollout.task_id
    response = response_of(rollout, row, rollout.responses, rollout.usage)
    if token_fields:
        add_token_fields(response, rollout.responses, token_fields)
    # The row's fields replace metrics and details of the same name. The stamps of an earlier
    # collection are dropped: the indices below count the rollouts of this export.
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
    file.write(b"[")
    for number, (env, aggregate) in enumerate(aggregates.items()):
        try:
            head = {"agent_ref": {"name": env}, **aggregate.totals()}
            file.write(b"," if number else b"")
            # Streamed, since there is an entry for every task.
            file.write(msgspec.json.encode(head)[:-1] + b',"group_level_metrics":[')
            groups = map(msgspec.json.encode, aggregate.group_level_metrics())
            file.writelines((b"," if place else b"") + group for place, group in enumerate(groups))
        except OverflowError as error:
            raise UsageError(f"environment {env}: a number is too large: {error}") from error
        file.write(b"]}")
    file.write(b"]\n")


class Exporter(NamedTuple):
    """A format: its writer, the endings of its files' names, and the option that is its own."""

    write: Callable[..., int]
    """Takes the ExportSource, the file and, if the format has one, a function that opens the second
    file; returns the number of rows written."""
    endings: tuple[str, ...]
    second_file: Callable[[Path], Path] | None = None
    """Returns where the second file is, if the format has one."""
    option: str = ""
    """The keyword argument of `write` that the command line can set."""


_JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")

EXPORTERS: Mapping[str, Exporter] = {
    "sft": Exporter(write_sft, _JSON_LINES, option="loss"),
    "dpo": Exporter(write_dpo, _JSON_LINES),
    "kto": Exporter(write_kto, _JSON_LINES),
    "tokens": Exporter(write_tokens, _JSON_LINES, option="advantage"),
    "openenv": Exporter(write_openenv, _JSON_LINES),
    "jsonl": Exporter(_write_jsonl, _JSON_LINES, tokens_file),
    "parquet": Exporter(_write_parquet, (".parquet",)),
    "csv": Exporter(_write_csv, (".csv", ".csv.gz", ".csv.zst")),
    "nemo-gym": Exporter(_write_nemo_gym, _JSON_LINES, _aggregate_file),
}
