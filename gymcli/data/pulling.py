"""`gym data pull`: writes the rows of a table, local or on the Hugging Face Hub, as tasks."""

from __future__ import annotations

import hashlib
import importlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from gymcli.data.output import compressing, replacing
from gymcli.errors import MissingPackageError, RunError, TasksError, UsageError
from gymcli.runner.task_source import Problems
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import MAX_LINE_BYTES, TOO_LONG, file_sha256
from gymcli.store.maps import RowMap, read_map
from gymcli.store.tables import SourceRow, local_rows, mapped_rows
from gymcli.store.task_row import Hints, PromptTemplate, TaskReading
from gymcli.store.tasks import RowProblem, TaskReader
from gymcli.types import JSONObject

__all__ = ["Provenance", "Pulled", "pull"]

_HUB_PREFIX = "hf:"

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
    """`hf:ORG/NAME`, or the name of a file."""
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    """The commit of a data set on the Hub."""
    license: str | None = None
    """The licence on the data set's card."""
    source_sha256: str | None = None
    """The hash of a local file."""
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
    row_map = read_map(map_file) if map_file else RowMap()
    record_path = Path(f"{out}.source.json")
    inputs = [Path(source)] if map_file is None else [Path(source), map_file]
    # Both are opened before anything is read, and replace existing files at the end.
    with (
        replacing(out, inputs=inputs) as raw,
        replacing(record_path, inputs=[*inputs, out]) as record_file,
    ):
        if source.startswith(_HUB_PREFIX):
            rows, record = _open_dataset(source, config=config, split=split, revision=revision)
        elif config or split or revision:
            raise UsageError(f"{source}: --config, --split and --revision need hf:ORG/NAME")
        else:
            path = Path(source)
            rows = local_rows(path)
            record = Provenance(source=path.name, source_sha256=file_sha256(path))
        record.map_sha256 = file_sha256(map_file) if map_file else None
        record.limit = limit
        problems, num_redacted = Problems(), 0
        tasks = itertools.islice(mapped_rows(rows, row_map), limit)
        with compressing(raw, out.suffix) as file:
            for line in _good_lines(source, tasks, problems):
                scrubbed = scrubber.line(line)
                file.write(scrubbed + b"\n")
                record.num_rows += 1
                num_redacted += scrubbed is not line
        if not skip_bad:
            problems.check()
        if not record.num_rows:
            raise TasksError("\n".join([*problems.lines(), f"{source}: no rows to write"]))
        record.num_skipped = problems.num_rows
        raw.seek(0)
        record.sha256 = hashlib.file_digest(raw, "sha256").hexdigest()
        described = scrubber.line(msgspec.json.encode(record))
        record_file.write(msgspec.json.format(described) + b"\n")
    return Pulled(record, problems.lines(), num_redacted)


def _good_lines(
    source: str, rows: Iterator[tuple[int, JSONObject | str]], problems: Problems
) -> Iterator[bytes]:
    """Yield the valid rows as lines; add the problems of the others to `problems`."""
    reader = TaskReader()
    reading: TaskReading | None = None
    for number, row in rows:
        place = f"{source}:{number}"
        if isinstance(row, str):
            problems.add(RowProblem(place, row))
            continue
        if reading is None:  # a collection needs a template if the first row does
            prompts = (row.get("responses_create_params"), row.get("messages"))
            has_prompt = row.get("prompt") or any(prompt is not None for prompt in prompts)
            template = None if has_prompt else PromptTemplate("")
            reading = TaskReading(default_env="", template=template, hints=_HINTS)
        items = reader.read(row, reading, source=source, line=number)
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


def _open_dataset(
    source: str, *, config: str | None, split: str | None, revision: str | None
) -> tuple[Iterator[SourceRow], Provenance]:
    """Open `hf:ORG/NAME` at one commit; with several splits, one must be named."""
    name = source.removeprefix(_HUB_PREFIX)
    try:
        # Late: heavy, and an extra. A submodule, by name: in a checkout without the package,
        # `datasets` is our own folder, which imports as an empty package.
        load = importlib.import_module("datasets.load")
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(
            f"{source} needs the package datasets: pip install 'gymcli[hf]'"
        ) from error
    if not name:
        raise UsageError(f"{source}: expected {_HUB_PREFIX}ORG/NAME")
    if Path(name).exists():
        raise UsageError(
            f"{source}: a local file or folder {name} exists and would be read instead"
        )
    with _hub_errors(source), _few_tries():
        info = huggingface_hub.HfApi().dataset_info(name, revision=revision)
        # Rows are fetched on demand. Without `split`, all splits are returned.
        found = load.load_dataset(name, config, split=split, revision=info.sha, streaming=True)
        if split is None:
            names = list(found)
            if not names:
                raise UsageError(f"{source}: has no splits")
            if len(names) > 1:
                raise UsageError(
                    f"{source}: has the splits {', '.join(names)}; choose one with --split"
                )
            [split] = names
            found = found[split]
        # Images and sounds stay encoded. Features are missing if the first rows cannot be read;
        # reading them raises the error.
        rows = found.decode(False) if found.features else found
    license_names = info.card_data.get("license") if info.card_data else None
    if isinstance(license_names, list):
        license_names = ", ".join(map(str, license_names))
    return _numbered(source, rows), Provenance(
        source=source, config=config, split=split, revision=str(info.sha), license=license_names
    )


def _numbered(source: str, rows: Iterator[dict[str, object]]) -> Iterator[SourceRow]:
    with _hub_errors(source), _few_tries():
        for number, row in enumerate(rows, 1):
            yield SourceRow(number, row)


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
        raise UsageError(
            f"{source}: is gated; accept its terms on its page and set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(f"{source}: has no such --revision") from error
    except (errors.RepositoryNotFoundError, dataset_errors.DatasetNotFoundError) as error:
        raise UsageError(
            f"{source}: does not exist on the Hub or is private: check the name or set HF_TOKEN"
        ) from error
    except errors.HfHubHTTPError as error:  # some of them are ValueErrors too
        raise RunError(f"{source}: the Hub refused: {_first_line(error)}") from error
    except StopIteration as error:  # while reading the first row for the columns
        raise UsageError(f"{source}: has no rows") from error
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
