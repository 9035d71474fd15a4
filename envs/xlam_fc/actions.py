"""What a tool of the catalogue is: its arguments, and the words that ask for a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from gymcli import JSONObject

__all__ = ["Action", "Lookup", "Parameter", "id_of", "one_of", "title", "whole"]


class Parameter(NamedTuple):
    """An argument of a tool, and what may be asked for."""

    schema: JSONObject
    choices: Sequence[str | int]
    noun: str = ""
    """Stands before the value in the request; of ids only."""
    prefix: str = ""
    """Begins the value; of ids only."""

    def drawn(self, rng: Random) -> str | int:
        """Draw a value."""
        choice = rng.choice(self.choices)
        return f"{self.prefix}{choice}" if self.prefix else choice


class Action(NamedTuple):
    """A tool, and how a person asks for it."""

    domain: str
    name: str
    description: str
    phrase: str
    """Asks for a call in the imperative, with a place for each required argument."""
    parameters: Mapping[str, Parameter]
    clause: str = ""
    """Follows the phrase where the last, optional argument is wanted; empty: all are required."""

    @property
    def required(self) -> list[str]:
        """The names of the arguments that every call has."""
        names = list(self.parameters)
        return names[:-1] if self.clause else names

    @property
    def tool(self) -> JSONObject:
        """The tool in chat shape."""
        schema = {
            "type": "object",
            "properties": {name: found.schema for name, found in self.parameters.items()},
            "required": self.required,
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


class Lookup(NamedTuple):
    """A tool that gives an id, and the one that takes it as its first argument."""

    find: Action
    use: Action

    @property
    def id_name(self) -> str:
        """What the id is called, in the result of the one and the arguments of the other."""
        return next(iter(self.use.parameters))


def one_of(description: str, values: str) -> Parameter:
    """Make a parameter that is one of some words."""
    words = values.split()
    schema: JSONObject = {"type": "string", "enum": words, "description": description}
    return Parameter(schema, words)


def whole(description: str, low: int, high: int) -> Parameter:
    """Make a parameter that is a whole number, both ends included."""
    schema: JSONObject = {
        "type": "integer",
        "minimum": low,
        "maximum": high,
        "description": description,
    }
    return Parameter(schema, range(low, high + 1))


def title(description: str, first: str, second: str) -> Parameter:
    """Make a parameter that is a text: any of the first words with any of the second."""
    titles = [f"{one} {other}" for one in first.split() for other in second.split()]
    return Parameter({"type": "string", "description": description}, titles)


def id_of(noun: str, prefix: str) -> Parameter:
    """Make a parameter that is the id of something which another tool finds."""
    description = f"Id of the {noun}, a letter and four digits."
    return Parameter(
        {"type": "string", "description": description}, range(1000, 10_000), noun, prefix
    )
