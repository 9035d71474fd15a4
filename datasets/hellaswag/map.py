"""Makes tasks of the rows of HellaSwag."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a context and its four endings; the label is the position of one."""
    options = dict(zip("ABCD", row["endings"], strict=True))
    return {
        "question": row["ctx"],
        "choices": "\n".join(f"{letter}: {text}" for letter, text in options.items()),
        "options": [{letter: text} for letter, text in options.items()],
        "expected_answer": "ABCD"[["0", "1", "2", "3"].index(str(row["label"]))],
        "activity_label": row["activity_label"],
        "source_id": row["source_id"],
        "env": "mcqa",
        "grading_mode": "last_answer_colon",
    }
