"""Writes the rows of tables, local or on the Hugging Face Hub, as tasks: `gym data pull`."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from gymcli.errors import MissingPackageError, RunError, TasksError, UsageError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import MAX_LINE_BYTES, TOO_LONG, file_sha256
from gymcli.store.output import compressing, replacing
from gymcli.tasks.column_inference import TABLE_DEFAULTS, set_defaults
from gymcli.tasks.row_map import MappedRows, map_file_of, read_map
from gymcli.tasks.table_files import SourceRow, SourceTable, local_rows
from gymcli.tasks.task_files import RowProblem, TaskReader
from gymcli.tasks.task_row import Hints, PromptTemplate, TaskReading
from gymcli.tasks.task_source import Problems

T = TypeVar("T")

HUB = "https://huggingface.co"
_HUB_PREFIX = "hf:"

_GATED = "is gated; accept its terms on its page and set HF_TOKEN"
_FIRST_ANSWER_SECONDS = 5.0
"""How long the Hub may take to answer the first request, resolving its name included.

Its own library waits without a limit. HF_HUB_ETAG_TIMEOUT, where it is set, counts instead.
"""
_NUM_TRIES = 1
"""How often `datasets` tries to open a file on the Hub or to read a part of one.

Each try is six requests of the Hub's own library, with pauses between them and a time limit on
each (HF_HUB_DOWNLOAD_TIMEOUT, 10 seconds unless set). By default `datasets` tries 20 times, which
takes a quarter of an hour if every response stops halfway.
"""
_HINTS = Hints(
    prompt='rows without a prompt need "user" in a map',
    own_prompt='the first row has none; select rows of one kind with "where" in a map',
    same_id='map "id" to a column with unique values',
    same_id_in_files="",
)


class Provenance(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Where the rows of a pulled file come from: the content of OUT.source.json."""

    source: str
    """`hf:ORG/NAME`, the name of a file, the addresses of files, or `env:NAME`."""
    benchmark: str = ""
    """Name and version of the benchmark that the rows belong to."""
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    """The commit of a data set on the Hub."""
    hub: str | None = None
    """The address of the Hub that served the rows."""
    license: str | None = None
    """The licence on the data set's card."""
    source_sha256: str | None = None
    """The hash of a local file, of each file that was fetched, or of the rows of a data set on the
    Hub if all were read: one line of JSON a row, with sorted keys and without blanks."""
    seed: int | None = None
    """The seed of generated rows."""
    examples_split: str | None = None
    """The split of the same data set that the examples in prompts come from."""
    examples_sha256: str | None = None
    """The hash of its rows."""
    map_sha256: str | None = None
    limit: int | None = None
    num_rows: int = 0
    num_skipped: int = 0
    """Wrong rows that were left out with --skip-bad."""
    sha256: str = ""
    """The hash of the file that was written."""


class Pulled(NamedTuple):
    """The result of a pull."""

    provenance: Provenance
    problems: list[str]
    """The problems of the first rows that were left out."""
    num_redacted: int = 0
    """Rows that were written without a secret that they held."""


def pull(
    source: str,
    out: Path,
    *,
    config: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    map_file: Path | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    scrubber: Scrubber = NOTHING_SECRET,
) -> Pulled:
    """Write rows of a table as tasks and their provenance to OUT.source.json, without secrets.

    Raises:
        UsageError: The source, the map or `out` cannot be used.
        TasksError: Rows cannot become tasks (the first 20 are listed) or there are none; nothing is
            written. With `skip_bad` such rows are left out.
        RunError: The Hub cannot be reached.
    """
    table_map = read_map(map_file)
    map_path = None if map_file is None else map_file_of(map_file)[0]

    def read() -> tuple[MappedRows, Provenance]:
        tables: Iterable[SourceTable]
        if source.startswith(_HUB_PREFIX):
            tables, record = hub_tables(source, [config], split=split, revision=revision)
        elif config or split or revision:
            raise UsageError(f"{source}: --config, --split and --revision need hf:ORG/NAME")
        else:
            path = Path(source)
            tables = [SourceTable(source, local_rows(path))]
            record = Provenance(source=path.name, source_sha256=file_sha256(path))
        record.map_sha256 = file_sha256(map_path) if map_path else None
        record.limit = limit
        rows = itertools.islice(table_map(tables), limit)
        return (_with_defaults(rows) if map_file else rows), record

    inputs = filter(None, [Path(source), map_path])
    return write_tasks(out, read, inputs=[*inputs], skip_bad=skip_bad, scrubber=scrubber)


def _with_defaults(rows: MappedRows) -> MappedRows:
    for name, number, row in rows:
        if isinstance(row, dict):
            set_defaults(row, TABLE_DEFAULTS)
        yield name, number, row


