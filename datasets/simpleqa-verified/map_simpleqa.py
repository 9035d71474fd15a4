"""Makes tasks of the rows of SimpleQA Verified."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a question."""
    return {
        "id": str(row["original_index"]),
        "question": row["problem"],
        "expected_answer": row["answer"],
        "topic": row["topic"],
        "answer_type": row["answer_type"],
    }
