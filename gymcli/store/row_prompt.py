"""The prompt of a task row, in whichever of its shapes it is written."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gymcli.models.responses import tools_from_responses
from gymcli.nemo_gym.rows import read_prompt
from gymcli.types import JSON, JSONObject, Message

__all__ = ["RowPrompt", "row_prompt"]

_CONTROL_FIELDS = frozenset({"responses_create_params", "params", "env", "agent_ref", "max_turns"})
_MESSAGES_FIELDS = _CONTROL_FIELDS | {"messages", "tools"}
_PROMPT_FIELDS = _CONTROL_FIELDS | {"prompt", "tools"}


class RowPrompt(NamedTuple):
    """What a row's prompt says."""

    messages: list[Message]
    """None of a raw row."""
    tools: list[JSONObject] | None
    params: JSONObject
    ignored: list[str]
    """Parameters that a row may not set, left out."""
    consumed: frozenset[str]
    """Fields of a row of this shape that are its prompt, or that the runner reads."""


def row_prompt(row: JSONObject) -> RowPrompt:
    """Read the prompt from where the row's shape has it.

    Raises:
        ValueError: Something has the wrong shape; the text names it.

    """
    if row.get("responses_create_params") is not None:
        prompt = read_prompt(row["responses_create_params"])
        return RowPrompt(*prompt, _CONTROL_FIELDS)
    if row.get("messages") is not None:
        messages = _chat_messages(row["messages"], "messages")
        return RowPrompt(messages, _tools(row), {}, [], _MESSAGES_FIELDS)
    text = row.get("prompt")
    if text is None or text == "":
        return RowPrompt([], None, {}, [], _CONTROL_FIELDS)
    if isinstance(text, str):
        messages = [Message(role="user", content=text)]
    elif isinstance(text, list):
        messages = _chat_messages(text, "prompt")
    else:
        raise ValueError('"prompt" must be text, or a list of chat messages')
    return RowPrompt(messages, _tools(row), {}, [], _PROMPT_FIELDS)


def _chat_messages(value: JSON, field: str) -> list[Message]:
    if not isinstance(value, list):
        raise ValueError(f'"{field}" must be a list of chat messages')
    try:  # one by one costs a third of what msgspec takes to look `list[...]` up
        return [msgspec.convert(_as_ours(item), Message) for item in value]
    except msgspec.ValidationError:
        return _all_converted(value, field)


def _all_converted(value: list[JSON], field: str) -> list[Message]:
    """Check messages at once: the error says which of them is wrong."""
    try:
        return msgspec.convert([_as_ours(item) for item in value], list[Message])
    except msgspec.ValidationError as error:
        raise ValueError(f'"{field}": {error}') from error


def _as_ours(message: JSON) -> JSON:
    """Leave out what is null, as tables fill rows up, and call reasoning by one name."""
    if not isinstance(message, dict):
        return message
    if "reasoning_content" not in message and None not in message.values():
        return message
    kept = {name: value for name, value in message.items() if value is not None}
    if "reasoning_content" in kept:
        kept.setdefault("reasoning", kept.pop("reasoning_content"))
    return kept


def _tools(row: JSONObject) -> list[JSONObject] | None:
    tools = row.get("tools")
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise ValueError('"tools" must be a list of objects')
    return tools_from_responses(tools)
