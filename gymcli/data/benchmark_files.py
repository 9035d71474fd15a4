"""Fetches the tasks of a benchmark into a cache, and checks that they are what it names."""

from __future__ import annotations

import hashlib
import itertools
import lzma
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit
from zipfile import BadZipFile, ZipFile

import aiohttp
import msgspec

import gymcli.envs
from gymcli.data.benchmarks import Benchmark
from gymcli.data.pulling import (
    MappedRows,
    Provenance,
    SourceTable,
    hub_tables,
    map_rows,
    write_tasks,
)
from gymcli.environment.registry import Registry, generated_lines
from gymcli.errors import GymError, RunError, TasksError, UsageError, described, frames_of
from gymcli.models.settings import proxy_for
from gymcli.rollout.event_loop import run
from gymcli.store.lines import file_sha256
from gymcli.store.maps import RowMap, read_map
from gymcli.store.tables import SourceRow, local_rows
from gymcli.types import JSON_ERRORS, digest

__all__ = ["default_cache", "map_file", "pulled_tasks", "tasks_path"]

_READING = 1
"""Raised when the same source becomes other tasks."""
_MAX_BYTES = 2 << 30
"""The longest file that is fetched from an address."""
_CHUNK_BYTES = 1 << 20
_TIMEOUT = aiohttp.ClientTimeout(total=1800.0, sock_connect=30.0, sock_read=60.0)

_MapFunction = Callable[[Iterable[dict[str, object]]], Iterable[object]]


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
    files = [] if benchmark.source.map is None else [map_file(benchmark)[0]]
    if (env := benchmark.source.env) is not None:
        folder = Path(gymcli.envs.__path__[0])
        own = (folder.glob(f"{env}.py"), (folder / env).rglob("*.py"))
        files += sorted(path for paths in own for path in paths)
        files += sorted((gymcli.envs.DATASETS / env).glob("*.py"))
    key = digest([_READING, source, [file_sha256(path) for path in files]])
    return (cache or default_cache()) / benchmark.name / key / f"{benchmark.name}.jsonl"


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
    """
    if benchmark.source.file is not None:
        _check_file(benchmark.path.parent / benchmark.source.file, benchmark.source.sha256[0])
    path = tasks_path(benchmark, cache)
    if path.is_file():
        if _is_unchanged(path):
            return path
        notify(f"warning: {path}: has changed since it was pulled; pulling {benchmark.name} again")
    source = benchmark.source
    origin, *others = _source_names(benchmark)
    more = f" and {len(others)} more" if others else ""
    tasks = "1 task" if source.rows == 1 else f"{source.rows:,} tasks"
    notify(f"pulling {benchmark.name}: {tasks} from {origin}{more}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path.parent}: cannot be created: {error.strerror}; set XDG_CACHE_HOME or --cache to "
            "another folder"
        ) from error
    try:
        with TemporaryDirectory(prefix="gymcli-") as folder:
            fetched = run(_fetched(benchmark, Path(folder))) if source.url else []
            write_tasks(path, lambda: _read(benchmark, fetched), check=partial(_check, benchmark))
    except RunError as error:  # the network; without a run, this is a matter of the user's
        raise UsageError(
            f"{error}; on a machine with a network, gym bench pull {benchmark.spec} --cache DIR "
            f"fetches it: copy the folders in DIR to {path.parents[2]}"
        ) from error
    except OSError as error:
        raise UsageError(
            f"temporary files cannot be written: {error.strerror or error}; set TMPDIR to a folder "
            "with more space"
        ) from error
    return path


def _check(benchmark: Benchmark, record: Provenance) -> None:
    """Compare what was read with what the benchmark names."""
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


def _check_file(path: Path, expected: str) -> None:
    found = file_sha256(path)
    if found != expected:
        raise UsageError(
            f"{path}: its SHA-256 is {found}, not {expected}: its scores cannot be compared with "
            "earlier ones; if you meant the change, raise the version and replace the hash"
        )


def _is_unchanged(path: Path) -> bool:
    try:
        record = msgspec.json.decode(Path(f"{path}.source.json").read_bytes(), type=Provenance)
    except (OSError, *JSON_ERRORS):
        return False
    return record.sha256 == file_sha256(path)


def _source_names(benchmark: Benchmark) -> Sequence[str]:
    source = benchmark.source
    others = (f"hf:{source.hf}" if source.hf else source.file or f"env:{source.env}",)
    return source.url or others


def _read(benchmark: Benchmark, fetched: Sequence[Path]) -> tuple[MappedRows, Provenance]:
    """Open the source of a benchmark; `fetched` are the files of its addresses."""
    source = benchmark.source
    name = ", ".join(_source_names(benchmark))
    tables: Iterable[SourceTable]
    if source.hf is not None:
        configs = source.config or [None]
        tables, record = hub_tables(name, configs, split=source.split, revision=source.revision)
    elif source.url:
        # Those that are pinned were compared; of an archive, it is that of the whole.
        hashes = source.sha256 or map(file_sha256, fetched)
        record = Provenance(source=name, revision=source.revision, source_sha256=", ".join(hashes))
        tables = [
            SourceTable(url, _file_rows(path, url, benchmark))
            for url, path in zip(source.url, fetched, strict=True)
        ]
    elif source.file is not None:
        path = benchmark.path.parent / source.file
        record = Provenance(source=name, source_sha256=source.sha256[0])
        tables = [SourceTable(str(path), local_rows(path, source.columns))]
    else:
        record = Provenance(source=name, seed=source.seed)
        tables = [SourceTable(name, _generated(benchmark))]
    record.benchmark = f"{benchmark.name} {benchmark.version}"
    if source.map is None:
        return map_rows(tables, RowMap()), record
    path, function = map_file(benchmark)
    record.map_sha256 = file_sha256(path)
    if function:
        return _rows_of_function(path, function, tables), record
    return map_rows(tables, read_map(path)), record


def map_file(benchmark: Benchmark) -> tuple[Path, str]:
    """Return the map's file, and the function in it if it is code."""
    text = benchmark.source.map or ""
    file, _, function = text.rpartition(":")
    if not file.endswith(".py"):
        file, function = text, ""
    if file.endswith(".py") and not function:
        raise UsageError(f"{benchmark.path}: source.map: name the function, {file}:FUNCTION")
    path = benchmark.path.parent / file
    if not path.is_file():
        raise UsageError(f"{benchmark.path}: source.map: there is no file {path}")
    return path, function


