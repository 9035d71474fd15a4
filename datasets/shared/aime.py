"""Makes tasks of the rows of a year of AIME."""

from collections.abc import Mapping

from gymcli import JSONObject


def task(row: Mapping[str, object]) -> JSONObject:
    """Return the task of a problem, whose id and answer the sources write as numbers or texts."""
    columns = {name.lower(): str(value) for name, value in row.items()}
    return {
        "id": columns["id"],
        "question": columns["problem"],
        "expected_answer": columns["answer"],
    }
