"""Makes tasks of the rows of MMLU-Pro."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a question, with its options, of which there are at most ten."""
    letters = "ABCDEFGHIJ"[: len(row["options"])]
    options = dict(zip(letters, row["options"], strict=True))
    return {
        "id": str(row["question_id"]),
        "question": row["question"],
        "choices": "\n".join(f"{letter}: {text}" for letter, text in options.items()),
        "options": [{letter: text} for letter, text in options.items()],
        "expected_answer": row["answer"],
        "category": row["category"],
        "env": "mcqa",
        "grading_mode": "last_answer_colon",
    }
