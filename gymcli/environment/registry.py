"""Finds environments by name and parses their options.

On the command line, a name may be an address (`NAME=http://host:port`), code
(`path/to/file.py:Class`, `file.py`, `module:Class`) or an alias (`NAME=ENV`). In a data row it may
not: there it finds only built-in environments and entry points. An environment is imported only
when it is looked up.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import itertools
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

import msgspec
from pydantic import ValidationError

import gymcli.envs
from gymcli.environment.contract import Environment
from gymcli.environment.contract_checks import ContractError, check_schema
from gymcli.environment.source_code import FILE_MODULE_PREFIX, imported_files, source_hash
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import (
    EnvironmentImportError,
    EpisodeError,
    GymError,
    UnknownNameError,
    UsageError,
    boundary,
    described,
)
from gymcli.suggestions import did_you_mean, pydantic_reason
from gymcli.tracebacks import frames_of
from gymcli.types import JSON, JSONObject, json_or_text

EnvironmentClass = type[Environment[Task]]

ENTRY_POINT_GROUP = "gymcli.envs"

REMOTE = "remote"
"""The name of a server that was given as an address without a name."""

ALIASES = {
    "bbh_aviary": "aviary",
    "bixbench_aviary": "aviary",
    "conversational_tool_use": "conversational_tool_use_simulation",
    "example_multi_turn_gymnasium": "example_multi_turn",
    "genrm": "genrm_compare",
    "genrm_simple_agent_reasoning_off": "genrm_compare",
    "grl_sokoban": "sokoban",
    "gsm8k_aviary": "aviary",
    "hotpotqa_aviary": "aviary",
    "structured_outputs_v3": "structured_outputs",
    "structured_outputs_v4": "structured_outputs",
}
"""NeMo Gym's other names for built-in environments."""

_HARNESSES = (
    "simple",
    "gymnasium",
    "claude_code",
    "cline",
    "codex",
    "hermes",
    "kilocode",
    "langgraph",
    "openclaw",
    "opencode",
    "pi",
)
"""The agent harnesses of NeMo Gym, which are part of an agent's name and do not affect scores."""

_SUFFIXES = (*(f"_{harness}_agent" for harness in _HARNESSES), "_agent", "_resources_server")


class Registration(NamedTuple):
    """An environment with its name in records."""

    name: str
    environment: EnvironmentClass
    recorded_hash: str | None = None
    """The source hash to use instead of that of the code; empty if there is no code here."""

    @property
    def source_hash(self) -> str:
        """The hash of the environment's code; empty if it has none here."""
        if self.recorded_hash is not None:
            return self.recorded_hash
        return source_hash(sys.modules[self.environment.__module__])


class Registry:
    """The environments that one run may use; lookups are cached.

    Args:
        specs: Names given on the command line. Addresses (`NAME=http://host:port`) and code
            (`file.py:Class`, `module:Class`) can then also be found by their names in records, and
            `NAME=ENV` by NAME.

    Raises:
        UsageError: A spec names code that does not exist.
    """

    def __init__(self, specs: tuple[str, ...] = ()) -> None:
        self._registrations: dict[str, Registration] = {}
        self._from_specs: dict[str, Registration] = {}
        self._default_of: dict[str, str] = {}
        """The environment that plays instead, for agents without a known one."""
        for spec in specs:
            name, target = split_name(spec)
            if ":" in target or target.endswith(".py"):
                registration = _from_address(spec) or _from_code(target)
                self._registrations[spec] = self._from_specs[registration.name] = registration
            if name:
                registration = self._registrations.get(spec) or self.find(target)
                self._registrations[spec] = self._from_specs[name] = registration

    def add(self, environment: EnvironmentClass) -> str:
        """Add a class of the caller, named after its module, or itself if it is in a script.

        Returns:
            The name by which it is found.
        """
        name = environment.__module__.rpartition(".")[2]
        name = environment.__name__ if name == "__main__" else name
        self._from_specs[name] = _checked(environment, name, repr(environment))
        return name

    def find(self, name: str) -> Registration:
        """Find an environment by the name in a row, a record or on the command line.

        Raises:
            UnknownNameError: There is no environment of this name.
            EnvironmentImportError: There is one, but it cannot be imported.
        """
        registration = self._registrations.get(name)
        if registration is None:
            # Names from the command line first: `NAME=ENV` may stand for a built-in name.
            from_specs = (
                self._from_specs[stem] for stem in candidates(name) if stem in self._from_specs
            )
            registration = self._registrations[name] = next(from_specs, None) or _by_name(name)
        return registration

    def find_agent(self, name: str, default: str | None) -> Registration:
        """Find the environment of a NeMo Gym agent; if it is unknown, return the default one."""
        if default is not None and self._default_of.get(name) == default:
            return self.find(default)
        try:
            return self.find(name)
        except UnknownNameError as error:
            if default is None:
                ways_out = f"--env ENV or --env {name}=ENV names the environment of its rows"
                raise UnknownNameError(f"{error}; {ways_out}") from error
        self._default_of[name] = default
        return self.find(default)

    def env_of_agent(self, name: str, default: str | None) -> str:
        """Return the name of an agent's environment; the default may be the empty text."""
        if default != "":
            return self.find_agent(name, default).name
        try:
            return self.find(name).name
        except UnknownNameError:
            self._default_of[name] = ""
            return ""

    @property
    def agent_warnings(self) -> list[str]:
        """Warnings about agents without a known environment, whose rows play elsewhere."""
        return [
            f'no environment is known for the agent "{name}": '
            + (
                f"its rows play in {self.find(env).name}, which --env names"
                if env
                else f"--env ENV or --env {name}=ENV names the environment of its rows"
            )
            for name, env in self._default_of.items()
        ]

    @staticmethod
    def names() -> list[str]:
        """List the names of all environments, without importing any."""
        return sorted({*_built_in_names(), *_plug_ins()})


