"""What an address of the page is asked with, and how a question is refused."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Query", "RefusedError", "sendable"]


def sendable(text: str) -> str:
    """Give a text as JSON takes it: a path that is not UTF-8 has `?` where it is not."""
    return text.encode(errors="replace").decode()


class RefusedError(Exception):
    """Raised when a question has no answer; `field` names the parameter that is wrong."""

    def __init__(self, status: int, message: str, *, field: str | None = None) -> None:
        super().__init__(sendable(message))
        self.status = status
        self.field = field


class Query:
    """The parameters of a question, each read as what it is meant to be."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        """Give a text; an empty one where there is none."""
        return self._given.get(name, "")

    def number(self, name: str, *, default: int = 0, most: int | None = None) -> int:
        """Give a whole number from 0 on.

        Raises:
            RefusedError: It is none, or more than `most`.

        """
        text = self._given.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 15):
            raise RefusedError(400, f"{name}: expected a whole number", field=name)
        number = int(text)
        if most is not None and number > most:
            raise RefusedError(400, f"{name}: is at most {most}", field=name)
        return number
