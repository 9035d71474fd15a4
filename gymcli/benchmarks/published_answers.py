"""Scores answers that were generated elsewhere as a benchmark does: they become a run.

A file holds rollouts of gymcli or NeMo Gym, or rows with an answer under one of the usual names.
Each row is joined with its task by `task_id` or `id`, else by the text of its question, else by
`doc_id` (lm-eval); where no row matches any task and there are as many rows as tasks, by position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.benchmarks.benchmark import Benchmark
from gymcli.benchmarks.benchmark_runs import (
    read_benchmark_tasks,
    with_benchmark,
    with_pulled_tasks,
)
from gymcli.environment.registry import Registry, own_options
from gymcli.errors import UsageError
from gymcli.nemo_gym.rows import is_nemo_rollout, own_task_id, read_rollout
from gymcli.rescoring.run_rescoring import Pending, score_pending
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.identity import rescored_manifest
from gymcli.runner.judges import Judges
from gymcli.store.lines import file_sha256
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.store.rollout_files import MAX_ATTEMPT
from gymcli.store.run_directory import new_run_directory
from gymcli.tasks.table_files import local_rows, table_notes
from gymcli.tasks.task_row import listed, row_prompt
from gymcli.types import (
    SCHEMA_VERSION,
    FunctionCall,
    JSONObject,
    Message,
    Rollout,
    TaskRow,
    ToolCall,
)

ANSWER_FIELDS = (
    *("response", "completion", "generation", "output", "prediction", "result"),
    # lm-eval's samples: what the model wrote, and what its filters made of that.
    *("resps", "filtered_resps"),
    # Last, since the gold answer often has this name.
    "answer",
)
_QUESTION_FIELDS = ("prompt", "question", "problem", "query", "input", "instruction")
_TEXT_FIELDS = {"content", "message", "text"}
"""Fields with the text of an answer, whose objects are no calls."""


class _JoinedRow(NamedTuple):
    place: int
    """Counted from 0, with rows that have no answer."""
    task: int | None
    """The position of its task; None if it fits none."""
    attempt: int
    """That of its first answer."""
    num_answers: int


class PublishedAnswers:
    """The answers of a file, joined with the tasks of a benchmark.

    Raises:
        UsageError: The file cannot be read, no row fits a task, or an attempt is answered twice.
    """

    def __init__(self, path: Path, benchmark: Benchmark, tasks: Path) -> None:
        self.notes = table_notes(path)
        """How rows were joined, and which were left out, in words for the user."""
        self.registration = Registry().find(benchmark.env)
        self.tasks = read_benchmark_tasks(benchmark, tasks)
        self.models: set[str] = set()
        """The models that rows name."""
        self._path = path
        self._name = benchmark.name
        self._filter: object = None
        """Of lm-eval's samples, which repeat each answer for every filter, only one is read."""
        self._joined: dict[int, _JoinedRow] = {}
        """The rows with a task, by their number in the file."""
        self._join()
        self.repeats = max(row.attempt + row.num_answers for row in self._joined.values())
        """The attempts of each task, as far as the file tells."""

    def rollouts(self, *, model: str, env_options: JSONObject) -> Iterator[Rollout]:
        """Yield the answers as rollouts without a score, as the environment would record them."""
        environment = self.registration.environment
        for number, row in self._rows():
            joined_row = self._joined.get(number)
            if joined_row is None or joined_row.task is None:
                continue
            task = self.tasks[joined_row.task]
            for place, record in enumerate(_records(row, task, self._place(number))):
                yield msgspec.structs.replace(
                    record.unscored(),
                    schema_version=SCHEMA_VERSION,
                    task_id=task.id,
                    task_hash=task.hash,
                    attempt=joined_row.attempt + place,
                    env=self.registration.name,
                    env_version=environment.version,
                    env_options=env_options,
                    group_size=self.repeats if environment.scores_groups() else 0,
                    task=task.fields,
                    model=record.model or model,
                )

    def _join(self) -> None:
        by_id = {task.id: place for place, task in enumerate(self.tasks)}
        by_text = _positions_by_text(self.tasks)
        num_by_method: Counter[str] = Counter()
        rows: dict[int, _JoinedRow] = {}
        unanswered_rows: list[int] = []
        place = -1
        for place, (number, row) in enumerate(self._rows()):
            row_place = self._place(number)
            if num_answers := len(_records(row, self.tasks[0], row_place)):
                self.models |= _models(row)
                method, task = _task_of(row, by_id, by_text, len(self.tasks))
                num_by_method[method] += 1
                rows[number] = _JoinedRow(place, task, _first_attempt(row, row_place), num_answers)
            else:
                unanswered_rows.append(number)
        if not rows:
            raise UsageError(
                f"{self._path}: no row has an answer in one of the fields "
                f"{', '.join(ANSWER_FIELDS)}; rename the field that has it"
            )
        num_rows = place + 1
        if num_by_method.keys() == {""} and num_rows == len(self.tasks):
            rows = {number: row._replace(task=row.place) for number, row in rows.items()}
            num_by_method = Counter({"position": len(rows)})
        unmatched_rows = [number for number, row in rows.items() if row.task is None]
        if len(unmatched_rows) == len(rows):
            raise UsageError(
                f"{self._path}: no row matches a task of {self._name}, and it has {num_rows:,} for "
                f'{len(self.tasks):,} tasks: give each row the task\'s "id", such as '
                f'"{self.tasks[0].id}", or the text of its question as "prompt" or "question"'
            )
        self._joined = {number: row for number, row in rows.items() if row.task is not None}
        self._check_attempts()
        self._note_counts(num_by_method)
        for numbers, reason in (
            (unmatched_rows, f"they match no task of {self._name}"),
            (unanswered_rows, "they have no answer"),
        ):
            if numbers:
                text = f"{len(numbers):,} of {num_rows:,} rows are left out because {reason}"
                self.notes.append(f"warning: {text}: rows {listed([*map(str, numbers)])}")
        self._note_missing_tasks()

    def _note_counts(self, num_by_method: Counter[str]) -> None:
        counts_text = ", ".join(
            f"{num:,} by {method}" for method, num in num_by_method.most_common() if method
        )
        self.notes.append(
            f"{self._path}: {len(self._joined):,} rows joined with tasks: {counts_text}"
        )

    def _note_missing_tasks(self) -> None:
        answered_tasks = {row.task for row in self._joined.values()}
        missing = [
            task.id for position, task in enumerate(self.tasks) if position not in answered_tasks
        ]
        if missing:
            self.notes.append(
                f"warning: {len(missing):,} of {len(self.tasks):,} tasks have no answer and count "
                f"as missing: {listed(missing)}"
            )

    def _check_attempts(self) -> None:
        row_by_attempt: dict[tuple[int | None, int], int] = {}
        repeats: list[str] = []
        for number, row in self._joined.items():
            for attempt in range(row.attempt, row.attempt + row.num_answers):
                earlier_row = row_by_attempt.setdefault((row.task, attempt), number)
                if earlier_row != number:
                    repeats.append(f"{number} as {earlier_row}")
        if repeats:
            raise UsageError(
                f"{self._path}: {len(repeats):,} of {len(self._joined):,} rows answer the same "
                f"attempt as another row: {listed(repeats)}; number the answers of each task from "
                '0 as its "attempt", or list them in one row'
            )

    def _rows(self) -> Iterator[tuple[int, JSONObject]]:
        for number, row in local_rows(self._path):
            if isinstance(row, str):
                raise UsageError(f"{self._place(number)}: {row}")
            if "filter" in row and "resps" in row:
                self._filter = self._filter or row["filter"]
                if row["filter"] != self._filter:
                    continue
            yield number, row

    def _place(self, number: int) -> str:
        return f"{self._path}:{number}"


