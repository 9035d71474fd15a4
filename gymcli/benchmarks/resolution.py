"""Resolves TASKS: names and paths become task files, generated tasks or benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gymcli.environment.registry import environments_with_tasks, is_code, is_plug_in, shipped_tasks
from gymcli.errors import TasksError, UsageError
from gymcli.suggestions import did_you_mean
from gymcli.tasks.task_source import GeneratedTasks, TaskFile, TaskInput

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark import Benchmark


class ResolvedTasks(NamedTuple):
    """What TASKS name: the inputs of one run, or benchmarks, each of which is a run of its own."""

    inputs: list[TaskInput]
    benchmarks: list[Benchmark]


def resolve(tasks: Iterable[str | Path]) -> ResolvedTasks:
    """Return what TASKS name: files, environments and code with tasks, or benchmarks.

    A file, and an environment that ships tasks, come before a benchmark of the same name.

    Raises:
        TasksError: Nothing has one of these names.
        UnknownNameError: Only a benchmark has a similar name, or it has no such variant.
        UsageError: Benchmarks are mixed with other tasks or named twice, or a file of them is
            wrong.
    """
    specs = list(map(str, tasks))
    if all(map(_is_file_or_environment, specs)):
        return ResolvedTasks(task_inputs(specs), [])
    from gymcli.benchmarks.benchmark import benchmark_names, find_benchmark  # late: heavy

    names = [spec for spec in specs if names_benchmark(spec)]
    other_specs = [spec for spec in specs if spec not in names]
    for spec in other_specs:
        exists = Path(spec).exists() or _input_named(spec) is not None
        if not exists and did_you_mean(spec.partition("@")[0], benchmark_names()):
            find_benchmark(spec)  # its error has the suggestion
    if not names:
        return ResolvedTasks(task_inputs(other_specs), [])
    if other_specs:
        raise UsageError(
            f"{other_specs[0]}: is not a benchmark, but {names[0]} is; collect benchmarks and "
            "other tasks in separate commands"
        )
    benchmarks = [find_benchmark(name) for name in names]
    names = [benchmark.name for benchmark in benchmarks]
    if len(set(names)) < len(names):
        repeated_name = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{repeated_name}: is named twice; name each benchmark once")
    return ResolvedTasks([], benchmarks)


def names_benchmark(spec: str) -> bool:
    """Return whether one of TASKS is the name or path of a benchmark, or of a variant of it."""
    if _is_file_or_environment(spec):
        return False
    from gymcli.benchmarks.benchmark import has_benchmark  # late: heavy

    return has_benchmark(spec)


def _is_file_or_environment(spec: str) -> bool:
    path = Path(spec)
    return (path.suffix != ".toml" and path.is_file()) or shipped_tasks(spec) is not None


def task_inputs(tasks: Iterable[str | Path]) -> list[TaskInput]:
    """Return what TASKS name where no benchmark can be meant.

    Raises:
        TasksError: There is no such file, and no environment of this name has tasks.
    """
    inputs = []
    for spec in map(str, tasks):
        task_input = _input_named(spec)
        if task_input is None:
            raise _missing_input(spec)
        inputs.append(task_input)
    return inputs


def _input_named(spec: str) -> TaskInput | None:
    path = Path(spec)
    if is_code(spec):
        return GeneratedTasks(spec, is_code=True)
    if path.is_file():
        return TaskFile(path)
    if (tasks_file := shipped_tasks(spec)) is not None:
        return TaskFile(tasks_file, spec)
    return GeneratedTasks(spec) if is_plug_in(spec) else None


def _missing_input(spec: str) -> TasksError:
    path = Path(spec)
    if path.is_dir():
        return TasksError(
            f"{path}: is a folder without a benchmark.toml; name a JSONL, CSV, Parquet or "
            "Excel file"
        )
    if path.exists():
        return TasksError(f"{path}: is not a regular file; tasks are read more than once")
    if spec.startswith("hf:"):
        return TasksError(f"{spec}: fetch it first: gym data pull {spec} -o FILE")
    hint = did_you_mean(spec, environments_with_tasks())
    return TasksError(
        f"{path}: no such file, and no environment of this name has tasks{hint and f'; {hint}'}"
    )
