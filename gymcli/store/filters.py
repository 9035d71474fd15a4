"""Filters: expressions such as `0 < avg < 1 and stop_reason == "length"` over named values.

Python's parser parses an expression, this module admits only words and nodes of the grammar in
docs/filters.md, and simpleeval evaluates it with the operators below. None stands for an unknown
value: comparisons with it are False, and calculations return None. The cost of an expression is
bounded: it is short, text does not grow, powers are floats, and a number beyond the largest float
is None.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import UserString
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from simpleeval import EvalWithCompoundTypes, NameNotDefined

from gymcli.errors import FilterError
from gymcli.suggestions import did_you_mean

MAX_CHARACTERS = 2000
"""The longest expression, since the cost grows with the length."""
_NUMBER = (int, float)
_TEXT = (str, UserString)


class _UnfitError(Exception):
    """Raised when an operator or a function cannot take its values; the text names both."""


def _kinds(values: tuple[object, ...]) -> str:
    names = ((bool, "a truth value"), (_NUMBER, "a number"), (_TEXT, "text"), (dict, "an object"))
    return " and ".join(
        next((name for kind, name in names if isinstance(value, kind)), "a list")
        for value in values
    )


def _comparison(sign: str, compare: Callable[..., object]) -> Callable[..., bool]:
    def compared(left: object, right: object) -> bool:
        if left is None or right is None:
            return False
        try:
            return bool(compare(left, right))
        except TypeError as error:
            raise _UnfitError(f"{sign} cannot compare {_kinds((left, right))}") from error

    return compared


def _calculation(
    sign: str, calculate: Callable[..., object], kind: tuple[type, ...] = _NUMBER
) -> Callable[..., object]:
    def calculated(*values: object) -> object:
        if any(value is None for value in values):
            return None
        if not all(isinstance(value, kind) for value in values):
            raise _UnfitError(f"{sign} cannot take {_kinds(values)}")
        try:
            return calculate(*values)
        except (ArithmeticError, ValueError):  # divided by 0, too large, or infinity rounded
            return None

    return calculated


def _arithmetic(sign: str, calculate: Callable[..., object]) -> Callable[..., object]:
    def number(left: float, right: float) -> float | None:
        value = calculate(left, right)
        # The root of -1 is complex. `isnan` raises OverflowError for an int beyond every float.
        return value if isinstance(value, int | float) and not math.isnan(value) else None

    return _calculation(sign, number)


def _contains(container: object, part: object) -> bool:
    # Conversations are `LazyText`, a UserString, which `in` of a str refuses.
    text = str(part) if isinstance(part, UserString) else part
    return text in container  # type: ignore[operator]  # a TypeError becomes a message


OPERATORS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.Eq: _comparison('"=="', operator.eq),
    ast.NotEq: _comparison('"!="', operator.ne),
    ast.Lt: _comparison('"<"', operator.lt),
    ast.LtE: _comparison('"<="', operator.le),
    ast.Gt: _comparison('">"', operator.gt),
    ast.GtE: _comparison('">="', operator.ge),
    ast.In: _comparison('"in"', lambda part, container: _contains(container, part)),
    ast.NotIn: _comparison('"not in"', lambda part, container: not _contains(container, part)),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Add: _arithmetic('"+"', operator.add),
    ast.Sub: _arithmetic('"-"', operator.sub),
    ast.Mult: _arithmetic('"*"', operator.mul),
    ast.Div: _arithmetic('"/"', operator.truediv),
    ast.FloorDiv: _arithmetic('"//"', operator.floordiv),
    ast.Mod: _arithmetic('"%"', operator.mod),
    # Floats overflow to None; integers would compute all digits of 9 ** 9 ** 9.
    ast.Pow: _arithmetic('"**"', lambda base, power: float(base) ** float(power)),
    ast.USub: _calculation('"-"', operator.neg),
    ast.UAdd: _calculation('"+"', operator.pos),
    ast.Not: operator.not_,
}
"""By the node of Python's syntax tree."""


