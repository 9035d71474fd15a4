"""Reads task rows in their four shapes as a stream.

The shape of a row is `responses_create_params`, else `messages`, else `prompt`, else raw (only
fields, for a prompt template). A wrong row becomes a `RowProblem`, so that all can be listed.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from gymcli.errors import TasksError, UsageError
from gymcli.nemo_gym.rows import is_nemo_row, own_task_id
from gymcli.store.lines import (
    TOO_DEEP,
    begins_array,
    decode_block,
    decoded_lines,
    iterate_blocks,
    iterate_lines,
    refuse_utf16,
)
from gymcli.tasks.task_row import RowsOf, TaskReading, row_prompt, task_row, without_stamps
from gymcli.types import JSON, JSON_ERRORS, JSONObject, TaskRow, digest

_DECODER = msgspec.json.Decoder(JSONObject)
T = TypeVar("T")

_BLOCK_BYTES = 1 << 15
"""Decoded in one call, into objects of ten times the size."""
_LONG_OBJECT = re.compile(rb'(\xef\xbb\xbf)?\s*\{[ \t\r]*\n\s*"')
_BINARY_STARTS = (b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"PK\3\4", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How archives begin, which need not have a null byte: bz2, xz, 7z, zip, gz and zst."""


class RowProblem(NamedTuple):
    """A row that cannot be used, and the reason."""

    place: str
    reason: str

    def __str__(self) -> str:
        # A place keeps its spaces, since a file's name may contain them.
        return f"{' '.join(self.place.splitlines())}: {' '.join(self.reason.split())}"


class SharedIdsError(TasksError):
    """Different NeMo Gym rows have the same id."""

    def __init__(self, ids: frozenset[tuple[str, str]]) -> None:
        super().__init__(f"different rows have the same id: {min(ids)[1]}")
        self.ids = ids
        """The environments and ids."""


class IgnoredParameter(NamedTuple):
    """A request parameter that a row may not set."""

    place: str
    name: str


class RowFields(NamedTuple):
    """The parts of a task row that rollouts from another program need."""

    id: str
    task_index: int
    """The row's `_ng_task_index`, else its position among distinct rows."""
    fields: JSONObject


def read_tasks(
    paths: Sequence[Path],
    reading: TaskReading,
    copies: Mapping[int, int] | None = None,
    *,
    max_tasks: int | None = None,
) -> Iterator[TaskRow | RowProblem | IgnoredParameter]:
    """Read several task files as one set of tasks.

    Args:
        paths: The files.
        reading: How to read the rows.
        copies: `first_attempt` of each task that is a copy, by its position, if an earlier reading
            found no problem; None: compare the tasks with each other.
        max_tasks: How many tasks of each file are read; None: all.

    Raises:
        SharedIdsError: After the last row, if the rows must be read again with `shared_ids`, since
            an id must not depend on the order of the rows.
    """
    reader = TaskReader(copies)
    prefixes = _prefixes(paths) if reading.id_by_file else {}
    for path in paths:
        default_env = reading.default_envs.get(path, reading.default_env)
        own_reading = reading._replace(default_env=default_env)
        source, prefix = str(path), prefixes.get(path, "")
        place = reading.place(path)
        rows_of = reading.rows_of.get(path, _json_rows)
        num_tasks = 0
        for line, row in rows_of(place):
            if isinstance(row, str):
                yield RowProblem(f"{path}:{line}", row)
                continue
            for item in reader.read(row, own_reading, source=source, line=line, prefix=prefix):
                yield item
                num_tasks += isinstance(item, TaskRow)
            if num_tasks == max_tasks:
                break
    if reader.shared_ids:
        raise SharedIdsError(frozenset(reader.shared_ids))


def _json_rows(path: Path) -> Iterator[tuple[int, JSONObject | str]]:
    for block in iterate_blocks(path, size=_BLOCK_BYTES):
        if block.number == 1 and (reason := _other_format(path, block.data.tobytes())):
            yield 1, reason
            return
        decoded = decode_block(block, _DECODER)
        if decoded is None:  # a line is blank, wrong or unfinished
            yield from decoded_lines(block.lines(path))
        else:
            yield from enumerate(decoded, block.number)


