"""Joins the chunks of a streamed chat completion."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gymcli.errors import InvalidAnswerError
from gymcli.nemo_gym.payload import argument_text, decode, extra_in, object_in, objects_in, text_in
from gymcli.types import JSON, JSONObject

__all__ = ["assemble"]

_TEXTS = ("reasoning_content", "reasoning", "refusal")
_DELTA_MEMBERS = ("role", "content", "tool_calls", "function_call", *_TEXTS)
_PIECE_MEMBERS = ("index", "id", "type", "function", "custom")


def assemble(events: Iterable[bytes]) -> bytes:
    """Give the bytes of the `chat.completion` that the chunks make up.

    A chunk with an error ends the stream and is given as the body.

    Raises:
        InvalidAnswerError: A chunk is not JSON, or none of them gives a finish reason.

    """
    joined = _Joined()
    for event in events:
        data = event.strip()
        if data == b"[DONE]":
            break
        if not data:
            continue
        chunk = decode(data)
        if chunk.get("error"):
            return msgspec.json.encode({"error": chunk["error"]})
        joined.add(chunk)
    if joined.finish_reason is None:
        raise InvalidAnswerError("the stream ended early: no chunk has a finish reason")
    return msgspec.json.encode(joined.body())


class _Call:
    """One tool call in the making."""

    def __init__(self, index: JSON) -> None:
        self.position = index if isinstance(index, int) else 0
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: JSONObject = {}


class _Joined:
    """A completion in the making; only the first choice counts."""

    def __init__(self) -> None:
        self.head: JSONObject = {}
        self.usage: JSON = None
        self.finish_reason: JSON = None
        self.content: list[JSON] | None = None
        self.texts: dict[str, list[str]] = {}
        self.extra: JSONObject = {}
        self.logprobs: dict[str, list[JSON]] = {}
        self.calls: list[_Call] = []
        self.call_at: dict[JSON, _Call] = {}

    def add(self, chunk: JSONObject) -> None:
        """Add one chunk."""
        for key in ("id", "created", "model"):
            if chunk.get(key) is not None:
                self.head.setdefault(key, chunk[key])
        if chunk.get("usage") is not None:
            self.usage = chunk["usage"]
        for choice in objects_in(chunk.get("choices")):
            if choice.get("index") in (0, None):
                self._add_choice(choice)

    def body(self) -> JSONObject:
        """Give the completion as it stands."""
        content = self._joined_content()
        message: JSONObject = {**self.extra, "role": "assistant", "content": content}
        for key, pieces in self.texts.items():
            message[key] = "".join(pieces)
        if self.calls:
            message["tool_calls"] = [
                {
                    **call.extra,
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "".join(call.arguments)},
                }
                for call in sorted(self.calls, key=lambda call: call.position)
            ]
        choice: JSONObject = {
            "index": 0,
            "message": message,
            "finish_reason": self.finish_reason,
            "logprobs": self.logprobs or None,
        }
        return {
            **self.head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self.usage,
        }

    def _add_choice(self, choice: JSONObject) -> None:
        if choice.get("finish_reason") is not None:
            self.finish_reason = choice["finish_reason"]
        for key, entries in object_in(choice.get("logprobs")).items():
            if isinstance(entries, list):
                self.logprobs.setdefault(key, []).extend(entries)
        delta = object_in(choice.get("delta"))
        content = delta.get("content")
        if content is not None:
            self.content = self.content or []
            self.content.extend(content if isinstance(content, list) else [content])
        for key in _TEXTS:
            if isinstance(delta.get(key), str):
                self.texts.setdefault(key, []).append(text_in(delta[key]))
        _join(self.extra, extra_in(delta, _DELTA_MEMBERS))
        for piece in objects_in(delta.get("tool_calls")):
            function = object_in(piece.get("function") or piece.get("custom"))
            call = self._call(piece.get("index"), text_in(piece.get("id")), function)
            _join(call.extra, extra_in(piece, _PIECE_MEMBERS))
        if delta.get("function_call"):
            self._call("function_call", "", object_in(delta["function_call"]))

    def _call(self, index: JSON, identifier: str, function: JSONObject) -> _Call:
        """Add a piece to the tool call that it belongs to, and return that.

        Some endpoints give every call the same index, or none: there a piece with a name and
        another id (or no index) begins the next call.
        """
        name = text_in(function.get("name"))
        call = self.call_at.get(index)
        is_another = index is None or (identifier and call and call.id not in ("", identifier))
        if call is None or (name and is_another):
            call = self.call_at[index] = _Call(index)
            self.calls.append(call)
        call.id = call.id or identifier
        call.name = call.name or name
        call.arguments.append(argument_text(function.get("arguments", function.get("input"))))
        return call

    def _joined_content(self) -> JSON:
        if self.content is None or not all(isinstance(piece, str) for piece in self.content):
            return self.content
        return "".join(text_in(piece) for piece in self.content)


def _join(whole: JSONObject, piece: JSONObject) -> None:
    """Add what a chunk says: texts and lists come in pieces, anything else at once."""
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(before, str) and isinstance(value, str):
            whole[name] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            before.extend(value)
        else:
            whole[name] = value
