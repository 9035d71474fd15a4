"""Requests and answers of NeMo Gym's resources-server protocol, independent of the HTTP server.

`gymcli.serving.applications` receives and sends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from gymcli.nemo_gym.wire import SEED_HEADER
from gymcli.types import JSON, JSON_ERRORS, JSONObject


class ServedRequest(NamedTuple):
    """A request, from any HTTP server."""

    method: str
    path: str
    """Still percent-encoded, without a query."""
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    body: bytes

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie; malformed other cookies are ignored."""
        # `http.cookies` would drop every cookie because of one that is malformed.
        for part in self.headers.get("cookie", "").split(";"):
            cookie_name, _, value = part.strip().partition("=")
            if cookie_name == name:
                return value
        return None

    def json_object(self) -> JSONObject:
        try:
            return msgspec.json.decode(self.body, type=JSONObject)
        except JSON_ERRORS as error:
            raise HttpStatusError(422, f"the body is not a JSON object: {error}") from error

    def seed(self) -> int | None:
        """Return the seed that a client of gymcli sends; None for any other client."""
        text = self.headers.get(SEED_HEADER.lower())
        if text is None:
            return None
        # 19 digits always fit into 64 bits.
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise HttpStatusError(422, f"{SEED_HEADER}: must be a whole number")
        return int(text)


class ServedAnswer(NamedTuple):
    """An answer, for any HTTP server to send."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class HttpStatusError(Exception):
    """Raised when a request cannot be served; the text is sent to the client."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after
        """Seconds after which a retry may succeed."""

    def answer(self) -> ServedAnswer:
        headers = () if self.retry_after is None else (("Retry-After", str(self.retry_after)),)
        return json_answer({"detail": str(self)}, self.status)._replace(headers=headers)


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-case name; repeated ones are joined like cookies."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        # HTTP/2 clients may send each cookie in a header of its own (RFC 9113, 8.2.3).
        headers[name] = f"{headers[name]}; {value}" if name in headers else value
    return headers


def json_answer(value: JSON, status: int = 200) -> ServedAnswer:
    return ServedAnswer(status, msgspec.json.encode(value))
