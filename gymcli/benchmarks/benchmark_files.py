"""Pulls the tasks of a benchmark into a cache, and checks that they are what it names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

import gymcli.envs
from gymcli.benchmarks.benchmark import Benchmark, existing_file
from gymcli.benchmarks.benchmark_source import file_name
from gymcli.benchmarks.source_files import SourceFile, changed_error, fetch_files
from gymcli.environment.registry import Registry, generated_lines
from gymcli.errors import GymError, RunError, TasksError, UsageError
from gymcli.store.lines import file_sha256
from gymcli.tasks.pulling import (
    HUB,
    Provenance,
    hub_address,
    hub_tables,
    write_tasks,
)
from gymcli.tasks.row_map import MappedRows, map_file_of, read_map
from gymcli.tasks.table_files import SourceRow, SourceTable, local_rows
from gymcli.tasks.task_row import PromptTemplate, read_yaml
from gymcli.types import JSON_ERRORS, JSONObject, Message, digest

_READING = 1
"""Raised when the same source becomes other tasks."""


def default_cache() -> Path:
    """Return the folder for pulled tasks: gymcli/benchmarks in XDG_CACHE_HOME, or in ~/.cache."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # By the XDG specification a relative path is ignored.
    return (home if home.is_absolute() else Path.home() / ".cache") / "gymcli" / "benchmarks"


def tasks_path(benchmark: Benchmark, cache: Path | None = None) -> Path:
    """Return where a benchmark's tasks are once they are pulled.

    The folder's name is a hash of everything that determines the rows, so a new revision or map has
    a new file.
    """
    source = benchmark.source.model_dump(
        mode="json", exclude={"gated", "licence"}, exclude_defaults=True
    )
    files = [path for path in [map_file(benchmark)] if path is not None]
    if benchmark.examples is not None:
        source["examples"] = benchmark.examples.model_dump(exclude_none=True)
        files += filter(None, [benchmark.template_path, benchmark.examples_path])
    if (env := benchmark.source.env) is not None:
        folder = Path(gymcli.envs.__path__[0])
        files += sorted([*folder.glob(f"{env}.py"), *(folder / env).rglob("*.py")])
        files += sorted((gymcli.envs.DATASETS / env).glob("*.py"))
    # What a commit names is up to the Hub that is asked, unless a hash pins the rows.
    hub = [hub_address()] if benchmark.source.hf and not _are_rows_pinned(benchmark) else []
    key = digest([_READING, source, [file_sha256(path) for path in files], *hub])
    # A variant with the same rows has the same file.
    name = benchmark.name.removesuffix(benchmark.variant_suffix)
    return (cache or default_cache()) / name / key / f"{name}.jsonl"


