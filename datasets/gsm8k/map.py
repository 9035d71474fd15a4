"""Makes tasks of the rows of GSM8K."""

from collections.abc import Mapping

from gymcli import JSONObject


def task(row: Mapping[str, str]) -> JSONObject:
    """Return the task of a problem; its answer follows the last "####" of the solution."""
    _, marker, answer = row["answer"].rpartition("####")
    if not marker:
        raise ValueError('the solution has no "####" before its answer')
    return {"question": row["question"], "expected_answer": answer.strip()}
