"""Benchmarks: data sets at a pinned revision, how they are run, and their published scores."""

from __future__ import annotations

import re
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

import gymcli.envs
from gymcli.environment.registry import Registry, candidates, names_tasks
from gymcli.errors import UnknownNameError, UsageError, did_you_mean, pydantic_reason
from gymcli.metrics.reproduction import Reference
from gymcli.models.endpoint import RequestParameters
from gymcli.store.lines import read_toml
from gymcli.types import JSON

__all__ = [
    "BENCHMARK_FILE",
    "ENTRY_POINT_GROUP",
    "Benchmark",
    "RoleSetting",
    "Source",
    "benchmark_names",
    "find_benchmark",
    "names_benchmark",
    "same_name",
    "shadowed_names",
]

BENCHMARK_FILE = "benchmark.toml"
ENTRY_POINT_GROUP = "gymcli.benchmarks"
"""An entry point's value is the importable package whose folder holds the benchmark.toml."""

_COMMIT = r"^[0-9a-f]{40}$"
_SHA256 = r"^[0-9a-f]{64}$"

_FORMS = {
    "name": "lower-case letters, digits, dots, - and _",
    "revision": "a commit of 40 hexadecimal digits",
    "sha256": "64 hexadecimal digits",
    "hf": "ORG/NAME",
    "date": "YYYY-MM or YYYY-MM-DD",
}
"""What texts of a fixed form must be, by field."""

Fact = Literal["revision", "rows", "licence", "prompt", "params", "repeats", "scoring", "margin"]


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""One text, or several."""


def _environment_name(name: str) -> str:
    if not re.fullmatch(r"[\w.-]+", name) or name.endswith(".py"):
        raise ValueError(
            "expected the name of an environment; code and addresses are given on the command line "
            "only, with --env"
        )
    return name


def _file_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname and Path(parts.path).name and parts.port != 0)
    except ValueError:  # no address, or no port
        is_complete = False
    if not is_complete or not re.fullmatch(r"https?://\S+", url) or "%00" in url:
        raise ValueError(f"{url!r} is not the address of a file: https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address must not contain a user or a password")
    if parts.path.endswith(".zip") and not parts.fragment:
        raise ValueError(f"{url}: name the file in the archive, as in {url}#FILE.csv")
    return url


_Address = Annotated[str, AfterValidator(_file_address)]
EnvironmentName = Annotated[str, AfterValidator(_environment_name)]
"""A name that an installed environment may have: never code, nor the address of a server."""


class Source(BaseModel):
    """Where the rows come from, from `[source]`: exactly one of `hf`, `url`, `file` and `env`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hf: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    """A data set of the Hugging Face Hub, ORG/NAME."""
    url: Annotated[tuple[_Address, ...], BeforeValidator(_as_tuple)] = ()
    """CSV, TSV, JSON, JSONL or Parquet files, in the order of the rows; of several, the column
    `_file` has the last part of each row's address. ADDRESS#FILE is a file in a ZIP archive."""
    file: str | None = None
    """A table of the same kinds, relative to the benchmark's folder."""
    columns: tuple[str, ...] = ()
    """The columns of CSV and TSV files without a header, such as a list of labels."""
    env: EnvironmentName | None = None
    """An environment that generates the rows."""
    args: dict[str, JSON] = {}
    """Arguments of the environment's `generate`, besides the number of rows."""
    config: Texts = ()
    """Configurations of the data set; of several, the column `_config` has each row's."""
    split: str | None = None
    revision: Annotated[str, Field(pattern=_COMMIT)] | None = None
    """The commit of the data set, or the one that every `url` contains."""
    sha256: Annotated[
        tuple[Annotated[str, Field(pattern=_SHA256)], ...], BeforeValidator(_as_tuple)
    ] = ()
    """The hash of each `url`, of `file`, or of the tasks that `env` generates."""
    seed: int = Field(default=0, ge=0)
    """The seed of generated rows."""
    rows: int = Field(ge=1)
    """How many tasks there are, after the map."""
    gated: bool = False
    """Whether the Hub asks for a token and the acceptance of terms."""
    licence: str = Field(min_length=1)
    """An SPDX identifier, or what the data set's page says."""
    map: str | None = None
    """A map file relative to the benchmark's folder, or FILE.py:FUNCTION, which takes an iterable
    of all rows as dicts and yields task rows. Such code is run only if the benchmark ships with
    gymcli or an installed package."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        named = (self.hf is not None, bool(self.url), self.file is not None, self.env is not None)
        if sum(named) != 1:
            raise ValueError("name exactly one of hf, url, file and env")
        if self.hf is not None and self.revision is None:
            raise ValueError("hf needs the revision, a commit of 40 hexadecimal digits")
        if self.url and not self.sha256:
            if self.revision is None:
                raise ValueError("url needs sha256, or a revision that is part of every address")
            if any(self.revision not in url for url in self.url):
                raise ValueError("the revision is not part of every url")
        num_hashes = len(self.url) or int(self.hf is None)
        if len(self.sha256) != num_hashes and (self.sha256 or self.file is not None):
            raise ValueError(
                "sha256 needs one hash for each url, that of the file, or of the tasks"
            )
        if self.columns and not self.url and self.file is None:
            raise ValueError("columns needs url or file")
        if self.args and self.env is None:
            raise ValueError("args needs env")
        if self.hf is None and not self.url and (self.config or self.split or self.revision):
            raise ValueError("config, split and revision need hf or url")
        return self


class RoleSetting(BaseModel):
    """The model that plays a role, from `[roles.NAME]`; another one is another setting."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    params: RequestParameters = {}