class _Function(NamedTuple):
    call: Callable[..., object]
    num_arguments: int


def _text_test(name: str, test: Callable[[str, str], bool]) -> _Function:
    call = _calculation(name, lambda text, part: test(str(text), str(part)), _TEXT)
    return _Function(lambda text, part: bool(call(text, part)), 2)


FUNCTIONS: Mapping[str, _Function] = {
    "contains": _Function(_comparison('"contains"', _contains), 2),
    "startswith": _text_test("startswith()", str.startswith),
    "endswith": _text_test("endswith()", str.endswith),
    "lower": _Function(_calculation("lower()", operator.methodcaller("lower"), _TEXT), 1),
    "len": _Function(_calculation("len()", len, (*_TEXT, list, tuple, dict)), 1),
    "abs": _Function(_calculation("abs()", abs), 1),
    "round": _Function(_calculation("round()", round), 1),
}


def parse_filter(text: str) -> Filter:
    """Parse an expression: comparisons, `and`, `or`, `not`, `in`, arithmetic and a few functions.

    Raise FilterError, with the position in the text, if it is not an expression.
    """
    return Filter(text, parse_expression(text))


class Filter:
    """A condition on a record; not thread-safe."""

    def __init__(self, text: str, expression: Expression) -> None:
        self.text = text
        self.names = frozenset(expression.names)
        """The names that it uses; names of fields are dotted."""
        self._expression = expression
        self._evaluator = EvalWithCompoundTypes(operators=dict(OPERATORS), names={})
        # Assigned afterwards, since the constructor adds list, tuple, dict and set.
        self._evaluator.functions = {name: function.call for name, function in FUNCTIONS.items()}

    def check(self, names: Collection[str], open_names: Collection[str] = ()) -> None:
        """Raise FilterError, suggesting a similar name, if a name is not known.

        Known are `names`, and dotted names whose first part is in `open_names`.
        """
        for name in self._expression.names:
            first, _, field = name.partition(".")
            if name not in names and not (field and first in open_names):
                raise self._unknown(name, names, open_names)

    def matches(self, names: Mapping[str, object]) -> bool:
        """Return whether the expression holds for the values of a record, None for missing ones.

        Raise FilterError if a name does not exist or an operator cannot take a value.
        """
        self._evaluator.names = names
        try:
            return bool(self._evaluator.eval(self.text, self._expression.tree))
        except _UnfitError as error:
            raise _error(self.text, None, str(error)) from error
        except NameNotDefined as error:
            raise self._unknown(error.name, names) from error
        except RecursionError as error:
            raise _error(self.text, None, "compares values that are nested too deeply") from error
        finally:
            self._evaluator.names = {}  # a record may hold a whole conversation

    def _unknown(
        self, name: str, names: Collection[str], open_names: Collection[str] = ()
    ) -> FilterError:
        place = self._expression.names[name]
        if name in open_names:
            hint = f"write {name}.FIELD"
        elif self.text[:place].rstrip().endswith(("==", "!=")):
            hint = f'write "{name}" for a text'
        else:
            forms = [*sorted(names), *(f"{first}.FIELD" for first in sorted(open_names))]
            hint = did_you_mean(name, names) or f"there are {', '.join(forms)}"
        return _error(self.text, place, f'there is no name "{name}"; {hint}')


class Expression(NamedTuple):
    """A parsed expression that contains only what the grammar allows."""

    tree: ast.expr
    """Each name of the expression is one `ast.Name`, dots, `@` and `^` included."""
    names: dict[str, int]
    """The position of the first use of each name, counted from 0."""


