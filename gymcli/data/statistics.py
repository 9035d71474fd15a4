"""Describes task files: lengths, turns, tools, images, parameters and fields with few values."""

from __future__ import annotations

import hashlib
import statistics
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gymcli.benchmarks.resolution import task_inputs
from gymcli.environment.registry import Registry
from gymcli.metrics.estimators import percentile
from gymcli.nemo_gym.rows import own_task_id
from gymcli.tasks.task_files import RowProblem, read_tasks, with_shared_ids
from gymcli.tasks.task_row import PromptTemplate, TaskReading
from gymcli.tasks.task_source import map_tables
from gymcli.types import JSON, JSON_ERRORS, JSONObject, TaskRow, canonical_json

_MAX_VALUES = 20
"""The most distinct values of a field that is counted by value."""
_MAX_CHARACTERS = 40
"""The most characters of a value that is counted."""
_MAX_NUMBER = 1e150
"""The largest parameter in a spread: squares and sums of larger numbers overflow a float."""
_IMAGES = ("image_url", "input_image")


class Spread(msgspec.Struct):
    """The distribution of a number over the rows that have it."""

    num: int
    mean: float
    standard_deviation: float
    """The sample standard deviation; 0 for one row."""
    min: float
    median: float
    p90: float
    p99: float
    max: float


class Statistics(msgspec.Struct, kw_only=True):
    """The description of task files."""

    files: list[str]
    num_rows: int = 0
    num_tasks: int = 0
    """Rows without identical copies in the same file."""
    num_wrong: int = 0
    """Rows that cannot be read as tasks; no other number includes them."""
    num_unique_prompts: int = 0
    """Distinct prompts, each including its tools."""
    num_unique_user_texts: int = 0
    num_without_id: int = 0
    """Tasks whose id is a hash of their content."""
    num_images: int = 0
    environments: dict[str, int] = {}
    """Rows by environment; the key is empty for rows that do not name one."""
    spreads: dict[str, Spread] = {}
    """`prompt_characters`, `prompt_words`, `messages`, `user_turns`, `tools` and
    `params.NAME`, each over the rows that have it."""
    tool_names: dict[str, int] = {}
    """The number of rows that declare each tool."""
    fields: dict[str, dict[str, int]] = {}
    """Rows by value, for fields whose values are few, short and on average in two rows or more.

    Numbers, booleans and null are shown as JSON, and so is text that could be mistaken for them.
    """


def describe_tasks(
    tasks: Sequence[str | Path], *, prompt: Path | None = None, map_file: Path | None = None
) -> Statistics:
    """Describe task files; raise UsageError if a file, the template or the map cannot be read."""
    inputs = task_inputs(tasks)
    tables = map_tables(
        inputs, map_file, env=None, find=Registry().find, has_template=prompt is not None
    )
    reading = TaskReading(
        default_env="",
        default_envs=tables.default_envs,
        rows_of=tables.rows_of,
        template=PromptTemplate.read(prompt) if prompt else None,
        id_by_file=True,
    )
    paths = [item.path for item in inputs]
    return with_shared_ids(
        lambda shared_ids: _describe(paths, reading._replace(shared_ids=shared_ids))
    )


def _describe(paths: Sequence[Path], reading: TaskReading) -> Statistics:
    result = Statistics(files=[str(path) for path in paths])
    prompts: set[bytes] = set()
    user_texts: set[bytes] = set()
    environments: Counter[str] = Counter()
    tool_names: Counter[str] = Counter()
    # Arrays, with eight bytes for each number: a spread needs all numbers of a file.
    numbers: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
    fields: dict[str, Counter[str] | None] = {}
    for row in read_tasks(paths, reading):
        if isinstance(row, RowProblem):
            result.num_wrong += 1
        if not isinstance(row, TaskRow):
            continue
        result.num_rows += 1
        if row.first_attempt == 0:  # not a copy of an earlier row
            result.num_tasks += 1
            result.num_without_id += own_task_id(row.fields) is None
        for message in row.messages:
            parts = message.content if isinstance(message.content, list) else []
            result.num_images += sum(part.get("type") in _IMAGES for part in parts)
        texts = [message.text for message in row.messages]
        users = [message.text for message in row.messages if message.role == "user"]
        prompts.add(_digest([row.messages, row.tools]))
        user_texts.add(_digest(users))
        environments[row.env] += 1
        numbers["prompt_characters"].append(sum(map(len, texts)))
        numbers["prompt_words"].append(sum(len(text.split()) for text in texts))
        numbers["messages"].append(len(texts))
        numbers["user_turns"].append(len(users))
        if row.tools is not None:
            numbers["tools"].append(len(row.tools))
            # A set: a row counts once, even if it declares two tools of the same name.
            tool_names.update({_tool_name(tool) for tool in row.tools})
        for name, value in row.params.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if abs(value) <= _MAX_NUMBER:
                numbers[f"params.{name}"].append(value)
        _count_values(fields, row.fields)
    result.num_unique_prompts, result.num_unique_user_texts = len(prompts), len(user_texts)
    result.environments = dict(environments.most_common())
    result.tool_names = dict(tool_names.most_common())
    result.spreads = {name: _spread(values) for name, values in numbers.items()}
    result.fields = {
        name: dict(counts.most_common())
        for name, counts in fields.items()
        if counts and counts.total() >= 2 * len(counts)
    }
    return result


def _count_values(fields: dict[str, Counter[str] | None], row: JSONObject) -> None:
    for name, value in row.items():
        counts = fields.setdefault(name, Counter())
        if counts is None:  # the field has too many values, or a long one
            continue
        label = _value_label(value)
        if label is not None:
            counts[label] += 1
        if label is None or len(counts) > _MAX_VALUES:
            fields[name] = None


def _value_label(value: JSON) -> str | None:
    # No two values have the same name: text that looks like JSON is quoted.
    if isinstance(value, list | dict):
        return None
    is_plain = isinstance(value, str) and _is_plain(value)
    label = str(value) if is_plain else msgspec.json.encode(value).decode()
    return label if len(label) <= _MAX_CHARACTERS else None


def _is_plain(text: str) -> bool:
    # Whether it can be shown unquoted without being mistaken for JSON.
    if not text or text != " ".join(text.split()):
        return False
    try:
        msgspec.json.decode(text)
    except JSON_ERRORS:
        return True
    return False


def _tool_name(tool: JSONObject) -> str:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("type")
    return str(name)


def _digest(value: object) -> bytes:
    return hashlib.blake2b(canonical_json(value), digest_size=16).digest()


def _spread(numbers: Iterable[float]) -> Spread:
    sorted_numbers = sorted(numbers)
    return Spread(
        num=len(sorted_numbers),
        mean=statistics.fmean(sorted_numbers),
        standard_deviation=statistics.stdev(sorted_numbers) if len(sorted_numbers) > 1 else 0.0,
        min=sorted_numbers[0],
        median=percentile(sorted_numbers, 0.5),
        p90=percentile(sorted_numbers, 0.9),
        p99=percentile(sorted_numbers, 0.99),
        max=sorted_numbers[-1],
    )
