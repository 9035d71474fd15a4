"""Tests of the public API: each module lists its names once, and each of them exists."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys

import pytest

import gymcli


def test_public_names_are_importable_and_documented():
    assert set(gymcli.__all__) <= set(dir(gymcli))
    values = [getattr(gymcli, name) for name in gymcli.__all__]
    assert [v for v in values if callable(v) and hasattr(v, "__name__") and not v.__doc__] == []


def test_type_checkers_see_the_names_that_are_imported_late():
    seen = inspect.getsource(gymcli).partition("if TYPE_CHECKING:")[2].partition("__all__")[0]
    assert sorted(set(re.findall(r"\w+", seen)) & set(gymcli.__all__)) == sorted(gymcli.__all__)


def test_dir_lists_each_name_once():
    assert dir(gymcli) == sorted(set(dir(gymcli)))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'gymcli' has no attribute 'colect'"):
        _ = gymcli.colect


def test_modules_list_their_public_names_and_say_what_they_are():
    failures = []
    for found in pkgutil.walk_packages(gymcli.__path__, "gymcli."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        if not module.__doc__.splitlines()[0].endswith((".", ":")):
            failures.append(f"{found.name}: its first line is no sentence")
        listed = getattr(module, "__all__", [])
        failures += [f"{found.name}.{name}" for name in listed if not hasattr(module, name)]
        if not listed and any(_is_public(module, *item) for item in vars(module).items()):
            failures.append(f"{found.name} has public names and no __all__")
    assert failures == []


def _is_public(module, key, value):
    is_own = getattr(value, "__module__", None) == module.__name__
    return is_own and not key.startswith("_") and (inspect.isclass(value) or callable(value))


def test_import_loads_nothing_heavy():
    """`gym --help` stays quick: names are imported when they are first used."""
    command = (
        "import sys, gymcli; print([name for name in ('aiohttp', 'pydantic', 'jsonschema', "
        "'regex', 'rich', 'msgspec') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert found.stdout.decode().strip() == "[]"
