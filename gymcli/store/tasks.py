"""Task rows in their four shapes, read as a stream.

The shape of a row is `responses_create_params`, else `messages`, else `prompt`, else raw (fields
only, for a prompt template). A wrong row is given as a `RowProblem` in its place, so that a caller
can list all of them before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gymcli.dialects.responses import IGNORED_PARAMS
from gymcli.errors import UsageError
from gymcli.nemo_gym import environment_name, own_task_id
from gymcli.store.lines import TOO_DEEP, decoded_lines, iterate_lines
from gymcli.store.prompt import PromptTemplate
from gymcli.store.row_prompt import row_prompt
from gymcli.store.seen import SeenTasks
from gymcli.types import JSONObject, TaskRow, digest

__all__ = [
    "Hints",
    "IgnoredParameter",
    "RowFields",
    "RowProblem",
    "TaskReader",
    "TaskReading",
    "read_row_fields",
    "read_tasks",
]

_CONTROL_FIELDS = ("responses_create_params", "params", "env", "agent_ref", "max_turns")


class RowProblem(NamedTuple):
    """A row that cannot be used, and why."""

    place: str
    reason: str

    def __str__(self) -> str:
        """Give both in one line; a place keeps its spaces, which may be those of a file's name."""
        return f"{' '.join(self.place.splitlines())}: {' '.join(self.reason.split())}"


class IgnoredParameter(NamedTuple):
    """A request parameter that a row may not set."""

    place: str
    name: str


class RowFields(NamedTuple):
    """What rollouts of another program need of the row that they were made of."""

    id: str
    task_index: int
    """The row's own `_ng_task_index`, else its position among the rows that differ."""
    fields: JSONObject


class Hints(NamedTuple):
    """The ways out that problems name, which depend on the command."""

    prompt: str = "rows of fields alone need --prompt FILE"
    own_prompt: str = "it and --prompt exclude each other"
    same_id: str = "give --id-field F"
    same_id_in_files: str = ", or --id-by-file where the files count on their own"


class TaskReading(NamedTuple):
    """How rows are read: what the command line says beside the files."""

    default_env: str | None = None
    default_envs: Mapping[Path, str] = {}
    """The environment of rows that name none, by file; it goes before `default_env`."""
    template: PromptTemplate | None = None
    id_field: str | None = None
    id_by_file: bool = False
    """Put the file's name before every id, so that files may use the same ones.

    Of files with the same name, the last folders come before it.
    """
    canonical_env: Callable[[str], str] = str
    """Gives the name under which an environment is recorded; raises UsageError for unknown ones."""
    hints: Hints = Hints()


def read_tasks(
    paths: Sequence[Path], reading: TaskReading
) -> Iterator[TaskRow | RowProblem | IgnoredParameter]:
    """Read task files one after another, as one set of tasks.

    Raises:
        UsageError: A file is missing or cannot be read.

    """
    reader = TaskReader()
    prefixes = _prefixes(paths) if reading.id_by_file else {}
    for path in paths:
        default_env = reading.default_envs.get(path, reading.default_env)
        own_reading = reading._replace(default_env=default_env)
        for number, row in decoded_lines(iterate_lines(path)):
            if isinstance(row, str):
                yield RowProblem(f"{path}:{number}", row)
                continue
            prefix = prefixes.get(path, "")
            yield from reader.read(row, own_reading, source=str(path), line=number, prefix=prefix)


class TaskReader:
    """Reads rows one by one; memory holds two digests a task.

    Identical rows are one task, whose copies carry `first_attempt` 0, 1, 2, ...
    """

    def __init__(self) -> None:
        self._seen = SeenTasks()

    def read(
        self, row: JSONObject, reading: TaskReading, *, source: str, line: int, prefix: str = ""
    ) -> Iterator[TaskRow | RowProblem | IgnoredParameter]:
        """Give what a row sets and may not, then its task, or what is wrong with it."""
        place = f"{source}:{line}"
        try:
            task, ignored = _task_row(row, reading, place=place, prefix=prefix)
        except RecursionError:
            yield RowProblem(place, TOO_DEEP)
            return
        except (ValueError, UsageError) as error:
            yield RowProblem(place, str(error))
            return
        yield from (IgnoredParameter(place, name) for name in ignored)
        first_place = self._seen.add(task, source, line)
        if first_place is None:
            yield task
        else:
            yield RowProblem(place, _same_id(task.id, first_place, reading))


def _prefixes(paths: Sequence[Path]) -> dict[Path, str]:
    """Name each file by its last parts, as few as keep it apart from the others."""
    names = {}
    for path in dict.fromkeys(paths):
        others = [other.parts for other in paths if other != path]
        num_parts = 1
        while num_parts < len(path.parts) and any(
            other[-num_parts:] == path.parts[-num_parts:] for other in others
        ):
            num_parts += 1
        names[path] = Path(*path.parts[-num_parts:]).as_posix() + "/"
    return names