class _Origin(NamedTuple):
    path: Path
    spec: str
    is_installed: bool


class Benchmark(BaseModel):
    """The content of a benchmark.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")
    version: str = Field(min_length=1)
    """Raised whenever a score can move."""
    title: str = Field(min_length=1)
    """What it asks, in one sentence without a full stop."""
    domain: str = Field(min_length=1)
    env: EnvironmentName
    """The environment of its rows."""
    env_args: dict[str, JSON] = {}
    prompt: str | None = None
    """A prompt file, relative to the benchmark's folder; None if the rows have their prompts."""
    repeats: int = Field(default=1, ge=1)
    params: RequestParameters = {}
    metric: str = "mean_reward"
    """The metric of the references: `mean_reward`, or a component or metric of each attempt."""
    margin: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The largest difference from a reference that counts as reproduced; references need it."""
    citations: dict[Fact, str] = {}
    """Where each fact comes from."""
    source: Source
    roles: dict[str, RoleSetting] = {}
    reference: tuple[Reference, ...] = ()

    _origin: _Origin = PrivateAttr()

    def model_post_init(self, context: object) -> None:
        """Keep the place of the file, which is the context of the validation."""
        assert isinstance(context, _Origin), "a benchmark is read by find_benchmark"
        self._origin = context

    @property
    def path(self) -> Path:
        """The benchmark.toml."""
        return self._origin.path

    @property
    def spec(self) -> str:
        """What finds it again: its name, or the path of a user's own."""
        return self._origin.spec

    @property
    def is_installed(self) -> bool:
        """Whether it ships with gymcli or a package, so that its map may be code."""
        return self._origin.is_installed

    @cached_property
    def prompt_path(self) -> Path | None:
        """The prompt file."""
        return None if self.prompt is None else self.path.parent / self.prompt

    @property
    def testable(self) -> tuple[Reference, ...]:
        """The published scores of the same settings and tasks."""
        num_tasks = (None, self.source.rows)
        return tuple(one for one in self.reference if not one.settings and one.tasks in num_tasks)

    @property
    def env_arg_texts(self) -> dict[str, str]:
        """The options of the environment as `--env-arg` takes them."""
        values = self.env_args.items()
        return {k: v if isinstance(v, str) else msgspec.json.encode(v).decode() for k, v in values}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.reference and self.margin is None:
            raise ValueError("margin: say which difference from a reference counts as reproduced")
        is_fetched = self.source.hf is not None or bool(self.source.url)
        needed: dict[Fact, bool] = {"revision": is_fetched, "margin": self.margin is not None}
        for fact, is_needed in needed.items():
            if is_needed and not self.citations.get(fact):
                raise ValueError(f'citations: say where "{fact}" comes from')
        return self


_TABLES: dict[str, type[BaseModel]] = {
    "": Benchmark,
    "source": Source,
    "roles": RoleSetting,
    "reference": Reference,
}
"""The tables of a benchmark.toml, by the key that they are under."""


def same_name(name: str) -> str:
    """Return the form in which names are compared: `-` and `_` are the same."""
    return name.casefold().replace("-", "_")


def _shipped() -> dict[str, Path]:
    files = sorted(gymcli.envs.DATASETS.glob(f"*/{BENCHMARK_FILE}"))
    return {file.parent.name: file for file in files}


def _of_packages() -> dict[str, EntryPoint]:
    return {one.name: one for one in entry_points(group=ENTRY_POINT_GROUP)}


def benchmark_names() -> list[str]:
    """List the benchmarks that ship with gymcli and installed packages."""
    return sorted({*_shipped(), *_of_packages()})


