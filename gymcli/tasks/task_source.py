"""The tasks of a run: reads the rows of its files, checks all and selects some."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from pydantic import ValidationError

from gymcli.environment.contract import Environment
from gymcli.environment.registry import (
    NUM_GENERATED,
    Registration,
    Registry,
    generated_lines,
    generates,
    own_options,
)
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import EpisodeError, TasksError, UnknownNameError, UsageError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import Line, decoded_lines, file_sha256
from gymcli.store.shards import Shard
from gymcli.suggestions import did_you_mean, pydantic_reason
from gymcli.tasks.column_inference import infer_map, mapped_file, refuse_raw_rows, table_defaults
from gymcli.tasks.row_map import map_rows, read_map
from gymcli.tasks.table_files import is_table, table_notes
from gymcli.tasks.task_files import (
    IgnoredParameter,
    Outline,
    RowProblem,
    read_outlines,
    read_tasks,
    with_shared_ids,
)
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_row import PromptTemplate, RowsOf, TaskReading, task_row, working_directory
from gymcli.types import JSONObject, TaskRow

_MAX_LISTED = 20
_MAX_NUMBERS = 5
"""How many further rows with the same problem are named."""
_MAX_HELD_BYTES = 1 << 21
"""How many bytes of selected rows, as JSON, are held so that they are not decoded again."""
_MAX_COMPARED = 10_000
"""How many ids are searched for one that resembles a mistyped id."""
_UNWRITABLE = "contains a key in use, which is never written; give it another"


class TaskSource:
    """The tasks of a run, which can be read repeatedly.

    Without `needs_env`, the environment of a row that names none is the empty text.

    Raises:
        UnknownNameError: There is no environment with the name in the options.
        UsageError: The columns of a table do not say how it becomes tasks.
    """

    def __init__(
        self,
        inputs: Sequence[TaskInput],
        options: TaskOptions,
        registry: Registry,
        *,
        needs_env: bool = True,
    ) -> None:
        if options.env is not None:
            # Called for its error, before any row is read.
            registry.find(options.env)
        self.options = options
        self.paths = [item.path for item in inputs]
        self.template = PromptTemplate.read(options.prompt) if options.prompt else None
        self.asked_ids = frozenset(options.task_ids or ())
        self.shard = Shard.parse(options.shard) if options.shard else None
        self.shared_ids: frozenset[tuple[str, str]] = frozenset()
        """Environments and ids that different rows of NeMo Gym share; these rows get new ids."""
        is_any_row_selected = options.shuffle or bool(options.task_ids)
        self._max_tasks = None if is_any_row_selected else options.limit
        """How many tasks of each file are read and checked; None: all."""
        self._copies: dict[int, int] | None = None
        """`first_attempt` of duplicate rows, by position."""
        self._stamps_read: list[tuple[int, ...]] | None = None
        """The state of the files just before they were read."""
        self._held_rows: list[TaskRow] = []
        """The selected rows of this shard, if they are few."""
        self._num_held_bytes = 0
        tables = map_tables(
            inputs,
            options.map_file,
            env=options.env,
            find=registry.find,
            has_template=self.template is not None,
            id_field=options.id_field,
        )
        self._sha256_of = tables.sha256_of
        self.notes = tables.notes
        """Which columns of tables became which fields, a line for each file."""
        self._reading = TaskReading(
            default_env=options.env if needs_env else options.env or "",
            default_envs=tables.default_envs,
            rows_of=tables.rows_of,
            template=self.template,
            id_field=options.id_field,
            id_by_file=options.id_by_file,
            canonical_env=lambda name: registry.find(name).name if name or needs_env else "",
            env_of_agent=registry.env_of_agent,
            folder=working_directory(),
        )

    def sha256(self, path: Path) -> str:
        """Return the hash of a file, or of the rows that are generated in its place."""
        return self._sha256_of.get(path) or file_sha256(path)

    @property
    def has_tables(self) -> bool:
        """Whether a file is not JSON Lines."""
        return bool(self._reading.rows_of)

    @property
    def id_warnings(self) -> list[str]:
        """A warning about ids that different rows share."""
        if not self.shared_ids:
            return []
        _, task_id = min(self.shared_ids)
        id_text = " ".join(task_id.split())
        return [
            f"different rows of NeMo Gym share {len(self.shared_ids)} ids, such as "
            f'"{id_text}": these tasks are named ID-HASH, with the first 8 digits of the hash of '
            "their content"
        ]

    def outlines(self) -> dict[str, Outline]:
        """Return the outline of each file of which only the first rows are read; by path."""
        if self._max_tasks is None:
            return {}
        outlines = read_outlines(self.paths, self._reading)
        if outlines is None:  # an id may be shared with the last row
            self._max_tasks = None
        return outlines or {}

    def read(self) -> Iterator[TaskRow | RowProblem | IgnoredParameter]:
        """Yield every row of the files, or the problem in place of a wrong one.

        If the options select the first tasks of each file, the rows after these are not read.
        """
        stamps = self._stamps()
        copies: dict[int, int] = {}
        num_tasks = 0
        self._held_rows, self._num_held_bytes = [], 0
        reading = self._reading._replace(shared_ids=self.shared_ids)
        for item in read_tasks(self.paths, reading, max_tasks=self._max_tasks):
            if isinstance(item, TaskRow):
                if item.first_attempt:
                    copies[num_tasks] = item.first_attempt
                num_tasks += 1
            yield item
        self._copies, self._stamps_read = copies, stamps

    def hold(self, row: TaskRow) -> None:
        """Hold the next selected row of this shard, which is then not decoded again.

        No row is held any more once they are many.
        """
        if self._num_held_bytes <= _MAX_HELD_BYTES:
            self._held_rows.append(row)
            self._num_held_bytes += len(msgspec.json.encode(row))
            if self._num_held_bytes > _MAX_HELD_BYTES:
                self._held_rows = []

    def rows(self, max_tasks: int | None = None) -> Iterator[TaskRow]:
        """Yield all tasks of checked files, or `max_tasks` of each.

        Raises:
            TasksError: A row has become invalid.
        """
        # Finding duplicates takes 30 MB for 200,000 tasks, so the result of `read` is used unless
        # a file has changed.
        is_unchanged = self._stamps() == self._stamps_read
        copies = self._copies if is_unchanged and max_tasks == self._max_tasks else None
        reading = self._reading._replace(shared_ids=self.shared_ids)
        for item in read_tasks(self.paths, reading, copies, max_tasks=max_tasks):
            if isinstance(item, RowProblem):
                if is_unchanged and self._max_tasks is not None:
                    continue  # it is after the rows that were checked
                raise TasksError(
                    f"{item.place}: was changed after it was checked and is no longer a task: "
                    f"{item.reason}; correct it and run the same command again"
                )
            if isinstance(item, TaskRow):
                yield item

    def row(self, fields: JSONObject, *, place: str) -> TaskRow:
        """Return the task of a row that is in no file; `place` names it in errors.

        Raises:
            TasksError: The row cannot be used.
        """
        try:
            return task_row(fields, self._reading, place=place, prefix="")[0]
        except (ValueError, RecursionError) as error:
            raise TasksError(f"{place}: {error}") from error

    def _stamps(self) -> list[tuple[int, ...]] | None:
        try:
            paths = [path for path in self.paths if path not in self._sha256_of]
            stats = [self._reading.place(path).stat() for path in paths]
        except OSError:
            return None
        # Enough to notice a file that was edited or replaced, without reading it.
        return [(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats]

    def selected(self) -> Iterator[TaskRow]:
        """Yield the selected rows of this shard, in order."""
        if self._held_rows and self._stamps() == self._stamps_read:
            return iter(self._held_rows)
        rows, shard = self.select(self.rows(self._max_tasks)), self.shard
        return rows if shard is None else (row for row in rows if shard.takes(row.hash))

    def select(self, rows: Iterator[TaskRow]) -> Iterator[TaskRow]:
        """Yield the rows that the options select, of all shards, in the order of the run."""
        options = self.options
        if self.asked_ids:
            rows = (row for row in rows if row.id in self.asked_ids)
        if options.shuffle:
            held = list(rows)
            random.Random(options.seed or 0).shuffle(held)
            rows = iter(held)
        # After shuffling, so that `--limit` takes a random sample.
        return rows if options.limit is None else _first_of_files(rows, options.limit)


def _first_of_files(rows: Iterable[TaskRow], limit: int) -> Iterator[TaskRow]:
    num_of_file: Counter[str] = Counter()
    for row in rows:
        file = row.place.rpartition(":")[0]
        num_of_file[file] += 1
        if num_of_file[file] <= limit:
            yield row


class TaskFile(NamedTuple):
    """A file with tasks."""

    path: Path
    env: str | None = None
    """The environment that ships it, which plays the rows that name none."""


class GeneratedTasks(NamedTuple):
    """Tasks that an environment generates."""

    env: str
    is_code: bool = False
    """Whether the environment is code, `FILE.py:CLASS`, which then plays all tasks of the run."""

    @property
    def path(self) -> Path:
        """The environment's name, which stands for a file in records and messages."""
        return Path(self.env)


