"""Turns one decoded row of a tasks file, in any of the four shapes, into a task."""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import yaml

from gymcli.errors import UsageError
from gymcli.nemo_gym.responses_items import IGNORED_PARAMS, tools_from_responses
from gymcli.nemo_gym.rows import (
    agent_name,
    is_nemo_row,
    own_task_id,
    read_prompt,
    with_task_data,
)
from gymcli.store.lines import read_text
from gymcli.types import JSON, JSONObject, Message, TaskRow, digest

_CONTROL_FIELDS = frozenset({"responses_create_params", "params", "env", "agent_ref", "max_turns"})
_MESSAGES_FIELDS = _CONTROL_FIELDS | {"messages", "tools"}
_PROMPT_FIELDS = _CONTROL_FIELDS | {"prompt", "tools"}


_TEMPLATE_PARTS = {
    "image": '{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}',
    "audio": '{"type": "input_audio", "input_audio": {"data": "...", "format": "wav"}}',
    "video": '{"type": "video_url", "video_url": {"url": "https://..."}}',
}
"""Parts of messages in data sets for Hugging Face's chat templates, with those of endpoints."""


class RowPrompt(NamedTuple):
    """The prompt of a row and the rest of the row."""

    messages: list[Message]
    """Empty for a raw row."""
    tools: list[JSONObject] | None
    params: JSONObject
    ignored: list[str]
    """Parameters that were left out since a row may not set them."""
    fields: JSONObject
    """The fields that neither the prompt nor the runner uses."""


def row_prompt(row: JSONObject) -> RowPrompt:
    """Read the prompt of a row; a ValueError names the field with the wrong shape."""
    messages: list[Message] = []
    tools: list[JSONObject] | None = None
    params: JSONObject = {}
    ignored: list[str] = []
    consumed = _CONTROL_FIELDS
    if row.get("responses_create_params") is not None:
        messages, tools, params, ignored = read_prompt(row["responses_create_params"])
    else:
        if row.get("messages") is not None:
            messages, consumed = _chat_messages(row["messages"], "messages"), _MESSAGES_FIELDS
        elif row.get("prompt") not in (None, ""):
            prompt, consumed = row["prompt"], _PROMPT_FIELDS
            if isinstance(prompt, str):
                messages = [Message(role="user", content=prompt)]
            elif isinstance(prompt, list):
                messages = _chat_messages(prompt, "prompt")
            else:
                raise ValueError('"prompt" must be text, or a list of chat messages')
        # In a raw row "tools" is an ordinary field.
        declared = row.get("tools")
        if consumed is not _CONTROL_FIELDS and declared is not None:
            if not isinstance(declared, list):
                raise ValueError('"tools" must be a list of objects')
            tools = tools_from_responses(declared)
    fields = dict(row)
    for name in consumed:
        fields.pop(name, None)
    if "task_data" in fields and is_nemo_row(row):
        fields = with_task_data(fields)
    return RowPrompt(messages, tools, params, ignored, fields)


def _chat_messages(value: JSON, field: str) -> list[Message]:
    if not isinstance(value, list):
        raise ValueError(f'"{field}" must be a list of chat messages')
    try:
        messages = msgspec.convert([_as_ours(item) for item in value], list[Message])
    except msgspec.ValidationError as error:
        raise ValueError(f'"{field}": {error}') from error
    for message in messages:
        for part in message.content if isinstance(message.content, list) else ():
            kind = part.get("type")
            if isinstance(kind, str) and kind in _TEMPLATE_PARTS:
                raise ValueError(
                    f'"{field}": endpoints take no content part of the type "{kind}", which is one '
                    f"of chat templates; write {_TEMPLATE_PARTS[kind]}"
                )
    return messages


def _as_ours(message: JSON) -> JSON:
    """Drop nulls, with which tables fill rows, and rename `reasoning_content` to `reasoning`."""
    if not isinstance(message, dict):
        return message
    fields = {name: value for name, value in message.items() if value is not None}
    if "reasoning_content" in fields:
        fields.setdefault("reasoning", fields.pop("reasoning_content"))
    return fields


_MAX_NAMES = 20
_MAX_NAME_CHARACTERS = 80


