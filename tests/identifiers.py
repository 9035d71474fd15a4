"""Lists the identifiers of gymcli that name nothing: `python -m tests.identifiers`, in `make lint`.

A name such as `found` or `given` says what happened to a thing, not what it is. The banned names
are in pyproject.toml under `tool.gymcli.identifiers`. A line may have an exception with its reason:
`what: str  # noqa: GYM001  # a key of the JSON output`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_EXCEPTION = re.compile(r"# noqa: (?:[A-Z0-9]+, *)*GYM001\b.*  # \S")


def identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what a module assigns, in any scope: the line, and the name of a variable or field."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=str(name), ctx=ast.Store()) | ast.arg(arg=str(name)):
                yield node.lineno, name
            case ast.Attribute(attr=str(name), ctx=ast.Store()):
                yield node.end_lineno or node.lineno, name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                yield node.lineno, name


def problems(source: str, banned: Collection[str], prefixes: tuple[str, ...]) -> list[str]:
    """Return what is wrong with the names of a module, each as `LINE: problem`, by line."""
    lines = source.splitlines()
    names = sorted(set(identifiers(ast.parse(source))))
    return [
        f"{line}: GYM001 {name} names nothing; say what it holds, as in task or first_error"
        for line, name in names
        if (name.strip("_") in banned or name.lstrip("_").startswith(prefixes))
        and not _EXCEPTION.search(lines[line - 1])
    ]


def main(root: Path = _ROOT) -> int:
    """Print every problem of the package below `root`; return 1 if there are any."""
    config = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["gymcli"]["identifiers"]
    banned, prefixes = frozenset(config["banned"]), tuple(config["banned-prefixes"])
    has_problems = False
    for path in sorted((root / "gymcli").rglob("*.py")):
        for problem in problems(path.read_text(), banned, prefixes):
            print(f"{path.relative_to(root)}:{problem}")
            has_problems = True
    return int(has_problems)


if __name__ == "__main__":
    sys.exit(main())
