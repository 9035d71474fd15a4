"""The rows of data sets on the Hugging Face hub, fetched as they are read."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

from gymcli.data.sources import SourceRow
from gymcli.errors import MissingPackageError, RunError, UsageError

__all__ = ["PREFIX", "HubDataset", "open_dataset"]

PREFIX = "hf:"

_NUM_TRIES = 1
"""How often `datasets` reads a part of a file of the hub, or opens one.

Each try is six requests of the hub's own library, with pauses between them and a time limit on
each (HF_HUB_DOWNLOAD_TIMEOUT, 10 seconds unless set). By itself `datasets` would try 20 times,
which takes a quarter of an hour where a body always stops half way.
"""


class HubDataset(NamedTuple):
    """A data set of the hub at one commit."""

    rows: Iterator[SourceRow]
    split: str
    revision: str
    """The commit that is read."""
    license: str | None
    """As its card says."""


def open_dataset(
    source: str, *, config: str | None = None, split: str | None = None, revision: str | None = None
) -> HubDataset:
    """Open `hf:ORG/NAME`; a split must be named where there are several.

    Raises:
        UsageError: Data set, configuration, split or revision are not there, or not for everybody.
        MissingPackageError: `datasets` is not installed.
        RunError: The hub cannot be reached, or gives no answer of use.

    """
    name = source.removeprefix(PREFIX)
    try:
        # By name, late (heavy, and an extra), and its parts: in a checkout without the package
        # `datasets` is the folder of our own, which imports as an empty one.
        load = importlib.import_module("datasets.load")
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(
            f"{source} needs the package datasets: pip install 'gymcli[hf]'"
        ) from error
    if not name:
        raise UsageError(f"{source}: expected {PREFIX}ORG/NAME")
    if Path(name).exists():
        raise UsageError(f"{source}: a file or folder {name} is here and would be read instead")
    with _hub_errors(source), _few_tries():
        info = huggingface_hub.HfApi().dataset_info(name, revision=revision)
        # No row is fetched before it is asked for. Without a name, all splits are looked at.
        found = load.load_dataset(name, config, split=split, revision=info.sha, streaming=True)
        if split is None:
            split = _only_split(source, list(found))
            found = found[split]
        # Images and sounds stay what they are on disk. There are no features where the first rows
        # cannot be read, which is said when they are.
        rows = found.decode(False) if found.features else found
    license_names = info.card_data.get("license") if info.card_data else None
    if isinstance(license_names, list):
        license_names = ", ".join(map(str, license_names))
    return HubDataset(_numbered(source, rows), split, str(info.sha), license_names)


def _only_split(source: str, names: list[str]) -> str:
    if not names:
        raise UsageError(f"{source}: has no splits")
    if len(names) > 1:
        raise UsageError(f"{source}: has the splits {', '.join(names)}; give one with --split")
    return names[0]


def _numbered(source: str, rows: Iterator[dict[str, object]]) -> Iterator[SourceRow]:
    with _hub_errors(source), _few_tries():
        for number, row in enumerate(rows, 1):
            yield SourceRow(number, row)


@contextmanager
def _few_tries() -> Iterator[None]:
    """Set how often `datasets` tries, which is one number for the whole process."""
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
    """Give what the libraries raise in one line, which never shows a token."""
    from huggingface_hub import errors

    dataset_errors = importlib.import_module("datasets.exceptions")
    empty_error = importlib.import_module("datasets.data_files").EmptyDatasetError
    # With what the HTTP library raises that this release of the hub's happens to use.
    bases = cast("tuple[type[Exception], ...]", errors.HfHubHTTPError.__bases__)
    wire: tuple[type[Exception], ...] = (OSError, *bases)
    try:
        yield
    except errors.GatedRepoError as error:
        raise UsageError(
            f"{source}: is gated; accept its terms on its page, and set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(f"{source}: has no such --revision") from error
    except (errors.RepositoryNotFoundError, dataset_errors.DatasetNotFoundError) as error:
        raise UsageError(
            f"{source}: is not on the hub, or not for everybody: check the name, or set HF_TOKEN"
        ) from error
    except errors.HfHubHTTPError as error:  # some of them are ValueErrors too
        raise RunError(f"{source}: the hub refused: {_first_line(error)}") from error
    except StopIteration as error:  # of the first row, which tells the columns
        raise UsageError(f"{source}: has no rows") from error
    except (ValueError, RuntimeError, dataset_errors.DatasetsError, empty_error) as error:
        raise UsageError(f"{source}: {_first_line(error)}") from error
    except wire as error:
        raise RunError(f"{source}: the hub cannot be reached: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    from huggingface_hub import get_token

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    token = get_token()
    return text.replace(token, "***") if token else text
