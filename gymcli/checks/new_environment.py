"""Creates a new environment: its file, its test, and the tasks that it generates."""

from __future__ import annotations

import importlib.util
import keyword
import sys
from pathlib import Path
from typing import NamedTuple

import gymcli
from gymcli.environment.registry import Registry, generated_lines
from gymcli.errors import UsageError

_TEMPLATES = Path(__file__).parent / "templates"


class NewFiles(NamedTuple):
    """The files that were written, and the name of the environment's class."""

    environment: Path
    test: Path
    tasks: Path
    class_name: str


def create(name: str, pattern: str, folder: Path) -> NewFiles:
    """Write NAME.py, test_NAME.py and NAME.jsonl into a folder, from the templates of a pattern.

    Raises:
        UsageError: The name cannot be used, one of the files already exists, or the folder cannot
            be written.
    """
    source = (_TEMPLATES / f"{pattern.replace('-', '_')}.py").read_text(encoding="utf-8")
    test = (_TEMPLATES / "environment_test.py").read_text(encoding="utf-8")
    class_name = _class_name(name, source)
    files = NewFiles(
        folder / f"{name}.py", folder / f"test_{name}.py", folder / f"{name}.jsonl", class_name
    )
    # All before the first is written, so that an error leaves nothing behind.
    for path in files[:3]:
        if path.exists():
            raise UsageError(f"{path}: already exists; nothing was written")
    if name in Registry.names():
        raise UsageError(f"{name}: an environment of this name exists; use another name")
    module_spec = importlib.util.find_spec(name)
    # A file shadows a namespace package.
    if module_spec is not None and module_spec.origin is not None:
        raise UsageError(f"{name}: a package of this name is installed; use {name}_env")
    for path, text in ((files.environment, source), (files.test, test)):
        text = text.replace("NewEnvironment", class_name).replace("new_environment", name)
        _write(path, text.encode())
    spec = f"{files.environment}:{class_name}"
    _write(files.tasks, b"".join(generated_lines(Registry((spec,)).find(spec))))
    return files


def _class_name(name: str, source: str) -> str:
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise UsageError(f"{name}: is not a Python name; use one such as my_env")
    if not class_name[:1].isalpha():
        raise UsageError(f"{name}: must begin with a letter; use a name such as my_env")
    # Every word of the template, so that the class hides none of its names.
    words = "".join(c if c.isidentifier() or c.isdigit() else " " for c in source).split()
    reserved_names = {*gymcli.__all__, *words}
    if class_name in reserved_names or name in sys.stdlib_module_names or name == "gymcli":
        raise UsageError(f"{name}: the name is taken by Python or gymcli; use {name}_env")
    return class_name


def _write(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
