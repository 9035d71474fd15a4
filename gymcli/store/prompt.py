"""A prompt template that turns the fields of a raw row into messages."""

from __future__ import annotations

import string
from collections.abc import Collection
from itertools import islice
from pathlib import Path

import yaml

from gymcli.errors import UsageError
from gymcli.types import JSONObject, Message, digest

__all__ = ["PromptTemplate", "listed", "read_yaml"]

_MAX_NAMES = 20
_MAX_NAME_CHARACTERS = 80


class PromptTemplate:
    """The `user` and optional `system` text of a YAML file, with `{name}` for a row's field.

    Literal braces are doubled, as in `str.format`. What else that knows, attributes, indices and
    formats, is refused: a row is data and not something to reach into.
    """

    def __init__(self, user: str, system: str | None = None) -> None:
        self.user = user
        self.system = system
        self.hash = digest({"user": user, "system": system})

    @classmethod
    def read(cls, path: Path) -> PromptTemplate:
        """Read a template.

        Raises:
            UsageError: The file is missing, no YAML mapping, or has other keys than these two.

        """
        loaded = read_yaml(path)
        if not isinstance(loaded, dict) or not isinstance(loaded.get("user"), str):
            raise UsageError(f'{path}: a prompt file is a YAML mapping with the text "user"')
        unknown = sorted(str(key) for key in loaded if key not in ("user", "system"))
        if unknown:
            raise UsageError(
                f'{path}: unknown key "{unknown[0]}"; a prompt file has "user" and "system"'
            )
        system = loaded.get("system")
        if system is not None and not isinstance(system, str):
            raise UsageError(f'{path}: "system" must be text')
        template = cls(loaded["user"], system)
        template.check(path)
        return template

    def check(self, path: Path) -> None:
        """Refuse a text that is no template, before any row is read.

        Raises:
            UsageError: A brace is not closed, or a field is more than a plain name.

        """
        for text in (self.user, self.system or ""):
            try:
                parts = list(string.Formatter().parse(text))
            except ValueError as error:
                raise UsageError(
                    f"{path}: {error}; write literal braces doubled: {{{{ and }}}}"
                ) from error
            for _, name, form, conversion in parts:
                if name is not None and (form or conversion or not name.isidentifier()):
                    written = name + (f"!{conversion}" if conversion else "")
                    written += f":{form}" if form else ""
                    raise UsageError(
                        f"{path}: {{{written}}} is not the name of a field; "
                        "write literal braces doubled: {{ and }}"
                    )

    def messages(self, fields: JSONObject) -> list[Message]:
        """Fill the template with a row's fields.

        Raises:
            ValueError: The row lacks a field that the template names.

        """
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
    """Give names for a message: the first of them, none too long, and how many more there are."""
    shown = [f"{name:.{_MAX_NAME_CHARACTERS}}" for name in islice(names, _MAX_NAMES)]
    if len(names) > _MAX_NAMES:
        shown.append(f"and {len(names) - _MAX_NAMES} more")
    return ", ".join(shown) or "none"


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping; YAML's own loaders keep the last."""

    def compose_mapping_node(self, anchor: dict[object, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in keys:
                raise yaml.MarkedYAMLError(
                    problem=f'the key "{key.value}" stands twice', problem_mark=key.start_mark
                )
            keys.add((key.tag, key.value))
        return node


def read_yaml(path: Path) -> object:
    """Read a YAML file of plain values.

    Raises:
        UsageError: The file is missing or no YAML, or a key stands twice in a mapping.

    """
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        loaded: object = loader.get_single_data()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    return loaded
