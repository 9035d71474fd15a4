"""What is public: one list in each module, and every name on it is there."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys

import pytest

import gymcli

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gymcli.__path__, "gymcli.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", gymcli.__all__)
def test_public_name_is_importable_and_documented(name):
    value = getattr(gymcli, name)
    assert name in dir(gymcli)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__


def test_type_checkers_see_the_names_that_are_imported_late():
    seen = inspect.getsource(gymcli).partition("if TYPE_CHECKING:")[2].partition("__all__")[0]
    assert sorted(set(re.findall(r"\w+", seen)) & set(gymcli.__all__)) == sorted(gymcli.__all__)


def test_dir_lists_each_name_once():
    assert dir(gymcli) == sorted(set(dir(gymcli)))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'gymcli' has no attribute 'colect'"):
        _ = gymcli.colect


@pytest.mark.parametrize("name", MODULES)
def test_module_lists_its_public_names_and_says_what_it_is(name):
    module = importlib.import_module(name)
    first = module.__doc__.splitlines()[0]
    assert first.endswith((".", ":"))
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public), f"{name}.{public}"
    if any(_is_public(module, key, value) for key, value in vars(module).items()):
        assert module.__all__, f"{name} has public names and no __all__"


def _is_public(module, key, value):
    is_own = getattr(value, "__module__", None) == module.__name__
    return is_own and not key.startswith("_") and (inspect.isclass(value) or callable(value))


def test_import_loads_nothing_heavy():
    """`gym --help` stays quick: the names are imported when they are first used."""
    command = (
        "import sys, gymcli; print([name for name in ('aiohttp', 'pydantic', 'jsonschema', "
        "'regex', 'rich', 'msgspec') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert found.stdout.decode().strip() == "[]"
