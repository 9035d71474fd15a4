"""Benchmarks: data sets at a pinned revision, how they are run, and their published scores."""

from __future__ import annotations

import re
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

import gymcli.envs
from gymcli.benchmarks.benchmark_source import EnvironmentName, Sha256, Source
from gymcli.comparison.reproduction import Reference
from gymcli.environment.registry import Registry, candidates
from gymcli.errors import UnknownNameError, UsageError
from gymcli.models.endpoint import RequestParameters
from gymcli.store.lines import read_toml
from gymcli.suggestions import did_you_mean, pydantic_reason
from gymcli.types import JSON

BENCHMARK_FILE = "benchmark.toml"
ENTRY_POINT_GROUP = "gymcli.benchmarks"
"""An entry point's value is the importable package whose folder holds the benchmark.toml."""

_NAME = r"^[a-z0-9][a-z0-9._-]{0,99}$"

_FORMS = {
    "name": "lower-case letters, digits, dots, - and _",
    "revision": "a commit of 40 hexadecimal digits",
    "sha256": "64 hexadecimal digits",
    "hf": "ORG/NAME",
    "date": "YYYY-MM or YYYY-MM-DD",
}
"""What texts of a fixed form must be, by field."""

Fact = Literal["revision", "rows", "licence", "prompt", "params", "repeats", "scoring", "margin"]


def _metric(value: object) -> object:
    names = value if isinstance(value, list | tuple) else (value,)
    for name in names:
        parts = name.split(" / ") if isinstance(name, str) else [""]
        if len(parts) > 2 or not all(part.strip() for part in parts):
            raise ValueError(f'{name!r} is no metric: write "NAME", or "SUM / SUM"')
    if len({*names}) < max(1, len(names)):
        raise ValueError("name each metric once, and one at least")
    return tuple(names) if len(names) > 1 else names[0]


Metric = Annotated[str | tuple[str, ...], BeforeValidator(_metric)]
"""The name of a metric, or of several; "A / B" is a ratio of sums."""