def parse_expression(text: str) -> Expression:
    """Parse an expression, for a gate too; raise FilterError with the position of the mistake."""
    written = _python_text(text)
    # Python refuses leading blanks as an indentation.
    start = len(written) - len(written.lstrip())
    try:
        tree = ast.parse(written[start:], mode="eval").body
    except SyntaxError as error:
        if percent := _PERCENT.search(text):
            share = f"{float(percent[1]) / 100:g}"
            raise _error(text, percent.start(), f"write {share} for {percent[0]}") from error
        without_texts = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
        if word := _FOREIGN_WORD.search(without_texts):
            hint = _FOREIGN_WORDS[word[0].casefold()]
            raise _error(text, word.start(), hint) from error
        if not error.offset:
            raise _error(text, len(text), "a value is missing here") from error
        raise _error(text, start + error.offset - 1, f"cannot be read: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _error(text, start, "cannot be read, or is nested too deeply") from error
    reader = _TreeReader(text, written[start:], start)
    return Expression(reader.read(tree, 0), reader.names)


# A name may have a keyword after a dot (`task.class`), or a sign that is an operator in Python
# (`pass@1`, `pass^4`). For Python's parser each of these signs becomes the letter of a click
# consonant, which is valid in names and which no expression may contain. One character replaces
# one, so positions stay the same.
_SIGNS = {".": "\u01c0", "@": "\u01c1", "^": "\u01c2"}
_AS_LETTERS = str.maketrans(_SIGNS)
_AS_SIGNS = str.maketrans({letter: sign for sign, letter in _SIGNS.items()})

_WORD = re.compile(
    r"""(?P<space>\s+)
    | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    | (?P<name>[^\W\d]\w*(?:\.\w+)*(?:[@^][0-9]+)?)
    | (?P<sign>==|!=|<=|>=|\*\*|//|[-+*/%<>()\[\],.])""",
    re.VERBOSE,
)
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)[ ]?%(?=\s*(?:$|[)<>=!]|and\b|or\b))")
_ESCAPE = re.compile(r"""\\(?:[\\'"nrt]|u[0-9a-fA-F]{4})""")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_FOREIGN_WORD = re.compile(r"\b(?:AND|OR|NOT|IN)\b|<>|\b(?i:like|contains|matches)\b(?!\s*\()")
"""Words of SQL and other languages that are not in the grammar."""
_FOREIGN_WORDS = {
    **{word: f"write {word}" for word in ("and", "or", "not", "in")},
    "<>": "write != to compare",
    **dict.fromkeys(("like", "contains", "matches"), "write 'TEXT' in NAME"),
}
_HINTS = {
    "=>": "write >= to compare",
    "=<": "write <= to compare",
    "=": "write == to compare",
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "'": "the quote is not closed",
    '"': "the quote is not closed",
}


def _python_text(text: str) -> str:
    """Return the text of an expression for Python's parser, of the same length."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(
            f"the expression has {len(text)} characters; the maximum is {MAX_CHARACTERS}"
        )
    if not text.strip():
        raise FilterError('the expression is empty; write one such as "reward < 1"')
    words, place = [], 0
    while place < len(text):
        match = _WORD.match(text, place)
        sign = text[place]
        if match is None or any(letter in match[0] for letter in _SIGNS.values()):
            problem = "is not a number" if sign.isdigit() else f"{sign!r} has no meaning here"
            hint = _HINTS.get(text[place : place + 2]) or _HINTS.get(sign, problem)
            raise _error(text, place, hint)
        word = match[0]
        if match.lastgroup == "space":
            word = " " * len(word)  # to Python, a line break would end the expression
        elif match.lastgroup == "name":
            word = word.translate(_AS_LETTERS)
        elif match.lastgroup == "text" and "\\" in _ESCAPE.sub("", word):
            raise _error(text, place, r"write \\ for a \ in quotes")
        words.append(word)
        place = match.end()
    return "".join(words)


_MAX_DEPTH = 60
"""The deepest nesting: each level takes a few frames of the interpreter's stack."""