def _by_name(name: str) -> Registration:
    built_in = _built_in_names()
    # Built-in environments first: no plug-in can replace one by its name.
    for candidate in candidates(name):
        if candidate in built_in:
            with _importing(candidate):
                module = importlib.import_module(f"gymcli.envs.{candidate}")
            return Registration(candidate, _only_environment(module, candidate))
    plug_ins = _plug_ins()  # late: it reads the metadata of all packages
    for candidate in candidates(name):
        if candidate in plug_ins:
            point = plug_ins[candidate]
            with _importing(candidate):
                loaded = point.load()
            # An entry point may name a module or a class.
            if isinstance(loaded, ModuleType):
                loaded = _only_environment(loaded, candidate)
            return _checked(loaded, candidate, f"the entry point {point.value}")
    hint = did_you_mean(name, [*built_in, *plug_ins])
    if name.endswith(".py"):
        hint = f"code is named on the command line only: --env {name}"
    end = f"{hint and f'; {hint}'} (gym envs lists them)"
    raise UnknownNameError(f'no environment "{name}"{end}')


def candidates(name: str) -> list[str]:
    """Return the names to try: the name itself, its alias, and both without an agent's suffix."""
    stems = [name, *(name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))]
    return [candidate for stem in stems for candidate in (stem, ALIASES.get(stem)) if candidate]


def split_name(spec: str) -> tuple[str, str]:
    """Split `NAME=ENV` into name and environment; the name may be empty."""
    name, equals, target = spec.partition("=")
    # Paths and addresses may contain a `=` themselves.
    return (name, target) if equals and not {"/", ":"} & {*name} else ("", spec)


def split_code(target: str) -> tuple[str, str]:
    """Split `PLACE:CLASS`; the class of a file, `FILE.py`, may be left out and is then empty."""
    place, _, class_name = target.rpartition(":")
    return (target, "") if target.endswith(".py") else (place, class_name)


def is_code(name: str) -> bool:
    """Return whether a name on the command line can only be code: `FILE.py`, `PLACE:CLASS`."""
    place, class_name = split_code(name)
    is_module = all(part.isidentifier() for part in place.split("."))
    is_class = class_name.isidentifier() and (place.endswith(".py") or is_module)
    return name.endswith(".py") or (is_class and not Path(name).is_file())


@functools.cache
def _built_in_names() -> frozenset[str]:
    modules = pkgutil.iter_modules(gymcli.envs.__path__)
    return frozenset(module.name for module in modules if not module.name.startswith("_"))


def _plug_ins() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _from_address(spec: str) -> Registration | None:
    """Return the environment of a server: `NAME=http://host:port`, or only the address."""
    head, equals, tail = spec.partition("=")
    name, address = (head, tail) if equals and "://" not in head else (REMOTE, spec)
    if not address.startswith(("http://", "https://")):
        return None
    from gymcli.environment.remote import remote_environment

    return Registration(name, remote_environment(name, address), "")