class RoleSetting(BaseModel):
    """The model that plays a role, from `[roles.NAME]`; another one is another setting."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    params: RequestParameters = {}


class Examples(BaseModel):
    """Solved tasks that a prompt shows before each task, from `examples`.

    The user's turn is the prompt with the example's fields; the answer is its field `answer`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str | None = None
    """A YAML file with a list of examples, relative to the benchmark's folder."""
    split: str | None = None
    """A split of the data set, whose rows go through the map of the tasks."""
    sha256: Sha256 | None = None
    """The hash of the rows of the split."""
    by: str | None = None
    """A field, such as `category`: a task is shown the examples that have its value."""
    num: int | None = Field(default=None, ge=1)
    """How many a task is shown, the first ones; None for all."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.file is None) == (self.split is None):
            raise ValueError("name exactly one of file and split")
        if self.sha256 is not None and self.split is None:
            raise ValueError("sha256 needs split")
        return self


class Variant(BaseModel):
    """Other settings of the same benchmark, from `[[variant]]`.

    What it names replaces what the benchmark has. `citations` add to those of the benchmark, and
    only the variant's own references are compared with its runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=_NAME)
    """What follows the benchmark's name and `@`."""
    title: str | None = Field(default=None, min_length=1)
    prompt: str | None = None
    examples: Examples | None = None
    map: str | None = None
    rows: int | None = Field(default=None, ge=1)
    """How many tasks there are, after its map."""
    env_args: dict[str, JSON] | None = None
    params: RequestParameters | None = None
    repeats: int | None = Field(default=None, ge=1)
    metric: Metric | None = None
    margin: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    citations: dict[Fact, str] = {}
    reference: tuple[Reference, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.model_fields_set - {"name", "title", "margin", "citations", "reference"}:
            raise ValueError(
                "says nothing that moves a score: prompt, examples, map, env_args, params, repeats "
                "or metric"
            )
        if self.rows is not None and self.map is None:
            raise ValueError("rows needs map, since the rows of the source are the same")
        return self


class _Origin(NamedTuple):
    path: Path
    spec: str
    is_installed: bool
    variant: str = ""
    is_pinning: bool = False
    """Whether the hashes of the source are about to be computed, so that its own do not count."""


class Benchmark(BaseModel):
    """The content of a benchmark.toml; that of a variant has the variant's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=_NAME)
    """That of a variant is NAME@VARIANT."""
    version: str = Field(min_length=1)
    """Raised whenever a score can move."""
    title: str = Field(min_length=1)
    """What it asks, in one sentence without a full stop."""
    domain: str = Field(min_length=1)
    env: EnvironmentName
    """The environment of its rows."""
    env_args: dict[str, JSON] = {}
    prompt: str | None = None
    """A prompt file, relative to the benchmark's folder; none if the rows have their prompts."""
    examples: Examples | None = None
    repeats: int = Field(default=1, ge=1)
    params: RequestParameters = {}
    metric: Metric = "mean_reward"
    """The metric of the references: `mean_reward`, or a component or metric of each attempt.

    Of several the mean counts. "A / B" is the sum of A over all tasks, divided by that of B.
    """
    margin: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The largest difference from a reference that counts as reproduced; references need it."""
    citations: dict[Fact, str] = {}
    """Where each fact comes from."""
    source: Source
    roles: dict[str, RoleSetting] = {}
    reference: tuple[Reference, ...] = ()
    variant: tuple[Variant, ...] = ()

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
    def lasting_spec(self) -> str:
        """What finds it again from any working directory."""
        path = f"{self.path.absolute()}{self.variant_suffix}"
        return self.spec if self.is_installed else path

    @property
    def variant_suffix(self) -> str:
        """The last part of the name of a variant, `@` included; empty for others."""
        return self._origin.variant and f"@{self._origin.variant}"

    @property
    def is_installed(self) -> bool:
        """Whether it ships with gymcli or a package, so that its map may be code."""
        return self._origin.is_installed

    @cached_property
    def template_path(self) -> Path | None:
        """The prompt file."""
        return self.path.parent / self.prompt if self.prompt else None

    @property
    def prompt_path(self) -> Path | None:
        """The prompt file of its tasks; None if they have prompts, as they have with examples."""
        return None if self.examples else self.template_path

    @property
    def examples_path(self) -> Path | None:
        """The file of the examples; None if there are none, or if they are in the data set."""
        file = self.examples.file if self.examples else None
        return None if file is None else self.path.parent / file

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of which the mean is compared with references."""
        return (self.metric,) if isinstance(self.metric, str) else self.metric

    @property
    def metric_text(self) -> str:
        """The metric in words."""
        names = ", ".join(self.metrics)
        return names if len(self.metrics) == 1 else f"the mean of {names}"

    @property
    def testable(self) -> tuple[Reference, ...]:
        """The published scores of the same settings and tasks."""
        num_tasks = (None, self.source.rows)
        return tuple(
            reference
            for reference in self.reference
            if not reference.settings and reference.tasks in num_tasks
        )

    @property
    def env_arg_texts(self) -> dict[str, str]:
        """The options of the environment as `--env-arg` takes them."""
        values = self.env_args.items()
        return {k: v if isinstance(v, str) else msgspec.json.encode(v).decode() for k, v in values}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.reference and self.margin is None:
            raise ValueError("margin: say which difference from a reference counts as reproduced")
        is_fetched = self.source.is_fetched
        required_facts: dict[Fact, bool] = {
            "revision": is_fetched,
            "margin": self.margin is not None,
        }
        for fact, is_required in required_facts.items():
            if is_required and not self.citations.get(fact):
                raise ValueError(f'citations: say where "{fact}" comes from')
        if self.examples is not None and not self.prompt:
            raise ValueError("examples: need a prompt, which is filled with their fields")
        if self.examples is not None and self.examples.split is not None:
            if self.source.hf is None:
                raise ValueError("examples.split: needs a data set of the Hub, source.hf")
            if self.examples.split == self.source.split:
                raise ValueError(f"examples.split: {self.source.split} is the split of the tasks")
        names = [same_name(variant.name) for variant in self.variant]
        if len({*names}) < len(names):
            repeated_name = next(name for name in names if names.count(name) > 1)
            raise ValueError(
                f"variant: two have the name {repeated_name}, in which - and _ are the same"
            )
        return self


_TABLES: dict[str, type[BaseModel]] = {
    "": Benchmark,
    "examples": Examples,
    "source": Source,
    "roles": RoleSetting,
    "reference": Reference,
    "variant": Variant,
}
"""The tables of a benchmark.toml, by the key that they are under."""


def same_name(name: str) -> str:
    """Return the form in which names are compared: `-` and `_` are the same."""
    return name.casefold().replace("-", "_")


def _shipped_files() -> dict[str, Path]:
    files = sorted(gymcli.envs.DATASETS.glob(f"*/{BENCHMARK_FILE}"))
    return {file.parent.name: file for file in files}


def _package_entry_points() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group=ENTRY_POINT_GROUP)}


