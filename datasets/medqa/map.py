"""Makes tasks of the rows of MedQA."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a question, with its five options."""
    options = {letter: row["options"][letter] for letter in "ABCDE"}
    return {
        "question": row["question"],
        "choices": "\n".join(f"{letter}: {text}" for letter, text in options.items()),
        "options": [{letter: text} for letter, text in options.items()],
        "expected_answer": row["answer_idx"],
        "env": "mcqa",
        "grading_mode": "last_answer_colon",
    }
