"""One decoded row of a tasks file made a task, whichever of the four shapes it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from gymcli.models.responses import IGNORED_PARAMS
from gymcli.nemo_gym.rows import environment_name, own_task_id
from gymcli.store.prompt import PromptTemplate
from gymcli.store.row_prompt import row_prompt
from gymcli.types import JSONObject, TaskRow, digest

__all__ = [
    "Hints",
    "TaskReading",
    "is_nemo_row",
    "row_fields",
    "task_row",
    "without_stamps",
    "working_directory",
]

_STAMP = "_ng_"
"""How the names of a collector's stamps begin, which are no content."""


_NUM_HASH_DIGITS = 8
"""Of the content, behind an id that other rows have, too."""


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
    shared_ids: frozenset[tuple[str, str]] = frozenset()
    """Environments and ids of different rows of NeMo Gym, which their content tells apart."""
    canonical_env: Callable[[str], str] = str
    """Gives the name under which an environment is recorded; raises UsageError for unknown ones."""
    env_of_agent: Callable[[str, str | None], str] = lambda name, default: name
    """Gives the same for the name of NeMo Gym's agent, or the default environment's."""
    hints: Hints = Hints()
    folder: Path | None = None
    """What relative names of files count from; None: the working directory."""

    def place(self, path: Path) -> Path:
        """Return where a file is found: absolute only once the working directory is another."""
        if self.folder is None or path.is_absolute() or self.folder == working_directory():
            return path
        return self.folder / path


def working_directory() -> Path | None:
    """Return the working directory; None where it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def task_row(
    row: JSONObject, reading: TaskReading, *, place: str, prefix: str
) -> tuple[TaskRow, list[str]]:
    """Read one row; gives the parameters that were ignored beside it.

    Raises:
        ValueError: The row cannot be used; the text says which field and why.
        UsageError: Its environment is not there.

    """
    row = without_stamps(row)
    messages, tools, params, ignored, consumed = row_prompt(row)
    if row.get("params") is not None:
        own_params, more_ignored = _own_params(row["params"])
        params, ignored = {**params, **own_params}, ignored + more_ignored
    fields = row_fields(row, consumed)
    if reading.template is not None:
        if messages:
            raise ValueError(f"the row has a prompt of its own; {reading.hints.own_prompt}")
        messages = reading.template.messages(fields)
    if not (messages or _leaves_prompt(row)):
        raise ValueError(
            'no prompt: expected "responses_create_params", "messages" or "prompt"; '
            f'{reading.hints.prompt}, or "messages": [] where the environment opens the talk'
        )
    content = digest(row)
    env = _env_of(row, reading)
    task_id = prefix + _task_id(row, reading.id_field, content)
    if (env, task_id) in reading.shared_ids and is_nemo_row(row):
        task_id = f"{task_id}-{content[:_NUM_HASH_DIGITS]}"
    task = TaskRow(
        id=task_id,
        env=env,
        hash=content,
        messages=messages,
        tools=tools,
        params=params,
        fields=fields,
        max_turns=_max_turns(row),
        place=place,
    )
    return task, ignored


def is_nemo_row(row: JSONObject) -> bool:
    """Return whether a row has NeMo Gym's shape, in which ids need not be unique."""
    return row.get("responses_create_params") is not None


def without_stamps(row: JSONObject) -> JSONObject:
    """Give what of a row is content: the row itself, where no collector has stamped it."""
    for name in row:
        if name.startswith(_STAMP):
            return {n: value for n, value in row.items() if not n.startswith(_STAMP)}
    return row


def row_fields(row: JSONObject, consumed: frozenset[str]) -> JSONObject:
    """Give what of a row without stamps is neither its prompt nor read by the runner."""
    return {name: value for name, value in row.items() if name not in consumed}


def _leaves_prompt(row: JSONObject) -> bool:
    """Say whether a row leaves the prompt to its environment: with an empty list of messages."""
    params = row.get("responses_create_params")
    return row.get("messages") == [] or (isinstance(params, dict) and params.get("input") == [])


def _own_params(params: object) -> tuple[JSONObject, list[str]]:
    if not isinstance(params, dict):
        raise ValueError('"params" must be an object')
    given = {name: value for name, value in params.items() if value is not None}
    kept = {name: value for name, value in given.items() if name not in IGNORED_PARAMS}
    return kept, [name for name in IGNORED_PARAMS if name in given]


def _env_of(row: JSONObject, reading: TaskReading) -> str:
    named = row.get("env")
    if named is None:
        agent = environment_name(row)
        if agent is not None:
            return reading.env_of_agent(agent, reading.default_env)
        named = reading.default_env
    if named is None:
        raise ValueError('no environment: the row names none ("env"), give --env NAME')
    if not isinstance(named, str):
        raise ValueError('"env" must be the name of an environment')
    return reading.canonical_env(named)


def _task_id(row: JSONObject, id_field: str | None, content: str) -> str:
    if id_field is None:
        return own_task_id(row) or content
    value = row.get(id_field)
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return str(value)
    raise ValueError(f'"{id_field}" must be a whole number or text that is not empty (--id-field)')


def _max_turns(row: JSONObject) -> int | None:
    value = row.get("max_turns")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise ValueError('"max_turns" must be a whole number above 0')
