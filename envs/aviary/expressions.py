"""Works out arithmetic that is written as text, and lets nothing else pass."""

import ast
import math
import operator
import re
from collections.abc import Callable

__all__ = ["MAX_CHARACTERS", "evaluate", "number_text"]

MAX_CHARACTERS = 200

_ALLOWED = re.compile(r"[0-9.eE+\-*/%() \t]*")
"""With no other letter there are neither names nor strings, of which Python's parser may warn."""


def _power(base: float, exponent: float) -> float:
    value = base**exponent
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
    """Work out an expression of numbers, `+ - * / // % **` and parentheses.

    All is done in floats: there a power cannot take long, however large.

    Raises:
        ValueError: It is no such expression, too long, or has no finite value.

    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_CHARACTERS} characters")
    if not _ALLOWED.fullmatch(text):
        raise ValueError("it has other things than numbers, + - * / // % ** and parentheses")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"it is not well formed: {error.msg}") from error
    except ZeroDivisionError as error:
        raise ValueError("it divides by zero") from error
    except OverflowError as error:
        raise ValueError("a value in it is too large") from error


def number_text(value: float) -> str:
    """Write a number as a pocket calculator does: 15 digits, no zeros at the end."""
    return f"{value + 0.0:.15g}"  # adding 0.0 turns -0.0 into 0.0


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
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