class PromptTemplate:
    """The `user` and optional `system` text of a YAML file, with `{name}` for a row's field.

    Literal braces are doubled, as in `str.format`; attributes, indices and formats are errors.
    """

    def __init__(self, user: str, system: str | None = None) -> None:
        self.user = user
        self.system = system
        self.hash = digest({"user": user, "system": system})

    @classmethod
    def read(cls, path: Path) -> PromptTemplate:
        """Read a template; UsageError if the file or a text in it is invalid."""
        loaded = read_yaml(path)
        if not isinstance(loaded, dict) or not isinstance(loaded.get("user"), str):
            raise UsageError(f'{path}: a prompt file is a YAML mapping with the text "user"')
        unknown = sorted(str(key) for key in loaded if key not in ("user", "system"))
        if unknown:
            raise UsageError(
                f'{path}: unknown key "{unknown[0]}"; a prompt file has "user" and "system"'
            )
        system = loaded.get("system")
        if not isinstance(system, str | None):
            raise UsageError(f'{path}: "system" must be text')
        template = cls(loaded["user"], system)
        template.check(path)
        return template

    def check(self, path: Path) -> None:
        """Raise UsageError if a brace is not closed or a field is not a plain name."""
        for text in (self.user, self.system or ""):
            try:
                parts = list(string.Formatter().parse(text))
            except ValueError as error:
                raise UsageError(
                    f"{path}: {error}; write literal braces doubled: {{{{ and }}}}"
                ) from error
            for _, name, form, conversion in parts:
                # A row is data: str.format would also reach into its values, as with {a.b}.
                if name is not None and (form or conversion or not name.isidentifier()):
                    written = name + (f"!{conversion}" if conversion else "")
                    written += f":{form}" if form else ""
                    raise UsageError(
                        f"{path}: {{{written}}} is not the name of a field; "
                        "write literal braces doubled: {{ and }}"
                    )

    def messages(self, fields: JSONObject) -> list[Message]:
        """Fill the template with a row's fields; ValueError if the row lacks one."""
        try:
            messages = [Message(role="user", content=self.user.format_map(fields))]
            if self.system is not None:
                messages.insert(0, Message(role="system", content=self.system.format_map(fields)))
        except KeyError as error:
            raise ValueError(
                f'"{error.args[0]}" is missing '
                f"(the prompt needs it; the row has: {listed(sorted(fields))})"
            ) from error
        return messages


def listed(names: Collection[str]) -> str:
    """Join the first names, shortened, for a message, and add how many more there are."""
    short_names = [f"{name:.{_MAX_NAME_CHARACTERS}}" for name in islice(names, _MAX_NAMES)]
    if len(names) > _MAX_NAMES:
        short_names.append(f"and {len(names) - _MAX_NAMES} more")
    return ", ".join(short_names) or "none"