TaskInput = TaskFile | GeneratedTasks


def env_of_tasks(inputs: Sequence[TaskInput], env: str | None) -> str | None:
    """Return the value of --env, else the code that generates the tasks.

    Raises:
        UsageError: Code is named together with other tasks, which it would play too.
    """
    generated = (item for item in inputs if isinstance(item, GeneratedTasks))
    code = next((item.env for item in generated if item.is_code), None)
    if env is None and code is not None and len(inputs) > 1:
        raise UsageError(
            f"{code}: its tasks are collected alone; write them to a file with gym data generate "
            f"{code} -o FILE, or play all tasks in it with --env {code}"
        )
    return code if env is None else env


class MappedTables(NamedTuple):
    """How to read the files of a run that are not JSON Lines, and what was inferred."""

    rows_of: dict[Path, RowsOf]
    default_envs: dict[Path, str]
    """The environment of rows that name none, by file; only without an `env` for all."""
    notes: list[str]
    """Which columns became which fields, a line for each table."""
    sha256_of: dict[Path, str]
    """Hashes of generated rows, which are in no file."""


def map_tables(
    inputs: Iterable[TaskInput],
    map_file: Path | None,
    *,
    env: str | None,
    find: Callable[[str], Registration],
    has_template: bool,
    id_field: str | None = None,
) -> MappedTables:
    """Return how to read files: by the given map, else tables by their columns.

    Raises:
        UsageError: The map is wrong, or the columns of a table do not say how it becomes tasks.
    """
    table_map = None if map_file is None else read_map(map_file)
    tables = MappedTables({}, {}, [], {})
    for item in inputs:
        path, implied = item.path, item.env
        if isinstance(item, GeneratedTasks):
            lines = _generated(item.env, find if item.env == env else None)
            tables.rows_of[path] = partial(_decoded, lines)
            tables.sha256_of[path] = hashlib.sha256(b"".join(lines)).hexdigest()
            tables.notes.append(f"{path}: {len(lines)} tasks that it generates from seed 0")
        elif item.env is None:
            tables.notes.extend(table_notes(path))
            if table_map is not None:
                tables.rows_of[path] = partial(mapped_file, table_map, table_defaults(env, find))
            elif is_table(path):
                inferred = infer_map(path, env, find, has_template=has_template, id_field=id_field)
                implied = inferred.env
                defaults = table_defaults(env or implied, find, has_choices=implied is not None)
                inferred_map = partial(map_rows, inferred.task)
                tables.rows_of[path] = partial(mapped_file, inferred_map, defaults)
                if inferred.note:
                    tables.notes.append(f"{path}: {inferred.note}")
            elif not has_template:
                refuse_raw_rows(path, env, find)
        if env is None and implied is not None:
            tables.default_envs[path] = implied
    return tables


