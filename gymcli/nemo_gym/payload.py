"""Reads an endpoint's JSON, which need not be clean, and the errors that hide in it."""

from __future__ import annotations

import json
import math
import re

import msgspec

from gymcli.errors import (
    ContextOverflowError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    ServerError,
)
from gymcli.types import JSON, JSONObject

__all__ = ["decode", "error_in", "list_in", "object_in", "objects_in", "text_in"]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NUM_SHOWN = 200
_RATE_LIMIT_CODES = {"rate_limit_exceeded", "rate_limit_error"}
_SERVER_CODES = {"server_error", "internal_server_error", "overloaded_error"}
_OVERFLOW_CODES = {"context_length_exceeded"}


def decode(payload: bytes) -> JSONObject:
    """Decode a JSON object; lone surrogates become U+FFFD, NaN and infinities null.

    Raises:
        InvalidAnswerError: The payload is not JSON, not an object, or nested too deeply.

    """
    try:
        try:
            value: JSON = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, UnicodeError):
            value = _decode_unclean(payload)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise InvalidAnswerError(f"the body is {reason}: {_beginning(payload)}") from error
    if not isinstance(value, dict):
        raise InvalidAnswerError(f"the body is not a JSON object: {_beginning(payload)}")
    return value


def error_in(error: JSON) -> ModelError:
    """Give the error that a body with status 200 carries, in the provider's words."""
    fields: JSONObject = error if isinstance(error, dict) else {"message": error}
    codes = [str(fields[key]) for key in ("code", "type", "status") if fields.get(key) is not None]
    numbers = [int(code) for code in codes if code.isdecimal() and len(code) == len("500")]
    status = numbers[0] if numbers else None
    words = text_in(fields.get("message")) or msgspec.json.encode(error).decode()
    # OpenRouter puts the words of the provider behind it here.
    raw = text_in(object_in(fields.get("metadata")).get("raw"))
    details = "".join(f" ({part})" for part in (raw[:_NUM_SHOWN], *codes[:1]) if part)
    message = f"the endpoint answered with an error: {words}{details}"
    if status == 429 or _RATE_LIMIT_CODES.intersection(codes):
        return RateLimitError(message, status=status)
    if _OVERFLOW_CODES.intersection(codes):
        return ContextOverflowError(message, status=status)
    if _SERVER_CODES.intersection(codes) or status in (408, 409) or (status or 0) >= 500:
        return ServerError(message, status=status)
    return InvalidAnswerError(message, status=status)


def object_in(value: JSON) -> JSONObject:
    """Give the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: JSON) -> list[JSON]:
    """Give the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def objects_in(value: JSON) -> list[JSONObject]:
    """Give the objects of a list; none where it is no list."""
    return [item for item in list_in(value) if isinstance(item, dict)]


def text_in(value: JSON) -> str:
    """Give the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def _decode_unclean(payload: bytes) -> JSON:
    """Decode what the strict decoder refused, as far as the standard library takes it."""
    value = json.loads(
        payload.decode("utf-8-sig", errors="replace"),
        parse_constant=lambda _: None,
        parse_float=_finite,
    )
    text = json.dumps(value, ensure_ascii=False)
    return msgspec.json.decode(_LONE_SURROGATE.sub("\ufffd", text))


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _beginning(payload: bytes) -> str:
    text = " ".join(payload[: 4 * _NUM_SHOWN].decode("utf-8", errors="replace").split())
    return text[:_NUM_SHOWN] if text else "it is empty"
