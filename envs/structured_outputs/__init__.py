r"""Asks for a record in a given format and schema: JSON, YAML, XML, TOML, CSV, or a tool call.

Source: the resources server structured_outputs of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The reward is 1 if the answer can be read and fits the schema, in which all
properties are required and no others are allowed; the values are never compared. Text is read as it
is: a code fence is an error. A tool call must be the only one, name the row's tool, and have JSON
arguments. Leniency kept from the reference: a leaf of XML or CSV is a number if Python reads one ("
7 ", "1_000"), `description` and `format` have no effect, only XML of plain types is typed (not of
`["integer", "null"]` or `$ref`), and a schema in a list, as in `oneOf`, is not made strict.
Differences from the reference:

- The validator is that of JSON Schema 2020-12; OpenAPI 3.1 adds only annotations to it.
- JSON is read strictly: NaN, Infinity, numbers out of range and half surrogates are errors.
- YAML aliases are errors, because a short text can expand to gigabytes. So are answers of more than
  100,000 characters, and those nested deeper than 64 levels.
- A property named `properties`, and data under `const` and the like, stay as they are when the
  schema is made strict; the reference takes them for schemas and so rejects every answer.
- A schema is checked only where an answer meets it. If it is wrong there, or refers to something
  outside itself, the result is a `schema_error` and not the answer's fault; URLs are never fetched.
- Schemas with patterns, references or `uniqueItems`, and long answers, are processed in a process
  that can be killed. If such a schema takes too long, the rollout is unscored; if an answer does,
  it is a `parse_error`.
- The reference's breakdowns (by `schema_type`, `response_mode`, `num_tools` and other fields of the
  row) are left out.

One row (its prompt and schema shortened):
{"id": "record-3", "difficulty": "easy", "theme": "bakery", "prompt": "The baker is Mara Holt ...",
"schema_str": "{\"type\":\"object\",\"properties\":{\"baker\":{\"type\":\"string\"},...}}",
"schema_type": "yaml", "response_mode": "text", "gold": {"baker": "Mara Holt", "ovens": 12, ...}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType
from referencing import Registry
from referencing.exceptions import Unresolvable

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    FunctionCall,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    ToolCall,
    VerifierTimeoutError,
)
from gymcli.envs import load_generator

from .formats import Format, UnreadableError, read, typed_csv, typed_xml, write, xml_package

__all__ = [
    "MAX_SHORT",
    "Finding",
    "Paper",
    "Reason",
    "RecordTask",
    "StructuredOutputs",
    "examine",
    "strict",
]

MAX_SECONDS, MAX_SECONDS_LONG = 10.0, 30.0
"""The limits of a short and a long answer in a worker; the longest take about five seconds."""


class RecordTask(Task):
    """The format and schema of an answer."""

    schema_str: str
    """A JSON Schema, as JSON text."""
    schema_type: Format = "json"
    """The format of a text; the arguments of a tool call are always JSON."""
    response_mode: Literal["text", "tool_call"] | None = "text"
    """Whether the record is a text, or the arguments of a tool call."""
    tool_name: str | None = None
    """The tool to call; without it, any."""
    tool_payload_key: str | None = None
    """The argument that holds the record; without it, the arguments are the record."""
    gold: object = None
    """A record that fits the schema, if the row has one."""


class StructuredOutputs(Environment[RecordTask]):
    """Write a record in the requested format and schema, as text or as a tool call."""

    properties = Properties(
        "single-step", "schema adherence", "general", "extraction", "schema validation"
    )
    executes_tools = False
    waits_to_verify = True

    class Options(EnvironmentOptions):
        """How XML is read."""

        xml_coerce_types: bool = True
        """Convert leaves to the numbers, booleans and lists of the schema; else all are text."""

    @classmethod
    def check_task(cls, task: RecordTask, options: EnvironmentOptions) -> None:
        """Refuse an XML task if the package that reads XML is not installed."""
        if task.response_mode != "tool_call" and task.schema_type == "xml":
            xml_package()

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the answer can be read and fits the schema."""
        task = cls.parse_task(rollout.task)
        answer = _answer(task, rollout)
        if isinstance(answer, str):
            is_call = task.response_mode == "tool_call"
            paper = Paper(
                text=answer,
                schema=task.schema_str,
                format=None if is_call else task.schema_type,
                payload_key=(task.tool_payload_key or None) if is_call else None,
                types_xml=cls.options_of(context).xml_coerce_types,
            )
            answer = await _examined(paper, context)
        details: JSONObject = {"reason": answer.reason}
        if answer.message:
            details["error_message"] = answer.message
        return Score(float(answer.reason == "correct"), details=details)

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the row's gold record, if it has one."""
        task = self.task
        if task.gold is None:
            return None
        if task.response_mode != "tool_call":
            return Message(role="assistant", content=write(task.gold, task.schema_type))
        arguments = {task.tool_payload_key: task.gold} if task.tool_payload_key else task.gold
        text = msgspec.json.encode(arguments).decode()
        call = ToolCall(id="call_0", function=FunctionCall(task.tool_name or "", text))
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write records of 24 kinds in three sizes; the schemas repeat after 72 rows."""
        yield from load_generator("structured_outputs").generate(rng, num)


def _answer(task: RecordTask, rollout: Rollout) -> str | Finding:
    """Return the text to examine, or a finding if there is none."""
    if task.response_mode != "tool_call":
        text = rollout.output_text
        return text if text.strip() else Finding("no_answer", "the answer has no text")
    calls = rollout.tool_calls
    if not calls:
        return Finding("missing_tool_call", "no tool is called")
    if len(calls) > 1:
        return Finding("multiple_tool_calls", f"{len(calls)} tools are called")
    if task.tool_name and calls[0].name != task.tool_name:
        return Finding.of("wrong_tool_name", f"{calls[0].name!r} is not {task.tool_name!r}")
    return calls[0].arguments


async def _examined(paper: Paper, context: Context) -> Finding:
    if paper.is_short and not paper.can_run_away:
        return examine(paper)
    seconds = MAX_SECONDS if paper.is_short else MAX_SECONDS_LONG
    try:
        return await context.isolated(examine, paper, timeout=seconds)
    except VerifierTimeoutError:
        # Then the schema may be at fault, not the answer.
        if paper.can_run_away:
            raise
        return Finding("parse_error", "the answer takes too long to read")


Reason = Literal[
    "correct",
    "no_answer",
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
"""Characters of answer and schema together, and of a YAML answer, that are examined on the event
loop. YAML takes about 50 microseconds per character, the other formats a tenth of that at most."""
_MAX_MESSAGE = 200

# Patterns backtrack, references between schemas can double the work at every step, and
# `uniqueItems` compares items in pairs.
_CAN_RUN_AWAY = re.compile(
    r'"(?:pattern(?:Properties)?|uniqueItems|unevaluated(?:Items|Properties)'
    r'|\$(?:dynamicR|recursiveR|r)ef)":'
)
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keys of a schema whose values map names to schemas."""
_DATA = ("const", "default", "enum", "examples", "example")
"""Keys of a schema whose values are data, not schemas."""
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
"""Errors of the validator if the schema is wrong, or an answer is not JSON data."""


