"""Tests of the public API: each name is listed once, exists and is documented."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from types import FunctionType

import pytest

import gymcli


def test_public_names_are_importable_and_documented():
    assert set(gymcli.__all__) <= set(dir(gymcli))
    values = [getattr(gymcli, name) for name in gymcli.__all__]
    assert [v for v in values if callable(v) and hasattr(v, "__name__") and not v.__doc__] == []


def test_public_methods_are_documented():
    classes = [v for name in gymcli.__all__ if inspect.isclass(v := getattr(gymcli, name))]
    methods = {
        f"{value.__name__}.{name}": getattr(value, name)
        for value in classes
        for name, member in vars(value).items()
        if not name.startswith("_")
        and isinstance(member, property | classmethod | staticmethod | FunctionType)
    }
    assert len(methods) > 50
    assert [name for name, method in methods.items() if not inspect.getdoc(method)] == []


def test_type_checkers_see_the_names_that_are_imported_late():
    seen = inspect.getsource(gymcli).partition("if TYPE_CHECKING:")[2].partition("_MODULES =")[0]
    assert sorted(re.findall(r" as (\w+)", seen)) == sorted(gymcli.__all__)


def test_dir_lists_each_name_once():
    assert dir(gymcli) == sorted(set(dir(gymcli)))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'gymcli' has no attribute 'colect'"):
        _ = gymcli.colect


def test_the_first_line_of_each_module_is_a_sentence():
    modules = [found.name for found in pkgutil.walk_packages(gymcli.__path__, "gymcli.")]
    firsts = {
        name: importlib.import_module(name).__doc__.splitlines()[0]
        for name in modules
        if not name.endswith("__main__")
    }
    assert {k: v for k, v in firsts.items() if not v.endswith((".", ":"))} == {}


def test_import_loads_nothing_heavy():
    """`gym --help` stays quick: names are imported when they are first used."""
    command = (
        "import sys, gymcli; print([name for name in ('aiohttp', 'pydantic', 'jsonschema', "
        "'regex', 'rich', 'msgspec') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert found.stdout.decode().strip() == "[]"
