"""What a made-up database is described with: its tables, how they are filled, and questions."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from random import Random
from typing import NamedTuple

__all__ = ["PEOPLE", "Question", "Schema", "Table", "Tables", "Words", "some_day"]

Table = Sequence[tuple[str | int | float | None, ...]]
Tables = dict[str, Table]
"""The rows of each table, by its name."""
Words = dict[str, str | int | float]
"""What stands for the names in braces in a question and its query."""


class Question(NamedTuple):
    """A question and the query that answers it, with names in braces."""

    difficulty: str
    text: str
    query: str


class Schema(NamedTuple):
    """A kind of database."""

    name: str
    subject: str
    """Whose database it is, as a prompt says it."""
    ddl: str
    fill: Callable[[Random], Tables]
    choose: Callable[[Random, Tables], Words]
    questions: tuple[Question, ...]


def some_day(rng: Random, first: date, num: int) -> str:
    """Give one of a number of days, as YYYY-MM-DD."""
    return str(first + timedelta(days=rng.randrange(num)))


PEOPLE = (
    "Ada Quill",
    "Bruno Seidel",
    "Carla Mendes",
    "Dario Novak",
    "Edda Lund",
    "Farid Osman",
    "Greta Holm",
    "Henk Visser",
    "Ilse Krantz",
    "Jonas Petri",
    "Kaya Demir",
    "Lucia Romano",
    "Mateo Rios",
    "Nadia Haddad",
    "Oskar Lindt",
    "Paula Reyes",
)
