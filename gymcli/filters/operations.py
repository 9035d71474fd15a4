"""What an expression can do with values: compare, calculate, call a few functions.

Nothing is known of None: comparing it is False, and calculating with it gives None. The work of
each operation is bounded by the size of its values: there are numbers with a fraction from a power
on, and text does not grow.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import UserString
from collections.abc import Callable, Mapping
from typing import NamedTuple

__all__ = ["FUNCTIONS", "OPERATORS", "Function", "UnfitError"]


class UnfitError(Exception):
    """Raised when values do not fit what is done with them; the text says how."""


def _kind(value: object) -> str:
    """Name a value's kind as people do."""
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str | UserString):
        return "text"
    return "an object" if isinstance(value, dict) else "a list"


def _compared(sign: str, compare: Callable[..., object]) -> Callable[[object, object], bool]:
    def compared(left: object, right: object) -> bool:
        if left is None or right is None:
            return False
        try:
            return bool(compare(left, right))
        except TypeError as error:
            kinds = f"{_kind(left)} and {_kind(right)}"
            raise UnfitError(f'"{sign}" cannot compare {kinds}') from error

    return compared


def _contained(container: object, part: object) -> bool:
    wanted = str(part) if isinstance(part, UserString) else part
    return wanted in container  # type: ignore[operator]  # a TypeError is told


def _calculated(
    sign: str, calculate: Callable[[float, float], object]
) -> Callable[[object, object], float | None]:
    def calculated(left: object, right: object) -> float | None:
        if left is None or right is None:
            return None
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise UnfitError(f'"{sign}" cannot take {_kind(left)} and {_kind(right)}')
        try:
            value = calculate(left, right)
            # The root of -1 is complex; of a whole number beyond all others `isnan` says so.
            return value if isinstance(value, int | float) and not math.isnan(value) else None
        except ArithmeticError:  # divided by 0, or too large
            return None

    return calculated


def _power(base: float, exponent: float) -> object:
    return float(base) ** float(exponent)


def _signed(sign: str, change: Callable[[float], float]) -> Callable[[object], float | None]:
    def signed(value: object) -> float | None:
        if value is None:
            return None
        if not isinstance(value, int | float):
            raise UnfitError(f'"{sign}" cannot take {_kind(value)}')
        return change(value)

    return signed


OPERATORS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.Eq: _compared("==", operator.eq),
    ast.NotEq: _compared("!=", operator.ne),
    ast.Lt: _compared("<", operator.lt),
    ast.LtE: _compared("<=", operator.le),
    ast.Gt: _compared(">", operator.gt),
    ast.GtE: _compared(">=", operator.ge),
    ast.In: _compared("in", lambda part, container: _contained(container, part)),
    ast.NotIn: _compared("not in", lambda part, container: not _contained(container, part)),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Add: _calculated("+", operator.add),
    ast.Sub: _calculated("-", operator.sub),
    ast.Mult: _calculated("*", operator.mul),
    ast.Div: _calculated("/", operator.truediv),
    ast.FloorDiv: _calculated("//", operator.floordiv),
    ast.Mod: _calculated("%", operator.mod),
    ast.Pow: _calculated("**", _power),
    ast.USub: _signed("-", operator.neg),
    ast.UAdd: _signed("+", operator.pos),
    ast.Not: operator.not_,
}
"""By the node of Python's syntax tree."""


def _starts(text: object, start: object) -> bool:
    if text is None or start is None:
        return False
    return _text("startswith", text).startswith(_text("startswith", start))


def _ends(text: object, end: object) -> bool:
    if text is None or end is None:
        return False
    return _text("endswith", text).endswith(_text("endswith", end))


def _lower(text: object) -> str | UserString | None:
    if text is None:
        return None
    if not isinstance(text, str | UserString):
        raise UnfitError(f"lower() cannot take {_kind(text)}")
    return text.lower()


def _text(function: str, value: object) -> str:
    if not isinstance(value, str | UserString):
        raise UnfitError(f"{function}() cannot take {_kind(value)}")
    return str(value)


def _length(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str | UserString | list | tuple | dict):
        raise UnfitError(f"len() cannot take {_kind(value)}")
    return len(value)


def _absolute(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise UnfitError(f"abs() cannot take {_kind(value)}")
    return abs(value)


def _rounded(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise UnfitError(f"round() cannot take {_kind(value)}")
    return round(value) if isinstance(value, int) or math.isfinite(value) else None


class Function(NamedTuple):
    """A function that an expression can call."""

    call: Callable[..., object]
    num_arguments: int


FUNCTIONS: Mapping[str, Function] = {
    "contains": Function(_compared("contains", _contained), 2),
    "startswith": Function(_starts, 2),
    "endswith": Function(_ends, 2),
    "lower": Function(_lower, 1),
    "len": Function(_length, 1),
    "abs": Function(_absolute, 1),
    "round": Function(_rounded, 1),
}