def _from_code(spec: str) -> Registration:
    """Load `path/to/file.py:Class`, `file.py` or `module:Class`, named after the file or module."""
    place, class_name = split_code(spec)
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise UsageError(f"{place}: no such file (from the environment {spec})")
        name = path.stem
        module = module_of_file(path, spec)
    else:
        name = place.rpartition(".")[2]
        with _importing(spec):
            _append_to_path(Path.cwd())
            module = importlib.import_module(place)
    if not class_name:
        return _checked(_only_class(module, place), name, spec)
    loaded = getattr(module, class_name, None)
    if loaded is None:
        hint = did_you_mean(class_name, (k for k, v in vars(module).items() if isinstance(v, type)))
        reason = f"{place} has no class {class_name} (from the environment {spec})"
        raise UnknownNameError(f"{reason}; {hint}" if hint else reason)
    return _checked(loaded, name, spec)


def module_of_file(path: Path, spec: str) -> ModuleType:
    """Import a file under a name made from its path, the same in every process.

    It can import modules of its folder, unless Python or an installed package has the name.
    """
    resolved = path.resolve()
    try:
        module_name = FILE_MODULE_PREFIX + hashlib.sha256(str(resolved).encode()).hexdigest()[:12]
    except UnicodeEncodeError as error:
        readable_path = os.fsencode(resolved).decode(errors="backslashreplace")
        raise EnvironmentImportError(
            f"{spec}: its path {readable_path} is not UTF-8; rename the folder, or move the file"
        ) from error
    with _importing(spec):
        _append_to_path(resolved.parent)
        if module_name not in sys.modules:
            imported_files(resolved)  # raises if an import would find another folder's module
        return gymcli.envs.load_file(module_name, resolved)


def _append_to_path(folder: Path) -> None:
    # At the end, so that a random.py there does not hide Python's.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _only_class(module: ModuleType, place: str) -> EnvironmentClass:
    classes = _environment_classes(module)
    if not classes:
        raise UsageError(f"{place}: defines no class that is a subclass of gymcli.Environment")
    if len(classes) > 1:
        names = " or ".join(f"{place}:{name}" for name in classes)
        raise UsageError(f"{place}: defines several environments; name one: {names}")
    return classes.popitem()[1]


def _only_environment(module: ModuleType, name: str) -> EnvironmentClass:
    classes = _environment_classes(module)
    if len(classes) != 1:
        names = ", ".join(classes) or "none"
        raise EnvironmentImportError(
            f'environment "{name}": its module must define one Environment class, found {names}'
        )
    return classes.popitem()[1]


def _environment_classes(module: ModuleType) -> dict[str, EnvironmentClass]:
    return {
        # Only classes of this module or package, not those that it imports.
        value.__name__: value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Environment)
        and f"{value.__module__}.".startswith(f"{module.__name__}.")
        and not value.__name__.startswith("_")
    }


def _checked(loaded: object, name: str, place: str) -> Registration:
    if not (inspect.isclass(loaded) and issubclass(loaded, Environment)):
        raise EnvironmentImportError(f"{place} is not a subclass of gymcli.Environment")
    for method_tool in loaded.method_tools().values():
        with _importing(name):
            check_schema(loaded, method_tool)
    return Registration(name, loaded)


def prepare(registration: Registration, options: EnvironmentOptions) -> None:
    """Let an environment check that it can be played with these options.

    Raises:
        UsageError: It cannot.
    """
    try:
        registration.environment.prepare(options)
    except GymError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(
            f'environment "{registration.name}" cannot be prepared: {_described(error)}'
        ) from error


@contextmanager
def _importing(name: str) -> Iterator[None]:
    """Turn any exception in the block into an error that names the environment."""
    folder = _working_directory()
    try:
        yield
    except ContractError as error:
        raise EnvironmentImportError(f'environment "{name}": {error}') from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise EnvironmentImportError(
            f'environment "{name}" cannot be imported: {_described(error)}'
        ) from error
    if _working_directory() != folder:
        os.chdir(folder)
        raise EnvironmentImportError(
            f'environment "{name}" changes the working directory when it is imported; build paths '
            "from Path(__file__).parent instead"
        )


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # a text, which is compared
    except OSError:  # it was deleted
        return ""


def _described(error: BaseException) -> str:
    frames = frames_of(error)
    return f"{described(error)} ({frames[-1]})" if frames else described(error)