def _same_id(task_id: str, first_place: str, reading: TaskReading) -> str:
    shown = " ".join(task_id.split())
    hint = reading.hints.same_id + ("" if reading.id_by_file else reading.hints.same_id_in_files)
    return f'another row than {first_place} has the same id "{shown}"; {hint}'


def read_row_fields(paths: Sequence[Path]) -> Iterator[RowFields | RowProblem]:
    """Read the fields of task rows, which need no prompt; identical copies are left out.

    A copy that has an `_ng_task_index` of its own is given.

    Raises:
        UsageError: A file is missing or cannot be read.

    """
    hashes: dict[str, str] = {}
    for path in paths:
        for number, row in decoded_lines(iterate_lines(path)):
            place = f"{path}:{number}"
            if isinstance(row, str):
                yield RowProblem(place, row)
                continue
            try:
                consumed = set(_CONTROL_FIELDS)
                row_prompt(row, consumed)
                content_hash = digest(_content(row))
            except RecursionError:
                yield RowProblem(place, TOO_DEEP)
                continue
            except ValueError as error:
                yield RowProblem(place, str(error))
                continue
            task_id = own_task_id(row) or content_hash
            position, is_copy = len(hashes), task_id in hashes
            if hashes.setdefault(task_id, content_hash) != content_hash:
                yield RowProblem(place, _same_id(task_id, "one of these files", TaskReading()))
                continue
            index = row.get("_ng_task_index")
            if isinstance(index, int) and not isinstance(index, bool):
                yield RowFields(task_id, index, _fields(row, consumed))
            elif not is_copy:
                yield RowFields(task_id, position, _fields(row, consumed))


def _content(row: JSONObject) -> JSONObject:
    """Give a row without the stamps of a collector."""
    return {name: value for name, value in row.items() if not name.startswith("_ng_")}


def _fields(row: JSONObject, consumed: set[str]) -> JSONObject:
    """Give what of a row is neither its prompt nor read by the runner."""
    return {name: value for name, value in _content(row).items() if name not in consumed}


def _task_row(
    row: JSONObject, reading: TaskReading, *, place: str, prefix: str
) -> tuple[TaskRow, list[str]]:
    """Read one row; gives the parameters that were ignored beside it.

    Raises:
        ValueError: The row cannot be used; the text says which field and why.

    """
    consumed = set(_CONTROL_FIELDS)
    messages, tools, params, ignored = row_prompt(row, consumed)
    own_params, more_ignored = _own_params(row)
    fields = _fields(row, consumed)
    if reading.template is not None:
        if messages:
            raise ValueError(f"the row has a prompt of its own; {reading.hints.own_prompt}")
        messages = reading.template.messages(fields)
    if not (messages or _leaves_prompt(row)):
        raise ValueError(
            'no prompt: expected "responses_create_params", "messages" or "prompt"; '
            f'{reading.hints.prompt}, or "messages": [] where the environment opens the talk'
        )
    content_hash = digest(_content(row))
    task = TaskRow(
        id=prefix + _task_id(row, reading.id_field, content_hash),
        env=reading.canonical_env(_env_of(row, reading.default_env)),
        hash=content_hash,
        messages=messages,
        tools=tools,
        params={**params, **own_params},
        fields=fields,
        max_turns=_max_turns(row),
        place=place,
    )
    return task, ignored + more_ignored


def _leaves_prompt(row: JSONObject) -> bool:
    """Say whether a row leaves the prompt to its environment: with an empty list of messages."""
    params = row.get("responses_create_params")
    return row.get("messages") == [] or (isinstance(params, dict) and params.get("input") == [])


def _own_params(row: JSONObject) -> tuple[JSONObject, list[str]]:
    params = row.get("params")
    if params is None:
        return {}, []
    if not isinstance(params, dict):
        raise ValueError('"params" must be an object')
    given = {name: value for name, value in params.items() if value is not None}
    kept = {name: value for name, value in given.items() if name not in IGNORED_PARAMS}
    return kept, [name for name in IGNORED_PARAMS if name in given]


def _env_of(row: JSONObject, default: str | None) -> str:
    named = row.get("env")
    if named is None:
        named = environment_name(row)
    if named is None:
        named = default
    if named is None:
        raise ValueError('no environment: the row names none ("env"), give --env NAME')
    if not isinstance(named, str):
        raise ValueError('"env" must be the name of an environment')
    return named


def _task_id(row: JSONObject, id_field: str | None, content_hash: str) -> str:
    if id_field is None:
        return own_task_id(row) or content_hash
    value = row.get(id_field)
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return str(value)
    raise ValueError(f'"{id_field}" must be a whole number or text that is not empty (--id-field)')


def _max_turns(row: JSONObject) -> int | None:
    value = row.get("max_turns")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise ValueError('"max_turns" must be a whole number above 0')
