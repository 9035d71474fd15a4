"""The prompt of a task row, in whichever of its shapes it is written."""

from __future__ import annotations

import msgspec

from gymcli.dialects.responses import tools_from_responses
from gymcli.nemo_gym import read_prompt
from gymcli.types import JSON, JSONObject, Message

__all__ = ["row_prompt"]


def row_prompt(
    row: JSONObject, consumed: set[str]
) -> tuple[list[Message], list[JSONObject] | None, JSONObject, list[str]]:
    """Read the prompt from where the row's shape has it; adds to `consumed` what it used.

    Gives messages (none of a raw row), tools, parameters, and the names of those ignored.

    Raises:
        ValueError: Something has the wrong shape; the text names it.

    """
    if row.get("responses_create_params") is not None:
        prompt = read_prompt(row["responses_create_params"])
        return prompt.messages, prompt.tools, prompt.params, prompt.ignored
    if row.get("messages") is not None:
        consumed.update(("messages", "tools"))
        return _chat_messages(row["messages"], "messages"), _tools(row), {}, []
    text = row.get("prompt")
    if text is None or text == "":
        return [], None, {}, []
    consumed.update(("prompt", "tools"))
    if isinstance(text, str):
        return [Message(role="user", content=text)], _tools(row), {}, []
    if not isinstance(text, list):
        raise ValueError('"prompt" must be text, or a list of chat messages')
    return _chat_messages(text, "prompt"), _tools(row), {}, []


def _chat_messages(value: JSON, field: str) -> list[Message]:
    if not isinstance(value, list):
        raise ValueError(f'"{field}" must be a list of chat messages')
    try:
        return msgspec.convert([_as_ours(item) for item in value], list[Message])
    except msgspec.ValidationError as error:
        raise ValueError(f'"{field}": {error}') from error


def _as_ours(message: JSON) -> JSON:
    """Leave out what is null, as tables fill rows up, and call reasoning by one name."""
    if not isinstance(message, dict):
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
