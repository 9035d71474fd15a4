"""Evaluates arithmetic expressions and refuses all other text."""

import ast
import math
import operator
import re
from collections.abc import Callable

__all__ = ["MAX_CHARACTERS", "evaluate", "number_text"]

MAX_CHARACTERS = 200
"""The limit on length also bounds how deeply an expression nests."""

_ALLOWED = re.compile(r"[0-9.eE+\-*/%() \t]*")
"""The only letters are the exponent's; words and strings could make Python's parser warn."""


def _power(base: float, exponent: float) -> float:
    value = base**exponent
    # Python's result for a fractional power of a negative number.
    if isinstance(value, complex):
        raise ValueError("a power in it has no real value")
    return float(value)


_SIGNS: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def evaluate(text: str) -> float:
    """Evaluate an expression of numbers, `+ - * / // % **` and parentheses.

    Raises:
        ValueError: The text is not such an expression, is too long, or has no finite value.

    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_CHARACTERS} characters")
    if not _ALLOWED.fullmatch(text):
        raise ValueError("it has other things than numbers, + - * / // % ** and parentheses")
    try:
        # Stripped, since Python refuses an expression that is indented.
        return _value(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"it is not well formed: {error.msg}") from error
    except ZeroDivisionError as error:
        raise ValueError("it divides by zero") from error
    except OverflowError as error:
        raise ValueError("a value in it is too large") from error


def number_text(value: float) -> str:
    """Write a number as a pocket calculator does: up to 15 digits, no trailing zeros."""
    return f"{value + 0.0:.15g}"  # adding 0.0 turns -0.0 into 0.0


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            # In floats even a huge power is fast; in integers it could take minutes.
            value = float(number)
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            value = _SIGNS[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            value = _OPERATORS[type(operation)](_value(left), _value(right))
        case _:
            raise ValueError("it has other things than numbers and operators")
    if not math.isfinite(value):
        raise ValueError("a value in it is too large")
    return value