def _generated(spec: str, find: Callable[[str], Registration] | None) -> list[bytes]:
    code = (find or Registry((spec,)).find)(spec)
    if not generates(code):
        raise UsageError(
            f"{spec}: generates no tasks: give a tasks file with --env {spec}, or write `generate`"
        )
    try:
        lines = list(itertools.islice(generated_lines(code), NUM_GENERATED))
    except EpisodeError as error:
        raise UsageError(f"{spec}: its tasks cannot be generated: {error}") from error
    if not lines:
        raise UsageError(f"{spec}: its `generate` yields no rows")
    return lines


def _decoded(lines: Sequence[bytes], _: Path) -> Iterator[tuple[int, JSONObject | str]]:
    return decoded_lines(Line(number, line, True) for number, line in enumerate(lines, 1))


@dataclass
class _Repeated:
    """A problem that several rows of a file have."""

    first: RowProblem
    last_place: str = ""
    num_rows: int = 0
    numbers: list[str] = field(default_factory=list)
    """Of the first rows after `first`."""

    def __str__(self) -> str:
        if self.num_rows == 1:
            return str(self.first)
        num_more = self.num_rows - 1
        ellipsis = ", ..." if num_more > len(self.numbers) else ""
        rows = "row" if num_more == 1 else "rows"
        return f"{self.first} ({num_more} more {rows}: {', '.join(self.numbers)}{ellipsis})"


