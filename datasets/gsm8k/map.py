"""Makes tasks of the rows of GSM8K."""

from collections.abc import Mapping

from gymcli import JSONObject


def task(row: Mapping[str, str]) -> JSONObject:
    """Return the task of a problem; its answer follows the last "####" of the solution."""
    _, _, answer = row["answer"].rpartition("####")
    return {"question": row["question"], "expected_answer": answer.strip()}