def benchmark_names() -> list[str]:
    """List the benchmarks that ship with gymcli and installed packages."""
    return sorted({*_shipped_files(), *_package_entry_points()})


def _local_file(spec: str) -> Path | None:
    path = Path(spec)
    try:
        if path.is_dir() and (path / BENCHMARK_FILE).is_file():
            return path / BENCHMARK_FILE
        return path if path.suffix == ".toml" and path.is_file() else None
    except OSError:  # a folder above it may not be searched
        return None


def _known_name(spec: str) -> str | None:
    # Those that ship first: no package can replace one by its name.
    for list_names in (_shipped_files, _package_entry_points):
        for name in sorted(list_names()):
            if same_name(name) == same_name(spec):
                return name
    return None


def has_benchmark(spec: str) -> bool:
    """Return whether this is the name or path of a benchmark.

    So is NAME@VARIANT, whether there is such a variant or not.
    """
    bases = {spec, _without_variant(spec)[0]}
    return any(_local_file(base) is not None or _known_name(base) is not None for base in bases)


def _without_variant(spec: str) -> tuple[str, str | None]:
    """Return a name or path without "@VARIANT", and the variant; a path that exists is whole."""
    base, _, variant = spec.rpartition("@")
    if not base or "/" in variant or _local_file(spec) is not None:
        return spec, None
    return base, variant


def with_variants(name: str) -> list[Benchmark]:
    """Return the benchmark with this name or path, and its variants; errors as `find_benchmark`."""
    return _read(_origin(name))


def siblings(benchmark: Benchmark) -> list[Benchmark]:
    """Return the benchmark that this one is a variant of, and its other variants."""
    spec = benchmark.spec.removesuffix(benchmark.variant_suffix)
    return [other for other in with_variants(spec) if other.name != benchmark.name]


def shadowed_names() -> list[str]:
    """List the benchmarks of packages that others of the same name come before."""
    return [name for name in benchmark_names() if _known_name(name) != name]


def find_benchmark(spec: str, *, is_pinning: bool = False) -> Benchmark:
    """Return the benchmark with this name, in this folder or in this TOML file.

    SPEC@VARIANT is one of its variants. No folder of the working directory can replace an installed
    benchmark by its name. With `is_pinning` it has no hashes, and need not have them.

    Raises:
        UnknownNameError: There is none, or it has no such variant.
        UsageError: Its file cannot be read, or is wrong.
    """
    base, variant = _without_variant(spec)
    origin = _origin(base)._replace(is_pinning=is_pinning)
    benchmark, *variants = _read(origin)
    if variant is None:
        return benchmark
    names = [variant_benchmark.name for variant_benchmark in benchmark.variant]
    if not variant:
        name_list = ", ".join(names) or "there is none"
        raise UnknownNameError(f"{spec}: name a variant after the @ ({name_list}), or leave it out")
    for name, variant_benchmark in zip(names, variants, strict=True):
        if same_name(name) == same_name(variant):
            return variant_benchmark
    hint = did_you_mean(variant, names) or f"it has {', '.join(names) or 'none'}"
    raise UnknownNameError(f'{spec}: {benchmark.name} has no variant "{variant}"; {hint}')


def _origin(spec: str) -> _Origin:
    """Return where the benchmark is that has this name, or is in this folder or file."""
    name = _known_name(spec)
    if name is not None:
        path = _shipped_files().get(name) or _file_of(_package_entry_points()[name])
        return _Origin(path, name, is_installed=True)
    file = _local_file(spec)
    if file is not None:
        return _Origin(file, spec, is_installed=False)
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
        module_spec = find_spec(package)
    except (ImportError, ValueError):
        module_spec = None
    for folder in (module_spec.submodule_search_locations or ()) if module_spec else ():
        if (path := Path(folder, *parts, BENCHMARK_FILE)).is_file():
            return path
    raise UsageError(
        f"{entry_point.name}: the package {entry_point.value} has no {BENCHMARK_FILE}; install it "
        "again, or ask its maker"
    )


