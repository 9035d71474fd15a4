"""Writes the tasks: a database filled anew, a question about it, and the query that answers it."""

import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from random import Random

from gymcli import JSONObject

from .bakery import BAKERY
from .bicycles import BICYCLES
from .database import Database
from .library import LIBRARY
from .schemas import Schema, Table, Tables
from .weather import WEATHER

__all__ = ["rows"]

SCHEMAS = (LIBRARY, BAKERY, WEATHER, BICYCLES)
LEVELS = ("easy", "medium", "hard")
NO_ANSWERS: tuple[set[tuple[int, ...]], ...] = (set(), {(0,)}, {(1,)})
"""Results that a query may have by chance; 1 is that of `SELECT 1`."""
MAX_ROWS = 20
NUM_APART = 120
"""Rows before a question may come again, about other rows of its tables."""

FORM = (
    "This is the database of {subject}, in SQLite:\n\n{ddl}\n\n"
    "Each table has several rows; these are the first ones:\n\n{examples}\n\n{question}\n\n"
    "Write one SQL query that answers this for whatever the tables hold. It must give exactly "
    "the columns asked for, in the order in which they are named; the order of the rows does not "
    "matter. End with the query in a block that begins with ```sql and ends with ```."
)


def rows(rng: Random, num: int) -> Iterator[JSONObject]:
    """Give rows whose gold queries have results that are not there by chance."""
    prompts: set[str] = set()
    recent: deque[str] = deque(maxlen=NUM_APART)
    number = 0
    for attempt in itertools.count():
        if number == num:
            return
        schema = SCHEMAS[number % len(SCHEMAS)]
        difficulty = LEVELS[number % len(LEVELS)]
        questions = [one for one in schema.questions if one.difficulty == difficulty]
        # By attempts, so that a question without an answer gives way to the next one.
        question = questions[attempt // (len(SCHEMAS) * len(LEVELS)) % len(questions)]
        tables = schema.fill(rng)
        words = schema.choose(rng, tables)
        gold, context = question.query.format(**words), _context(schema, tables)
        text = question.text.format(**words)
        prompt = _prompt(schema, tables, text)
        if text in recent or prompt in prompts or not _is_telling(context, gold):
            continue
        recent.append(text)
        prompts.add(prompt)
        yield {
            "id": f"bird-sql-{number}",
            "difficulty": difficulty,
            "db_id": schema.name,
            "prompt": prompt,
            "question": text,
            "sql_context": context,
            "gt_sql": gold,
        }
        number += 1


def _prompt(schema: Schema, tables: Tables, question: str) -> str:
    examples = "\n".join(f"{name}: {_written(table[:1])}" for name, table in tables.items())
    return FORM.format(subject=schema.subject, ddl=schema.ddl, examples=examples, question=question)


def _context(schema: Schema, tables: Tables) -> str:
    fills = (f"INSERT INTO {name} VALUES {_written(rows)};" for name, rows in tables.items())  # noqa: S608  # all of it is ours
    return "\n".join([schema.ddl, *fills])


def _written(table: Table) -> str:
    """Write rows as SQL has them."""
    return ", ".join(f"({', '.join(map(_literal, row))})" for row in table)


def _literal(cell: str | float | None) -> str:
    if cell is None:
        return "NULL"
    return "'{}'".format(cell.replace("'", "''")) if isinstance(cell, str) else repr(cell)


def _is_telling(context: str, query: str) -> bool:
    """Say whether a query has some rows for a result, none of them empty in a place."""
    with closing(Database(context)) as database:
        found = database.read(query)
    holds_null = any(None in row for row in found)
    return found not in NO_ANSWERS and len(found) <= MAX_ROWS and not holds_null
