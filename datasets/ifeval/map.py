"""Makes tasks of the rows of IFEval."""

from collections.abc import Mapping
from typing import Any

from gymcli import JSONObject


def task(row: Mapping[str, Any]) -> JSONObject:
    """Return the task of a prompt and its instructions."""
    return {
        "id": str(row["key"]),
        "prompt": row["prompt"],
        "instruction_id_list": row["instruction_id_list"],
        "kwargs": row["kwargs"],
        "grading_mode": "binary",
    }
