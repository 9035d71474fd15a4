"""The syntax tree of an expression, of which only what is meant to be there is left in."""

from __future__ import annotations

import ast
from typing import NamedTuple

from gymcli.errors import FilterError
from gymcli.filters.operations import FUNCTIONS, OPERATORS
from gymcli.filters.tokens import name_of, python_text, refused

__all__ = ["Expression", "parse"]

_MAX_DEPTH = 60
"""Each level of an expression takes a few frames of the interpreter's stack."""
_CONSTANTS = {"true": "True", "false": "False", "null": "None", "none": "None"}


class Expression(NamedTuple):
    """An expression that was read."""

    tree: ast.expr
    names: dict[str, int]
    """By the names that it reads, where each stands first, counted from 0."""


def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        FilterError: It is none; the message names the place.

    """
    written = python_text(text)
    start = len(written) - len(written.lstrip())
    try:
        tree = ast.parse(written[start:], mode="eval").body
    except SyntaxError as error:
        if not error.offset:
            raise refused(text, len(text), "something is missing here") from error
        raise refused(text, start + error.offset - 1, f"cannot be read: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise refused(text, start, "cannot be read, or is nested too deeply") from error
    reader = _Reader(text, written[start:], start)
    return Expression(reader.read(tree, 0), reader.names)


class _Reader:
    """Builds the tree anew from what is allowed, each name of it one node."""

    def __init__(self, text: str, written: str, start: int) -> None:
        self.names: dict[str, int] = {}
        self._text = text
        self._written = written.encode()
        self._start = start

    def read(self, node: ast.expr, depth: int) -> ast.expr:
        """Give a node and all below it.

        Raises:
            FilterError: One of them is not allowed.

        """
        if depth > _MAX_DEPTH:
            raise self._refused(node, "is nested too deeply")
        below = depth + 1
        match node:
            case ast.BoolOp():
                return ast.BoolOp(node.op, [self.read(value, below) for value in node.values])
            case ast.UnaryOp() if type(node.op) in OPERATORS:
                return ast.UnaryOp(node.op, self.read(node.operand, below))
            case ast.BinOp() if type(node.op) in OPERATORS:
                return ast.BinOp(self.read(node.left, below), node.op, self.read(node.right, below))
            case ast.Compare():
                return self._comparison(node, below)
            case ast.Call():
                return self._call(node, below)
            case ast.Tuple() | ast.List():
                return ast.List([self.read(element, below) for element in node.elts], ast.Load())
            case ast.Constant(value=None | bool() | int() | float() | str()):
                return node
        return self._name(node)

    def _comparison(self, node: ast.Compare, below: int) -> ast.expr:
        values = [node.left, *node.comparators]
        for place, sign in enumerate(node.ops):
            has_none = any(_is_none(value) for value in values[place : place + 2])
            if isinstance(sign, ast.Is | ast.IsNot):
                if not _is_none(values[place + 1]):
                    raise self._refused(values[place + 1], "after is only None stands; write ==")
            elif has_none:
                instead = "is not None" if isinstance(sign, ast.NotEq) else "is None"
                reason = f"nothing compares with None; write {instead}"
                raise self._refused(values[place], reason)
        left, *others = (self.read(value, below) for value in values)
        return ast.Compare(left, node.ops, others)

    def _call(self, node: ast.Call, below: int) -> ast.expr:
        name = name_of(node.func.id) if isinstance(node.func, ast.Name) else None
        function = FUNCTIONS.get(name) if name is not None else None
        if function is None or name is None:
            known = ", ".join(FUNCTIONS)
            raise self._refused(node, f"there is no such function; there are {known}")
        if node.keywords or len(node.args) != function.num_arguments:
            raise self._refused(node, f"{name} takes {function.num_arguments} values")
        arguments = [self.read(argument, below) for argument in node.args]
        return ast.Call(ast.Name(name, ast.Load()), arguments, [])

    def _name(self, node: ast.expr) -> ast.expr:
        name = _path(node)
        if name is None:
            raise self._refused(node, "cannot stand in an expression")
        if name in _CONSTANTS:
            raise self._refused(node, f"write {_CONSTANTS[name]}")
        if name in FUNCTIONS:
            raise self._refused(node, f"{name} is a function; write {name}(…)")
        self.names.setdefault(name, self._place(node))
        return ast.Name(name, ast.Load())

    def _place(self, node: ast.expr) -> int:
        """Give where a node stands in the text, in characters."""
        return self._start + len(self._written[: node.col_offset].decode(errors="ignore"))

    def _refused(self, node: ast.expr, reason: str) -> FilterError:
        return refused(self._text, self._place(node), reason)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _path(node: ast.expr) -> str | None:
    """Give the name that a node is: `task.category`, also as `task["category"]`."""
    parts: list[str] = []
    while True:
        match node:
            case ast.Name():
                return ".".join([name_of(node.id), *reversed(parts)])
            case ast.Attribute():
                parts.append(name_of(node.attr))
                node = node.value
            case ast.Subscript(slice=ast.Constant(value=str() as part)):
                parts.append(part)
                node = node.value
            case ast.Subscript(slice=ast.Constant(value=int() as place)) if place >= 0:
                parts.append(str(place))
                node = node.value
            case _:
                return None
