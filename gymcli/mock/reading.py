"""Reads the requests of every dialect as one kind of request."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gymcli.nemo_gym.responses_items import messages_from_items
from gymcli.types import JSONObject, Message, Request

__all__ = ["Reader", "read_chat", "read_pair", "read_pooled", "read_responses"]

Reader = Callable[[JSONObject], Request]


def read_chat(body: JSONObject) -> Request:
    """Read a request of Chat Completions.

    Raises:
        msgspec.ValidationError: Its messages are none.

    """
    messages = msgspec.convert(body.get("messages"), list[Message])
    return _request(body, messages, "messages")


def read_responses(body: JSONObject) -> Request:
    """Read a request of Responses; its instructions are a system message.

    Raises:
        ValueError: Its input is neither text nor items.

    """
    messages = messages_from_items(msgspec.convert(body.get("input"), str | list[JSONObject]))
    if isinstance(body.get("instructions"), str):
        messages.insert(0, Message(role="system", content=str(body["instructions"])))
    return _request(body, messages, "input")


def read_pair(body: JSONObject) -> Request:
    """Read a pair of texts as a question and its answer.

    Raises:
        msgspec.ValidationError: There are no two texts.

    """
    messages = [
        Message(role="user", content=msgspec.convert(body.get("text_1"), str)),
        Message(role="assistant", content=msgspec.convert(body.get("text_2"), str)),
    ]
    return _request(body, messages, "text_1", "text_2")


def read_pooled(body: JSONObject) -> Request:
    """Read a conversation, or a text as what a user says.

    Raises:
        msgspec.ValidationError: It is neither.

    """
    if "input" not in body:
        return read_chat(body)
    text = Message(role="user", content=msgspec.convert(body["input"], str))
    return _request(body, [text], "input")


def _request(body: JSONObject, messages: list[Message], *consumed: str) -> Request:
    tools = msgspec.convert(body.get("tools") or [], list[JSONObject])
    left_out = {"model", "tools", *consumed}
    params = {key: value for key, value in body.items() if key not in left_out}
    return Request(messages=messages, tools=tools, params=params)
