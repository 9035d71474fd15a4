r"""Asks for a record in a given format and schema: JSON, YAML, XML, TOML, CSV, or a tool call.

Source: the resources server structured_outputs of NVIDIA NeMo Gym (Apache-2.0), its rules written
anew. The reward is 1 where the answer can be read and fits the schema, whose every property is
required and which admits no others; what the values say is never looked at. Text is read as it
stands: a code fence is an error. A tool call must be the only one, of the tool that the row names,
with JSON arguments. Looseness that is kept: a leaf of XML or CSV is a number where Python reads one
(" 7 ", "1_000"), `description` and `format` bind nothing, only XML of plain types is typed (no
`["integer", "null"]`, no `$ref`), and a schema within a list, as in `oneOf`, stays as loose as it
is written. Where this differs:

- The validator is that of JSON Schema 2020-12, which OpenAPI 3.1 adds only annotations to.
- JSON is read strictly: NaN, Infinity, numbers out of range and half surrogates are no JSON.
- YAML's aliases are errors, since a short text can stand for gigabytes. So are answers of more than
  100,000 characters and those nested deeper than 64.
- A property that is called `properties`, and data under `const` and the like, are left as they are
  when the schema is made strict; the reference takes them for schemas and so rejects every answer.
- A schema is looked at where an answer meets it. One that is wrong there, or refers to what it does
  not hold, is a `schema_error`, not the answer's; addresses are never fetched.
- Schemas with patterns, references or `uniqueItems`, and long answers, are worked on in a process
  that can be killed: where the schema runs away the rollout is unscored, where the answer does it
  is a `parse_error`.
- The reference's breakdowns (by `schema_type`, `response_mode`, `num_tools` and other fields of the
  row) are left out.

One row (its prompt and schema shortened):
{"id": "record-3", "difficulty": "easy", "theme": "bakery", "prompt": "The baker is Mara Holt ...",
"schema_str": "{\"type\":\"object\",\"properties\":{\"baker\":{\"type\":\"string\"},...}}",
"schema_type": "yaml", "response_mode": "text", "gold": {"baker": "Mara Holt", "ovens": 12, ...}}
"""

from collections.abc import Iterator
from random import Random
from typing import Literal

import msgspec

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

from .examination import Finding, Paper, examine
from .formats import Format, write, xml_package
from .records import rows

__all__ = ["RecordTask", "StructuredOutputs"]


MAX_SECONDS, MAX_SECONDS_LONG = 10.0, 30.0
"""For a short and a long answer in a process of its own; the longest takes about five seconds."""


class RecordTask(Task):
    """The form that an answer must have."""

    schema_str: str
    """A JSON Schema, as JSON text."""
    schema_type: Format = "json"
    """The format of a text; tool calls are JSON whatever it says."""
    response_mode: Literal["text", "tool_call"] | None = "text"
    tool_name: str | None = None
    """The tool that must be called; None or empty: any."""
    tool_payload_key: str | None = None
    """The argument that holds the record; None or empty: the arguments are the record."""
    gold: object = None
    """A record that fits, where the row has one."""


class StructuredOutputs(Environment[RecordTask]):
    """Give a record in the format and schema asked for, as text or as a tool call."""

    properties = Properties(
        "single-step", "schema adherence", "general", "extraction", "schema validation"
    )
    executes_tools = False
    waits_to_verify = True

    class Options(EnvironmentOptions):
        """How XML is read."""

        xml_coerce_types: bool = True
        """Read numbers, booleans and lists where the schema has them; else all leaves are text."""

    async def setup(self) -> list[Message]:
        """Refuse XML before the model is asked where its package is missing."""
        if self.task.response_mode != "tool_call" and self.task.schema_type == "xml":
            xml_package()
        return []

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 where the answer can be read and fits the schema."""
        assert isinstance(context.options, cls.Options)
        task = cls.parse_task(rollout.task)
        answer = _answer(task, rollout)
        if isinstance(answer, str):
            is_call = task.response_mode == "tool_call"
            paper = Paper(
                text=answer,
                schema=task.schema_str,
                format=None if is_call else task.schema_type,
                payload_key=(task.tool_payload_key or None) if is_call else None,
                types_xml=context.options.xml_coerce_types,
            )
            answer = await _examined(paper, context)
        details: JSONObject = {"reason": answer.reason}
        if answer.message:
            details["error_message"] = answer.message
        return Score(float(answer.reason == "correct"), details=details)

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Give the row's gold record; None for the rows of others, which hold none."""
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
        """Write records of 24 kinds in three sizes; after 72 rows the schemas come again."""
        return rows(rng, num)


def _answer(task: RecordTask, rollout: Rollout) -> str | Finding:
    """Give the text to look at, or what is wrong before any is read."""
    if task.response_mode != "tool_call":
        text = rollout.output_text
        return text if text.strip() else Finding("empty_response", "the answer has no text")
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
        if paper.can_run_away:
            raise
        return Finding("parse_error", "the answer takes too long to read")
