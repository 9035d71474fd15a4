"""Stands in for `eval` while the library scores, so that no answer is run as a program.

Some scorers of reasoning-gym evaluate the model's answer as Python: lists of a grid's rows, and
terms through sympy's parser. So does one with the row's own metadata.
"""

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

__all__ = ["evaluate", "guarded"]

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
TERMS += " Integral"  # some gold answers of intermediate_integration have one
TERMS += " sin cos tan sec csc cot asin acos atan asec acsc acot"
TERMS += " sinh cosh tanh sech csch coth asinh acosh atanh"
NAMES = frozenset(TERMS.split())
"""Functions and numbers that an answer may name."""


@contextmanager
def guarded() -> Iterator[None]:
    """Have the modules of the library, and sympy's parser, evaluate nothing but terms and lists."""
    modules = [module for name, module in [*sys.modules.items()] if _is_foreign(name, module)]
    for module in modules:
        vars(module)["eval"] = evaluate
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["eval"]


def evaluate(
    source: str,
    global_names: dict[str, object] | None = None,
    local_names: Mapping[str, object] | None = None,
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
        is_known = not isinstance(node, ast.Name) or node.id in NAMES or node.id in local_names
        is_plain = not isinstance(node, ast.Call) or (
            isinstance(node.func, ast.Name) and not node.keywords
        )
        if not (isinstance(node, NODES) and is_known and is_plain):
            raise ValueError(f"no term and no list: {source!r:.200}")
    names = {"__builtins__": {}} if global_names is None else global_names
    code = compile(tree, "<answer>", "eval")
    return builtins.eval(code, names, local_names)  # noqa: S307  # nothing else is in it


def _is_foreign(name: str, module: ModuleType | None) -> bool:
    is_named = name.startswith("reasoning_gym.") or name == "sympy.parsing.sympy_parser"
    return is_named and module is not None