class _TreeReader:
    """Copies a syntax tree, refusing nodes outside the grammar; a dotted name becomes one node."""

    def __init__(self, text: str, written: str, start: int) -> None:
        self.names: dict[str, int] = {}
        self._text = text
        self._written = written.encode()
        self._start = start

    def read(self, node: ast.expr, depth: int) -> ast.expr:
        if depth > _MAX_DEPTH:
            raise self._error(node, "is nested too deeply")
        below = depth + 1
        match node:
            case ast.BoolOp():
                return ast.BoolOp(node.op, [self.read(value, below) for value in node.values])
            case ast.UnaryOp():
                return ast.UnaryOp(node.op, self.read(node.operand, below))
            case ast.BinOp() if type(node.op) in OPERATORS:
                return ast.BinOp(self.read(node.left, below), node.op, self.read(node.right, below))
            case ast.Compare():
                self._check_none(node)
                sides = [self.read(side, below) for side in (node.left, *node.comparators)]
                return ast.Compare(sides[0], node.ops, sides[1:])
            case ast.Call():
                name = self._called(node)
                arguments = [self.read(argument, below) for argument in node.args]
                return ast.Call(ast.Name(name, ast.Load()), arguments, [])
            case ast.Tuple() | ast.List():
                return ast.List([self.read(element, below) for element in node.elts], ast.Load())
            # Not `...`, bytes or complex numbers, which are constants, too.
            case ast.Constant(value=None | bool() | int() | float() | str()):
                return node
        return self._name(node)

    def _check_none(self, node: ast.Compare) -> None:
        """Refuse `== None`, which would always be False, and `is` with anything but None."""
        sides = [node.left, *node.comparators]
        for left, sign, right in zip(sides, node.ops, node.comparators, strict=False):
            if isinstance(sign, ast.Is | ast.IsNot):
                if not _is_none(right):
                    raise self._error(right, 'only None can follow "is"; write ==')
            elif _is_none(left) or _is_none(right):
                instead = "is not None" if isinstance(sign, ast.NotEq) else "is None"
                raise self._error(left, f"a comparison with None is never true; write {instead}")

    def _called(self, node: ast.Call) -> str:
        name = node.func.id.translate(_AS_SIGNS) if isinstance(node.func, ast.Name) else ""
        function = FUNCTIONS.get(name)
        if function is None:
            names = ", ".join(FUNCTIONS)
            raise self._error(node, f"no such function; the functions are {names}")
        if node.keywords or len(node.args) != function.num_arguments:
            plural = "" if function.num_arguments == 1 else "s"
            raise self._error(node, f"{name} takes {function.num_arguments} value{plural}")
        return name

    def _name(self, node: ast.expr) -> ast.expr:
        name = _path(node)
        if name is None:
            raise self._error(node, "is not allowed in an expression")
        if name in ("true", "false", "null", "none"):
            written = "None" if name == "null" else name.capitalize()
            raise self._error(node, f"write {written}")
        if name in FUNCTIONS:
            raise self._error(node, f"{name} is a function; write {name}(…)")
        self.names.setdefault(name, self._place(node))
        return ast.Name(name, ast.Load())

    def _place(self, node: ast.expr) -> int:
        # Python counts columns in bytes of UTF-8, messages count characters.
        return self._start + len(self._written[: node.col_offset].decode(errors="ignore"))

    def _error(self, node: ast.expr, reason: str) -> FilterError:
        return _error(self._text, self._place(node), reason)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _path(node: ast.expr) -> str | None:
    """Return the dotted name that a node spells, `task.category` or `task["category"]`."""
    parts: list[str] = []
    while True:
        match node:
            case ast.Name():
                return ".".join([node.id.translate(_AS_SIGNS), *reversed(parts)])
            case ast.Attribute():
                parts.append(node.attr.translate(_AS_SIGNS))
                node = node.value
            case ast.Subscript(slice=ast.Constant(value=str() as part)):
                parts.append(part)
                node = node.value
            case ast.Subscript(slice=ast.Constant(value=int() as place)) if place >= 0:
                parts.append(str(place))
                node = node.value
            case _:
                return None


def _error(text: str, place: int | None, reason: str) -> FilterError:
    """Return the error for an expression; `place` counts characters from 0."""
    excerpt = text if len(text) <= 80 else f"{text[:79]}…"
    where = "" if place is None else f", character {place + 1}"
    return FilterError(f"filter {excerpt!r}{where}: {reason}")
