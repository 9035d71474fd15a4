"""The tasks of a run: the rows of its files, and which of them are selected in what order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gymcli.environment.registry import Registry, shipped_tasks
from gymcli.errors import TasksError
from gymcli.runner.collect_options import CollectOptions
from gymcli.store.shards import Shard
from gymcli.store.task_row import PromptTemplate, TaskReading, working_directory
from gymcli.store.tasks import IgnoredParameter, RowProblem, read_tasks
from gymcli.types import TaskRow

__all__ = ["TaskSource", "TasksFile", "file_of", "named_file"]


class TaskSource:
    """The tasks of a run, which can be read from the start as often as wanted.

    Raises:
        TasksError: A path is no file.
        UnknownNameError: The environment of the options is not there.

    """

    def __init__(
        self, tasks: Iterable[str | Path], options: CollectOptions, registry: Registry
    ) -> None:
        named = [named_file(task) for task in tasks]
        if options.env is not None:
            registry.find(options.env)
        self.paths = [file.path for file in named]
        self.template = PromptTemplate.read(options.prompt) if options.prompt else None
        self.asked_ids = frozenset(options.task_ids or ())
        self._shard = Shard.parse(options.shard) if options.shard else None
        self._options = options
        self.shared_ids: frozenset[tuple[str, str]] = frozenset()
        """Environments and ids of different rows of NeMo Gym, which are told apart."""
        self._copies: dict[int, int] | None = None
        """`first_attempt` of the copies among the tasks that were read, by position."""
        self._stamps_read: list[tuple[int, ...]] | None = None
        """Of the files, just before they were read."""
        shipped = {file.path: file.env for file in named if file.env is not None}
        self._reading = TaskReading(
            default_env=options.env,
            default_envs=shipped if options.env is None else {},
            template=self.template,
            id_field=options.id_field,
            id_by_file=options.id_by_file,
            canonical_env=lambda name: registry.find(name).name,
            env_of_agent=lambda name, default: registry.find_agent(name, default).name,
            folder=working_directory(),
        )

    @property
    def env_args(self) -> Mapping[str, str]:
        """Options of environments, as the command line gives them."""
        return self._options.env_args

    @property
    def repeats(self) -> int:
        """Attempts of each row."""
        return self._options.repeats

    @property
    def is_sample(self) -> bool:
        """Whether only some rows, drawn at random, are selected."""
        return self._options.shuffle and self._options.limit is not None

    def read(self) -> Iterator[TaskRow | RowProblem | IgnoredParameter]:
        """Yield every row of the files, with what is wrong in its place."""
        stamps = self._stamps()
        copies: dict[int, int] = {}
        num_tasks = 0
        for item in read_tasks(self.paths, self._reading._replace(shared_ids=self.shared_ids)):
            if isinstance(item, TaskRow):
                if item.first_attempt:
                    copies[num_tasks] = item.first_attempt
                num_tasks += 1
            yield item
        self._copies, self._stamps_read = copies, stamps

    def rows(self) -> Iterator[TaskRow]:
        """Yield the tasks of files that were read and checked before.

        What tells copies from other rows is some 30 MB of 200,000 tasks. `read` needs it before
        the run; here it is spared, unless a file was changed.

        Raises:
            TasksError: A row is no task any more.
            UsageError: A file cannot be read.

        """
        copies = self._copies if self._stamps() == self._stamps_read else None
        reading = self._reading._replace(shared_ids=self.shared_ids)
        for item in read_tasks(self.paths, reading, copies):
            if isinstance(item, RowProblem):
                raise TasksError(
                    f"{item.place}: was changed after it was checked, and is no task now: "
                    f"{item.reason}; mend it, and give the same command again"
                )
            if isinstance(item, TaskRow):
                yield item

    def _stamps(self) -> list[tuple[int, ...]] | None:
        """Return what tells the files from their changed selves; None where one is not there."""
        try:
            stats = [self._reading.place(path).stat() for path in self.paths]
        except OSError:
            return None
        return [(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats]

    @property
    def id_warnings(self) -> list[str]:
        """The warning of ids that different rows share."""
        if not self.shared_ids:
            return []
        _, task_id = min(self.shared_ids)
        shown = " ".join(task_id.split())
        return [
            f"{len(self.shared_ids)} ids are those of different rows of NeMo Gym, such as "
            f'"{shown}": these tasks are named ID-HASH, by the first 8 digits of the hash of their '
            "content"
        ]

    def selected(self) -> Iterator[TaskRow]:
        """Yield the rows that are to be run, in their order."""
        return filter(self.is_in_shard, self.select(self.rows()))

    def select(self, rows: Iterator[TaskRow]) -> Iterator[TaskRow]:
        """Yield the rows that the options ask for, of all shards, in the order of the run."""
        options = self._options
        if self.asked_ids:
            rows = (row for row in rows if row.id in self.asked_ids)
        if options.shuffle:
            held = list(rows)
            random.Random(options.seed or 0).shuffle(held)
            rows = iter(held)
        return rows if options.limit is None else _first_of_files(rows, options.limit)

    def is_in_shard(self, row: TaskRow) -> bool:
        """Return whether a row is in the shard that is asked for."""
        return self._shard is None or self._shard.takes(row.hash)


def file_of(row: TaskRow) -> str:
    """Return the name of the file that a row stands in."""
    return row.place.rpartition(":")[0]


def _first_of_files(rows: Iterable[TaskRow], limit: int) -> Iterator[TaskRow]:
    """Yield at most `limit` rows of each file."""
    num_of_file: Counter[str] = Counter()
    for row in rows:
        file = file_of(row)
        num_of_file[file] += 1
        if num_of_file[file] <= limit:
            yield row


class TasksFile(NamedTuple):
    """A tasks file as it was named on the command line."""

    path: Path
    env: str | None
    """The environment that ships the file."""


def named_file(task: str | Path) -> TasksFile:
    """Return the file that is meant: the path, or the tasks that ship with an environment.

    Raises:
        TasksError: It is neither, or no regular file.

    """
    path = Path(task)
    if path.is_file():
        return TasksFile(path, None)
    shipped = shipped_tasks(str(task))
    if shipped is not None:
        return TasksFile(shipped, str(task))
    if path.is_dir():
        raise TasksError(f"{path}: is a folder; give a JSONL file")
    if path.exists():
        raise TasksError(f"{path}: is no regular file; tasks are read more than once")
    raise TasksError(f"{path}: no such file, and no environment of this name ships tasks")