class Finding(NamedTuple):
    """The result of examining an answer."""

    reason: Reason
    message: str = ""
    """What is wrong, in at most 200 characters."""

    @classmethod
    def of(cls, reason: Reason, message: object) -> Finding:
        """Return a finding with a shortened message."""
        return cls(reason, str(message)[:_MAX_MESSAGE])


class Paper(NamedTuple):
    """An answer, and the format and schema that it must have."""

    text: str
    schema: str
    """The JSON Schema, as JSON text."""
    format: Format | None
    """The format of the text; None: it is the arguments of a tool call."""
    payload_key: str | None
    """The argument that holds the record; None: the whole answer."""
    types_xml: bool

    @property
    def is_short(self) -> bool:
        """Whether it takes little enough time to be read on the event loop."""
        max_text = MAX_SHORT_YAML if self.format == "yaml" else MAX_SHORT
        return len(self.text) <= max_text and len(self.text) + len(self.schema) <= MAX_SHORT

    @property
    def can_run_away(self) -> bool:
        """Whether some answers could keep the validator busy forever."""
        try:
            schema = msgspec.json.decode(self.schema)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # `examine` reports it, and runs no validator.
            return False
        # Encoded again, because an escape such as `p\u0061ttern` would hide a key.
        return _CAN_RUN_AWAY.search(msgspec.json.encode(schema).decode()) is not None


def examine(paper: Paper) -> Finding:
    """Read an answer and check it against its schema."""
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
    """Return the schema with every property required and no others allowed."""
    # Lists of schemas, as in `oneOf`, stay as they are: the reference does not look into lists.
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
    # The default registry would fetch references from the network.
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
    """Return whether the schema or the answer made the validator fail."""
    # Only now: a schema may be wrong in a part that no answer meets.
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return Finding.of("schema_error", error.message)
    return Finding.of("validation_error", f"{type(interruption).__name__}: {interruption}")
