"""Stands in for `eval` and `print` in the library, so that no answer is run and stdout stays clean.

Some scorers of reasoning-gym evaluate the model's answer as Python: lists of a grid's rows, and
terms through sympy's parser. Three also do so with the row's own metadata: bitwise_arithmetic,
simple_integration and intermediate_integration. Some generators print how far they are.
"""

import ast
import builtins
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType

__all__ = ["evaluate", "guarded", "silenced"]

NODES = (
    ast.Expression,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Call,
    ast.Name,
    ast.Load,
)
"""What may stand in an answer: values, lists, operators, and calls of `NAMES`."""

TERMS = "Symbol Integer Float Rational factorial factorial2 sqrt cbrt exp log ln abs Abs pi E I erf"
TERMS += " sin cos tan sec csc cot asin acos atan asec acsc acot"
TERMS += " sinh cosh tanh sech csch coth asinh acosh atanh"
NAMES = frozenset(TERMS.split())
"""Functions and numbers that an answer may name."""


def guarded(more_names: frozenset[str] = frozenset()) -> AbstractContextManager[None]:
    """Have the modules of the library, and sympy's parser, evaluate nothing but terms and lists.

    Terms may have the functions of `NAMES` and those of `more_names`.
    """
    return _replaced("eval", functools.partial(evaluate, names=NAMES | more_names))


def silenced() -> AbstractContextManager[None]:
    """Have the modules of the library print nothing; sys.stdout is that of all threads."""
    return _replaced("print", _print_nothing)


def evaluate(
    source: str,
    global_names: dict[str, object] | None = None,
    local_names: Mapping[str, object] | None = None,
    *,
    names: frozenset[str] = NAMES,
) -> object:
    """Evaluate a term or a list as `eval` does.

    Raises:
        ValueError: There is anything else in it, or it is nested too deeply.

    """
    local_names = local_names or {}
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except (MemoryError, RecursionError) as error:
        raise ValueError("it is nested too deeply") from error
    for node in ast.walk(tree):
        is_known = not isinstance(node, ast.Name) or node.id in names or node.id in local_names
        is_plain = not isinstance(node, ast.Call) or (
            isinstance(node.func, ast.Name) and not node.keywords
        )
        if not (isinstance(node, NODES) and is_known and is_plain):
            raise ValueError(f"no term and no list: {source!r:.200}")
    known = {"__builtins__": {}} if global_names is None else global_names
    code = compile(tree, "<answer>", "eval")
    return builtins.eval(code, known, local_names)  # noqa: S307  # nothing else is in it


@contextmanager
def _replaced(name: str, function: Callable[..., object]) -> Iterator[None]:
    """Put a function in the place of a builtin, in the modules of the library alone."""
    modules = [module for path, module in [*sys.modules.items()] if _is_foreign(path, module)]
    for module in modules:
        vars(module)[name] = function
    try:
        yield
    finally:
        for module in modules:  # a thread that could not be ended may have been quicker
            vars(module).pop(name, None)


def _print_nothing(*values: object, **options: object) -> None:
    """Take what `print` does."""


def _is_foreign(path: str, module: ModuleType | None) -> bool:
    is_named = path.startswith("reasoning_gym.") or path == "sympy.parsing.sympy_parser"
    return is_named and module is not None
