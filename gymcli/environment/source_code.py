"""The source code of an environment: its files, and their hash in the records of a run.

A class of `FILE.py` also consists of what the file imports from its folder; that of a package of
all files of the package.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

FILE_MODULE_PREFIX = "gymcli_file_"
"""Prefix for the names of modules that were loaded from a file; no import finds them."""


# Left out, since they cannot affect scores: comments, layout, docstrings other than tools', and
# `generate`.
@functools.cache  # a worker asks for it with every score, and to parse 1 kB takes a millisecond
def source_hash(module: ModuleType) -> str:
    """Return the hash of a module's code; empty if it has no file."""
    # A notebook's module has no file.
    path = Path(getattr(module, "__file__", None) or "")
    if not path.name:
        return ""
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    if module.__name__.startswith(FILE_MODULE_PREFIX):
        files += imported_files(path)
    total = hashlib.sha256()
    for file in files:
        name = file.relative_to(path.parent).as_posix()
        code = file.read_bytes()
        with suppress(SyntaxError, ValueError, RecursionError):  # no code that anything imports
            code = repr(_code(ast.parse(code))).encode()
        total.update(name.encode() + b"\0" + code)
    return f"code-{total.hexdigest()[:16]}"


def imported_files(path: Path) -> list[Path]:
    """Return the files in the folder of a file that it imports, itself or through one of them.

    The folder must be in `sys.path`. What only a computed name imports is not seen.

    Raises:
        ImportError: One of them has the name of a module of another environment's folder, which an
            import in this process would find instead.
    """
    files: dict[Path, None] = {}
    unread = [path]
    while unread:
        for name in _imported_names(unread.pop()):
            added = [file for file in _files_of(name, path.parent) if file not in files]
            files |= dict.fromkeys(added)
            unread += added
    return sorted(files.keys() - {path})


def _imported_names(file: Path) -> Iterable[str]:
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    # Relative imports stay within a package, all of whose files are included.
    from_imports = (node for node in nodes if isinstance(node, ast.ImportFrom) and not node.level)
    names += [node.module for node in from_imports if node.module]
    return dict.fromkeys(name.partition(".")[0] for name in names)


def _files_of(name: str, folder: Path) -> list[Path]:
    """Return the files of a module or package of a folder; none if an import finds another one."""
    module, package = folder / f"{name}.py", folder / name
    if not (module.is_file() or package.is_dir()):
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: it is in `sys.modules` without a spec
        return []
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    resolved = [Path(place).resolve() for place in places if place]
    if module in resolved:
        return [module]
    if package in resolved or package / "__init__.py" in resolved:
        return sorted(package.rglob("*.py"))
    imported_folders = {
        Path(str(loaded.__file__)).parent
        for key, loaded in list(sys.modules.items())
        if key.startswith(FILE_MODULE_PREFIX)
    }
    for place in resolved:
        if place.parent in imported_folders:
            raise ImportError(
                f"`import {name}` would find {place}, not {module}; rename one of them"
            )
    return []


# Not `ast.dump`: its output differs between Python versions, newer ones leave out empty fields.
def _code(node: object) -> object:
    if isinstance(node, list):
        return [_code(item) for item in node if not _is_text(item)]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.ClassDef):
        node.body = [member for member in node.body if getattr(member, "name", "") != "generate"]
    fields = [(name, _code(value)) for name, value in ast.iter_fields(node)]
    filled = [(name, value) for name, value in fields if value is not None and value != []]
    return [type(node).__name__, _tool_docstring(node), *filled]


def _is_text(statement: object) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _tool_docstring(node: ast.AST) -> str | None:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list]
    is_tool = any(getattr(mark, "id", getattr(mark, "attr", "")) == "tool" for mark in marks)
    return ast.get_docstring(node) if is_tool else None
