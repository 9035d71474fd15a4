"""Tool calls as constrained JSON text, for endpoints that drop `tools`.

The system message lists the tools, and a JSON Schema restricts the model to
`{"tool": …, "arguments": {…}}` and `{"answer": …}`. The wording is short, for models of a few
hundred million parameters.
"""

from __future__ import annotations

import typing
from contextlib import suppress

import msgspec

from gymcli.nemo_gym.payload import object_in, objects_in, text_in
from gymcli.types import (
    JSON,
    JSON_ERRORS,
    Answer,
    FinishReason,
    FunctionCall,
    JSONObject,
    Message,
    Request,
    ToolCall,
    json_or_text,
    text_of,
)

_REPLY = "Reply with JSON only."
_CALL = 'To use a tool: {"tool": "<name>", "arguments": {…}}'
_ANSWER = 'To answer: {"answer": "<text>"}'
_DROPPED = ("tool_choice", "parallel_tool_calls")
_KEYS = ('"answer"', '"tool"')
"""The keys that a reply may begin with."""
_CUT: tuple[FinishReason, ...] = ("length", "content_filter")
"""Finish reasons of incomplete answers."""


def emulate(request: Request) -> Request:
    """Return the request with its tools written into the prompt.

    A request without function tools is returned as it is. Other kinds of tools cannot be emulated;
    they are dropped from a request that also has functions.
    """
    functions = _functions(request)
    if not functions:
        return request
    params = {key: value for key, value in request.params.items() if key not in _DROPPED}
    messages = _without_calls(request.messages)
    choice = request.params.get("tool_choice")
    # With the tool choice "none", earlier calls must still become text.
    if not may_call(request):
        return Request(messages=messages, params=params)
    functions, may_answer = _chosen(functions, choice)
    answer: JSONObject | None = None
    if may_answer:  # in the format that the request asks for, or any text
        schema = object_in(object_in(params.get("response_format")).get("json_schema")).get(
            "schema"
        )
        answer = schema if isinstance(schema, dict) else {"type": "string"}
    params["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": _schema(functions, answer)},
    }
    prompt = _prompt(functions, may_answer=may_answer)
    return Request(messages=_with_system(messages, prompt), params=params)


def may_call(request: Request) -> bool:
    """Return whether `emulate` lets the model call tools; if so, pass its answer to `restore`."""
    return request.params.get("tool_choice") != "none" and bool(_functions(request))


def restore(answer: Answer, *, id_prefix: str = "call") -> Answer:
    """Turn the text of an answer to an emulated request back into a tool call or plain text.

    Only for answers to requests for which `may_call` is true. The answer is changed in place. The
    call's id is `<id_prefix>_0`, so each turn needs its own prefix. Text in neither form is left as
    it is. If it was cut off, the start of an answer is left, and a call is removed.
    """
    message = answer.message
    try:
        value: JSON = msgspec.json.decode(message.text)
    except JSON_ERRORS:
        if answer.finish_reason in _CUT:
            _cut_off(message)
        return answer
    # An endpoint that ignores the schema may return any text, so only the exact forms count.
    fields = object_in(value)
    if fields.keys() == {"answer"}:
        text = fields["answer"]
        message.content = text if isinstance(text, str) else msgspec.json.encode(text).decode()
    elif fields.keys() - {"arguments"} == {"tool"} and isinstance(fields["tool"], str):
        arguments = msgspec.json.encode(fields.get("arguments", {})).decode()
        message.content = None
        message.tool_calls = [ToolCall(f"{id_prefix}_0", FunctionCall(fields["tool"], arguments))]
        answer.finish_reason = "tool_calls"
    return answer


def _cut_off(message: Message) -> None:
    """Reduce a reply that was cut off to the start of its answer, or to nothing if it is a call."""
    text = message.text.lstrip()
    inside = text[1:].lstrip()
    if not text.startswith("{") or not any(
        inside.startswith(key) or key.startswith(inside) for key in _KEYS
    ):
        return
    message.content = None
    if inside.startswith(_KEYS[0]):
        value = inside.removeprefix(_KEYS[0]).lstrip().removeprefix(":").lstrip()
        message.content = _begun_text(value)


def _begun_text(value: str) -> str:
    """Decode a JSON string that may be cut off; return any other JSON unchanged."""
    if not value.startswith('"'):
        return value
    # It may end within an escape sequence; the longest, a surrogate pair, has twelve characters.
    closed = (value[: len(value) - num] + '"' for num in range(min(len(value), 12)))
    for literal in (value, *closed):
        with suppress(msgspec.MsgspecError, UnicodeError):
            return msgspec.json.decode(literal, type=str)
    return ""