class Problems:
    """The first problems of rows, each once for a file, and the number of wrong rows."""

    def __init__(self, max_listed: int = _MAX_LISTED) -> None:
        self.num_rows = 0
        self._max_listed = max_listed
        self._num_listed = 0
        self._last_place = self._last_listed = ""
        self._repeated: dict[tuple[str, str], _Repeated] = {}
        """By file and reason."""

    def add(self, problem: RowProblem) -> None:
        """Count a problem; problems of one row must be added in a row."""
        place, reason = problem
        self.num_rows += place != self._last_place
        self._last_place = place
        file, _, number = place.rpartition(":")
        if (file, reason) not in self._repeated and len(self._repeated) == self._max_listed:
            return
        self._num_listed += place != self._last_listed
        self._last_listed = place
        repeated = self._repeated.setdefault((file, reason), _Repeated(problem))
        if place == repeated.last_place:
            return
        if 0 < repeated.num_rows <= _MAX_NUMBERS:
            repeated.numbers.append(number)
        repeated.num_rows += 1
        repeated.last_place = place

    def lines(self) -> list[str]:
        """Return the problems, a line each, and the number of wrong rows that have others."""
        num_more = self.num_rows - self._num_listed
        rows = "row is" if num_more == 1 else "rows are"
        more = [f"and {num_more} more {rows} wrong"] if num_more else []
        return [*map(str, self._repeated.values()), *more]

    def check(self) -> None:
        """Raise TasksError if there are problems."""
        if self._repeated:
            raise TasksError("\n".join(self.lines()))


def row_problems(
    row: TaskRow, registration: Registration, options: EnvironmentOptions
) -> list[str]:
    """Return the problems of a row in its environment with these options."""
    problems: list[str] = []
    try:
        task = registration.environment.parse_task(row.fields)
        registration.environment.check_task(task, options)
    except ValidationError as error:
        problems += _field_problems(error, registration.name)
    except ValueError as error:
        problems.append(f"{error} (environment {registration.name})")
    if row.tools:
        problems += _tool_problems(row.tools, registration)
    return problems


def _missing_mark(row: TaskRow, registration: Registration, options: EnvironmentOptions) -> str:
    """Return what an answer to this row needs in order to be read, if no message mentions it."""
    try:
        mark = registration.environment.answer_mark(
            registration.environment.parse_task(row.fields), options
        )
    except ValueError:  # `row_problems` names it
        return ""
    return "" if any(mark in message.text for message in row.messages) else mark


def _field_problems(error: ValidationError, env: str) -> Iterator[str]:
    for detail in error.errors():
        field = ".".join(str(step) for step in detail["loc"])
        if detail["type"] == "missing":
            yield f'"{field}" is missing (environment {env} needs it)'
        else:
            field_prefix = f'"{field}": ' if field else ""
            yield f"{field_prefix}{pydantic_reason(detail)} (environment {env})"


def _tool_problems(tools: list[JSONObject], registration: Registration) -> Iterator[str]:
    environment = registration.environment
    # An overridden `tools` can be called only on an instance, in an episode.
    if not environment.executes_tools or environment.tools is not Environment.tools:
        return
    method_tools = environment.method_tools()
    for tool in tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name is not None and name not in method_tools:
            names = ", ".join(method_tools) or "none"
            yield f'tool "{name}" is not one of environment {registration.name} (it has: {names})'


