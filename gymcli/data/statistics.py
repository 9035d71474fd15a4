"""Describe task files: lengths, turns, tools, images, parameters and fields of few values."""

from __future__ import annotations

import hashlib
import statistics
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gymcli.metrics.percentiles import percentile
from gymcli.nemo_gym.rows import own_task_id
from gymcli.runner.task_source import named_file
from gymcli.store.task_row import PromptTemplate
from gymcli.store.tasks import RowProblem, TaskReading, read_tasks, told_apart
from gymcli.types import JSON, JSON_ERRORS, JSONObject, Message, TaskRow, canonical_json

__all__ = ["Spread", "Statistics", "describe_tasks"]

_MAX_VALUES = 20
"""The most different values of a field that is counted by value."""
_MAX_CHARACTERS = 40
"""The longest value that is counted."""
_MAX_NUMBER = 1e150
"""The largest parameter in a spread: beyond it squares and sums leave the range of floats."""
_IMAGES = ("image_url", "input_image")


class Spread(msgspec.Struct):
    """The distribution of a number over the rows that have it."""

    num: int
    mean: float
    standard_deviation: float
    """Of the sample; 0 for one row."""
    min: float
    median: float
    p90: float
    p99: float
    max: float


class Statistics(msgspec.Struct, kw_only=True):
    """The description of task files."""

    files: list[str]
    num_rows: int
    num_tasks: int
    """Rows without their identical copies in the same file."""
    num_wrong: int
    """Rows that cannot be read as tasks, which no other number includes."""
    num_unique_prompts: int
    """Different prompts, each with its tools."""
    num_unique_user_texts: int
    num_without_id: int
    """Tasks whose id is a hash of their content."""
    num_images: int
    environments: dict[str, int]
    """Rows by environment; the key is empty where a row names none."""
    spreads: dict[str, Spread]
    """`prompt_characters`, `prompt_words`, `messages`, `user_turns`, `tools` and
    `params.NAME`, each over the rows that have it."""
    tool_names: dict[str, int]
    """Rows by the tools that they declare."""
    fields: dict[str, dict[str, int]]
    """Rows by value, of fields whose values are few, short and shared.

    Numbers, booleans and null are JSON; so is a text that could be taken for one of them.
    """


def describe_tasks(tasks: Sequence[str | Path], *, prompt: Path | None = None) -> Statistics:
    """Describe task files; memory grows by a few numbers and digests a row.

    Raises:
        UsageError: A file or the template cannot be read.

    """
    files = [named_file(task) for task in tasks]
    reading = TaskReading(
        default_env="",
        default_envs={file.path: file.env for file in files if file.env},
        template=PromptTemplate.read(prompt) if prompt else None,
        id_by_file=True,
    )

    def count(shared_ids: frozenset[tuple[str, str]]) -> Statistics:
        tally = _Tally()
        told = reading._replace(shared_ids=shared_ids)
        for item in read_tasks([file.path for file in files], told):
            if isinstance(item, RowProblem):
                tally.num_wrong += 1
            elif isinstance(item, TaskRow):
                tally.add(item)
        return tally.result([str(file.path) for file in files])

    return told_apart(count)


class _Tally:
    """Counts rows in one pass."""

    def __init__(self) -> None:
        self.num_wrong = 0
        self._num_rows = self._num_tasks = self._num_without_id = self._num_images = 0
        self._prompts: set[bytes] = set()
        self._user_texts: set[bytes] = set()
        self._environments: Counter[str] = Counter()
        self._numbers: dict[str, array[float]] = {}
        self._tool_names: Counter[str] = Counter()
        self._fields = _FieldValues()

    def add(self, row: TaskRow) -> None:
        """Count a row."""
        self._num_rows += 1
        self._num_tasks += row.first_attempt == 0
        self._num_without_id += row.first_attempt == 0 and own_task_id(row.fields) is None
        self._num_images += sum(_num_images(message) for message in row.messages)
        self._prompts.add(_digest([row.messages, row.tools]))
        users = [message.text for message in row.messages if message.role == "user"]
        self._user_texts.add(_digest(users))
        self._environments[row.env] += 1
        texts = [message.text for message in row.messages]
        self._note("prompt_characters", sum(map(len, texts)))
        self._note("prompt_words", sum(len(text.split()) for text in texts))
        self._note("messages", len(texts))
        self._note("user_turns", len(users))
        if row.tools is not None:
            self._note("tools", len(row.tools))
            self._tool_names.update({_tool_name(tool) for tool in row.tools})
        for name, value in row.params.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if abs(value) <= _MAX_NUMBER:
                self._note(f"params.{name}", value)
        self._fields.add(row.fields)

    def result(self, files: list[str]) -> Statistics:
        """Return the description of the rows."""
        return Statistics(
            files=files,
            num_rows=self._num_rows,
            num_tasks=self._num_tasks,
            num_wrong=self.num_wrong,
            num_unique_prompts=len(self._prompts),
            num_unique_user_texts=len(self._user_texts),
            num_without_id=self._num_without_id,
            num_images=self._num_images,
            environments=dict(self._environments.most_common()),
            spreads={name: _spread(numbers) for name, numbers in self._numbers.items()},
            tool_names=dict(self._tool_names.most_common()),
            fields=self._fields.shared(),
        )

    def _note(self, name: str, number: float) -> None:
        self._numbers.setdefault(name, array("d")).append(number)


class _FieldValues:
    """Counts the values of fields, until they turn out to be many or long."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str] | None] = {}
        """None for a field that is no longer counted."""

    def add(self, fields: JSONObject) -> None:
        """Count the values of a row."""
        for name, value in fields.items():
            counts = self._counts.setdefault(name, Counter())
            if counts is None:
                continue
            shown = _short(value)
            if shown is not None:
                counts[shown] += 1
            if shown is None or len(counts) > _MAX_VALUES:
                self._counts[name] = None

    def shared(self) -> dict[str, dict[str, int]]:
        """Return the fields whose values are in two rows or more on average."""
        return {
            name: dict(counts.most_common())
            for name, counts in self._counts.items()
            if counts and counts.total() >= 2 * len(counts)
        }


def _short(value: JSON) -> str | None:
    """Return a short name of a value, or None; different values have different names."""
    if isinstance(value, list | dict):
        return None
    is_plain = isinstance(value, str) and _is_plain(value)
    shown = str(value) if is_plain else msgspec.json.encode(value).decode()
    return shown if len(shown) <= _MAX_CHARACTERS else None


def _is_plain(text: str) -> bool:
    """Return whether a text can be shown as it is, without being taken for JSON."""
    if not text or text != " ".join(text.split()):
        return False
    try:
        msgspec.json.decode(text)
    except JSON_ERRORS:
        return True
    return False


def _num_images(message: Message) -> int:
    parts = message.content if isinstance(message.content, list) else []
    return sum(part.get("type") in _IMAGES for part in parts)


def _tool_name(tool: JSONObject) -> str:
    """Return the name of a function, or the type of a hosted tool."""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("type")
    return str(name)


def _digest(value: object) -> bytes:
    return hashlib.blake2b(canonical_json(value), digest_size=16).digest()


def _spread(numbers: Iterable[float]) -> Spread:
    ordered = sorted(numbers)
    return Spread(
        num=len(ordered),
        mean=statistics.fmean(ordered),
        standard_deviation=statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
        min=ordered[0],
        median=percentile(ordered, 0.5),
        p90=percentile(ordered, 0.9),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
    )