def _positions_by_text(tasks: Iterable[TaskRow]) -> dict[str, int | None]:
    """Return the position of the task with a question; None if several have it."""
    positions: dict[str, int | None] = {}
    for place, task in enumerate(tasks):
        for text in {*_texts(task.fields), *_texts({"prompt": task.messages})}:
            positions[text] = place if text not in positions else None
    return positions


def _texts(fields: Mapping[str, object]) -> Iterator[str]:
    """Yield the texts of fields that may hold a question, in one form of white space."""
    for name in _QUESTION_FIELDS:
        value = fields.get(name)
        if isinstance(value, list):  # chat messages, of which the last of the user counts
            user_texts = [
                message.text
                for message in map(_as_message, value)
                if message and message.role == "user"
            ]
            value = user_texts[-1] if user_texts else None
        if isinstance(value, str) and value.strip():
            yield " ".join(value.split())


def _as_message(value: object) -> Message | None:
    if isinstance(value, dict):
        try:
            [value] = row_prompt({"messages": [value]}).messages
        except ValueError:
            return None
    return value if isinstance(value, Message) else None


def _task_of(
    row: JSONObject, by_id: Mapping[str, int], by_text: Mapping[str, int | None], num_tasks: int
) -> tuple[str, int | None]:
    """Return how a row is joined, and the position of its task; None if it fits none."""
    own_id = own_task_id(row) or ""
    task = by_id.get(own_id, by_id.get(own_id.strip()))
    if task is not None:
        return "id", task
    params = row.get("responses_create_params")
    prompt = row.get("messages", params.get("input") if isinstance(params, dict) else None)
    for fields in (row, row.get("doc"), {"prompt": prompt}):
        for text in _texts(fields if isinstance(fields, dict) else {}):
            task = by_text.get(text)
            if task is not None:
                return "the text of the question", task
    for name in ("doc_id", "_ng_task_index"):
        index = row.get(name)
        if type(index) is int and 0 <= index < num_tasks:
            return name, index
    return "", None


def _models(row: JSONObject) -> set[str]:
    answers = [row.get(name) for name in ("response", "output")]
    named = [row.get("model"), row.get("model_name")]
    named += [answer.get("model") for answer in answers if isinstance(answer, dict)]
    return {name for name in named if isinstance(name, str) and name}


