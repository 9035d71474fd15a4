"""Reads and writes records in five formats, and converts the leaves of XML and CSV to types."""

from __future__ import annotations

import csv
import io
import itertools
import re
import tomllib
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal
from xml.parsers.expat import ExpatError

import msgspec
import yaml

from gymcli import MissingPackageError

if TYPE_CHECKING:
    from types import ModuleType


__all__ = [
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "Format",
    "UnreadableError",
    "read",
    "typed_csv",
    "typed_xml",
    "write",
    "xml_package",
]

Format = Literal["json", "yaml", "xml", "toml", "csv"]

MAX_CHARACTERS = 100_000
MAX_DEPTH = 64
"""Levels of lists and objects; well below Python's recursion limit."""

_DOTTED_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_DEPTH}}}"""
)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_UNREADABLE = (
    msgspec.MsgspecError,
    yaml.YAMLError,
    ExpatError,
    csv.Error,
    ValueError,
    RecursionError,
    # PyYAML raises these on tags whose text does not fit, as in `!!int ""`.
    AttributeError,
    LookupError,
    OverflowError,
    TypeError,
)


class UnreadableError(Exception):
    """Raised when a text is not in its format, or is too long or nested too deeply."""


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without aliases, which let a short text expand to a huge value."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse an alias; the base class composes everything else."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def read(form: Format, text: str) -> object:
    """Read a text as it is, without removing code fences or the like.

    Raises:
        UnreadableError: It is not in the format, or is too long or nested too deeply.
        MissingPackageError: It is XML, and the package that reads it is not installed.

    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(f"the text has more than {MAX_CHARACTERS} characters")
    try:
        value = _READERS[form](text)
    except _UNREADABLE as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from error
    if _is_deeper(value, MAX_DEPTH):
        raise UnreadableError(f"the text is nested deeper than {MAX_DEPTH} levels")
    return value


def xml_package() -> ModuleType:
    """Return the module that reads XML.

    Raises:
        MissingPackageError: It is not installed.

    """
    try:
        import xmltodict  # late: an extra
    except ImportError as error:
        raise MissingPackageError(
            "XML rows of structured_outputs need the package xmltodict; "
            "pip install 'gymcli[structured]'"
        ) from error
    return xmltodict


def typed_xml(value: object, schema: object) -> object:
    """Convert the leaves and lists of XML to the types of the schema."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "object" and isinstance(value, dict):
        properties = _properties(schema)
        return {name: typed_xml(item, properties.get(name)) for name, item in value.items()}
    if kind == "array":
        # xmltodict reads <tags><tag>a</tag><tag>b</tag></tags> as {"tag": ["a", "b"]}, and a single
        # tag without a list.
        if isinstance(value, dict) and len(value) == 1:
            [value] = value.values()
        items = value if isinstance(value, list) else [] if value is None else [value]
        assert isinstance(schema, dict)
        return [typed_xml(item, schema.get("items")) for item in items]
    if value is None and kind == "string":
        return ""
    return _typed(value, kind) if isinstance(value, str) else value


def typed_csv(rows: object, schema: object) -> object:
    """Convert the cells of a table to the types of the schema."""
    items = schema.get("items", schema) if isinstance(schema, dict) else None
    properties = _properties(items)
    kinds = {
        name: found.get("type") for name, found in properties.items() if isinstance(found, dict)
    }
    assert isinstance(rows, list)
    return [{name: _typed_cell(cell, kinds.get(name)) for name, cell in r.items()} for r in rows]


def write(value: object, form: Format) -> str:
    """Write a record so that `read`, and typing its leaves, return it."""
    return _WRITERS[form](value)


def _is_deeper(value: object, max_depth: int) -> bool:
    """Return whether lists and objects are nested deeper than `max_depth`."""
    # Level by level: recursion could overflow on the very values that this looks for.
    level = [value]
    for _ in range(max_depth + 1):
        level = [item for holder in level for item in _items(holder)]
    return bool(level)


def _items(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _properties(schema: object) -> dict[str, object]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _typed_cell(cell: object, kind: object) -> object:
    """Convert a cell; of several types, the first one that fits counts."""
    if not isinstance(kind, list):
        return _typed(cell, kind) if isinstance(cell, str) else cell
    if not cell and "null" in kind:
        return None
    for one in kind:
        typed = _typed_cell(cell, one)
        if one != "null" and (one == "string" or not isinstance(typed, str)):
            return typed
    return cell


def _typed(text: str, kind: object) -> object:
    """Convert a text to a number or a boolean; other text stays, for the schema to refuse."""
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return text
    return _BOOLEANS.get(text.lower(), text) if kind == "boolean" else text


def _read_yaml(text: str) -> object:
    # At every token the scanner looks at every open bracket, which is quadratic.
    steps = ((character in "[{") - (character in "]}") for character in text)
    if max(itertools.accumulate(steps), default=0) > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} brackets are open")
    loader = _PlainLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _read_toml(text: str) -> object:
    # The parser takes quadratic time for keys such as a.a.a.a.
    if _DOTTED_KEY.search(text):
        raise ValueError(f"a key has more than {MAX_DEPTH} dots")
    return tomllib.loads(text)


def _read_xml(text: str) -> object:
    # The default, but safety depends on it: entities can expand to gigabytes.
    return xml_package().parse(text, disable_entities=True)


def _write_yaml(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


def _write_xml(value: object) -> str:
    return str(xml_package().unparse(value, pretty=True))


def _write_toml(value: object) -> str:
    assert isinstance(value, dict)
    return "\n".join(f"{key} = {_inline_toml(item)}" for key, item in value.items())


def _inline_toml(value: object) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{key} = {_inline_toml(item)}" for key, item in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline_toml, value))}]"
    return msgspec.json.encode(value).decode()


def _write_csv(value: object) -> str:
    assert isinstance(value, list)
    file = io.StringIO()
    table = csv.DictWriter(file, list(value[0]), lineterminator="\n")
    table.writeheader()
    for row in value:
        table.writerow(
            {k: str(cell).lower() if isinstance(cell, bool) else cell for k, cell in row.items()}
        )
    return file.getvalue()


_READERS: dict[Format, Callable[[str], object]] = {
    "json": msgspec.json.decode,
    "yaml": _read_yaml,
    "xml": _read_xml,
    "toml": _read_toml,
    "csv": lambda text: list(csv.DictReader(io.StringIO(text))),
}
_WRITERS: dict[Format, Callable[[object], str]] = {
    "json": lambda value: msgspec.json.encode(value).decode(),
    "yaml": _write_yaml,
    "xml": _write_xml,
    "toml": _write_toml,
    "csv": _write_csv,
}