def _own_file(spec: str) -> Path | None:
    path = Path(spec)
    try:
        if path.is_dir() and (path / BENCHMARK_FILE).is_file():
            return path / BENCHMARK_FILE
        return path if path.suffix == ".toml" and path.is_file() else None
    except OSError:  # a folder above it may not be searched
        return None


def _known_name(spec: str) -> str | None:
    # Those that ship first: no package can replace one by its name.
    for names in (_shipped, _of_packages):
        if name := next(
            (one for one in sorted(names()) if same_name(one) == same_name(spec)), None
        ):
            return name
    return None


def names_benchmark(task: str) -> bool:
    """Return whether one of the TASKS of a command is the name or path of a benchmark."""
    if names_tasks(task):
        return False
    return _own_file(task) is not None or _known_name(task) is not None


def shadowed_names() -> list[str]:
    """List the benchmarks of packages that others of the same name come before."""
    return [name for name in benchmark_names() if _known_name(name) != name]


def find_benchmark(spec: str) -> Benchmark:
    """Return the benchmark with this name, in this folder or in this TOML file.

    No folder of the working directory can replace an installed benchmark by its name.

    Raises:
        UnknownNameError: There is none.
        UsageError: Its file cannot be read, or is wrong.
    """
    name = _known_name(spec)
    if name is not None:
        path = _shipped().get(name) or _file_of(_of_packages()[name])
        return _read(path, name, is_installed=True)
    own = _own_file(spec)
    if own is not None:
        return _read(own, spec, is_installed=False)
    if "/" in spec or spec.endswith(".toml") or Path(spec).is_dir():
        raise UnknownNameError(
            f"{spec}: is neither a {BENCHMARK_FILE} nor a folder with one; gym docs benchmarks "
            "describes it"
        )
    hint = did_you_mean(spec, benchmark_names())
    raise UnknownNameError(
        f"{spec}: no benchmark has this name (gym bench lists them){hint and f'; {hint}'}"
    )


def _file_of(entry_point: EntryPoint) -> Path:
    """Return the benchmark.toml of a package, without running the package's code."""
    # Not of the whole name: to find a subpackage, the package around it is imported.
    package, *parts = entry_point.value.split(".")
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        found = None
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder, *parts, BENCHMARK_FILE)).is_file():
            return path
    raise UsageError(
        f"{entry_point.name}: the package {entry_point.value} has no {BENCHMARK_FILE}; install it "
        "again, or ask its maker"
    )


def _read(path: Path, spec: str, *, is_installed: bool) -> Benchmark:
    loaded = read_toml(path)
    try:
        benchmark = Benchmark.model_validate(loaded, context=_Origin(path, spec, is_installed))
    except ValidationError as error:
        # A misspelt key before the one that is missing because of it.
        detail = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        steps = [str(step) for step in detail["loc"] if step != "[key]"]
        place, reason = ".".join(steps), pydantic_reason(detail)
        if detail["type"] == "extra_forbidden":
            model = _TABLES[steps[0] if len(steps) > 1 else ""]
            hint = did_you_mean(steps[-1], model.model_fields)
            reason += hint and f"; {hint}"
        if detail["type"] == "string_pattern_mismatch":
            form = next(_FORMS[step] for step in reversed(steps) if step in _FORMS)
            reason = f"must be {form}"
        raise UsageError(f"{path}: {place + ': ' if place else ''}{reason}") from error
    known = Registry.names()
    if env := next((one for one in known if same_name(one) == same_name(benchmark.name)), None):
        raise UsageError(f"{path}: name: {env} is an environment; choose another name")
    if not {*candidates(benchmark.env)} & {*known}:
        hint = did_you_mean(benchmark.env, known) or "gym envs lists them"
        raise UsageError(f'{path}: env: there is no environment "{benchmark.env}"; {hint}')
    if is_installed and benchmark.name != spec:
        raise UsageError(f"{path}: its name is {benchmark.name}, but it is installed as {spec}")
    if not is_installed and re.search(r"\.py(:|$)", benchmark.source.map or ""):
        raise UsageError(
            f"{path}: source.map: code is run only for benchmarks of installed packages; write a "
            "YAML map, or pull the rows into a file of your own"
        )
    if not is_installed and benchmark.env_args:
        options = Registry().find(benchmark.env).environment.Options
        for name in sorted(options.command_line_only & {*benchmark.env_args}):
            raise UsageError(
                f"{path}: env_args.{name}: it can name code or files, so it is taken from the "
                f"command line only: --env-arg {name}=..."
            )
    return benchmark