class _Loader(yaml.SafeLoader):
    """Refuses a mapping with a duplicate key, of which PyYAML's loaders keep the last value."""

    def compose_mapping_node(self, anchor: dict[object, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in keys:
                raise yaml.MarkedYAMLError(
                    problem=f'duplicate key "{key.value}"', problem_mark=key.start_mark
                )
            keys.add((key.tag, key.value))
        return node


def read_yaml(path: Path) -> object:
    """Read a YAML file of plain values; UsageError if it is invalid or has a duplicate key."""
    try:
        return cast("object", _Loader(read_text(path)).get_single_data())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error


class Hints(NamedTuple):
    """The remedies that problems name, which depend on the command."""

    prompt: str = "rows without a prompt need --prompt FILE or --map FILE"
    own_prompt: str = "leave out --prompt"
    same_id: str = "use --id-field F"
    same_id_in_files: str = ", or --id-by-file if each file has its own ids"


RowsOf = Callable[[Path], Iterator[tuple[int, JSONObject | str]]]
"""Yields the rows of a file, each with its number; a text says why there is none."""


class TaskReading(NamedTuple):
    """How to read rows, from the command line's options."""

    default_env: str | None = None
    default_envs: Mapping[Path, str] = {}
    """The environment of rows that do not name one, by file; overrides `default_env`."""
    rows_of: Mapping[Path, RowsOf] = {}
    """By file that is not JSON Lines."""
    template: PromptTemplate | None = None
    id_field: str | None = None
    id_by_file: bool = False
    """Prefix every id with the file's name, and with its folders where names repeat."""
    shared_ids: frozenset[tuple[str, str]] = frozenset()
    """Environments and ids that different NeMo Gym rows share; a hash makes these ids unique."""
    canonical_env: Callable[[str], str] = str
    """Returns the recorded name of an environment; UsageError for an unknown one."""
    env_of_agent: Callable[[str, str | None], str] = lambda name, default: name
    """Returns the environment for the name of a NeMo Gym agent and the default environment."""
    hints: Hints = Hints()
    folder: Path | None = None
    """The folder of relative file names; None: the working directory."""

    def place(self, path: Path) -> Path:
        """Return the path of a file: absolute only if the working directory has changed."""
        if self.folder is None or path.is_absolute() or self.folder == working_directory():
            return path
        return self.folder / path


def working_directory() -> Path | None:
    """Return the working directory; None if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def task_row(
    row: JSONObject, reading: TaskReading, *, place: str, prefix: str
) -> tuple[TaskRow, list[str]]:
    """Read one row; return its task and the names of ignored parameters.

    Raises:
        ValueError: The row cannot be used; the message names the field and the reason.
        UsageError: Its environment does not exist.
    """
    row = without_stamps(row)
    messages, tools, params, ignored, fields = row_prompt(row)
    if row.get("params") is not None:
        own_params, more_ignored = _own_params(row["params"])
        params, ignored = {**params, **own_params}, ignored + more_ignored
    if reading.template is not None:
        if messages:
            raise ValueError(f"the row already has a prompt; {reading.hints.own_prompt}")
        messages = reading.template.messages(fields)
    if not (messages or _leaves_prompt(row, fields)):
        raise ValueError(
            'no prompt: expected "responses_create_params", "messages" or "prompt"; '
            f'{reading.hints.prompt}, or "messages": [] if the environment opens the conversation'
        )
    named = row.get("env")
    if named is None and row.get("agent_ref") is not None:
        # NeMo Gym names an agent in place of an environment.
        env = reading.env_of_agent(agent_name(row["agent_ref"]), reading.default_env)
    else:
        named = reading.default_env if named is None else named
        if named is None:
            raise ValueError('no environment: the row has no "env"; use --env NAME')
        if not isinstance(named, str):
            raise ValueError('"env" must be the name of an environment')
        env = reading.canonical_env(named)
    content = digest(row)
    own_id = own_task_id(row) if reading.id_field is None else row.get(reading.id_field)
    # `type`, since isinstance would take true for a number.
    if reading.id_field is not None and (type(own_id) not in (int, str) or own_id == ""):
        raise ValueError(
            f'"{reading.id_field}" must be a whole number or text that is not empty (--id-field)'
        )
    task_id = f"{prefix}{content if own_id is None else own_id}"
    if (env, task_id) in reading.shared_ids and is_nemo_row(row):
        task_id = f"{task_id}-{content[:8]}"
    max_turns = row.get("max_turns")
    if max_turns is not None and (type(max_turns) is not int or max_turns < 1):
        raise ValueError('"max_turns" must be a whole number above 0')
    task = TaskRow(
        id=task_id,
        env=env,
        hash=content,
        messages=messages,
        tools=tools,
        params=params,
        fields=fields,
        max_turns=max_turns,
        place=place,
    )
    return task, ignored


def without_stamps(row: JSONObject) -> JSONObject:
    """Return a row without the `_ng_` fields that a collector adds, which are not content."""
    for name in row:  # most rows have none, and are not copied
        if name.startswith("_ng_"):
            return {n: value for n, value in row.items() if not n.startswith("_ng_")}
    return row


def _leaves_prompt(row: JSONObject, fields: JSONObject) -> bool:
    """Return whether the row leaves the prompt to the environment.

    It does so by an empty list of messages, or by the `resolved_row` of NeMo Gym 0.7.
    """
    params = row.get("responses_create_params")
    has_empty_input = isinstance(params, dict) and params.get("input") == []
    return (
        has_empty_input or row.get("messages") == [] or isinstance(fields.get("resolved_row"), dict)
    )


def _own_params(params: object) -> tuple[JSONObject, list[str]]:
    if not isinstance(params, dict):
        raise ValueError('"params" must be an object')
    set_params = {name: value for name, value in params.items() if value is not None}
    sent_params = {name: value for name, value in set_params.items() if name not in IGNORED_PARAMS}
    return sent_params, [name for name in IGNORED_PARAMS if name in set_params]