def pulled_tasks(
    benchmark: Benchmark,
    *,
    cache: Path | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the file with a benchmark's tasks, which is pulled unless the cache has it unchanged.

    Args:
        benchmark: The benchmark.
        cache: The folder of the cache; by default that of `default_cache`.
        notify: Called with messages for the user.

    Raises:
        UsageError: The rows cannot be fetched, or are not what the benchmark names. A damaged or
            unfinished download leaves no file.
        RunError: A server cannot be reached.
    """
    if benchmark.source.file is not None:
        path = existing_file(benchmark, "source.file", benchmark.source.file)
        if (sha256 := file_sha256(path)) != (expected := benchmark.source.sha256[0]):
            raise changed_error(benchmark, f"{path}: its SHA-256", sha256, expected)
    path = tasks_path(benchmark, cache)
    if path.is_file():
        pulled = _provenance(path)
        if pulled is not None and pulled.sha256 == file_sha256(path):
            return path
        notify(f"warning: {path}: has changed since it was pulled; pulling {benchmark.name} again")
    source = benchmark.source
    tasks = "1 task" if source.rows == 1 else f"{source.rows:,} tasks"
    notify(f"pulling {benchmark.name}: {tasks} from {source.text}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path.parent}: cannot be created: {error.strerror}; set XDG_CACHE_HOME or --cache to "
            "another folder"
        ) from error
    try:
        with _temporary_folder() as folder:
            files = fetch_files(benchmark, folder)
            check = partial(_check, benchmark, path)
            write_tasks(path, lambda: _read(benchmark, files), check=check)
    except RunError as error:
        raise RunError(
            f"{error}; on a machine with a network, gym bench pull {benchmark.spec} --cache DIR "
            f"fetches it: copy the folders in DIR to {path.parents[2]}"
        ) from error
    return path


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        with TemporaryDirectory(prefix="gymcli-") as folder:
            yield Path(folder)
    except OSError as error:
        raise UsageError(
            f"temporary files cannot be written: {error.strerror or error}; set TMPDIR to a folder "
            "with more space"
        ) from error


class Hashes(NamedTuple):
    """The hashes that pin the rows of a benchmark."""

    source: list[str]
    """`sha256` under `[source]`."""
    examples: str | None = None
    """`sha256` of its examples, if these are a split of the data set."""


def source_hashes(benchmark: Benchmark) -> Hashes:
    """Read the rows of a benchmark, and return their hashes.

    Raises:
        UsageError: The rows cannot be read.
        RunError: A server cannot be reached.
    """
    source, examples = benchmark.source, benchmark.examples
    if source.hf is not None:
        split = examples and examples.split
        return Hashes(
            [_hub_hash(benchmark, source.split)], _hub_hash(benchmark, split) if split else None
        )
    if source.file is not None:
        return Hashes([file_sha256(existing_file(benchmark, "source.file", source.file))])
    with _temporary_folder() as folder:
        if source.env is not None:
            tasks_file = write_tasks(folder / "tasks.jsonl", lambda: _read(benchmark, []))
            return Hashes([tasks_file.provenance.sha256])
        return Hashes([file.sha256 for file in fetch_files(benchmark, folder)])


def _hub_hash(benchmark: Benchmark, split: str | None) -> str:
    tables, record = _hub_tables(benchmark, split)
    list(_rest(tables))
    assert record.source_sha256 is not None, "all rows were read"
    return record.source_sha256


def _check(benchmark: Benchmark, path: Path, record: Provenance) -> None:
    """Compare what was read with what the benchmark names, or with an earlier pull."""
    source = benchmark.source
    if record.num_rows != source.rows:
        raise UsageError(
            f"{benchmark.path}: source.rows: expected {source.rows:,} tasks, found "
            f"{record.num_rows:,}"
        )
    if source.env is not None and source.sha256 and source.sha256[0] != record.sha256:
        raise UsageError(
            f"{record.benchmark}: the SHA-256 of the tasks that {source.env} generates is "
            f"{record.sha256}, not {source.sha256[0]}: its scores could not be compared with those "
            "of others; install the version of gymcli, or of the package with the environment, "
            "that generates the same tasks"
        )
    hashes = [(record.source_sha256, source.sha256[0] if source.sha256 else None)]
    if benchmark.examples is not None:
        hashes.append((record.examples_sha256, benchmark.examples.sha256))
    for sha256, expected in hashes:
        if source.hf is not None and expected not in (None, sha256):
            subject = f"{record.source}: the SHA-256 of the rows that {record.hub} serves"
            raise changed_error(benchmark, subject, str(sha256), str(expected))
    if source.is_fetched and not _are_rows_pinned(benchmark):
        _compare_with_earlier(path, record)


def _are_rows_pinned(benchmark: Benchmark) -> bool:
    """Return whether a hash pins whatever is read, not only a commit."""
    examples = benchmark.examples
    are_examples_pinned = examples is None or examples.split is None or bool(examples.sha256)
    return bool(benchmark.source.sha256) and are_examples_pinned


def _compare_with_earlier(path: Path, record: Provenance) -> None:
    """Refuse rows that no hash pins if an earlier pull of the same source had other rows."""
    for file in sorted(path.parents[1].glob(f"*/{path.name}.source.json")):
        earlier = _provenance(file.with_name(path.name))
        if earlier is None or any(
            getattr(earlier, name) != getattr(record, name)
            for name in ("source", "config", "split", "revision")
        ):
            continue
        hashes = [(record.source_sha256, earlier.source_sha256)]
        if earlier.examples_split == record.examples_split:
            hashes.append((record.examples_sha256, earlier.examples_sha256))
        for sha256, earlier_hash in hashes:
            if earlier_hash not in (None, sha256):
                hub_now, hub_then = (
                    f" from {provenance.hub}" if provenance.hub else ""
                    for provenance in (record, earlier)
                )
                raise UsageError(
                    f"{record.source}: the SHA-256 of what was read{hub_now} is {sha256}, but that "
                    f"of an earlier pull of the same revision{hub_then} was {earlier_hash}: one of "
                    f"the two was changed; if you trust the new one, remove {file.parent}"
                )


def pulled_from(tasks: Path) -> str | None:
    """Return the address of the Hub that a benchmark's tasks were pulled from, if from any."""
    record = _provenance(tasks)
    return None if record is None else record.hub


def unpinned_hub(benchmark: Benchmark, tasks: Path) -> str | None:
    """Return the Hub of a benchmark's tasks if it is not the public one and no hash pins them."""
    hub = pulled_from(tasks)
    return None if hub == HUB or _are_rows_pinned(benchmark) else hub


def _provenance(tasks: Path) -> Provenance | None:
    try:
        return msgspec.json.decode(Path(f"{tasks}.source.json").read_bytes(), type=Provenance)
    except (OSError, *JSON_ERRORS):
        return None


def _read(benchmark: Benchmark, files: Sequence[SourceFile]) -> tuple[MappedRows, Provenance]:
    """Open the source of a benchmark; `files` are those that were fetched for it."""
    source = benchmark.source
    name = ", ".join(source.names)
    tables: Iterable[SourceTable]
    if source.hf is not None:
        tables, record = _hub_tables(benchmark, source.split)
    elif files:
        hashes = ", ".join(file.sha256 for file in files)
        record = Provenance(source=name, revision=source.revision, source_sha256=hashes)
        tables = [SourceTable(file.name, _file_rows(file, benchmark)) for file in files]
    elif source.file is not None:
        path = benchmark.path.parent / source.file
        record = Provenance(source=name, source_sha256=source.sha256[0])
        tables = [SourceTable(str(path), local_rows(path, source.columns))]
    else:
        record = Provenance(source=name, seed=source.seed)
        tables = [SourceTable(name, _generate(benchmark))]
    record.benchmark = f"{benchmark.name} {benchmark.version}"
    map_path = map_file(benchmark)
    record.map_sha256 = None if map_path is None else file_sha256(map_path)
    rows = _map_rows(benchmark, tables)
    if source.hf is not None:
        rows = itertools.chain(rows, _rest(tables))
    return _with_examples(benchmark, rows, record) if benchmark.examples else rows, record


def _hub_tables(
    benchmark: Benchmark, split: str | None
) -> tuple[Iterator[SourceTable], Provenance]:
    source = benchmark.source
    [name] = source.names
    return hub_tables(name, source.config or [None], split=split, revision=source.revision)


def _rest(tables: Iterable[SourceTable]) -> MappedRows:
    """Read the rows that a map left, since the hash is that of all; there are none to yield."""
    for _ in tables:
        pass
    yield from ()


def _map_rows(benchmark: Benchmark, tables: Iterable[SourceTable]) -> MappedRows:
    """Return the rows that the benchmark's map makes of tables."""
    name = benchmark.source.map
    return read_map(None if name is None else benchmark.path.parent / name)(tables)


def _with_examples(benchmark: Benchmark, rows: MappedRows, record: Provenance) -> MappedRows:
    """Yield rows with a prompt that shows examples first, as earlier turns of the conversation."""
    examples, path = benchmark.examples, benchmark.template_path
    assert examples is not None
    assert path is not None, "examples need a prompt"
    template = PromptTemplate.read(path)
    turns = _turns_of_examples(_examples(benchmark, record), template, examples.by)

    def add_examples(row: JSONObject) -> JSONObject | str:
        if row.get("messages") or row.get("prompt"):
            return "the row already has a prompt, so it cannot be shown examples"
        try:
            *system, question = template.messages(row)
            group = _group(row, examples.by)
        except ValueError as error:
            return str(error)
        example_turns = turns.get(group, [])
        example_turns = example_turns[: 2 * (examples.num or len(example_turns))]
        if len(example_turns) < 2 * (examples.num or 1):
            kind = f" whose {examples.by} is {group!r:.80}" if examples.by else ""
            return f"has {len(example_turns) // 2} of {examples.num or 1} examples{kind}"
        return {**row, "messages": msgspec.to_builtins([*system, *example_turns, question])}

    for name, number, row in rows:
        yield name, number, row if isinstance(row, str) else add_examples(row)


def _turns_of_examples(
    examples: MappedRows, template: PromptTemplate, by: str | None
) -> dict[str, list[Message]]:
    """Return the question and the answer of each example, by group."""
    turns: dict[str, list[Message]] = {}
    for name, number, row in examples:
        place = f"{name}:{number}"
        if isinstance(row, str):
            raise TasksError(f"{place}: {row}")
        answer = row.get("answer")
        if not isinstance(answer, str) or not answer.strip():
            raise TasksError(f'{place}: an example needs the text "answer"')
        try:
            question, group = template.messages(row)[-1], _group(row, by)
        except ValueError as error:
            raise TasksError(f"{place}: {error}") from error
        turns.setdefault(group, []).extend((question, Message(role="assistant", content=answer)))
    return turns


def _group(row: JSONObject, by: str | None) -> str:
    if by is not None and by not in row:
        raise ValueError(f'"{by}" is missing, by which examples are chosen')
    return "" if by is None else str(row[by])


def _examples(benchmark: Benchmark, record: Provenance) -> MappedRows:
    """Yield the examples of a file as they are, and those of a split through the map."""
    examples, path = benchmark.examples, benchmark.examples_path
    assert examples is not None
    if path is None:
        tables, examples_record = _hub_tables(benchmark, examples.split)
        yield from itertools.chain(_map_rows(benchmark, tables), _rest(tables))
        record.examples_split = examples.split
        record.examples_sha256 = examples_record.source_sha256
        return
    loaded_rows = read_yaml(path)
    if not isinstance(loaded_rows, list) or not loaded_rows:
        raise UsageError(f"{path}: examples are a YAML list")
    rows = enumerate(loaded_rows, 1)
    problem = "is no YAML mapping"
    yield from (
        (str(path), place, row if isinstance(row, dict) else problem) for place, row in rows
    )


def map_file(benchmark: Benchmark) -> Path | None:
    """Return the file of the map.

    Raises:
        UsageError: There is none, or it is Python and no function of it is named.
    """
    if benchmark.source.map is None:
        return None
    file, function = map_file_of(Path(benchmark.source.map))
    if file.suffix == ".py" and not function:
        raise UsageError(f"{benchmark.path}: source.map: name the function, {file}:FUNCTION")
    return existing_file(benchmark, "source.map", str(file))


def _generate(benchmark: Benchmark) -> Iterator[SourceRow]:
    source = benchmark.source
    assert source.env is not None, "a source without files or a Hub has an environment"
    registration = Registry().find(source.env)
    try:
        lines = generated_lines(registration, source.rows, seed=source.seed, args=source.args)
        for number, line in enumerate(lines, 1):
            yield SourceRow(number, msgspec.json.decode(line))
    except GymError as error:
        reason = f"{registration.name} cannot generate {source.rows} rows: {error}"
        raise UsageError(f"{benchmark.path}: {reason}") from error


def _file_rows(file: SourceFile, benchmark: Benchmark) -> Iterator[SourceRow]:
    source = benchmark.source
    column = {"_file": file_name(file.name)} if len(source.names) > 1 else {}
    try:
        for number, row in local_rows(file.path, source.columns):
            yield SourceRow(number, row if isinstance(row, str) else {**row, **column})
    except UsageError as error:
        raise UsageError(str(error).replace(str(file.path), file.name)) from error