def _rows_of_function(path: Path, name: str, tables: Iterable[SourceTable]) -> MappedRows:
    """Yield what a map function makes of all rows; what it raises names the last row it took."""
    last = "the first row"

    def taken() -> Iterator[dict[str, object]]:
        nonlocal last
        for table, rows in tables:
            for number, row in rows:
                last = f"{table}:{number}"
                if isinstance(row, str):
                    raise TasksError(f"{last}: {row}")
                yield row

    try:
        module_name = f"gymcli_map_{digest(str(path.resolve()))}"
        function: _MapFunction = getattr(gymcli.envs.load_file(module_name, path), name)
        made = map(_made_row, itertools.count(1), function(taken()))
        yield from map_rows([SourceTable(f"tasks of {path}:{name}", made)], RowMap())
    except GymError:
        raise
    except Exception as error:
        frames = frames_of(error)
        place = f" ({frames[-1]})" if frames else ""
        raise UsageError(f"{path}:{name} fails at {last}: {described(error)}{place}") from error


def _made_row(number: int, row: object) -> SourceRow:
    if not isinstance(row, dict):
        raise TypeError(f"it yields {row!r:.80}, not a dict")
    return SourceRow(number, row)


def _generated(benchmark: Benchmark) -> Iterator[SourceRow]:
    source = benchmark.source
    assert source.env is not None, "a source has one of hf, url, file and env"
    found = Registry().find(source.env)
    try:
        lines = generated_lines(found, source.rows, seed=source.seed, args=source.args)
        for number, line in enumerate(lines, 1):
            yield SourceRow(number, msgspec.json.decode(line))
    except GymError as error:
        reason = f"{found.name} cannot generate {source.rows} rows: {error}"
        raise UsageError(f"{benchmark.path}: {reason}") from error


