"""Translates Responses data into chat data and back: items, content parts, tools, parameters.

Chat shape cannot express every part of an item: ids, encrypted reasoning, hosted tools. If
translating a message back would not yield exactly its items, it stores them in `response_items`.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Collection, Sequence

from gymcli.nemo_gym.payload import (
    CallParts,
    argument_text,
    extra_in,
    join_text,
    list_in,
    object_in,
    objects_in,
    select_members,
    text_in,
)
from gymcli.types import JSON, FunctionCall, JSONObject, Message, Role, ToolCall

_ROLES = ("system", "developer", "user", "assistant")


class ItemTurn(typing.NamedTuple):
    """The content of the items of one assistant turn, in chat shape."""

    parts: list[JSONObject] | None
    """Chat content parts; None if no item is a message."""
    reasoning: list[str]
    refusal: str
    calls: list[CallParts]
    other_items: list[JSONObject]
    """The items that chat shape cannot express."""
    extra: JSONObject
    """The members of messages that the format does not define."""


def messages_from_items(items: str | list[JSONObject]) -> list[Message]:
    """Return the chat messages of a Responses `input` or `output`.

    Consecutive reasoning, assistant messages and function calls become one assistant message. An
    item of a type that chat does not know becomes a separate message without content.

    Raises:
        ValueError: An item is not a message and has no type, or lacks a member that its type needs;
            the message names its position, counted from 0.
    """
    if isinstance(items, str):
        return [Message(role="user", content=items)]
    if not isinstance(items, list):
        raise ValueError("is neither text nor a list of items")
    for position, item in enumerate(items):
        if problem := _problem(item):
            raise ValueError(f"item {position} {problem}")
    messages: list[Message] = []
    for is_turn, group in itertools.groupby(items, _is_of_turn):
        if is_turn:
            turn = list(group)
            messages.append(_with_items(_assistant_message(turn), turn))
        else:
            messages += [_with_items(_single_item_message(item), [item]) for item in group]
    return messages


def items_from_messages(
    messages: Sequence[Message], *, with_reasoning: bool = True, send_fields: Collection[str] = ()
) -> list[JSONObject]:
    """Return the Responses items of chat messages: `response_items` if a message has them.

    With `with_reasoning`, reasoning text becomes items with ids `rs_<position>`. `send_fields` are
    the fields of the `extra` of messages and calls that go into items.
    """
    items: list[JSONObject] = []
    for position, message in enumerate(messages):
        # As they came, with their ids and encrypted reasoning.
        if message.response_items:
            items.extend(message.response_items)
        elif message.role == "tool":
            output = _content_to_responses(message)
            call_id = message.tool_call_id or ""
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        elif message.role == "assistant":
            if with_reasoning and message.reasoning:
                summary = [{"type": "summary_text", "text": message.reasoning}]
                items.append({"type": "reasoning", "id": f"rs_{position}", "summary": summary})
            items.extend(_assistant_items(message, send_fields))
        else:
            items.append({"role": message.role, "content": _content_to_responses(message)})
    return items


_ITEM_MEMBERS = ("type", "id", "status", "role", "content", "call_id", "name", "arguments")


def read_turn(items: list[JSONObject]) -> ItemTurn:
    turn = ItemTurn(None, [], "", [], [], {})
    all_parts: list[JSONObject] = []
    refusals: list[str] = []
    for item in items:
        match item.get("type", "message"):
            case "message":
                # In a request, the content may be plain text.
                raw = item.get("content")
                parts = [{"type": "output_text", "text": raw}] if isinstance(raw, str) else raw
                for part in map(part_from_responses, objects_in(parts)):
                    if part.get("type") == "refusal":
                        refusals.append(text_in(part.get("refusal")))
                    else:
                        all_parts.append(part)
                turn = turn._replace(parts=all_parts)
                turn.extra.update(extra_in(item, _ITEM_MEMBERS))
            case "reasoning":
                # OpenAI sends a summary of the reasoning; servers of open models send its text as
                # `content`.
                pieces = objects_in(item.get("summary")) or objects_in(item.get("content"))
                turn.reasoning.append("\n".join(text_in(piece.get("text")) for piece in pieces))
            case "function_call":
                call_fields = item.get("call_id"), item.get("name"), item.get("arguments")
                turn.calls.append(CallParts(*call_fields, extra_in(item, _ITEM_MEMBERS)))
            case _:
                turn.other_items.append(item)
    return turn._replace(refusal="".join(refusals))


_KNOWN_TYPES = ("message", "reasoning", "function_call", "function_call_output")


def _problem(item: JSON) -> str:
    """Return the problem of an input item, or an empty string; unknown types are allowed."""
    if not isinstance(item, dict):
        return "is not an object"
    kind, role = item.get("type"), item.get("role")
    if kind is None and role is None:
        return 'has neither "type" nor "role"'
    if kind is not None and not text_in(kind):
        return f"has the type {kind!r}, which is not text"
    if kind not in (None, *_KNOWN_TYPES):
        return ""
    if kind in (None, "message"):
        if role not in _ROLES:
            return f"has the role {role!r}; it can be {', '.join(_ROLES)}"
        if item.get("content") is None and role == "assistant":
            return ""
        return _content_problem(item.get("content"), "content")
    if kind.startswith("function_call") and not isinstance(item.get("call_id"), str):
        return f'is a {kind} without "call_id"'
    if kind == "function_call" and not isinstance(item.get("name"), str):
        return 'is a function_call without "name"'
    if kind == "function_call_output":
        return _content_problem(item.get("output"), "output")
    return ""


def _content_problem(content: JSON, key: str) -> str:
    is_list = isinstance(content, list) and all(isinstance(part, dict) for part in content)
    if is_list or isinstance(content, str):
        return ""
    return f'needs "{key}", text or a list of parts'


def _is_of_turn(item: JSONObject) -> bool:
    kind = item.get("type")
    if kind in (None, "message"):
        # `_problem` has checked that a message has a role.
        return item["role"] == "assistant"
    return kind in ("reasoning", "function_call")


def _with_items(message: Message, items: list[JSONObject]) -> Message:
    """Store the items in the message unless it translates to exactly these items."""
    # Without reasoning, since requests leave it out.
    if items_from_messages([message], with_reasoning=False) != items:
        message.response_items = list(items)
    return message


def _assistant_message(items: list[JSONObject]) -> Message:
    turn = read_turn(items)
    return Message(
        role="assistant",
        content=None if turn.parts is None else join_text(turn.parts),
        reasoning="\n".join(piece for piece in turn.reasoning if piece) or None,
        refusal=turn.refusal or None,
        tool_calls=[
            ToolCall(text_in(call.id), FunctionCall(text_in(call.name), argument_text(call[2])))
            for call in turn.calls
        ],
    )


_MADE_BY_MODEL = ("mcp_list_tools", "mcp_approval_request", "compaction")
"""Item types that the model produces and whose name does not end in `_call`."""


def _single_item_message(item: JSONObject) -> Message:
    kind = text_in(item.get("type")) or "message"
    if kind == "message":
        role = typing.cast("Role", item["role"])
        return Message(role=role, content=_content_from_responses(item["content"]))
    if kind == "function_call_output":
        return Message(
            role="tool",
            tool_call_id=text_in(item["call_id"]),
            content=_content_from_responses(item["output"]),
        )
    if item.get("role") in _ROLES:
        return Message(role=typing.cast("Role", item["role"]))
    # A call of a hosted tool, such as `web_search_call`, is the model's; other items are input.
    is_made = kind.endswith("_call") or kind in _MADE_BY_MODEL
    return Message(role="assistant" if is_made else "user")


def _assistant_items(message: Message, send_fields: Collection[str]) -> list[JSONObject]:
    """Return the items of an assistant message; one without content is an empty message item."""
    items: list[JSONObject] = []
    content = _content_to_responses(message)
    if message.refusal:
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        refusal: JSONObject = {"type": "refusal", "refusal": message.refusal}
        content = [*(parts if content else []), refusal]
    if content or not message.tool_calls:
        items.append(
            {"role": "assistant", "content": content, **select_members(message.extra, send_fields)}
        )
    items.extend(
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            **select_members(call.extra, send_fields),
        }
        for call in message.tool_calls
    )
    return items


def _content_from_responses(content: JSON) -> str | list[JSONObject]:
    if isinstance(content, str):
        return content
    return [part_from_responses(part) for part in objects_in(content)]


def _content_to_responses(message: Message) -> str | list[JSONObject]:
    if isinstance(message.content, list):
        return [part_to_responses(part, message.role) for part in message.content]
    return message.content or ""


_OUTPUT_ONLY = ("annotations", "logprobs")
"""Keys of Responses text parts that chat endpoints refuse."""


def part_from_responses(part: JSONObject) -> JSONObject:
    """Return a content part in chat shape; parts that chat cannot express are unchanged."""
    members = {key: value for key, value in part.items() if key != "type"}
    match part.get("type"):
        case "input_text" | "output_text":
            text_members = {key: value for key, value in members.items() if key not in _OUTPUT_ONLY}
            return {"type": "text", **text_members}
        case "input_image" if isinstance(members.get("image_url"), str):
            url = members.pop("image_url")
            detail = members.pop("detail", None)
            image = {"url": url} if detail is None else {"url": url, "detail": detail}
            return {"type": "image_url", "image_url": image, **members}
        case "input_file":
            return {"type": "file", "file": members}
        case _:  # input_audio is the same in both formats
            return part


def part_to_responses(part: JSONObject, role: str) -> JSONObject:
    """Return a chat content part in Responses shape; other parts are unchanged."""
    members = {key: value for key, value in part.items() if key != "type"}
    match part.get("type"):
        case "text":
            return {"type": "output_text" if role == "assistant" else "input_text", **members}
        case "image_url" if "url" in object_in(members.get("image_url")):
            image = dict(object_in(members.pop("image_url")))
            return {"type": "input_image", "image_url": image.pop("url"), **image, **members}
        case "image_url":  # some writers put the URL here
            return {"type": "input_image", **members}
        case "file" if isinstance(members.get("file"), dict):
            file = object_in(members.pop("file"))
            return {"type": "input_file", **file, **members}
        case _:
            return part


_NAMED = ("function", "custom")
"""The kinds of tool choices that name one tool."""


def tools_from_responses(tools: list[JSONObject]) -> list[JSONObject]:
    """Return tools in chat shape; hosted tools and tools in chat shape are unchanged."""
    for position, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise ValueError(f"tools[{position}] is not an object")
    return [_nest_by_kind(tool, "function") for tool in tools]


def tools_to_responses(tools: list[JSONObject]) -> list[JSONObject]:
    """Return tools in the flat shape of Responses; hosted tools are unchanged."""
    return [_flat(tool, "function") for tool in tools]


def tool_choice_from_responses(choice: JSON) -> JSON:
    """Return a tool choice in chat shape: a word, a named tool, or a set of allowed tools."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        chat_choice = _nest_by_kind(choice, "allowed_tools")
        tool_set = object_in(chat_choice["allowed_tools"])
        if not isinstance(tool_set.get("tools"), list):
            return chat_choice
        tools = [_nest_by_kind(tool, "function") for tool in objects_in(tool_set["tools"])]
        return {**chat_choice, "allowed_tools": {**tool_set, "tools": tools}}
    for kind in _NAMED:
        choice = _nest_by_kind(choice, kind)
    return choice


