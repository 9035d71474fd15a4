"""Makes `gymcli.envs.<name>` importable from wheel, editable install and checkout."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

_PACKAGE = Path(__file__).parent
_IS_WHEEL = (_PACKAGE / "_envs").is_dir()
__path__ = [str(_PACKAGE / "_envs" if _IS_WHEEL else _PACKAGE.parent / "envs")]
DATASETS = _PACKAGE / "_datasets" if _IS_WHEEL else _PACKAGE.parent / "datasets"


def load_generator(name: str) -> ModuleType:
    """Load `datasets/<name>/generate.py`, whose `generate` writes the tasks of an environment.

    It is loaded by path because `datasets` is not a package here: Hugging Face's has that name.
    """
    return load_file(f"_generate_{name}", DATASETS / name / "generate.py")


def load_file(module_name: str, path: Path) -> ModuleType:
    """Load a file as a module of this name, once."""
    if module_name not in sys.modules:
        loader = _SourceLoader(module_name, str(path))
        spec = spec_from_file_location(module_name, path, loader=loader)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up while it loads
        try:
            spec.loader.exec_module(module)
        except BaseException:
            # A later call must load the file again, not find half a module.
            del sys.modules[module_name]
            raise
    return sys.modules[module_name]


class _SourceLoader(SourceFileLoader):
    """Compiles a file as it is now: bytecode on disk may be that of the second before an edit."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file."""
        return self.source_to_code(self.get_data(self.path), self.path)
