"""Makes tasks of the rows of ARC-Challenge."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject

LETTERS = "ABCDE"


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a question; its options are lettered from A, since some are numbered."""
    texts = row["choices"]["text"]
    options = dict(zip(LETTERS[: len(texts)], texts, strict=True))
    return {
        "id": row["id"],
        "question": row["question"],
        "choices": "\n".join(f"{letter}: {text}" for letter, text in options.items()),
        "options": [{letter: text} for letter, text in options.items()],
        "expected_answer": LETTERS[row["choices"]["label"].index(row["answerKey"])],
        "env": "mcqa",
        "grading_mode": "last_answer_colon",
    }
