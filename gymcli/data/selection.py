"""Selects rows of tasks files, by the attempts of runs, and draws from them by environment."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.benchmarks.resolution import task_inputs
from gymcli.environment.registry import Registry, is_code, is_plug_in
from gymcli.errors import FilterError, TasksError, UnknownNameError, UsageError
from gymcli.metrics.measure import index_run
from gymcli.nemo_gym.rows import own_task_id
from gymcli.store.filters import Filter, parse_filter
from gymcli.store.lines import file_sha256, iterate_lines
from gymcli.store.manifest import Manifest
from gymcli.suggestions import did_you_mean
from gymcli.tasks.row_map import map_file_of
from gymcli.tasks.task_files import RowProblem, with_shared_ids
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_row import without_stamps
from gymcli.tasks.task_source import (
    GeneratedTasks,
    Problems,
    TaskFile,
    TaskInput,
    TaskSource,
    env_of_tasks,
    map_tables,
)
from gymcli.types import JSON_ERRORS, JSONObject, RecordHead, TaskRow, digest


class Selection(NamedTuple):
    """Rows of tasks files that were selected."""

    lines: list[bytes]
    """JSON without newlines, in the order of the files; in random order if they were drawn."""
    num_tasks: dict[str, int]
    """Tasks of the runs or files, by environment."""
    num_selected: dict[str, int]
    """Tasks that the filter selects."""
    num_rows: dict[str, int]
    """Rows in `lines`."""
    options: list[str]
    """The options that a collection of the rows needs, such as `--env NAME`."""
    files: list[Path]
    """The tasks files that were read."""


class _Source(NamedTuple):
    """The tasks files of a run, or those on the command line, and the tasks to take from them."""

    place: str
    """For messages."""
    inputs: list[TaskInput]
    options: Mapping[str, object]
    """Those that say how the rows become tasks."""
    registry: Registry
    """Knows the environment of --env, too; of run.json it finds no code."""
    sha256: dict[Path, object]
    """The recorded hashes of files."""
    tasks: set[tuple[str, str]]
    """Environments and ids of all tasks."""
    selected: dict[str, dict[str, str]]
    """Ids of the selected tasks, by the hash of their row and their environment."""

    @property
    def selected_environments(self) -> set[str]:
        return {env for ids_by_env in self.selected.values() for env in ids_by_env}


class _SelectedRow(NamedTuple):
    env: str
    line: bytes
    env_option: str
    """The option for a row that names no environment; empty for others."""
    options: tuple[str, ...]
    """The other options that a collection of this row needs."""


def select_rows(
    sources: Sequence[str | Path],
    *,
    where: str | None = None,
    tasks: Sequence[str | Path] = (),
    env: str | None = None,
    weights: Mapping[str, float] | None = None,
    num: int | None = None,
    seed: int = 0,
) -> Selection:
    """Return the rows of the tasks of runs or tasks files, each task once.

    A row stays as it is, so that its task keeps its id and its hash. There are two exceptions. If
    the rows are of several environments, those without `env` name theirs, and their id if they have
    none. A row also names its task's id if its own one is not unique among the files of the run.

    Args:
        sources: Run directories, or tasks files and names of environments.
        where: Selects each task of which it selects an attempt; for runs only.
        tasks: The tasks files of the runs; default: those that run.json names.
        env: The environment of rows in tasks files, or of lines in runs, that name none.
        weights: Shares of environments, 1 for those that are not in it; the rows are drawn.
        num: Rows to draw; default: all, or as many as the weights allow.
        seed: Seeds what is drawn.

    Raises:
        UsageError: A file or an option is wrong, or nothing is selected.
        TasksError: A file was changed and lacks a selected task, or a row in it is wrong.
    """
    runs = [Path(source) for source in sources if Path(source).is_dir()]
    files = [source for source in sources if not Path(source).is_dir()]
    if files and (where is not None or tasks):
        option = "--tasks" if where is None else "--where"
        raise UsageError(f"{files[0]}: is not a run directory, and {option} needs runs")
    task_filter = None if where is None else parse_filter(where)
    task_sources = [_read_run(run, task_filter, tasks, env) for run in runs]
    task_sources += [_read_tasks_file(file, env) for file in files]
    all_tasks = set().union(*(source.tasks for source in task_sources))
    names = set().union(*(source.selected_environments for source in task_sources))
    if not names:
        condition = "" if where is None else f" matches --where {where}"
        raise UsageError(f"{', '.join(map(str, sources))}: no task{condition}; nothing was written")
    hashes: dict[tuple[str, str], str] = {}
    rows = [
        row for source in task_sources for row in _rows(source, hashes, is_mixed=len(names) > 1)
    ]
    num_selected = Counter(row.env for row in rows)
    if weights or num is not None:
        rows = _draw(rows, weights or {}, num, random.Random(seed))
    options = _common_options(rows)
    return Selection(
        lines=[row.line for row in rows],
        num_tasks=_sort_by_name(Counter(name for name, _ in all_tasks)),
        num_selected=_sort_by_name(num_selected),
        num_rows=_sort_by_name(Counter(row.env for row in rows)),
        options=options,
        files=[item.path for source in task_sources for item in source.inputs],
    )


def _common_options(rows: Sequence[_SelectedRow]) -> list[str]:
    """Return the options that a collection of the rows needs; refuse rows that need others."""
    env_options = sorted({row.env_option for row in rows} - {""})
    option_sets = sorted({row.options for row in rows})
    if len(env_options) > 1 or len(option_sets) > 1:
        texts = [*env_options, *(" ".join(options) or "none" for options in reversed(option_sets))]
        raise UsageError(
            f"a collection of these rows needs different options: {', '.join(texts)}; first fill "
            "in the prompts and name the environments of each file, with gym data render"
        )
    return [*env_options, *option_sets[0]]


def _sort_by_name(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _read_run(
    run: Path, where: Filter | None, tasks: Sequence[str | Path], env: str | None
) -> _Source:
    selected: dict[str, dict[str, str]] = {}
    with index_run(run, env=env) as index:
        manifest = index.manifest
        try:
            numbers = index.select(where)
        except FilterError as error:
            raise FilterError(f"{run}: {error}") from error
        keys = list(zip(index.values("env"), index.values("task_id"), strict=True))
        # One attempt of each task, since all have the same row.
        for number in {keys[number]: number for number in numbers}.values():
            head = msgspec.json.decode(index.line(index.rows[number]), type=RecordHead)
            if not head.task_hash:
                raise UsageError(f"{run}: has no task_hash, which gym collect writes, on its lines")
            name, task_id = keys[number]
            selected.setdefault(head.task_hash, {})[str(name)] = str(task_id)
    if manifest is None and not tasks:
        raise UsageError(f"{run}: has no run.json, which names its tasks; name them with --tasks")
    manifest = manifest or Manifest()
    hashes = {Path(str(file["path"])): file.get("sha256") for file in manifest.tasks}
    inputs = task_inputs(tasks) or [_recorded_input(run, path) for path in hashes]
    options = {**manifest.options, **({"env": env} if env else {})}
    map_file = options.get("map_file")
    if map_file and map_file_of(Path(str(map_file)))[1]:
        # Code comes from the command line, never from data such as run.json.
        if not tasks:
            raise TasksError(f"{run}: its tasks were made by {map_file}; name them with --tasks")
        del options["map_file"]
    all_tasks = {(str(name), str(task_id)) for name, task_id in keys}
    registry = Registry((env,) if env else ())
    return _Source(str(run), inputs, options, registry, hashes, all_tasks, selected)


def _recorded_input(run: Path, path: Path) -> TaskInput:
    if path.is_file():
        return TaskFile(path)
    if is_plug_in(str(path)):
        return GeneratedTasks(str(path))
    # Code comes from the command line, never from data such as run.json.
    location = f"generated by {path}" if is_code(str(path)) else f"in {path}, which is not there"
    raise TasksError(f"{run}: its tasks were {location}; name them with --tasks")


def _read_tasks_file(name: str | Path, env: str | None) -> _Source:
    inputs = task_inputs([name])
    if inputs[0].env is not None:  # an environment, to which its own tasks belong
        env = env_of_tasks(inputs, None)
    registry = Registry((env,) if env else ())
    source = TaskSource(inputs, TaskOptions(env=env), registry)

    def read(shared_ids: frozenset[tuple[str, str]]) -> dict[str, dict[str, str]]:
        source.shared_ids = shared_ids
        problems, selected = Problems(), dict[str, dict[str, str]]()
        for item in source.read():
            if isinstance(item, RowProblem):
                problems.add(item)
            elif isinstance(item, TaskRow):
                selected[item.hash] = {item.env: item.id}
        problems.check()
        return selected

    selected = with_shared_ids(read)
    tasks = {task for ids_by_env in selected.values() for task in ids_by_env.items()}
    return _Source(str(name), inputs, {"env": env}, registry, {}, tasks, selected)


def _rows(
    source: _Source, hashes: dict[tuple[str, str], str], *, is_mixed: bool
) -> Iterator[_SelectedRow]:
    """Yield the selected rows of a source and add them to `hashes`, by environment and id.

    With `is_mixed`, the rows name their environments.
    """
    registry = Registry()
    missing = set(source.selected)
    for place, row, line in _raw_rows(source):
        row_hash = digest(without_stamps(row))
        missing.discard(row_hash)
        for env, task_id in source.selected.get(row_hash, {}).items():
            if (earlier_hash := hashes.get((env, task_id))) is not None:
                if earlier_hash != row_hash:
                    raise TasksError(
                        f'{place}: another task of {env} has the id "{task_id}"; select from the '
                        "runs or files one by one"
                    )
                continue
            hashes[env, task_id] = row_hash
            new_fields: JSONObject = {}
            if is_mixed and row.get("env") is None and _is_known(registry, env):
                new_fields["env"] = env
            own_id = own_task_id(row)
            # A row without an id is named by the hash of its content, which `env` changes.
            if "id_field" not in source.options and own_id != task_id and (new_fields or own_id):
                new_fields["task_id"] = task_id
            new_line = msgspec.json.encode({**row, **new_fields}) if new_fields else line
            yield _SelectedRow(
                env, new_line, *_required_options(source, {**row, **new_fields}, env)
            )
    if missing:
        raise TasksError(_missing_message(source, missing))


def _required_options(source: _Source, row: JSONObject, env: str) -> tuple[str, tuple[str, ...]]:
    settings = source.options
    names_env = any(row.get(name) is not None for name in ("env", "agent_ref"))
    has_prompt = any(row.get(name) for name in ("responses_create_params", "messages", "prompt"))
    names = {"id_field": "--id-field", **({} if has_prompt else {"prompt": "--prompt"})}
    options = [f"{option} {settings[name]}" for name, option in names.items() if settings.get(name)]
    return "" if names_env else f"--env {settings.get('env') or env}", tuple(options)


def _raw_rows(source: _Source) -> Iterator[tuple[str, JSONObject, bytes]]:
    """Yield the place, the row and the line of everything in the files that is a row."""
    env, map_file, prompt = (source.options.get(name) for name in ("env", "map_file", "prompt"))
    tables = map_tables(
        source.inputs,
        Path(str(map_file)) if map_file else None,
        env=str(env) if env else None,
        find=source.registry.find,
        has_template=prompt is not None,
    )
    for path in (item.path for item in source.inputs):
        rows_of = tables.rows_of.get(path)
        if rows_of is not None:
            for number, row in rows_of(path):
                if not isinstance(row, str):
                    yield f"{path}:{number}", row, msgspec.json.encode(row)
            continue
        for line in iterate_lines(path):
            with suppress(*JSON_ERRORS):  # then it is no task of the run, whatever was changed
                row = msgspec.json.decode(line.data, type=JSONObject)
                yield f"{path}:{line.number}", row, line.data


def _is_known(registry: Registry, env: str) -> bool:
    """Return whether a row may name an environment: code and addresses need --env."""
    try:
        return registry.find(env).name == env
    except UnknownNameError:
        return False


def _missing_message(source: _Source, missing: set[str]) -> str:
    task_ids = sorted(
        task_id for row_hash in missing for task_id in source.selected[row_hash].values()
    )
    files = [item.path for item in source.inputs]
    hashes = source.sha256
    changed_files = [
        item.path
        for item in source.inputs
        if isinstance(item, TaskFile)
        and item.path in hashes
        and file_sha256(item.path) != hashes[item.path]
    ]
    example = " ".join(task_ids[0].split())
    return (
        f"{', '.join(map(str, changed_files or files))}: lacks {len(task_ids)} of the selected "
        f'tasks of {source.place}, such as "{example}", as they were collected; name the unchanged '
        "file with --tasks"
    )


def _draw(
    rows: Sequence[_SelectedRow],
    weights: Mapping[str, float],
    num: int | None,
    rng: random.Random,
) -> list[_SelectedRow]:
    """Return rows in random order, of which each environment has the share of its weight."""
    rows_by_env: dict[str, list[_SelectedRow]] = {}
    for row in rows:
        rows_by_env.setdefault(row.env if weights else "", []).append(row)
    for env, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise UsageError(f"--weight {env}={weight:g}: must be 0 or more, and finite")
        if env not in rows_by_env:
            hint = did_you_mean(env, rows_by_env) or f"there are {', '.join(sorted(rows_by_env))}"
            raise UsageError(f"--weight {env}: no selected task is of this environment; {hint}")
    # Exact and as written, so that a share of whole rows is a whole number: 0.1 is a tenth.
    shares = {env: Fraction(str(weights.get(env, 1))) for env in rows_by_env}
    shares = {env: share / sum(shares.values()) for env, share in shares.items() if share}
    if not shares:
        raise UsageError("--weight: every environment has weight 0")
    limits = {env: len(rows_by_env[env]) / share for env, share in shares.items()}
    scarce = min(limits, key=limits.__getitem__)
    max_rows = int(limits[scarce])
    num = max_rows if num is None else num
    if num < 1:
        raise UsageError(f"--num {num}: must be 1 or more")
    if num > max_rows:
        limit_note = (
            f" of {scarce}, so that at most {max_rows} rows have these shares" if weights else ""
        )
        raise UsageError(
            f"--num {num}: there are only {len(rows_by_env[scarce])} tasks{limit_note}"
        )
    # The largest remainders are rounded up, so that the numbers add up.
    exact_sizes = {env: share * num for env, share in shares.items()}
    sizes = {env: int(size) for env, size in exact_sizes.items()}
    by_remainder = sorted(
        exact_sizes, key=lambda env: (int(exact_sizes[env]) - exact_sizes[env], env)
    )
    for env in by_remainder[: num - sum(sizes.values())]:
        sizes[env] += 1
    sample = [row for env in sorted(sizes) for row in rng.sample(rows_by_env[env], sizes[env])]
    rng.shuffle(sample)
    return sample