@dataclass(eq=False)
class Survey:
    """The results of the first pass over the tasks."""

    environments: dict[str, Registration] = field(default_factory=dict)
    num_rows: Counter[str] = field(default_factory=Counter)
    """Selected rows by environment."""
    num_rows_of_all_shards: Counter[str] = field(default_factory=Counter)
    """Selected rows by environment, including other shards."""
    missing_marks: dict[str, str] = field(default_factory=dict)
    """What --prompt does not mention though an environment reads no answer without it."""
    num_tasks: int = 0
    """Selected rows without duplicates."""
    most_copies: int = 1
    """The largest number of identical rows of a task."""
    group_sizes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Selected attempts by environment and task id, if attempts of a task are scored together."""
    files: list[JSONObject] = field(default_factory=list)
    """`path`, `sha256` and `num_rows` of each file."""
    param_names: set[str] = field(default_factory=set)
    ignored: set[str] = field(default_factory=set)

    @property
    def num_selected(self) -> int:
        """Selected rows of all environments."""
        return self.num_rows.total()

    def env_warnings(self, env: str | None, registry: Registry) -> list[str]:
        """Return a warning if `env`, the value of --env, is the environment of no row."""
        if env is None or registry.find(env).name in self.environments:
            return []
        return [f"--env {env} is not used: every row names {', '.join(sorted(self.environments))}"]

    def prompt_warnings(self, prompt: Path | None) -> list[str]:
        """Return a warning for each environment that can read no answer to `prompt` of --prompt."""
        return [
            f"--prompt {prompt}: does not mention {mark}, without which {name} reads no answer"
            for name, mark in self.missing_marks.items()
        ]


def survey(source: TaskSource, registry: Registry, scrubber: Scrubber = NOTHING_SECRET) -> Survey:
    """Read and check every row, and count the selected ones.

    An id or a name of an environment that contains a key in use is an error: it would be redacted
    on disk.

    Raises:
        TasksError: Rows are wrong; the first 20 problems are listed.
        UnknownNameError: No task has an id that `--task` names.
        UsageError: An option of an environment is wrong.
    """
    outlines = source.outlines()

    def work(shared_ids: frozenset[tuple[str, str]]) -> Survey:
        source.shared_ids = shared_ids
        return _surveyed(source, registry, scrubber, outlines)

    return with_shared_ids(work)


def _surveyed(
    source: TaskSource, registry: Registry, scrubber: Scrubber, outlines: Mapping[str, Outline]
) -> Survey:
    result = Survey()
    options, shard = source.options, source.shard
    num_rows_of_file: Counter[str] = Counter()
    missing = set(source.asked_ids)
    is_sample = options.shuffle and options.limit is not None
    sampled: set[tuple[str, str]] = set()
    checked = _checked(source, registry, scrubber, result, num_rows_of_file, missing)
    for row in source.select(checked):
        result.num_rows_of_all_shards[row.env] += 1
        if shard is not None and not shard.takes(row.hash):
            continue
        result.num_rows[row.env] += 1
        source.hold(row)
        result.most_copies = max(result.most_copies, row.first_attempt + 1)
        if result.environments[row.env].environment.scores_groups():
            result.group_sizes[row.env, row.id] += options.repeats
        if is_sample:  # a sample may hold a duplicate without the first row
            sampled.add((row.env, row.id))
        else:
            result.num_tasks += row.first_attempt == 0
    result.num_tasks += len(sampled)
    for path, outline in outlines.items():
        # A file that is named twice is read twice.
        num_rows_of_file[path] = outline.num_rows * source.paths.count(Path(path))
        result.param_names |= outline.param_names
        for env in outline.environments - result.environments.keys():
            result.environments[env] = registry.find(env)
            own_options(options.env_args, result.environments[env])
    if missing:
        task_id = min(missing)
        first_ids = dict.fromkeys(row.id for row in itertools.islice(source.rows(), _MAX_COMPARED))
        hint = did_you_mean(task_id, first_ids)
        raise UnknownNameError(f"--task {task_id}: no task has this id{hint and f' ({hint})'}")
    if not num_rows_of_file:
        names = ", ".join(str(path) for path in source.paths)
        expected = "" if source.has_tables else "; expected one JSON object a line"
        raise TasksError(f"{names}: no tasks{expected}")
    result.files = [
        {"path": str(path), "sha256": source.sha256(path), "num_rows": num_rows_of_file[str(path)]}
        for path in source.paths
    ]
    return result


def _checked(
    source: TaskSource,
    registry: Registry,
    scrubber: Scrubber,
    result: Survey,
    num_rows_of_file: Counter[str],
    missing: set[str],
) -> Iterator[TaskRow]:
    """Yield all rows, selected or not; raise TasksError after the last one if any is wrong."""
    problems = Problems()
    env_options: dict[str, EnvironmentOptions] = {}
    unwritable: set[str] = set()
    for item in source.read():
        if isinstance(item, RowProblem):
            problems.add(item)
            continue
        if isinstance(item, IgnoredParameter):
            result.ignored.add(item.name)
            continue
        registration = result.environments.get(item.env)
        if registration is None:
            registration = result.environments[item.env] = registry.find(item.env)
            env_options[item.env] = own_options(source.options.env_args, registration)
            if scrubber.text(item.env) != item.env:
                unwritable.add(item.env)
            if source.template and (
                mark := _missing_mark(item, registration, env_options[item.env])
            ):
                result.missing_marks[item.env] = mark
        texts = row_problems(item, registration, env_options[item.env])
        if item.env in unwritable:
            texts.insert(0, f"the name of the environment {_UNWRITABLE} name")
        if scrubber.text(item.id) != item.id:
            texts.insert(0, f"the task's id {_UNWRITABLE} id, or name its field with --id-field")
        for text in texts:
            problems.add(RowProblem(item.place, text))
        result.param_names.update(item.params)
        num_rows_of_file[item.place.rpartition(":")[0]] += 1
        missing.discard(item.id)
        yield item
    problems.check()