class _RowSettings(msgspec.Struct, gc=False):
    """The parts of a row that decide its environment, its parameters and its id."""

    env: JSON = None
    agent_ref: JSON = None
    params: JSON = None
    responses_create_params: dict[str, msgspec.Raw] | None = None
    resolved_row: msgspec.Raw | None = None
    task_data: msgspec.Raw | None = None
    task_id: JSON = None
    id: JSON = None
    uuid: JSON = None

    @property
    def nemo_id(self) -> str | None:
        """The id of a NeMo Gym row, which need not be unique; None for other rows."""
        parts = (self.responses_create_params, self.resolved_row, self.task_data)
        if parts == (None, None, None):
            return None
        return own_task_id({"task_id": self.task_id, "id": self.id, "uuid": self.uuid})

    @property
    def encoded(self) -> bytes:
        """The settings as the JSON of a row with an empty prompt."""
        create_params = self.responses_create_params
        if self.env is self.agent_ref is self.params is create_params is None:
            return _PLAIN_ROW
        row: JSONObject = {"env": self.env, "agent_ref": self.agent_ref, "params": self.params}
        if create_params is None:
            row["messages"] = []
        else:
            row["responses_create_params"] = {**create_params, "tools": None, "input": []}
        return msgspec.json.encode(row)


_SETTINGS_DECODER = msgspec.json.Decoder(_RowSettings)
_PLAIN_ROW = b'{"messages":[]}'


class Outline(NamedTuple):
    """What all rows of a file say about a run that reads only some of them as tasks."""

    num_rows: int
    """Without those that cannot be decoded."""
    environments: frozenset[str]
    param_names: frozenset[str]


def read_outlines(paths: Sequence[Path], reading: TaskReading) -> dict[str, Outline] | None:
    """Return the outline of each file by its path, without checking its rows.

    None if NeMo Gym rows share an id, so that the ids of tasks depend on all rows.
    """
    nemo_ids: set[str] = set()
    outlines = {}
    for path in dict.fromkeys(paths):
        num_rows = 0
        distinct_settings: set[bytes] = set()
        for settings in _settings_of_rows(reading.place(path), reading.rows_of.get(path)):
            num_rows += 1
            distinct_settings.add(settings.encoded)
            nemo_id = settings.nemo_id if reading.id_field is None else None
            if nemo_id in nemo_ids:
                return None
            if nemo_id is not None:
                nemo_ids.add(nemo_id)
        default_env = reading.default_envs.get(path, reading.default_env)
        plain_reading = reading._replace(default_env=default_env, template=None, id_field=None)
        environments: set[str] = set()
        param_names: set[str] = set()
        for row in map(msgspec.json.decode, distinct_settings):
            with suppress(ValueError, UsageError, RecursionError):  # then it is no task
                task, _ = task_row(row, plain_reading, place=str(path), prefix="")
                environments.add(task.env)
                param_names.update(task.params)
        outlines[str(path)] = Outline(num_rows, frozenset(environments), frozenset(param_names))
    return outlines


def _settings_of_rows(path: Path, rows_of: RowsOf | None) -> Iterator[_RowSettings]:
    if rows_of is not None:
        for _, row in rows_of(path):
            with suppress(msgspec.ValidationError):
                yield msgspec.convert(row, _RowSettings)
        return
    for block in iterate_blocks(path):
        decoded = decode_block(block, _SETTINGS_DECODER)
        if decoded is not None:
            yield from decoded
            continue
        for line in block.lines(path):
            with suppress(*JSON_ERRORS):
                yield _SETTINGS_DECODER.decode(line.data)


def _other_format(path: Path, start: bytes) -> str:
    """Return why a file with this start has no JSON object in each line; empty if it may have.

    Raise UsageError for UTF-16.
    """
    refuse_utf16(start, path)
    if start.startswith(_BINARY_STARTS) or b"\0" in start:
        return "is binary data, not text; name it by its format, such as .gz, .parquet or .xlsx"
    if begins_array(start):
        stem, _, suffixes = path.name.partition(".")
        is_json = suffixes.lower().startswith("json")
        out = shlex.quote(f"{stem}-rows.jsonl")
        command = f"gym data pull {shlex.quote(str(path))} -o {out}"
        return (
            "is a JSON array, not one object a line; convert it: "
            f"{'' if is_json else 'name it .json, then '}{command}"
        )
    if _LONG_OBJECT.match(start):
        return "is JSON over several lines, not one object a line; jq -c . FILE writes it so"
    return ""


def with_shared_ids(work: Callable[[frozenset[tuple[str, str]]], T]) -> T:
    """Call a function that reads tasks; if NeMo Gym rows share ids, call it again with these."""
    try:
        return work(frozenset())
    except SharedIdsError as error:
        return work(error.ids)