def write_tasks(
    out: Path,
    read: Callable[[], tuple[MappedRows, Provenance]],
    *,
    inputs: Sequence[Path] = (),
    skip_bad: bool = False,
    scrubber: Scrubber = NOTHING_SECRET,
    check: Callable[[Provenance], None] = lambda _: None,
) -> Pulled:
    """Write task rows and their provenance, which is complete once all rows are read.

    `check` is called with it; nothing is written if it raises.

    Raises:
        UsageError: `out` cannot be written.
        TasksError: As in `pull`.
    """
    record_path = Path(f"{out}.source.json")
    # Both are opened before anything is read, and replace existing files at the end.
    with (
        replacing(out, inputs=inputs) as raw,
        replacing(record_path, inputs=[*inputs, out]) as record_file,
    ):
        tasks, record = read()
        problems, num_redacted = Problems(), 0
        with compressing(raw, out.suffix) as file:
            for line in _good_lines(tasks, problems):
                scrubbed = scrubber.line(line)
                file.write(scrubbed + b"\n")
                record.num_rows += 1
                num_redacted += scrubbed is not line
        if not skip_bad:
            problems.check()
        if not record.num_rows:
            raise TasksError("\n".join([*problems.lines(), f"{record.source}: no rows to write"]))
        record.num_skipped = problems.num_rows
        raw.seek(0)
        record.sha256 = hashlib.file_digest(raw, "sha256").hexdigest()
        check(record)
        described = scrubber.line(msgspec.json.encode(record))
        record_file.write(msgspec.json.format(described) + b"\n")
    return Pulled(record, problems.lines(), num_redacted)


def _good_lines(rows: MappedRows, problems: Problems) -> Iterator[bytes]:
    """Yield the valid rows as lines; add the problems of the others to `problems`."""
    reader = TaskReader()
    reading: TaskReading | None = None
    for name, number, row in rows:
        place = f"{name}:{number}"
        if isinstance(row, str):
            problems.add(RowProblem(place, row))
            continue
        if reading is None:  # a collection needs a template if the first row does
            prompts = (row.get("responses_create_params"), row.get("messages"))
            has_prompt = row.get("prompt") or any(prompt is not None for prompt in prompts)
            template = None if has_prompt else PromptTemplate("")
            reading = TaskReading(default_env="", template=template, hints=_HINTS)
        items = reader.read(row, reading, source=name, line=number)
        wrong = [item for item in items if isinstance(item, RowProblem)]
        for problem in wrong:
            problems.add(problem)
        if wrong:
            continue
        line = msgspec.json.encode(row)
        if len(line) > MAX_LINE_BYTES:
            problems.add(RowProblem(place, TOO_LONG))
            continue
        yield line


def hub_tables(
    source: str, configs: Sequence[str | None], *, split: str | None, revision: str | None
) -> tuple[Iterator[SourceTable], Provenance]:
    """Open configurations of `hf:ORG/NAME` at one commit, each when it is reached.

    With several splits, one must be named. Rows of several configurations have the column
    `_config`.
    """
    name = source.removeprefix(_HUB_PREFIX)
    if not name:
        raise UsageError(f"{source}: expected {_HUB_PREFIX}ORG/NAME")
    load, huggingface_hub = _hub_libraries(source)
    if Path(name).exists():
        raise UsageError(
            f"{source}: a local file or folder {name} exists and would be read instead"
        )
    with _hub_errors(source):
        api = huggingface_hub.HfApi()
        limit = os.environ.get("HF_HUB_ETAG_TIMEOUT") or _FIRST_ANSWER_SECONDS
        info = within(float(limit), lambda: api.dataset_info(name, revision=revision))
    license_names = info.card_data.get("license") if info.card_data else None
    if isinstance(license_names, list):
        license_names = ", ".join(map(str, license_names))
    record = Provenance(
        source=source,
        config=", ".join(config for config in configs if config) or None,
        split=split,
        revision=str(info.sha),
        hub=_without_user(api.endpoint),
        license=license_names,
    )

    def tables() -> Iterator[SourceTable]:
        for config in configs:
            rows = _config_rows(load, record, config, is_only_config=len(configs) == 1)
            if len(configs) == 1:
                yield SourceTable(source, _numbered(rows))
            else:
                named = ({**row, "_config": config} for row in rows)
                yield SourceTable(f"{source} {config}", _numbered(named))

    return _hashed(tables(), record), record


def _config_rows(
    load: Any, record: Provenance, config: str | None, *, is_only_config: bool
) -> Iterator[dict[str, object]]:
    """Yield the rows of a configuration; write its split to the record if none is named."""
    source, split = record.source, record.split
    # Rows are fetched on demand. Without a split, all are returned.
    with _hub_errors(source), _few_tries():
        dataset = load.load_dataset(
            source.removeprefix(_HUB_PREFIX),
            config,
            split=split,
            revision=record.revision,
            streaming=True,
        )
        if split is None:
            names = list(dataset)
            if not names:
                raise UsageError(f"{source}: has no splits")
            if len(names) > 1:
                raise UsageError(
                    f"{source}: has the splits {', '.join(names)}; choose one as the split"
                )
            # Configurations may differ in the name of their only split.
            record.split = names[0] if is_only_config else None
            dataset = dataset[names[0]]
        # Images and sounds stay encoded. Features are missing if the first rows cannot be
        # read; reading them raises the error.
        yield from _with_json_decoded(dataset.decode(False)) if dataset.features else dataset


