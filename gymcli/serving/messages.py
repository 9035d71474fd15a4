"""A request and its answer, as every HTTP server hands them over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from gymcli.types import JSON, JSON_ERRORS, JSONObject

__all__ = ["Answered", "Asked", "RefusedError", "headers_of", "json_answer"]


class Asked(NamedTuple):
    """A request, whichever server took it."""

    method: str
    path: str
    """As it came: still encoded, without a query."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def segments(self) -> list[str]:
        """The parts of the path, decoded; an encoded slash stays within its part."""
        return [unquote(part) for part in self.path.strip("/").split("/")]

    def cookie(self, name: str) -> str | None:
        """Give the value of a cookie, whatever others look like."""
        for part in self.headers.get("cookie", "").split(";"):
            found, _, value = part.strip().partition("=")
            if found == name:
                return value
        return None

    def json_object(self) -> JSONObject:
        """Give the body.

        Raises:
            RefusedError: It is no JSON object.

        """
        try:
            return msgspec.json.decode(self.body, type=JSONObject)
        except JSON_ERRORS as error:
            raise RefusedError(422, f"the body is not a JSON object: {error}") from error


class Answered(NamedTuple):
    """An answer, whichever server sends it."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """Raised when a request cannot be served; the text is what who asked is told."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after
        """Seconds after which another try makes sense."""

    def answer(self) -> Answered:
        """Give the answer that says so, in FastAPI's shape."""
        headers = () if self.retry_after is None else (("Retry-After", str(self.retry_after)),)
        return json_answer({"detail": str(self)}, self.status)._replace(headers=headers)


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give headers by lower-case name; what comes several times is joined, as cookies are."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        headers[name] = f"{headers[name]}; {value}" if name in headers else value
    return headers


def json_answer(value: JSON, status: int = 200) -> Answered:
    """Give an answer in JSON."""
    return Answered(status, msgspec.json.encode(value))
