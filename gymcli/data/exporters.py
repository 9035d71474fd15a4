"""The formats of `gym export`: for training, for analysis, and as the lines of runs.

`sft`, `dpo` and `kto` write messages in the form that transformers' chat templates and trl's
conversational data sets use: `reasoning_content` next to the text, tool arguments as objects.
`tokens`, `openenv` and `nemo-gym` write the token ids that `--record-tokens` recorded.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Self, TypeVar

import msgspec

from gymcli.errors import MissingPackageError, UsageError
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.nemo_gym.rows import own_task_id
from gymcli.nemo_gym.wire import add_token_fields, response_of, row_of
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.run_index import ROW_NAMES, Row, RunIndex
from gymcli.store.sequences import sequences
from gymcli.store.tokens import TokenCall, TokenFile, prompts, tokens_file
from gymcli.types import JSON_ERRORS, Failure, JSONObject, Message, Rollout, ToolCall

__all__ = [
    "ADVANTAGES",
    "COLUMNS",
    "EXPORTERS",
    "JSON_COLUMNS",
    "LOSSES",
    "ExportSource",
    "ExportedAttempt",
    "Exporter",
    "LeftOutError",
]

_Item = TypeVar("_Item")


class LeftOutError(Exception):
    """Raised if a format cannot express a rollout; the message is the reason, without names."""


class ExportedAttempt(NamedTuple):
    """An attempt with its record."""

    run: RunIndex
    row: Row
    line: bytes
    """The line on disk without secrets."""
    record: Rollout | Failure
    is_redacted: bool
    """Whether secrets were removed from the line."""

    @property
    def rollout(self) -> Rollout:
        """The record of a scored attempt."""
        assert isinstance(self.record, Rollout)
        return self.record

    @property
    def reward(self) -> float:
        """The reward of a scored attempt."""
        assert self.row.reward is not None
        return self.row.reward


class ExportSource:
    """The attempts of several runs, read one by one; a context manager.

    `runs` are runs with the numbers of their selected rows; `scrubber` removes secrets from each
    line before it is decoded.
    """

    def __init__(
        self, runs: Sequence[tuple[RunIndex, Sequence[int]]], scrubber: Scrubber = NOTHING_SECRET
    ) -> None:
        self.runs = runs
        self.left_out: Counter[str] = Counter()
        """The number of selected attempts or tasks that were not written, by reason."""
        self.warnings: list[str] = []
        self.num_redacted = 0
        """Lines that held a secret."""
        self._scrubber = scrubber
        self._token_files: dict[Path, TokenFile] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attempts(self) -> Iterator[ExportedAttempt]:
        """Yield all attempts, run by run."""
        for run, numbers in self.runs:
            for number in numbers:
                yield self.read(run, run.rows[number])

    def scored(self) -> Iterator[ExportedAttempt]:
        """Yield the scored attempts, run by run, and count the others as left out."""
        for run, numbers in self.runs:
            for row in self.scored_rows(run, numbers):
                yield self.read(run, row)

    def scored_rows(self, run: RunIndex, numbers: Sequence[int]) -> Iterator[Row]:
        """Yield the scored rows among `numbers`, and count the others as left out."""
        for number in numbers:
            row = run.rows[number]
            if row.status == "scored":
                yield row
            else:
                self.left_out["not scored"] += 1

    def task_fields(self) -> Iterator[JSONObject]:
        """Yield the task of every attempt that has one, run by run."""
        for run, numbers in self.runs:
            for row in (run.rows[number] for number in numbers):
                record = run.decoded(row, self._scrubber.line(run.line(row)))
                if isinstance(record, Rollout):
                    yield record.task

    def read(self, run: RunIndex, row: Row) -> ExportedAttempt:
        """Read one attempt; raise UsageError if its line is gone or cannot be read."""
        raw = run.line(row)
        # The run may be older than a key, or come from another program.
        line = self._scrubber.line(raw)
        self.num_redacted += line is not raw
        return ExportedAttempt(run, row, line, run.decoded(row, line), line is not raw)

    def token_lines(self, attempt: ExportedAttempt) -> list[bytes]:
        """Return the lines of token ids of a scored attempt; none if it has no ids."""
        # The ids of a redacted conversation decode to the secret.
        if attempt.is_redacted or not has_tokens(attempt.run):
            return []
        lines = self._token_file(attempt.run).lines(attempt.rollout).splitlines()
        return [self._scrubber.line(line) + b"\n" for line in lines if line.strip()]

    def token_calls(self, attempt: ExportedAttempt) -> list[TokenCall]:
        """Return the calls of a scored attempt, all of which can be trained on.

        Raises:
            LeftOutError: The attempt has no token ids, or a call has a problem.
        """
        if attempt.is_redacted:
            raise LeftOutError("a key in the conversation")
        calls = self._token_file(attempt.run).calls(attempt.rollout)
        if not calls:
            raise LeftOutError("no token ids")
        if problem := next((call.problem for call in calls if call.problem), ""):
            raise LeftOutError(f"a call that cannot be trained on: {problem}")
        return calls

    def require_tokens(self) -> None:
        """Raise UsageError if a run was collected without token ids."""
        for run, _ in self.runs:
            if not has_tokens(run):
                raise UsageError(
                    f"{run.path}: has no token ids; collect a run with --record-tokens"
                )

    def _token_file(self, run: RunIndex) -> TokenFile:
        if run.path not in self._token_files:
            self._token_files[run.path] = self._stack.enter_context(TokenFile(run.path))
        return self._token_files[run.path]


def has_tokens(run: RunIndex) -> bool:
    """Return whether a run was collected with token ids."""
    return tokens_file(run.path).is_file()


def _write_rows(
    source: ExportSource,
    file: BinaryIO,
    items: Iterable[_Item],
    rows_of: Callable[[_Item], list[JSONObject]],
) -> int:
    num_rows = 0
    for item in items:
        try:
            rows = rows_of(item)
        except LeftOutError as reason:
            source.left_out[str(reason)] += 1
            continue
        file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
        num_rows += len(rows)
    return num_rows


def _write_sft(source: ExportSource, file: BinaryIO, *, loss: str = "conversation") -> int:
    num_bad = num_attempts = 0

    def rows_of(attempt: ExportedAttempt) -> list[JSONObject]:
        nonlocal num_bad, num_attempts
        rows = LOSSES[loss](attempt)
        num_attempts += 1
        num_bad += attempt.reward <= 0
        return rows

    num_rows = _write_rows(source, file, source.scored(), rows_of)
    if num_bad:
        source.warnings.append(
            f"{num_bad} of {num_attempts} rollouts have a reward of 0 or less, and training would "
            "imitate them; leave them out by --where passed or --where 'reward > 0'"
        )
    return num_rows


def _conversation_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    rollout = attempt.rollout
    prompt = list(map(_chat_message, rollout.messages[: rollout.num_prompt_messages]))
    return [{"messages": prompt + _answer(rollout), **_tools_and_identity(attempt)}]


def _completion_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    prompt, completion = _prompt(attempt.rollout), _answer(attempt.rollout)
    return [{"prompt": prompt, "completion": completion, **_tools_and_identity(attempt)}]


def _assistant_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    # A row for each message of the model: trl trains on all of a completion, including what the
    # environment said in it, unless the chat template marks the model's messages, and few do.
    prompt, answer = _prompt(attempt.rollout), _answer(attempt.rollout)
    shared = _tools_and_identity(attempt)
    said = [place for place, message in enumerate(answer) if message["role"] == "assistant"]
    return [
        {
            "prompt": prompt + answer[:place],
            "completion": [answer[place]],
            **shared,
            "turn": turn,
        }
        for turn, place in enumerate(said)
    ]


LOSSES: Mapping[str, Callable[[ExportedAttempt], list[JSONObject]]] = {
    "conversation": _conversation_rows,
    "completion": _completion_rows,
    "assistant": _assistant_rows,
}
"""The forms of `sft`, by what trl trains on."""


def _write_dpo(source: ExportSource, file: BinaryIO) -> int:
    return _write_rows(source, file, _pairs(source), lambda pair: [_preference(source, *pair)])


def _write_kto(source: ExportSource, file: BinaryIO) -> int:
    return _write_rows(source, file, source.scored(), _kto_rows)


def _kto_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    if attempt.row.passed is None:
        raise LeftOutError("an environment without a pass threshold")
    return [{**_completion_rows(attempt)[0], "label": attempt.row.passed}]


def _tools_and_identity(attempt: ExportedAttempt) -> JSONObject:
    tools = attempt.rollout.tools
    return {
        **({"tools": tools} if tools else {}),
        **_identity(attempt),
        "reward": attempt.reward,
    }


def _identity(attempt: ExportedAttempt) -> JSONObject:
    return {name: getattr(attempt.row, name) for name in ("env", "task_id", "attempt")}


def _pairs(source: ExportSource) -> Iterator[tuple[RunIndex, Row, Row]]:
    for run, numbers in source.runs:
        # Numbers instead of rows, which would hold all of a large run in memory.
        numbers_by_task: dict[tuple[str, str], list[int]] = {}
        for row in source.scored_rows(run, numbers):
            numbers_by_task.setdefault((row.env, row.task_id), []).append(row.number)
        for group in numbers_by_task.values():
            # Sorted, since the order of the lines differs from one collection to the next.
            rows = sorted((run.rows[number] for number in group), key=lambda row: row.attempt)
            best, worst = max(rows, key=_reward), min(rows, key=_reward)
            if len(rows) == 1:
                source.left_out["tasks with one attempt"] += 1
            elif _reward(best) == _reward(worst):
                source.left_out["ties"] += 1
            else:
                yield run, best, worst


def _reward(row: Row) -> float:
    assert row.reward is not None
    return row.reward


def _preference(source: ExportSource, run: RunIndex, best: Row, worst: Row) -> JSONObject:
    chosen, rejected = source.read(run, best), source.read(run, worst)
    prompt, tools = _prompt(chosen.rollout), chosen.rollout.tools
    # trl's format has one prompt and one set of tools for both answers.
    if prompt != _prompt(rejected.rollout) or tools != rejected.rollout.tools:
        raise LeftOutError("pairs with different prompts")
    answers = _answer(chosen.rollout), _answer(rejected.rollout)
    if answers[0] == answers[1]:
        raise LeftOutError("pairs with the same answer")
    return {
        "prompt": prompt,
        "chosen": answers[0],
        "rejected": answers[1],
        **({"tools": tools} if tools else {}),
        "env": best.env,
        "task_id": best.task_id,
        "chosen_reward": chosen.reward,
        "rejected_reward": rejected.reward,
        "margin": chosen.reward - rejected.reward,
    }


def _prompt(rollout: Rollout) -> list[JSONObject]:
    prompt = rollout.messages[: rollout.num_prompt_messages]
    if not prompt:
        raise LeftOutError("no prompt")
    if prompt[-1].role in ("system", "developer"):
        raise LeftOutError("a prompt that nobody asks")
    return list(map(_chat_message, prompt))


def _answer(rollout: Rollout) -> list[JSONObject]:
    # After the model's last message there is nothing to learn.
    messages = rollout.responses
    while messages and messages[-1].role != "assistant":
        messages.pop()
    if not messages:
        raise LeftOutError("no message of the model")
    return list(map(_chat_message, messages))


def _chat_message(message: Message) -> JSONObject:
    # Few chat templates know "developer", and nearly all know "system".
    role = "system" if message.role == "developer" else message.role
    row: JSONObject = {"role": role, "content": _text(message)}
    if message.reasoning:
        row["reasoning_content"] = message.reasoning
    if message.tool_calls:
        row["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        row["name"] = message.name
    return row


def _text(message: Message) -> str:
    content = message.content
    if isinstance(content, list) and any(part.get("type") != "text" for part in content):
        raise LeftOutError("pictures or other content that is no text")
    is_empty = content is None and not (message.tool_calls or message.reasoning or message.refusal)
    if is_empty and message.response_items:
        raise LeftOutError("items that chat messages have no words for")
    return message.text or message.refusal or ""


def _tool_call(call: ToolCall) -> JSONObject:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except JSON_ERRORS:
        arguments = None
    if not isinstance(arguments, dict):
        raise LeftOutError("a tool call whose arguments are no JSON object")
    function: JSONObject = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _write_tokens(source: ExportSource, file: BinaryIO, *, advantage: str = "") -> int:
    source.require_tokens()

    def rows_of(attempt: ExportedAttempt) -> list[JSONObject]:
        numbers = {"reward": attempt.reward}
        if advantage:
            numbers["advantage"] = _advantage(attempt, ADVANTAGES[advantage])
        return [
            {**_identity(attempt), **msgspec.structs.asdict(sequence), **numbers}
            for sequence in sequences(attempt.rollout, source.token_calls(attempt))
        ]

    return _write_rows(source, file, source.scored(), rows_of)


ADVANTAGES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda _: 1.0,
    "zscore": lambda rewards: statistics.stdev(rewards) + 1e-4,
    # The baseline is the mean of the other rewards, not of all.
    "loo": lambda rewards: (len(rewards) - 1) / len(rewards),
}
"""By what the difference of a reward and its group's mean is divided: as in Dr. GRPO
(https://arxiv.org/abs/2503.20783), TRL's GRPO and RLOO (https://arxiv.org/abs/2402.14740)."""


def _advantage(attempt: ExportedAttempt, scale: Callable[[Sequence[float]], float]) -> float:
    """Return the advantage over all scored attempts of the task, selected or not."""
    run, row = attempt.run, attempt.row
    group = (run.rows[number].reward for number in run.attempts_of(row.env, row.task_id))
    rewards = [reward for reward in group if reward is not None]
    if len(rewards) == 1:
        return 0.0  # nothing to compare with; trl has 0, too
    return (attempt.reward - math.fsum(rewards) / len(rewards)) / scale(rewards)


def _write_openenv(source: ExportSource, file: BinaryIO) -> int:
    source.require_tokens()
    return _write_rows(
        source, file, source.scored(), lambda attempt: [_openenv_row(source, attempt)]
    )


def _openenv_row(source: ExportSource, attempt: ExportedAttempt) -> JSONObject:
    """Return an attempt as a `TrainingTrace` of OpenEnv 0.10, core/harness/training.py."""
    rollout, calls = attempt.rollout, source.token_calls(attempt)
    messages = list(map(_request_message, rollout.messages))
    turns = []
    places = _places(rollout, calls)
    for call, prompt, place in zip(calls, prompts(calls), places, strict=True):
        choice = {"message": messages[place], "finish_reason": call.finish_reason}
        turns.append(
            {
                "node_id": f"{call.play}-{call.call}",
                "prompt_token_ids": prompt,
                "completion_token_ids": call.sampled,
                "per_token_logps": call.logprobs,
                "loss_mask": [0] * len(prompt) + [1] * len(call.sampled),
                "request": {"messages": messages[:place], "tools": rollout.tools},
                "response": {"choices": [choice]},
                "metadata": {
                    "index": call.call,
                    "model": rollout.model,
                    "sampling_params": call.sampling,
                    "weight_version": call.weight_version,
                    "off_policy": call.off_policy,
                },
            }
        )
    trace = {"schema_version": 1, "turns": turns}
    return {"trace": trace, **_identity(attempt), "reward": attempt.reward}


def _places(rollout: Rollout, calls: Sequence[TokenCall]) -> list[int]:
    """Return the position of each call's message in a rollout's `messages`."""
    first = rollout.num_prompt_messages
    said = [first + n for n, m in enumerate(rollout.responses) if m.role == "assistant"]
    if len(said) != len(calls):
        raise LeftOutError("more or fewer messages of the model than calls")
    return said


def _request_message(message: Message) -> JSONObject:
    """Return a message as Chat Completions has it, with arguments as text."""
    unsent = {"reasoning": None, "response_items": [], "logprobs": None, "extra": {}}
    row = msgspec.to_builtins(msgspec.structs.replace(message, **unsent))
    row.setdefault("content", None)
    if message.reasoning:
        row["reasoning_content"] = message.reasoning
    return row


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
    try:
        import pyarrow as pa  # late: heavy, and an extra
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise MissingPackageError(
            "a Parquet file needs the package pyarrow: pip install 'gymcli[parquet]'"
        ) from error
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
    named = {name: None for run, _ in source.runs for name in run.named_numbers}
    return {**COLUMNS, **dict.fromkeys(sorted(named), "number"), **_task_columns(source)}


def _task_columns(source: ExportSource) -> dict[str, _Kind]:
    """Return a column for every field of the tasks that holds no list or object in any of them."""
    kinds: dict[str, set[_Kind]] = {}
    nested: set[str] = set()
    for task in source.task_fields():
        for name, value in task.items():
            if isinstance(value, list | dict):
                nested.add(name)
            else:
                kinds.setdefault(name, set()).update(() if value is None else [_kind_of(value)])
    columns = {
        f"task.{name}": found.pop() if len(found) == 1 else _common(found)
        for name, found in kinds.items()
        if name not in nested
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
    found: dict[str, object] = {"messages": record.messages}
    if isinstance(record, Rollout):
        found |= {"tools": record.tools, "task": record.task, "details": record.details}
    return {
        name: msgspec.json.encode(found[name]).decode() if found.get(name) else None
        for name in JSON_COLUMNS
    }


def _write_jsonl(source: ExportSource, file: BinaryIO, open_tokens: Callable[[], BinaryIO]) -> int:
    num_rows = 0
    token_file: BinaryIO | None = None
    for attempt in source.scored():
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
    ending = next(ending for ending in _JSON_LINES if out.name.endswith(ending))
    return out.with_name(out.name.removesuffix(ending) + "_aggregate_metrics.json")


def _write_nemo_gym(
    source: ExportSource, file: BinaryIO, open_aggregate: Callable[[], BinaryIO]
) -> int:
    lacking: Counter[str] = Counter()
    aggregates: dict[str, NemoAggregate] = {}
    task_numbers: dict[tuple[str, str], int] = {}
    attempts: set[tuple[int, int]] = set()
    kinds: set[bool] = set()
    for attempt in source.scored():
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
                _nemo_gym_line(attempt, task_number, _token_fields(source, attempt, lacking))
                if is_ours
                else msgspec.json.decode(attempt.line, type=JSONObject)
            )
            aggregates[row.env].add(line, attempt.rollout)
        except OverflowError as error:
            raise UsageError(f"{name}: a number is too large: {error}") from error
        file.write(msgspec.json.encode(line) + b"\n")
    if lacking:
        reasons = ", ".join(f"{reason}: {number}" for reason, number in lacking.most_common())
        source.warnings.append(f"rows without token ids, which NeMo RL refuses: {reasons}")
    _write_aggregates(aggregates, open_aggregate())
    return len(attempts)


def _token_fields(
    source: ExportSource, attempt: ExportedAttempt, lacking: Counter[str]
) -> list[JSONObject]:
    """Return the token fields of each call; none, and the reason is counted, if it has none."""
    if not has_tokens(attempt.run):
        return []
    try:
        calls = source.token_calls(attempt)
        _places(attempt.rollout, calls)
        held: list[int] = []
        fields: list[JSONObject] = []
        for call, prompt in zip(calls, prompts(calls), strict=True):
            # NeMo RL asserts it (nemo_rl/environments/nemo_gym.py), and would stop training.
            if call.num_shared != len(held):
                raise LeftOutError("a prompt that does not begin with all before it")
            held = prompt + call.sampled
            fields.append(
                {
                    "prompt_token_ids": prompt,
                    "generation_token_ids": call.sampled,
                    "generation_log_probs": call.logprobs,
                }
            )
    except LeftOutError as reason:
        lacking[str(reason)] += 1
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
    "sft": Exporter(_write_sft, _JSON_LINES, option="loss"),
    "dpo": Exporter(_write_dpo, _JSON_LINES),
    "kto": Exporter(_write_kto, _JSON_LINES),
    "tokens": Exporter(_write_tokens, _JSON_LINES, option="advantage"),
    "openenv": Exporter(_write_openenv, _JSON_LINES),
    "jsonl": Exporter(_write_jsonl, _JSON_LINES, tokens_file),
    "parquet": Exporter(_write_parquet, (".parquet",)),
    "csv": Exporter(_write_csv, (".csv", ".csv.gz", ".csv.zst")),
    "nemo-gym": Exporter(_write_nemo_gym, _JSON_LINES, _aggregate_file),
}