def tool_choice_to_responses(choice: JSON) -> JSON:
    if not isinstance(choice, dict):
        return choice
    for kind in (*_NAMED, "allowed_tools"):
        choice = _flat(choice, kind)
    if choice.get("type") == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [_flat(tool, "function") for tool in objects_in(choice["tools"])]
        return {**choice, "tools": tools}
    return choice


def _nest_by_kind(value: JSONObject, kind: str) -> JSONObject:
    """Nest all members except the type under a key named after the kind; others are unchanged."""
    if value.get("type") != kind or kind in value:
        return value
    return {"type": kind, kind: {key: item for key, item in value.items() if key != "type"}}


def _flat(value: JSONObject, kind: str) -> JSONObject:
    """Undo `_wrapped`."""
    inner = value.get(kind)
    if value.get("type") != kind or not isinstance(inner, dict):
        return value
    return {**{key: item for key, item in value.items() if key != kind}, **inner}


IGNORED_PARAMS = ("model", "stream", "background", "store", "previous_response_id", "n")
"""Parameters that gymcli sets itself; readers of rows drop them."""

CONVERSATION = ("input", "messages", "tools")
"""The keys of the conversation in a body of either format; they are never parameters."""

NOT_IN_RESPONSES = (
    "audio",
    "best_of",
    "frequency_penalty",
    "logit_bias",
    "modalities",
    "n",
    "prediction",
    "presence_penalty",
    "seed",
    "stop",
    "stream_options",
    "web_search_options",
)
"""Chat Completions parameters that the Responses format lacks."""

