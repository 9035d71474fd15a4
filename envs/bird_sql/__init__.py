r"""Asks for an SQL query that answers a question, and compares its result with the gold query's.

Source: the resources server bird_sql of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently; the rules are those of the execution accuracy of BIRD (Li et al., 2023,
https://arxiv.org/abs/2305.03111). The query is the last block that begins with "```sql", in upper
or lower case, is closed and contains a letter; a heading in bold before the query is left out.
Without a query the reward is 0. Both queries run on SQLite, comments included, and the reward is 1
if their results are equal as sets of rows. Leniency kept from the reference: the order and the
number of equal rows do not count, whatever the question asks; 1 equals 1.0; two empty results are
equal. The order of columns counts, their names do not. Differences from the reference:

- The database is built in memory from the row's `sql_context`; none is downloaded.
- A block must be closed before the next one begins. In the reference the next fence closes it.
- A query without a statement, such as a comment alone, is wrong. In the reference its result is
  empty, which may be right.
- A query may only read. Its limits are counted, not timed: 200 million steps of SQLite's virtual
  machine, with 100 for each call of a date or time function; 100,000 bytes for the query; a million
  bytes per value, 8 million per result, and 256 million of memory. A query that exceeds one is
  wrong. A query with few but slow steps is killed after 60 seconds, and is wrong too. The reference
  stops waiting after 30 seconds, but the query runs on.
- The present is always 2025-06-15 12:30:45 UTC, for the context and for both queries, and local
  time is UTC. `random()`, and functions and tables that describe the process or the build of
  SQLite, are not allowed.
- If the context or the gold query fails or breaks these rules, the attempt is unscored.

The result of a query and its number of steps may depend on the version and build of SQLite: newer
versions have more functions (`concat`, `timediff`), some builds lack mathematical functions or do
not accept "x" as a text, and 3.43 changed how sums of floats are rounded. The score's details name
the version.

One row (its prompt and context shortened):
{"id": "bird-sql-0", "difficulty": "easy", "db_id": "library", "prompt": "A lending library ...",
"question": "How many members live in Elmford?", "sql_context": "CREATE TABLE members (...); ...",
"gt_sql": "SELECT COUNT(*) FROM members WHERE town = 'Elmford'"}
"""

import re
import sqlite3
from collections.abc import Iterator
from random import Random
from typing import Annotated

from pydantic import PositiveFloat, PositiveInt, StringConstraints

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    VerifierTimeoutError,
)
from gymcli.envs import load_generator

from .database import MAX_STEPS, Comparison, compare

__all__ = ["BirdSQL", "QueryTask"]

# A fence before "sql" opens the next block instead of closing this one. The possessive quantifier
# saves backtracking that cannot succeed.
BLOCK = re.compile(r"```sql\b((?:(?!```).)*+)```(?!sql\b)", re.DOTALL | re.IGNORECASE)
HEADING = re.compile(r"\A\*\*.*\*\*")
"""Such as "**Query:**", which some models write in the block."""
MAX_SHOWN = 500
"""The most characters of an error message or a query that the score records."""


class QueryTask(Task):
    """A question and a query that answers it."""

    question: str = ""
    """The question in words; the prompt has it too."""
    gt_sql: Annotated[str, StringConstraints(pattern=r"[A-Za-z]")]
    """The gold query."""
    sql_context: str
    """Statements that create and fill the tables."""
    db_id: str = ""
    """The name of the database."""
    difficulty: str = ""
    """How hard the question is; not used for the score."""


class BirdSQL(Environment[QueryTask]):
    """Write the SQL query that answers a question about a database."""

    version = "2"
    properties = Properties("single-step", "coding", "databases", "text to SQL", "execution")
    # The comparison awaits a worker process.
    waits_to_verify = True

    class Options(EnvironmentOptions):
        """The limits of a query."""

        max_steps: PositiveInt = MAX_STEPS
        """Steps of SQLite's virtual machine that a query may take."""
        max_seconds: PositiveFloat = 60.0
        """Seconds that the whole comparison may take; `max_steps` is usually reached sooner."""

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the query returns the same set of rows as the gold query.

        Raises:
            VerifierError: The row's tables cannot be created, or its gold query fails.

        """
        task = cls.parse_task(rollout.task)
        query = _last_query(rollout.output_text)
        comparison = await _compared(task, query, context, cls.options_of(context))
        details: JSONObject = {
            "reason": comparison.reason,
            "expected": task.gt_sql[:MAX_SHOWN],
            "num_rows": comparison.num_rows,
            "num_expected_rows": comparison.num_expected_rows,
            "sqlite_version": sqlite3.sqlite_version,
        }
        if comparison.message:
            details["error_message"] = comparison.message[:MAX_SHOWN]
        answer = query[:MAX_SHOWN] if query else None
        return Score(float(comparison.reason == "correct"), answer=answer, details=details)

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the gold query."""
        return Message(role="assistant", content=f"```sql\n{self.task.gt_sql}\n```")

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield questions about four small databases; each task has its own table rows."""
        yield from load_generator("bird_sql").generate(rng, num)


def _last_query(text: str) -> str | None:
    """Return the content of the last SQL block with a letter, as the reference requires."""
    for block in reversed(BLOCK.findall(text)):
        if re.search(r"[A-Za-z]", block):
            return HEADING.sub("", block.strip()).strip()
    return None


async def _compared(
    task: QueryTask, query: str | None, context: Context, options: BirdSQL.Options
) -> Comparison:
    given, seconds = (task.sql_context, task.gt_sql), options.max_seconds
    try:
        return await context.isolated(compare, *given, query, options.max_steps, timeout=seconds)
    except VerifierTimeoutError:
        # The context or the gold query may be the slow part. Then this times out again, and the
        # attempt is unscored; otherwise the model's query was too slow.
        alone = await context.isolated(compare, *given, None, options.max_steps, timeout=seconds)
        message = f"it takes over {seconds:g} seconds"
        return alone._replace(reason="too_slow", message=message)
