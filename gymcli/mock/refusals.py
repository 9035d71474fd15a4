"""The error answers of the mock server, in the words of the endpoints that it stands for."""

from __future__ import annotations

import email.utils
import math
import time
from typing import NamedTuple

import msgspec

from gymcli.mock.behaviours import MockAnswer
from gymcli.mock.faults import Refusal

__all__ = [
    "behaviour_failed",
    "key_refused",
    "model_not_found",
    "refusal_for",
    "too_many_requests",
    "unreadable",
]

_GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"


class _Words(NamedTuple):
    """What an error object says."""

    status: int
    message: str
    type: str
    code: str | None = None


_LIMITED = _Words(429, "Rate limit reached. Please try again.", "requests", "rate_limit_exceeded")
_FAILED = _Words(500, "The server had an error while processing your request.", "server_error")
_FAULTS: dict[str, _Words] = {
    **dict.fromkeys(("429", "429-after", "429-date", "429-burst"), _LIMITED),
    **dict.fromkeys(("500", "500-once", "500-always"), _FAILED),
    "503": _Words(503, "The engine is currently overloaded, please try again.", "server_error"),
    "529": _Words(529, "Overloaded", "overloaded_error"),
    **dict.fromkeys(
        ("403", "403-always"),
        _Words(403, "You are not allowed to ask this.", "permission_error", "forbidden"),
    ),
}


def refusal_for(kind: Refusal, model: str, text: str) -> MockAnswer:
    """Return the answer of a fault that is an error status; some repeat the last user text."""
    if kind == "422-echo":  # as FastAPI says it
        wrong = {"type": "extra_forbidden", "loc": ["body"], "msg": "Not permitted", "input": text}
        return MockAnswer(status=422, body=msgspec.json.encode({"detail": [wrong]}).decode())
    if kind == "500-echo":
        return _refusal(_Words(500, f"The server failed while answering: {text}", "server_error"))
    if kind == "405":
        return MockAnswer(status=405, body='{"detail":"Method Not Allowed"}')
    if kind == "307":
        return MockAnswer(status=307, body="", headers={"Location": "/elsewhere"})
    if kind == "401":
        return key_refused()
    if kind == "404":
        return model_not_found(model)
    if kind == "502":  # comes from a proxy, which knows no JSON
        return MockAnswer(status=502, body=_GATEWAY, headers={"Content-Type": "text/html"})
    headers = {}
    if kind == "429-after":
        headers = {"Retry-After": "1"}
    elif kind == "429-date":
        # A date has whole seconds: the next one but for a wait of at least one.
        headers = {"Retry-After": email.utils.formatdate(math.ceil(time.time()) + 1, usegmt=True)}
    return _refusal(_FAULTS[kind], headers)


def too_many_requests() -> MockAnswer:
    """Give the answer beyond a limit; it does not say when to come again."""
    return _refusal(_LIMITED)


def key_refused() -> MockAnswer:
    """Give the answer to a key that is missing or wrong, which it does not repeat."""
    text = "Incorrect API key provided."
    return _refusal(_Words(401, text, "invalid_request_error", "invalid_api_key"))


def model_not_found(model: str) -> MockAnswer:
    """Give the answer to a request for a model that is not served."""
    text = f"The model `{model}` does not exist or you do not have access to it."
    return _refusal(_Words(404, text, "invalid_request_error", "model_not_found"))


def behaviour_failed(error: Exception) -> MockAnswer:
    """Give the answer in place of one that could not be made."""
    text = f"the mock's behaviour failed: {type(error).__name__}: {error}"
    return _refusal(_Words(500, text, "server_error"))


def unreadable(reason: str) -> MockAnswer:
    """Give the answer to a body that is no request."""
    return _refusal(_Words(400, f"not a request: {reason}", "invalid_request_error"))


def _refusal(words: _Words, headers: dict[str, str] | None = None) -> MockAnswer:
    error = {"message": words.message, "type": words.type, "param": None, "code": words.code}
    body = msgspec.json.encode({"error": error}).decode()
    return MockAnswer(status=words.status, body=body, headers=headers or {})
