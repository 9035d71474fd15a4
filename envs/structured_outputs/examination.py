"""Looks at one answer against one schema and says what is wrong with it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType
from referencing import Registry
from referencing.exceptions import Unresolvable

from .formats import (
    Format,
    UnreadableError,
    read,
    typed_csv,
    typed_xml,
)

__all__ = ["MAX_SHORT", "Finding", "Paper", "Reason", "examine", "strict"]

Reason = Literal[
    "correct",
    "empty_response",
    "parse_error",
    "missing_tool_call",
    "multiple_tool_calls",
    "wrong_tool_name",
    "tool_arguments_parse_error",
    "missing_tool_payload_key",
    "schema_error",
    "validation_error",
]

MAX_SHORT, MAX_SHORT_YAML = 10_000, 2_000
"""Characters of answer and schema together, and of YAML, that need no process of their own; YAML
takes about 50 microseconds a character, the other formats a tenth of that at most."""
_MAX_MESSAGE = 200

# Patterns backtrack, what refers to schemas can double the work at every step, and items are
# compared in pairs.
_CAN_RUN_AWAY = re.compile(
    r'"(?:pattern(?:Properties)?|uniqueItems|unevaluated(?:Items|Properties)'
    r'|\$(?:dynamicR|recursiveR|r)ef)":'
)
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keys of a schema under which schemas stand by name."""
_DATA = ("const", "default", "enum", "examples", "example")
"""Keys of a schema under which data stands, not schemas."""
_INTERRUPTIONS = (
    UnknownType,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    re.error,
)
"""What validating raises where the schema is wrong, or an answer is nothing that JSON can say."""


class Finding(NamedTuple):
    """What is said of an answer."""

    reason: Reason
    message: str = ""
    """What is wrong, for a reader; at most 200 characters."""

    @classmethod
    def of(cls, reason: Reason, message: object) -> Finding:
        """Make a finding with the message shortened."""
        return cls(reason, str(message)[:_MAX_MESSAGE])


class Paper(NamedTuple):
    """An answer with the form that it must have."""

    text: str
    schema: str
    """The JSON Schema, as JSON text."""
    format: Format | None
    """The format of the text; None: it is the arguments of a tool call."""
    payload_key: str | None
    """The argument that holds the record."""
    types_xml: bool

    @property
    def is_short(self) -> bool:
        """Whether reading it takes no time worth mentioning."""
        max_text = MAX_SHORT_YAML if self.format == "yaml" else MAX_SHORT
        return len(self.text) <= max_text and len(self.text) + len(self.schema) <= MAX_SHORT

    @property
    def can_run_away(self) -> bool:
        """Whether the schema holds what could take for ever on some answer."""
        try:
            schema = msgspec.json.decode(self.schema)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        # Encoded again, so that no escape hides a key.
        return _CAN_RUN_AWAY.search(msgspec.json.encode(schema).decode()) is not None


def examine(paper: Paper) -> Finding:
    """Say whether an answer can be read and fits its schema."""
    try:
        schema = read("json", paper.schema)
    except UnreadableError as error:
        return Finding.of("schema_error", error)
    try:
        value = read(paper.format or "json", paper.text)
    except UnreadableError as error:
        reason: Reason = "parse_error" if paper.format else "tool_arguments_parse_error"
        return Finding.of(reason, error)
    if paper.payload_key is not None:
        if not isinstance(value, dict) or paper.payload_key not in value:
            return Finding.of("missing_tool_payload_key", f"there is no {paper.payload_key!r}")
        value = value[paper.payload_key]
    schema = strict(schema)
    if paper.format == "xml" and paper.types_xml:
        value = typed_xml(value, schema)
    if paper.format == "csv":
        value = typed_csv(value, schema)
    return _validated(value, schema)


def strict(schema: object) -> object:
    """Give a schema whose objects have all of their properties and no others."""
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict_within(key, value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made["required"] = list(schema["properties"])
        made["additionalProperties"] = False
    return made


def _strict_within(key: str, value: object) -> object:
    if key in _DATA:
        return value
    if key in _MAPS and isinstance(value, dict):
        return {name: strict(item) for name, item in value.items()}
    return strict(value)


def _validated(value: object, schema: object) -> Finding:
    if not isinstance(schema, dict | bool):
        return Finding("schema_error", "the schema is neither an object nor a boolean")
    # The empty registry is what keeps references off the network.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        error = next(validator.iter_errors(value), None)
    except Unresolvable as missing:
        return Finding.of("schema_error", missing)
    except _INTERRUPTIONS as interruption:
        return _blamed(interruption, schema)
    if error is None:
        return Finding("correct")
    where = "".join(f"{step}: " for step in error.absolute_path)
    return Finding.of("validation_error", where + error.message)


def _blamed(interruption: Exception, schema: dict[str, object] | bool) -> Finding:
    """Say whose fault it is that validation could not go on."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return Finding.of("schema_error", error.message)
    return Finding.of("validation_error", f"{type(interruption).__name__}: {interruption}")