def _hub_libraries(source: str) -> tuple[Any, Any]:
    """Return `datasets.load` and `huggingface_hub`."""
    try:
        # Late: heavy, and an extra. A submodule, by name: in a checkout without the package,
        # `datasets` is our own folder, which imports as an empty package.
        load = importlib.import_module("datasets.load")
        return load, importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise MissingPackageError(
            f"{source} needs the package datasets: pip install 'gymcli[hf]'"
        ) from error
    except ValueError as error:  # a variable that is no number, which is read at import
        raise UsageError(f"{source}: a variable HF_... has a wrong value: {error}") from error


def hub_address() -> str:
    """Return the address of the Hub that HF_ENDPOINT names, or of the public one."""
    return _without_user(os.environ.get("HF_ENDPOINT") or HUB)


def _without_user(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_address = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        is_address = False
    if not is_address:  # which is not shown, since it may have a password
        raise UsageError("HF_ENDPOINT is not an address: https://HOST")
    host = parts.netloc.rpartition("@")[2].lower()
    return parts._replace(netloc=host).geturl().rstrip("/")


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what `call` returns; raise TimeoutError if it takes longer.

    It runs in a thread, since nothing else limits how long resolving a name takes.
    """
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 (raised again by `answer.result`)
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        if answer.done():
            raise
        raise TimeoutError(f"no answer within {seconds:g} seconds") from error


def _hashed(tables: Iterable[SourceTable], record: Provenance) -> Iterator[SourceTable]:
    """Yield tables, and write the hash of their rows to the record once all were read."""
    sha256 = hashlib.sha256()

    def read(rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
        for row in rows:
            sha256.update(msgspec.json.encode(row.row, order="sorted") + b"\n")
            yield row

    for name, rows in tables:
        table = SourceTable(name, read(rows))
        yield table
        for _ in table.rows:  # whoever asks for the next table may have left rows of this one
            pass
    record.source_sha256 = sha256.hexdigest()


def _with_json_decoded(rows: Any) -> Iterator[dict[str, object]]:
    """Yield rows of `datasets` in which values of mixed types are objects, not texts of JSON."""
    features = rows.features
    # The package's own notation, in which a feature has its type.
    described = json.loads(
        json.dumps(features.to_dict()),
        object_hook=lambda feature: (
            {**feature, "decode": True} if feature.get("_type") == "Json" else feature
        ),
    )
    yield from rows.cast(type(features).from_dict(described))


def _numbered(rows: Iterator[dict[str, object]]) -> Iterator[SourceRow]:
    return (SourceRow(number, row) for number, row in enumerate(rows, 1))


@contextmanager
def _few_tries() -> Iterator[None]:
    # `datasets` has one setting for the whole process.
    config = importlib.import_module("datasets.config")
    names = ("STREAMING_READ_MAX_RETRIES", "STREAMING_OPEN_MAX_RETRIES")
    before = {name: getattr(config, name) for name in names}
    for name in names:
        setattr(config, name, min(_NUM_TRIES, before[name]))
    try:
        yield
    finally:
        for name, number in before.items():
            setattr(config, name, number)


@contextmanager
def _hub_errors(source: str) -> Iterator[None]:
    from huggingface_hub import errors

    dataset_errors = importlib.import_module("datasets.exceptions")
    empty_error = importlib.import_module("datasets.data_files").EmptyDatasetError
    # The bases include the errors of the HTTP library that this huggingface_hub uses.
    bases = cast("tuple[type[Exception], ...]", errors.HfHubHTTPError.__bases__)
    wire: tuple[type[Exception], ...] = (OSError, *bases)
    try:
        yield
    except errors.GatedRepoError as error:
        raise UsageError(f"{source}: {_GATED}") from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(f"{source}: has no such revision") from error
    except (errors.RepositoryNotFoundError, dataset_errors.DatasetNotFoundError) as error:
        if "is a gated dataset" in str(error):  # a GatedRepoError, of which this is what remains
            raise UsageError(f"{source}: {_GATED}") from error
        raise UsageError(
            f"{source}: does not exist on the Hub or is private: check the name or set HF_TOKEN"
        ) from error
    except errors.HfHubHTTPError as error:  # some of them are ValueErrors too
        if getattr(error.response, "status_code", None) == 401:
            raise UsageError(f"{source}: the Hub refused HF_TOKEN; check or unset it") from error
        raise RunError(f"{source}: the Hub refused: {_first_line(error)}") from error
    except StopIteration as error:  # while reading the first row for the columns
        raise UsageError(f"{source}: has no rows") from error
    except json.JSONDecodeError as error:
        raise RunError(
            f"{source}: what answered is not the Hub; check HF_ENDPOINT and the proxy"
        ) from error
    except (ValueError, RuntimeError, dataset_errors.DatasetsError, empty_error) as error:
        raise UsageError(f"{source}: {_first_line(error)}") from error
    except wire as error:
        raise RunError(f"{source}: the Hub cannot be reached: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    from huggingface_hub import get_token

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    token = get_token()
    return text.replace(token, "***") if token else text