async def _fetched(benchmark: Benchmark, folder: Path) -> list[Path]:
    """Fetch the files of a benchmark one after another, and compare them with their hashes."""
    source = benchmark.source
    hashes: Sequence[str | None] = source.sha256 or [None] * len(source.url)
    paths = []
    async with aiohttp.ClientSession(
        timeout=_TIMEOUT,
        # The hash is that of the file, not of what a server makes of it on the way.
        headers={"User-Agent": "gymcli", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    ) as session:
        for number, (url, expected) in enumerate(zip(source.url, hashes, strict=True)):
            path = folder / str(number) / _last_part(url)
            path.parent.mkdir()
            found = await _fetch(session, url, path)
            if expected not in (None, found):
                raise UsageError(
                    f"{url}: its SHA-256 is {found}, not {expected} as {benchmark.path} says: "
                    "the file was changed, so its scores would not be comparable"
                )
            if urlsplit(url).fragment:
                _unpack(path, url)
            paths.append(_named_by_content(path))
    return paths


def _last_part(url: str) -> str:
    parts = urlsplit(url)
    return Path(unquote(parts.fragment or parts.path)).name


def _unpack(path: Path, url: str) -> None:
    """Replace a ZIP archive by the file in it that the address names after "#"."""
    member = unquote(urlsplit(url).fragment)
    archive_path = path.rename(path.with_name("archive.zip"))
    try:
        with ZipFile(archive_path) as archive, archive.open(member) as packed:
            if archive.getinfo(member).file_size > _MAX_BYTES:
                raise UsageError(f"{url}: is longer than {_MAX_BYTES >> 30} GB")
            with path.open("wb") as file:
                shutil.copyfileobj(packed, file)
    # An encrypted file is a RuntimeError.
    except (BadZipFile, EOFError, KeyError, RuntimeError, lzma.LZMAError, zlib.error) as error:
        raise UsageError(f"{url}: cannot be unpacked: {described(error)}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise UsageError(f"{url}: cannot be unpacked: {error}") from error  # bzip2


async def _fetch(session: aiohttp.ClientSession, url: str, path: Path) -> str:
    """Write a file and return its hash."""
    sha256, num_bytes = hashlib.sha256(), 0
    try:
        async with session.get(url, proxy=proxy_for(url, os.environ)) as response:
            if response.status != 200:
                raise UsageError(f"{url}: the server answered {response.status} {response.reason}")
            with path.open("wb") as file:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    num_bytes += len(chunk)
                    if num_bytes > _MAX_BYTES:
                        raise UsageError(f"{url}: is longer than {_MAX_BYTES >> 30} GB")
                    sha256.update(chunk)
                    file.write(chunk)
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or described(error)
        raise RunError(f"{url}: cannot be fetched: {reason:.300}") from error
    return sha256.hexdigest()


def _named_by_content(path: Path) -> Path:
    """Rename a .json file of one object a line, as many are, to .jsonl."""
    if path.suffix != ".json":
        return path
    with path.open("rb") as file:
        is_lines = file.read(1000).lstrip().startswith(b"{")
    return path.rename(path.with_suffix(".jsonl")) if is_lines else path


def _file_rows(path: Path, url: str, benchmark: Benchmark) -> Iterator[SourceRow]:
    source = benchmark.source
    column = {"_file": _last_part(url)} if len(source.url) > 1 else {}
    try:
        for number, row in local_rows(path, source.columns):
            yield SourceRow(number, row if isinstance(row, str) else {**row, **column})
    except UsageError as error:
        raise UsageError(str(error).replace(str(path), url)) from error
