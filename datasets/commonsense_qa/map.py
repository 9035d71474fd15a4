"""Makes tasks of the rows of CommonsenseQA."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a question, with its five options."""
    options = dict(zip("ABCDE", row["choices"]["text"], strict=True))
    return {
        "id": row["id"],
        "question": row["question"],
        "choices": "\n".join(f"{letter}: {text}" for letter, text in options.items()),
        "options": [{letter: text} for letter, text in options.items()],
        "expected_answer": row["answerKey"],
        "question_concept": row["question_concept"],
        "env": "mcqa",
        "grading_mode": "last_answer_colon",
    }