def shipped_tasks(name: str) -> Path | None:
    # Plain names only: joining a folder with `/somewhere` leaves the folder.
    for candidate in (c for c in candidates(name) if Path(c).name == c):
        path = gymcli.envs.DATASETS / candidate / "tasks.jsonl"
        if path.is_file():
            return path
    return None


def is_plug_in(name: str) -> bool:
    """Return whether an installed package has an environment of this name, without importing it."""
    return not _plug_ins().keys().isdisjoint(candidates(name))


def environments_with_tasks() -> list[str]:
    """List the environments that ship tasks, and those of packages, which may generate tasks."""
    return sorted({*filter(shipped_tasks, _built_in_names()), *_plug_ins()})


def own_tasks(registration: Registration) -> Path | None:
    """Return the tasks file that ships with an environment, if there is one.

    A third-party environment has none, even if it has the name of a built-in one.
    """
    is_ours = registration.environment.__module__.startswith("gymcli.envs.")
    return shipped_tasks(registration.name) if is_ours else None


def split_env_args(
    args: Mapping[str, str], registrations: Iterable[Registration]
) -> dict[str, dict[str, str]]:
    """Assign options to environments: by the name before the dot, else to the only one with it.

    Raises:
        UsageError: No environment of the run has the option, or several have.
    """
    options = {entry.name: entry.environment.Options.model_fields for entry in registrations}
    assigned: dict[str, dict[str, str]] = {name: {} for name in options}
    for key, value in args.items():
        prefix, _, option = key.partition(".")
        if option and prefix in options:
            assigned[prefix][option] = value
            continue
        fitting = [name for name, fields in options.items() if key in fields]
        if len(fitting) > 1:
            raise UsageError(
                f"--env-arg {key}: {' and '.join(fitting)} have this option; "
                f"write {fitting[0]}.{key}=..."
            )
        if not fitting:
            names = [f"{name}.{field}" for name, fields in options.items() for field in fields]
            raise UsageError(
                f"--env-arg {key}: no environment of this run has it "
                f"(options: {', '.join(names) or 'none'})"
            )
        assigned[fitting[0]][key] = value
    return assigned


def own_options(args: Mapping[str, str], registration: Registration) -> EnvironmentOptions:
    prefix = f"{registration.name}."
    own_args = {
        k.removeprefix(prefix): text for k, text in args.items() if has_option(registration, k)
    }
    return environment_options(registration.environment, registration.name, own_args, {})


def has_option(registration: Registration, key: str) -> bool:
    return (
        key.startswith(f"{registration.name}.")
        or key in registration.environment.Options.model_fields
    )


def environment_options(
    environment: EnvironmentClass, name: str, args: Mapping[str, str], recorded: JSONObject
) -> EnvironmentOptions:
    """Parse an environment's options: those on record, overridden by `args`.

    Raises:
        UsageError: An option is unknown or has a value of the wrong type.
    """
    values = {**recorded, **{key: json_or_text(text) for key, text in args.items()}}
    try:
        return environment.Options.model_validate(values)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
    try:
        # A value such as 1 may be meant as text: try the wrong ones again as strings.
        as_written = {key: text for key, text in args.items() if key in wrong}
        return environment.Options.model_validate({**values, **as_written})
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(str(step) for step in first["loc"])
        is_recorded = option.partition(".")[0] in recorded.keys() - args.keys()
        source = "the option on record" if is_recorded else "--env-arg"
        names = ", ".join(environment.Options.model_fields) or "none"
        reason = pydantic_reason(first)
        raise UsageError(
            f"{source} {option}: {reason} (options of environment {name}: {names})"
        ) from error


NUM_GENERATED = 60
"""The default number of tasks to generate."""


def generates(registration: Registration) -> bool:
    generate = registration.environment.generate.__func__  # type: ignore[attr-defined]
    return generate is not Environment.generate.__func__  # type: ignore[attr-defined]


def generated_lines(
    registration: Registration,
    num: int = NUM_GENERATED,
    *,
    seed: int = 0,
    args: Mapping[str, JSON] | None = None,
) -> Iterator[bytes]:
    """Yield the rows that an environment generates from `Random(seed)`, each a line of JSON.

    `args` are more arguments of its generator.

    Raises:
        EpisodeError: The environment has no generator, or the generator fails.
    """
    with boundary(EpisodeError):
        rows = registration.environment.generate(Random(seed), num, **(args or {}))
        # One row too many is enough to see that a generator ignores `num`: it may be endless.
        for row in itertools.islice(rows, num + 1):
            yield msgspec.json.encode(row) + b"\n"
