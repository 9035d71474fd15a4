"""What of a conversation is written as JSON already, so that each turn writes only what is new."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

import msgspec

from gymcli.types import Answer, FunctionCall, JSONObject, Message, Request, ToolCall

__all__ = ["Dialect", "Items", "Transcript"]


T = TypeVar("T")

_MARK = b"\0"
_PLACE = msgspec.Raw(_MARK)
"""Where the items belong: no JSON holds this byte, since control characters are escaped."""

Items: TypeAlias = Callable[[list[Message], int], Sequence[Message | JSONObject]]
"""Gives what a body says of a conversation from one of its messages on; those that come after a
message change nothing about it."""


class Transcript(msgspec.Struct, eq=False):
    """The written part of one conversation, asked about for each of its requests.

    A conversation is compared with what was written, by value: one that was changed in the middle,
    whether its messages were replaced or changed themselves, is written anew. (Only a number of a
    content part or an item that becomes an equal one, as 1 becomes True, is not noticed.)

    For the first request nothing is kept: most conversations have no second one.
    """

    _was_asked: bool = False
    _messages: list[Message] = []
    """Copies of those that are written."""
    _parts: list[bytes] = []
    """Their items as JSON, with the commas in between, in pieces that are joined once."""

    def written(
        self, messages: list[Message], items: Items
    ) -> msgspec.Raw | Sequence[Message | JSONObject]:
        """Give what stands for the items of a conversation in a body that `payload` encodes.

        Args:
            messages: The whole conversation.
            items: Gives its items; the same in each call.

        """
        if not self._was_asked:
            self._was_asked = True
            return items(messages, 0)
        if messages[: len(self._messages)] != self._messages:
            self._messages, self._parts = [], []
        num_written = len(self._messages)
        added = msgspec.json.encode(items(messages, num_written))[1:-1]
        if added:
            self._parts.append(b"," + added if self._parts else added)
        self._messages += map(_copied, messages[num_written:])
        return _PLACE

    def payload(self, body: JSONObject) -> bytes:
        """Give the JSON of a body that was made with this transcript."""
        head, place, tail = msgspec.json.encode(body).partition(_MARK)
        return b"".join((head, b"[", *self._parts, b"]", tail)) if place else head


def _copied(message: Message) -> Message:
    """Give a copy that stays as it is, whatever is done to the message; texts are shared."""
    copied = copy.copy(message)
    if message.tool_calls:
        copied.tool_calls = _unshared(message.tool_calls)
    if not isinstance(message.content, str):
        copied.content = _unshared(message.content)
    if message.response_items:
        copied.response_items = _unshared(message.response_items)
    if message.logprobs is not None:
        copied.logprobs = _unshared(message.logprobs)
    if message.extra:
        copied.extra = _unshared(message.extra)
    return copied


def _unshared(value: T) -> T:
    """Give a copy of JSON, or of tool calls; strings and numbers never change."""
    if isinstance(value, list):
        return cast("T", [_unshared(item) for item in value])
    if isinstance(value, dict):
        return cast("T", {key: _unshared(item) for key, item in value.items()})
    if isinstance(value, ToolCall):
        function = FunctionCall(value.name, value.arguments)
        return cast("T", ToolCall(value.id, function, value.type, _unshared(value.extra)))
    return value


class Dialect(Protocol):
    """One wire format of OpenAI-compatible endpoints; it holds no state and does no I/O."""

    @property
    def path(self) -> str:
        """What is appended to the endpoint's base URL, with its leading slash."""
        ...

    def body(
        self,
        request: Request,
        model: str,
        *,
        stream: bool = False,
        send_reasoning: str | None = None,
        send_fields: Collection[str] = (),
        transcript: Transcript | None = None,
    ) -> JSONObject:
        """Give the body of a request, ready for `msgspec.json.encode`; it may hold structs.

        Args:
            request: What is asked.
            model: The model's name as the endpoint knows it.
            stream: Ask for server-sent events instead of one body.
            send_reasoning: The key under which the reasoning of earlier assistant messages is
                sent back; None keeps it here. Opaque reasoning items are always sent.
            send_fields: What is sent back of the `extra` of earlier messages and calls.
            transcript: Has what the requests before this one said of the same conversation, and
                need not be written again; a format may ignore it.

        """
        ...

    def unsent(self, params: JSONObject) -> list[str]:
        """Give the names among `params` that this format cannot carry; `body` leaves them out."""
        ...

    def answer(self, payload: bytes) -> Answer:
        """Read the body of an answer that came with status 200.

        Raises:
            InvalidAnswerError: It is not JSON, not an answer, or carries an error object.
            RateLimitError: Its error object says 429 in spite of the status.
            ServerError: Its error object says 5xx, 408 or 409 in spite of the status.
            ContextOverflowError: Its error object says that the conversation is too long.

        """
        ...

    def assemble(self, events: Iterable[bytes]) -> bytes:
        """Join the data of server-sent events into the body that `answer` reads.

        Raises:
            InvalidAnswerError: An event is not JSON, or the stream ended before the answer did.

        """
        ...