def _first_attempt(row: JSONObject, place: str) -> int:
    for name, first in (("attempt", 0), ("_ng_rollout_index", 0), ("epoch", 1)):
        value = row.get(name)
        if type(value) is int:
            if not first <= value <= MAX_ATTEMPT:
                raise UsageError(f'{place}: "{name}" must be from {first} to {MAX_ATTEMPT:,}')
            return value - first
    return 0


def _records(row: JSONObject, task: TaskRow, place: str) -> list[Rollout]:
    """Return the rollouts of a row, which are several if it lists answers."""
    try:
        if row.get("schema_version") and isinstance(row.get("messages"), list):
            return [msgspec.convert(row, Rollout)]
        response = row.get("response")
        if is_nemo_rollout(row) and isinstance(response, dict) and "output" in response:
            return [read_rollout(row, env=task.env)]
        # One that is null is no answer: the fields after it may hold the gold answer.
        answers = _answers(next((row[name] for name in ANSWER_FIELDS if name in row), None))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{place}: the answer cannot be read: {error}") from error
    return [
        Rollout(
            messages=[*task.messages, answer],
            num_prompt_messages=len(task.messages),
            tools=task.tools or [],
            stop_reason="done",
        )
        for answer in answers
    ]


def _answers(value: object) -> list[Message]:
    if value is None:
        return []
    if isinstance(value, dict):
        choices = value.get("choices")  # of Chat Completions, and of inspect's `output`
        if isinstance(choices, list):
            return [answer for choice in choices for answer in _answers(choice)]
        inner_value = value.get("message", value.get("text"))
        if inner_value is not None:
            return _answers(inner_value)
        calls = value.get("tool_calls")
        if isinstance(calls, list) and calls and all(map(_is_call_of_inspect, calls)):
            calls_made = [(call["function"], call.get("arguments", {})) for call in calls]
            return [Message(role="assistant", tool_calls=_tool_calls(calls_made))]
        if not value.keys() & {"content", "tool_calls", "function_call"}:
            raise ValueError(
                "an object needs content, text, message, choices or tool_calls, not "
                f"{listed(value)}"
            )
        return row_prompt({"messages": [{**value, "role": "assistant"}]}).messages
    if isinstance(value, list):
        if value and all(map(_is_call, value)):
            calls_made = [pair for call in value for pair in call.items()]
            return [Message(role="assistant", tool_calls=_tool_calls(calls_made))]
        return [answer for part in value for answer in _answers(part)]
    return [Message(role="assistant", content=value if isinstance(value, str) else str(value))]


def _is_call_of_inspect(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("function"), str)


def _is_call(value: object) -> bool:
    """Return whether a value maps a function's name to its arguments, as in BFCL's results."""
    if not isinstance(value, dict) or len(value) != 1 or value.keys() & _TEXT_FIELDS:
        return False
    [arguments] = value.values()
    is_text = isinstance(arguments, str) and arguments.lstrip().startswith("{")
    return is_text or isinstance(arguments, dict)


def _tool_calls(calls: Iterable[tuple[str, object]]) -> list[ToolCall]:
    """Return calls from functions' names and their arguments, an object or its JSON text."""
    texts = (
        (name, arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode())
        for name, arguments in calls
    )
    return [
        ToolCall(id=f"call_{number}", function=FunctionCall(*call))
        for number, call in enumerate(texts)
    ]


async def score_answers(
    answers: PublishedAnswers,
    benchmark: Benchmark,
    out: Path,
    *,
    tasks: Path,
    model: str = "",
    judges: Judges | None = None,
    env_args: Mapping[str, str] | None = None,
) -> Pending:
    """Write the answers as a run of the benchmark into a new folder, and score them.

    Raises:
        UsageError: The folder is not empty, or a role of the benchmark has no model.
    """
    judges = judges or Judges()
    registration = answers.registration
    options = with_benchmark(
        CollectOptions(
            model=model or "unknown",
            repeats=answers.repeats,
            env_args=dict(env_args or {}),
            roles=dict(judges.sources),
            role_params={role: dict(params) for role, params in judges.params.items()},
        ),
        benchmark,
    )
    options = with_pulled_tasks(options, benchmark, tasks)
    judges = judges._replace(params=options.role_params)
    env_options = own_options(options.env_args, registration).model_dump(
        mode="json", exclude_defaults=True
    )
    num_expected = len(answers.tasks) * answers.repeats
    manifest = Manifest(
        benchmark=options.benchmark,
        tasks=[{"path": str(tasks), "sha256": file_sha256(tasks), "num_rows": len(answers.tasks)}],
        environments={
            registration.name: EnvironmentRecord(num_expected=num_expected, options=env_options)
        },
        model=model,
        num_expected=num_expected,
        num_tasks=len(answers.tasks),
    )
    manifest = rescored_manifest(
        manifest, {registration.name: registration}, env_args={}, judges=judges, num_lines={}
    )
    with new_run_directory(out, judges.scrubber()) as directory:
        directory.write_manifest(manifest)
        for rollout in answers.rollouts(model=model, env_options=env_options):
            directory.append_generation(rollout)
    return await score_pending(out, judges=judges)