_LOGPROBS = "message.output_text.logprobs"

_NESTED = {
    "reasoning": {"effort": "reasoning_effort", "summary": "reasoning_summary"},
    "text": {"format": "response_format", "verbosity": "verbosity"},
}
"""The names of chat parameters that are keys of an object in the Responses format."""


def params_from_responses(create_params: JSONObject) -> JSONObject:
    """Return the parameters of `responses_create_params` under Chat Completions names.

    `input`, `tools` and nulls are left out; `params_to_responses` is the inverse.
    """
    params = {
        name: value
        for name, value in create_params.items()
        if value is not None and name not in ("input", "tools")
    }
    if "max_output_tokens" in params:
        params["max_tokens"] = params.pop("max_output_tokens")
    if "tool_choice" in params:
        params["tool_choice"] = tool_choice_from_responses(params["tool_choice"])
    for outer, names in _NESTED.items():
        value = params.get(outer)
        if isinstance(value, dict):
            other_members = dict(value)
            flat_params = {
                names[key]: other_members.pop(key)
                for key in names
                if other_members.get(key) is not None
            }
            # An object that was empty before stays, so that `params_to_responses` restores it.
            if other_members or not flat_params:
                params[outer] = other_members
            else:
                del params[outer]
            params.update(flat_params)
    if "response_format" in params:
        params["response_format"] = _format_from_responses(params["response_format"])
    included = list_in(params.get("include"))
    if _LOGPROBS in included:
        params["logprobs"] = True
        # Only removed at the end, where `params_to_responses` adds it: the order must survive.
        if included == [_LOGPROBS]:
            del params["include"]
        elif included.index(_LOGPROBS) == len(included) - 1:
            params["include"] = included[:-1]
    return params


