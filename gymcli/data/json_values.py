"""Values of tables as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal

from gymcli.types import JSON

__all__ = ["is_same", "json_value"]


def json_value(value: object, column: str) -> JSON:
    """Give a value as JSON has it.

    Dates and times become ISO 8601 text, decimals text, NaN null; numpy's scalars and arrays what
    they hold.

    Raises:
        ValueError: It has no such form (bytes, an infinity); the text names the column.

    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f'column "{column}" holds {value}, which JSON has not')
        return None if math.isnan(value) else float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(item, f"{column}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, column) for item in value]
    if callable(to_list := getattr(value, "tolist", None)):  # numpy's
        return json_value(to_list(), column)
    kind = type(value).__name__
    raise ValueError(f'column "{column}" holds {kind}, which JSON has not')


def is_same(one: JSON, other: JSON) -> bool:
    """Say whether two values are the same in JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