class TaskReader:
    """Reads rows one by one and distinguishes copies of a task from other rows with its id.

    Identical rows are one task, whose copies have `first_attempt` 0, 1, 2, ... This takes about 150
    bytes of memory per task, whatever its length. `copies` is as in `read_tasks`.
    """

    def __init__(self, copies: Mapping[int, int] | None = None) -> None:
        self._copies = copies
        self._num_tasks = 0
        self.shared_ids: set[tuple[str, str]] = set()
        """Environments and ids that different NeMo Gym rows share."""
        self._numbers: dict[int, int] = {}
        """The number of each task, by a digest of its environment and id."""
        # Arrays and shared strings take a third of the memory of one tuple per task.
        self._hashes = array("Q")
        self._sources: list[str] = []
        self._lines = array("I")
        self._num_copies: Counter[int] = Counter()
        """By number, for tasks that appeared more than once."""

    def read(
        self, row: JSONObject, reading: TaskReading, *, source: str, line: int, prefix: str = ""
    ) -> list[TaskRow | RowProblem | IgnoredParameter]:
        """Return the parameters that a row may not set, then its task or its problem."""
        place = f"{source}:{line}"
        try:
            task, ignored = task_row(row, reading, place=place, prefix=prefix)
        except RecursionError:
            return [RowProblem(place, TOO_DEEP)]
        except (ValueError, UsageError) as error:
            return [RowProblem(place, str(error))]
        items: list[TaskRow | RowProblem | IgnoredParameter]
        items = [IgnoredParameter(place, name) for name in ignored] if ignored else []
        if self._copies is not None:
            task.first_attempt = self._copies.get(self._num_tasks, 0)
            self._num_tasks += 1
            return [*items, task]
        name = hashlib.blake2b(f"{task.env}\0{task.id}".encode(), digest_size=16).digest()
        number = self._numbers.setdefault(int.from_bytes(name), len(self._hashes))
        content = int(task.hash, 16)
        if number == len(self._hashes):
            self._hashes.append(content)
            self._sources.append(source)
            self._lines.append(line)
        elif self._hashes[number] == content:
            self._num_copies[number] += 1
            task.first_attempt = self._num_copies[number]
        elif reading.id_field is None and is_nemo_row(row):
            # Not a problem yet: the next reading appends a hash to each of these ids.
            self.shared_ids.add((task.env, task.id))
        else:
            first_place = f"{self._sources[number]}:{self._lines[number]}"
            return [*items, RowProblem(place, _same_id(task.id, first_place, reading))]
        return [*items, task]


def _prefixes(paths: Sequence[Path]) -> dict[Path, str]:
    """Name each file by the fewest last parts of its path that distinguish it."""
    names = {}
    for path in dict.fromkeys(paths):
        other_parts = [other.parts for other in paths if other != path]
        num_parts = 1
        while num_parts < len(path.parts) and any(
            other[-num_parts:] == path.parts[-num_parts:] for other in other_parts
        ):
            num_parts += 1
        names[path] = Path(*path.parts[-num_parts:]).as_posix() + "/"
    return names


def _same_id(task_id: str, first_place: str, reading: TaskReading) -> str:
    id_text = " ".join(task_id.split())
    hint = reading.hints.same_id + ("" if reading.id_by_file else reading.hints.same_id_in_files)
    return f'another row, {first_place}, has the same id "{id_text}"; {hint}'


def read_row_fields(paths: Sequence[Path]) -> Iterator[RowFields | RowProblem]:
    """Read the fields of task rows, which need no prompt.

    Identical copies are skipped unless they have an `_ng_task_index`.
    """
    hashes: dict[str, str] = {}
    for path in paths:
        for number, row in decoded_lines(iterate_lines(path)):
            place = f"{path}:{number}"
            if isinstance(row, str):
                yield RowProblem(place, row)
                continue
            try:
                content_fields = without_stamps(row)
                fields = row_prompt(content_fields).fields
                content = digest(content_fields)
            except RecursionError:
                yield RowProblem(place, TOO_DEEP)
                continue
            except ValueError as error:
                yield RowProblem(place, str(error))
                continue
            task_id = own_task_id(row) or content
            position, is_copy = len(hashes), task_id in hashes
            if hashes.setdefault(task_id, content) != content:
                yield RowProblem(place, _same_id(task_id, "in one of these files", TaskReading()))
                continue
            index = row.get("_ng_task_index")
            if type(index) is int:
                yield RowFields(task_id, index, fields)
            elif not is_copy:
                yield RowFields(task_id, position, fields)
