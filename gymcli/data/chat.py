"""Conversations as chat templates read them.

Format: the conversational data sets of trl, and the messages that templates of transformers take:
`reasoning_content` beside the text, arguments of tool calls as objects.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gymcli.data.source import LeftOutError
from gymcli.types import JSON_ERRORS, JSONObject, Message, Rollout, ToolCall

__all__ = ["answer_of", "chat_messages", "prompt_of"]


def prompt_of(rollout: Rollout) -> list[JSONObject]:
    """Give the messages of the prompt.

    Raises:
        LeftOutError: There are none, no model is asked by the last of them, or one of them cannot
            be said.

    """
    prompt = rollout.messages[: rollout.num_prompt_messages]
    if not prompt:
        raise LeftOutError("no prompt")
    if prompt[-1].role in ("system", "developer"):
        raise LeftOutError("a prompt that nobody asks")
    return chat_messages(prompt)


def answer_of(rollout: Rollout) -> list[JSONObject]:
    """Give the messages after the prompt, up to the last one of the model.

    Raises:
        LeftOutError: The model sent no message, or one cannot be said.

    """
    said = rollout.responses
    while said and said[-1].role != "assistant":
        said.pop()
    if not said:
        raise LeftOutError("no message of the model")
    return chat_messages(said)


def chat_messages(messages: Sequence[Message]) -> list[JSONObject]:
    """Give messages as templates read them.

    Raises:
        LeftOutError: One of them cannot be said.

    """
    return [_chat_message(message) for message in messages]


def _chat_message(message: Message) -> JSONObject:
    # A template that knows "developer" is rare, and one that knows no "system" is too.
    role = "system" if message.role == "developer" else message.role
    said: JSONObject = {"role": role, "content": _text(message)}
    if message.reasoning:
        said["reasoning_content"] = message.reasoning
    if message.tool_calls:
        said["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        said["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        said["name"] = message.name
    return said


def _text(message: Message) -> str:
    content = message.content
    if isinstance(content, list) and any(part.get("type") != "text" for part in content):
        raise LeftOutError("pictures or other content that is no text")
    is_empty = content is None and not (message.tool_calls or message.reasoning or message.refusal)
    if is_empty and message.response_items:
        raise LeftOutError("items that chat messages have no words for")
    return message.text or message.refusal or ""


def _call(call: ToolCall) -> JSONObject:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except JSON_ERRORS:
        arguments = None
    if not isinstance(arguments, dict):
        raise LeftOutError("a tool call whose arguments are no JSON object")
    function: JSONObject = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}