def params_to_responses(params: JSONObject) -> JSONObject:
    """Return the part of a Responses body that the parameters define.

    `max_completion_tokens` overrides `max_tokens`.
    """
    left_out = (*NOT_IN_RESPONSES, *CONVERSATION, "extra_body")
    body = {
        name: value for name, value in params.items() if value is not None and name not in left_out
    }
    for name in ("max_tokens", "max_completion_tokens"):
        if name in body:
            body["max_output_tokens"] = body.pop(name)
    if "tool_choice" in body:
        body["tool_choice"] = tool_choice_to_responses(body["tool_choice"])
    if "response_format" in body:
        body["response_format"] = _format_to_responses(body["response_format"])
    for outer, names in _NESTED.items():
        inner = {key: body.pop(name) for key, name in names.items() if name in body}
        if inner:
            body[outer] = {**object_in(body.get(outer)), **inner}
    if body.pop("logprobs", False):
        included = list_in(body.get("include"))
        if _LOGPROBS not in included:
            body["include"] = [*included, _LOGPROBS]
    # Last, since it overrides other parameters, as in OpenAI's client.
    body.update(extra_body_fields(params.get("extra_body")))
    return body


def extra_body_fields(extra_body: JSON) -> JSONObject:
    """Return the members of an `extra_body` without those that gymcli sets itself."""
    excluded_names = (*IGNORED_PARAMS, *CONVERSATION)
    return {
        name: value for name, value in object_in(extra_body).items() if name not in excluded_names
    }


def unsent_among(params: JSONObject, unknown_names: tuple[str, ...]) -> list[str]:
    """Return the names in `params` that a format cannot express, also as `extra_body.NAME`."""
    names = []
    for name, value in params.items():
        is_odd = name == "extra_body" and not isinstance(value, dict | None)
        if is_odd or name in unknown_names or name in CONVERSATION:
            names.append(name)
        elif name == "extra_body":
            sent_body = extra_body_fields(value)
            names += [f"extra_body.{key}" for key in object_in(value) if key not in sent_body]
    return names


def _format_from_responses(value: JSON) -> JSON:
    if not isinstance(value, dict) or value.get("type") != "json_schema" or "json_schema" in value:
        return value
    inner = {key: item for key, item in value.items() if key != "type"}
    return {"type": "json_schema", "json_schema": inner}


def _format_to_responses(value: JSON) -> JSON:
    if not isinstance(value, dict) or not isinstance(value.get("json_schema"), dict):
        return value
    outer = {key: item for key, item in value.items() if key != "json_schema"}
    return {**outer, **value["json_schema"]}