def _functions(request: Request) -> list[JSONObject]:
    functions = (tool.get("function") for tool in request.tools)
    return [function for function in functions if isinstance(function, dict)]


def _chosen(functions: list[JSONObject], choice: JSON) -> tuple[list[JSONObject], bool]:
    """Return the functions that a tool choice allows, and whether it allows a plain answer."""
    if not isinstance(choice, dict):
        return functions, choice != "required"
    allowed = object_in(choice.get("allowed_tools"))
    tools = objects_in(allowed.get("tools")) if allowed else [choice]
    names = {object_in(tool.get("function")).get("name") for tool in tools}
    # A choice that names no known function allows all of them: a schema needs a branch.
    chosen = [function for function in functions if function.get("name") in names]
    return chosen or functions, bool(allowed) and allowed.get("mode") != "required"


def _schema(functions: list[JSONObject], answer: JSONObject | None) -> JSONObject:
    definitions: JSONObject = {}
    branches: list[JSONObject] = []
    for position, function in enumerate(functions):
        arguments = _hoisted(_parameters(function), f"tool{position}_", definitions)
        tool = {"type": "string", "enum": [function.get("name")]}
        branches.append(_object_schema({"tool": tool, "arguments": arguments}))
    if answer is not None:
        branches.append(_object_schema({"answer": _hoisted(answer, "answer_", definitions)}))
    # References are resolved from the root of the whole schema, so all definitions move there.
    schema: JSONObject = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**schema, "$defs": definitions} if definitions else schema


def _object_schema(properties: JSONObject) -> JSONObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _parameters(function: JSONObject) -> JSONObject:
    return object_in(function.get("parameters")) or {"type": "object", "properties": {}}


def _hoisted(schema: JSONObject, prefix: str, definitions: JSONObject) -> JSONObject:
    """Move a schema's definitions to `definitions`, with a prefix; return the rest of the schema.

    The prefix keeps definitions of equal names in two tools apart.
    """

    def renamed(value: JSON) -> JSON:
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if not isinstance(value, dict):
            return value
        changed = {key: renamed(item) for key, item in value.items()}
        reference = text_in(changed.get("$ref"))
        for place in ("#/$defs/", "#/definitions/"):
            if reference.startswith(place):
                changed["$ref"] = f"#/$defs/{prefix}{reference.removeprefix(place)}"
        return changed

    outer = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    for place in ("$defs", "definitions"):
        for name, definition in object_in(schema.get(place)).items():
            definitions[prefix + name] = renamed(definition)
    return typing.cast("JSONObject", renamed(outer))


def _prompt(functions: list[JSONObject], *, may_answer: bool) -> str:
    """Describe the tools and the reply, without the schema keys that every tool has."""
    lines = ["Tools:"]
    for function in functions:
        description = text_in(function.get("description"))
        parameters = {
            key: value
            for key, value in _parameters(function).items()
            if key not in ("type", "additionalProperties")
        }
        schema = msgspec.json.encode(parameters).decode()
        parts = [f"{function.get('name')}:", description, schema]
        lines.append(" ".join(filter(None, parts)))
    lines += [_REPLY, _CALL]
    if may_answer:
        lines.append(_ANSWER)
    return "\n".join(lines)


def _with_system(messages: list[Message], prompt: str) -> list[Message]:
    first = messages[0] if messages else None
    if first is None or first.role not in ("system", "developer"):
        return [Message(role="system", content=prompt), *messages]
    content: str | list[JSONObject] = f"{first.content}\n\n{prompt}" if first.content else prompt
    if isinstance(first.content, list):
        content = [*first.content, {"type": "text", "text": prompt}]
    return [msgspec.structs.replace(first, content=content), *messages[1:]]


def _without_calls(messages: list[Message]) -> list[Message]:
    """Write earlier tool calls as the replies that make them, and their results as user messages.

    A chat template without tools would drop or refuse both.
    """
    names: dict[str | None, str] = {}
    written: list[Message] = []
    for message in messages:
        if message.tool_calls:
            names.update((call.id, call.name) for call in message.tool_calls)
            lines = [text_of(message.content), *map(_call_text, message.tool_calls)]
            text = "\n".join(line for line in lines if line)
            written.append(Message(role="assistant", content=text, reasoning=message.reasoning))
        elif message.role == "tool":
            heading = f"Result of {names.get(message.tool_call_id, 'the tool')}:"
            result = message.content
            if isinstance(result, list):
                result = [{"type": "text", "text": heading}, *result]
            else:
                result = f"{heading} {result or ''}"
            written.append(Message(role="user", content=result))
        else:
            written.append(message)
    return written


def _call_text(call: ToolCall) -> str:
    reply = {"tool": call.name, "arguments": json_or_text(call.arguments or "{}")}
    return msgspec.json.encode(reply).decode()
