"""Makes tasks of the table of GPQA Diamond, with the options in ten orders."""

from collections.abc import Iterable, Iterator
from random import Random

from gymcli import JSONObject

__all__ = ["tasks"]

SEED = 0
NUM_ORDERS = 10
ANSWERS = ("Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3)))


def tasks(rows: Iterable[JSONObject]) -> Iterator[JSONObject]:
    """Yield the questions ten times, each time with their options in other orders.

    The orders are those of simple-evals: one generator of random numbers draws them, for all
    questions in turn, then for all of them again.
    """
    rng = Random(SEED)
    questions = list(rows)
    for number in range(1, NUM_ORDERS + 1):
        for row in questions:
            columns = [ANSWERS[place] for place in rng.sample(range(4), 4)]
            options = dict(zip("ABCD", columns, strict=True))
            yield {
                "id": f"{row['Record ID']}-{number}",
                "question": row["Question"],
                "choices": "\n".join(f"{letter}) {row[name]}" for letter, name in options.items()),
                "options": [{letter: row[name]} for letter, name in options.items()],
                "expected_answer": next(key for key, name in options.items() if name == ANSWERS[0]),
                "grading_mode": "last_answer_colon",
                "record": row["Record ID"],
                "domain": row["High-level domain"],
                "subdomain": row["Subdomain"],
            }