def _read(origin: _Origin) -> list[Benchmark]:
    """Return the benchmark of a file and its variants, all of which are checked."""
    toml_settings = read_toml(origin.path)
    if origin.is_pinning:
        _remove_hashes(toml_settings)
    benchmark = _check_settings(toml_settings, origin)
    if origin.is_installed and benchmark.name != origin.spec:
        raise UsageError(
            f"{origin.path}: its name is {benchmark.name}, but it is installed as {origin.spec}"
        )
    benchmarks = [benchmark]
    for variant in benchmark.variant:
        variant_settings = variant.model_dump(exclude_unset=True, exclude={"name", "citations"})
        source = benchmark.source.model_dump(exclude_unset=True)
        for name in {"map", "rows"} & {*variant_settings}:
            source[name] = variant_settings.pop(name)
        settings = {
            **toml_settings,
            "reference": (),
            **variant_settings,
            "variant": (),
            "citations": {**benchmark.citations, **variant.citations},
            "source": source,
        }
        spec = f"{origin.spec}@{variant.name}"
        variant_benchmark = _check_settings(
            settings, origin._replace(spec=spec, variant=variant.name)
        )
        benchmarks.append(
            variant_benchmark.model_copy(
                update={"name": f"{variant_benchmark.name}@{variant.name}"}
            )
        )
    return benchmarks


def _remove_hashes(toml_settings: dict[str, Any]) -> None:
    variants = toml_settings.get("variant")
    for settings in (toml_settings, *(variants if isinstance(variants, list) else ())):
        for name in ("source", "examples"):
            if isinstance(settings, dict) and isinstance(table := settings.get(name), dict):
                table.pop("sha256", None)


def _check_settings(settings: dict[str, object], origin: _Origin) -> Benchmark:
    """Return a benchmark whose settings are possible; UsageError names the file and the field."""
    place = f"{origin.path}: {origin.variant and f'variant {origin.variant}: '}"
    try:
        benchmark = Benchmark.model_validate(settings, context=origin)
    except ValidationError as error:
        raise UsageError(f"{place}{_reason(error)}") from error
    if not origin.is_pinning and (problem := benchmark.source.hash_problem):
        raise UsageError(f"{place}source.sha256: {problem}; gym bench pin {origin.spec} prints it")
    for field, name in (
        ("prompt", benchmark.prompt),
        ("examples.file", benchmark.examples and benchmark.examples.file),
    ):
        if name:
            existing_file(benchmark, field, name)
    env_names = Registry.names()
    for env in env_names:
        if same_name(env) == same_name(benchmark.name):
            raise UsageError(f"{place}name: {env} is an environment; choose another name")
    if not {*candidates(benchmark.env)} & {*env_names}:
        hint = did_you_mean(benchmark.env, env_names) or "gym envs lists them"
        raise UsageError(f'{place}env: there is no environment "{benchmark.env}"; {hint}')
    if not origin.is_installed and re.search(r"\.py(:|$)", benchmark.source.map or ""):
        raise UsageError(
            f"{place}source.map: code is run only for benchmarks of installed packages; write a "
            "YAML map, or pull the rows into a file of your own"
        )
    if not origin.is_installed and benchmark.env_args:
        options = Registry().find(benchmark.env).environment.Options
        for name in sorted(options.command_line_only & {*benchmark.env_args}):
            raise UsageError(
                f"{place}env_args.{name}: it can name code or files, so it is taken from the "
                f"command line only: --env-arg {name}=..."
            )
    return benchmark


def existing_file(benchmark: Benchmark, field: str, name: str) -> Path:
    """Return the path of a file that a benchmark.toml names; UsageError if there is none."""
    path = benchmark.path.parent / name
    try:
        is_file = path.is_file()
    except OSError:  # a folder above it may not be searched
        is_file = False
    if not is_file:
        raise UsageError(f"{benchmark.path}: {field}: there is no file {path}")
    return path


def _reason(error: ValidationError) -> str:
    """Return the field and the reason of the first error in the content of a file."""
    # A misspelt key before the one that is missing because of it.
    detail = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    steps = [str(step) for step in detail["loc"] if step != "[key]"]
    place, reason = ".".join(steps), pydantic_reason(detail)
    if detail["type"] == "extra_forbidden":
        table = next((step for step in reversed(steps[:-1]) if step in _TABLES), "")
        hint = did_you_mean(steps[-1], _TABLES[table].model_fields)
        reason += hint and f"; {hint}"
    if detail["type"] == "string_pattern_mismatch":
        form = next(_FORMS[step] for step in reversed(steps) if step in _FORMS)
        reason = f"must be {form}"
        if "sha256" in steps:
            reason += "; gym bench pin prints it"
    return f"{place + ': ' if place else ''}{reason}"
