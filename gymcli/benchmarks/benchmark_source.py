"""Where the rows of a benchmark come from: `[source]` of a benchmark.toml."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from gymcli.types import JSON

_COMMIT = r"^[0-9a-f]{40}$"
_ARCHIVES = (".zip", ".whl", ".tar.gz", ".tgz")


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


_Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""One text, or several."""


def _environment_name(name: str) -> str:
    if not re.fullmatch(r"[\w.-]+", name) or name.endswith(".py"):
        raise ValueError(
            "expected the name of an environment; code and addresses are given on the command line "
            "only, with --env"
        )
    return name


def _file_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname and file_name(url) and parts.port != 0)
    except ValueError:  # no address, or no port
        is_complete = False
    if not is_complete or not re.fullmatch(r"https?://\S+", url) or "%00" in url:
        raise ValueError(f"{url!r} is not the address of a file: https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address must not contain a user or a password")
    if parts.path.endswith(_ARCHIVES) and not parts.fragment:
        raise ValueError(f"{url}: name the file in the archive, as in {url}#FILE.csv")
    return url


def file_name(address: str) -> str:
    """Return the name of the file at an address, or of the one in an archive there, or ""."""
    parts = urlsplit(address)
    name = unquote(parts.fragment or parts.path).rpartition("/")[2]
    return "" if name in (".", "..") else name


class PackageFile(NamedTuple):
    """A file of a package on PyPI."""

    package: str
    version: str
    file: str
    """Its path in the wheel, or in the source archive below the folder of that name."""


def package_file(text: str) -> PackageFile:
    """Return the parts of `PACKAGE==VERSION#FILE`."""
    parts = re.fullmatch(r"([A-Za-z0-9][\w.-]*)==([0-9][\w.!+]*)#([^/\s]\S*)", text)
    if parts is None or not file_name(text):
        raise ValueError(f"{text!r} is not a file of a package: PACKAGE==VERSION#FOLDER/FILE")
    return PackageFile(*parts.groups())


def _package_file(text: str) -> str:
    package_file(text)
    return text


EnvironmentName = Annotated[str, AfterValidator(_environment_name)]
"""A name that an installed environment may have: never code, nor the address of a server."""
_Address = Annotated[str, AfterValidator(_file_address)]
_PackageFile = Annotated[str, AfterValidator(_package_file)]
Sha256 = Annotated[str, StringConstraints(to_lower=True, pattern=r"^[0-9A-Fa-f]{64}$")]


class Source(BaseModel):
    """Where the rows come from: exactly one of `hf`, `url`, `pypi`, `file` and `env`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hf: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    """A data set of the Hugging Face Hub, ORG/NAME."""
    url: Annotated[tuple[_Address, ...], BeforeValidator(_as_tuple)] = ()
    """CSV, TSV, JSON, JSONL or Parquet files, in the order of the rows; of several, the column
    `_file` has the last part of each row's address. ADDRESS#FILE is a file in an archive."""
    pypi: Annotated[tuple[_PackageFile, ...], BeforeValidator(_as_tuple)] = ()
    """Files of the same kinds in packages, each PACKAGE==VERSION#FILE."""
    file: str | None = None
    """A table of the same kinds, relative to the benchmark's folder."""
    columns: tuple[str, ...] = ()
    """The columns of CSV and TSV files without a header, such as a list of labels."""
    env: EnvironmentName | None = None
    """An environment that generates the rows."""
    args: dict[str, JSON] = {}
    """Arguments of the environment's `generate`, besides the number of rows."""
    config: _Texts = ()
    """Configurations of the data set; of several, the column `_config` has each row's."""
    split: str | None = None
    revision: Annotated[str, Field(pattern=_COMMIT)] | None = None
    """The commit of the data set, or the one that every `url` contains."""
    sha256: Annotated[tuple[Sha256, ...], BeforeValidator(_as_tuple)] = ()
    """The hash of each file, of the rows of a data set of the Hub, or of the tasks that `env`
    generates."""
    seed: int = Field(default=0, ge=0)
    """The seed of generated rows."""
    rows: int = Field(ge=1)
    """How many tasks there are, after the map."""
    gated: bool = False
    """Whether the Hub asks for a token and the acceptance of terms."""
    licence: str = Field(min_length=1)
    """An SPDX identifier, or what the data set's page says."""
    map: str | None = None
    """A YAML map relative to the benchmark's folder, or FILE.py:FUNCTION, as in `read_map`. Such
    code is run only if the benchmark ships with gymcli or an installed package."""

    @property
    def names(self) -> tuple[str, ...]:
        """What errors and records call its files, its data set or its environment."""
        if self.url:
            return self.url
        if self.pypi:
            return tuple(f"pypi:{file}" for file in self.pypi)
        return (f"hf:{self.hf}" if self.hf else self.file or f"env:{self.env}",)

    @property
    def text(self) -> str:
        """The first of its names, and the number of the others."""
        first, *other_names = self.names
        return f"{first} and {len(other_names)} more" if other_names else first

    @property
    def is_fetched(self) -> bool:
        """Whether the rows are those of others, from elsewhere."""
        return self.hf is not None or bool(self.url) or bool(self.pypi)

    @property
    def hash_problem(self) -> str:
        """Why `sha256` cannot be used; empty if it can, or if nothing needs it."""
        num_hashes = len(self.names)
        if self.sha256 and len(self.sha256) != num_hashes:
            return f"has {len(self.sha256)} hashes, not {num_hashes}"
        has_commit = self.revision is not None and all(self.revision in url for url in self.url)
        needs_hash = bool(self.pypi) or self.file is not None or (self.url and not has_commit)
        return "is missing" if needs_hash and not self.sha256 else ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = (self.hf is not None, self.url, self.pypi, self.file is not None, self.env)
        if sum(map(bool, kinds)) != 1:
            raise ValueError("name exactly one of hf, url, pypi, file and env")
        if self.hf is not None and self.revision is None:
            raise ValueError("hf needs the revision, a commit of 40 hexadecimal digits")
        if self.columns and (self.hf is not None or self.env is not None):
            raise ValueError("columns needs url, pypi or file")
        if self.args and self.env is None:
            raise ValueError("args needs env")
        if self.hf is None and not self.url and (self.config or self.split or self.revision):
            raise ValueError("config, split and revision need hf or url")
        return self
