"""Makes tasks of the rows of RACE-H."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a question about an article, with its four options."""
    options = dict(zip("ABCD", row["options"], strict=True))
    return {
        "article_id": row["example_id"],
        "article": row["article"],
        "question": row["question"],
        "options": [{letter: text} for letter, text in options.items()],
        "choices": "\n".join(f"{letter}: {text}" for letter, text in options.items()),
        "expected_answer": row["answer"],
        "grading_mode": "last_answer_colon",
    }
