"""Reads text files: whole ones, and JSONL files, plain or compressed, as a stream of lines."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import re
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar, cast

import msgspec

from gymcli.errors import UsageError
from gymcli.types import JSON, JSON_ERRORS, JSONObject

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE_BYTES = 1 << 27
"""The longest line that is read or written, uncompressed: a small file may unpack to any size."""
TOO_LONG = f"is longer than the limit of {MAX_LINE_BYTES >> 20} MB"
"""For messages about a line or a row."""
TOO_DEEP = "it is nested too deeply"
"""For messages about JSON that overflows the interpreter's stack."""

_MAX_WINDOW_LOG = 27
"""The base-2 logarithm of the most memory that a .zst file may need, in bytes."""
_BUFFER_BYTES = 1 << 16
"""Bytes to read at a time: the default of 8 kB takes a seventh more time."""
_COMPRESSED_BYTES = 1 << 11
"""Bytes of a .zst file to decompress at a time; the output is held in memory."""
_BLOCK_BYTES = 1 << 17
"""Small enough to be decoded from the processor's cache."""
BYTE_ORDER_MARK = codecs.BOM_UTF8
_MAX_BLANK_BYTES = 1 << 20
"""The most consecutive blank bytes: endless blank lines would take endless time."""

_ARRAY_START = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")
_ARCHIVES = frozenset(
    {".bz2", ".xz", ".lzma", ".lz4", ".br", ".zip", ".7z", ".rar", ".tar", ".tgz"}
)

T = TypeVar("T")


def refuse_archive(path: Path) -> None:
    """Raise UsageError if a file's name says that it is packed in a way that is not read."""
    if path.suffix.lower() in _ARCHIVES:
        raise UsageError(f"{path}: {path.suffix} is not read; unpack it, or pack it as .gz or .zst")


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressing `.gz` and `.zst`; UsageError if that fails."""
    refuse_archive(path)
    try:
        if path.suffix == ".gz":
            return cast("BinaryIO", gzip.open(path, "rb"))
        if path.suffix == ".zst":
            return _open_zstd(path)
        return path.open("rb", _BUFFER_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def is_plain(path: Path) -> bool:
    """Return whether a file can be read from any byte: it is regular and not compressed."""
    return path.suffix not in (".gz", ".zst") and path.is_file()


def _open_zstd(path: Path) -> BinaryIO:
    if sys.version_info >= (3, 14):
        from compression import zstd

        window = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
        return cast("BinaryIO", zstd.open(path, "rb", options=window))
    return io.BufferedReader(_ZstdStream(path.open("rb")), 1 << 16)


class _ZstdStream(io.RawIOBase):
    """The decompressed bytes of a .zst file with one or more frames.

    The reader of the package zstandard does not notice that a file is truncated.
    """

    def __init__(self, file: BinaryIO) -> None:
        import zstandard  # late: only a .zst file needs it

        self._file = file
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _MAX_WINDOW_LOG)
        self._frame = self._decompressor.decompressobj()
        self._has_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        while not self._ready:
            # Bytes after the end of a frame begin the next one.
            compressed = self._frame.unused_data or self._file.read(_COMPRESSED_BYTES)
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
                self._has_frame = False
            if not compressed:
                if self._has_frame:
                    raise EOFError("the file ends in the middle of its compressed data")
                return 0
            self._has_frame = True
            self._ready = memoryview(self._frame.decompress(compressed))
        size = min(len(view), len(self._ready))
        view[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file without its byte order mark, which Windows programs write.

    Raises:
        UsageError: The file cannot be read, or has another encoding.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    refuse_utf16(data, path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{number}: is not UTF-8 text: save the file as UTF-8") from error


def read_toml(path: Path) -> dict[str, object]:
    """Return the keys and tables of a TOML file; UsageError if it is invalid."""
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from error


def begins_array(start: bytes) -> bool:
    return _ARRAY_START.match(start) is not None


def refuse_utf16(start: bytes, path: Path) -> None:
    """Raise UsageError if a file that starts with these bytes is UTF-16 text."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UsageError(
            f'{path}: is UTF-16 text, as Notepad\'s "Unicode" and > in PowerShell 5 write it: save '
            "the file as UTF-8"
        )


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file, such as a damaged archive, into a UsageError with its name."""
    damaged: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, *_zstd_errors(path))
    try:
        yield
    except damaged as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _zstd_errors(path: Path) -> tuple[type[Exception], ...]:
    # The package is imported for .zst files only.
    if path.suffix != ".zst":
        return ()
    if sys.version_info >= (3, 14):
        from compression import zstd

        return (zstd.ZstdError,)
    import zstandard

    return (zstandard.ZstdError,)


class Line(NamedTuple):
    """One line of a file, without its newline."""

    number: int
    """Counted from 1."""
    data: bytes
    is_complete: bool
    """False for a last line without a newline."""


def iterate_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that are not blank; memory does not grow with the file.

    Raises:
        UsageError: The file is missing or damaged, a line is longer than `MAX_LINE_BYTES`, or more
            than 1 MB in a row is blank.
    """
    with open_bytes(path) as file, read_errors(path):
        yield from lines_of(file, path)


def lines_of(file: BinaryIO, path: Path, *, first: int = 1) -> Iterator[Line]:
    """Yield the lines of an open file that are not blank, as `iterate_lines` does.

    `path` is the file's name for messages, `first` the number of the first line.
    """
    num_blank = 0
    read_line = partial(file.readline, MAX_LINE_BYTES + 1)  # one more, to notice a longer line
    for number, data in enumerate(iter(read_line, b""), first):
        if number == 1:
            refuse_utf16(data, path)
        stripped = (data.removeprefix(BYTE_ORDER_MARK) if number == 1 else data).strip()
        num_blank = 0 if stripped else num_blank + len(data)
        if len(data) > MAX_LINE_BYTES:
            raise UsageError(f"{path}:{number}: {TOO_LONG}")
        if num_blank > _MAX_BLANK_BYTES:
            raise _too_blank(path, number)
        if stripped:
            yield Line(number, stripped, data.endswith(b"\n"))


def _too_blank(path: Path, number: int) -> UsageError:
    return UsageError(f"{path}:{number}: has more than {_MAX_BLANK_BYTES >> 20} MB of blank lines")


def decoded_lines(lines: Iterable[Line]) -> Iterator[tuple[int, JSONObject | str]]:
    """Yield the number of each line and its JSON object, or the reason why it has none."""
    # Not at the top: it imports attrs, and most commands and workers decode no such line.
    import jsonlines

    number = 0

    def texts() -> Iterator[bytes]:
        nonlocal number
        for line in lines:
            number = line.number
            yield line.data

    with jsonlines.Reader(texts(), loads=_loads) as reader:
        while True:
            try:
                value = reader.read(allow_none=True)
            except EOFError:
                return
            except jsonlines.InvalidLineError as error:
                yield number, f"is not JSON: {error.__cause__ or error}"
                continue
            yield number, value if isinstance(value, dict) else "must be a JSON object"


def _loads(text: str | bytes) -> JSON:
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:  # jsonlines takes only a ValueError for a bad line
        raise ValueError(TOO_DEEP) from error


def file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


class Block(NamedTuple):
    """Consecutive whole lines of a file with their newlines."""

    number: int
    """The number of the first line, counted from 1."""
    num_newlines: int
    """The number of lines, or one less if the file's last line has no newline."""
    data: memoryview

    def lines(self, path: Path) -> Iterator[Line]:
        """Yield the lines that are not blank, as `iterate_lines` does; `path` is for messages."""
        return lines_of(io.BytesIO(self.data), path, first=self.number)


class Part(NamedTuple):
    """A range of whole lines in a plain file, which any process can read separately."""

    path: str
    start: int
    """The offset of the first byte."""
    end: int
    """The offset after the last byte."""

    def lines(self, num_before: int) -> Iterator[Line]:
        """Yield the lines as `iterate_lines` does; `num_before` lines precede the part."""
        path = Path(self.path)
        with open_bytes(path) as file, read_errors(path):
            file.seek(self.start)
            data = file.read(self.end - self.start)
        yield from lines_of(io.BytesIO(data), path, first=num_before + 1)

    def num_lines(self) -> int:
        path, left, num_lines = Path(self.path), self.end - self.start, 0
        with open_bytes(path) as file, read_errors(path):
            file.seek(self.start)
            while left > 0 and (line := file.readline(MAX_LINE_BYTES + 1)):
                left -= len(line)
                num_lines += 1
        return num_lines


def iterate_parts(path: Path, size: Callable[[int], int]) -> Iterator[Part]:
    """Split a plain file into parts; `size` returns the next part's size from the bytes left."""
    with open_bytes(path) as file, read_errors(path):
        start, num_bytes = 0, file.seek(0, io.SEEK_END)
        while start < num_bytes:
            file.seek(min(start + size(num_bytes - start), num_bytes))
            file.readline(MAX_LINE_BYTES + 1)  # to the end of the line that was hit
            yield Part(str(path), start, file.tell())
            start = file.tell()


def iterate_blocks(path: Path, *, size: int = _BLOCK_BYTES) -> Iterator[Block]:
    """Yield a file in blocks of about `size` bytes; memory does not grow with the file.

    All blocks share one buffer: a block's data is valid until the next block is read.
    """
    with open_bytes(path) as file, read_errors(path):
        memory, num_held, number, num_blank = bytearray(size), 0, 1, 0
        while num_held < len(memory):
            num_new = cast("io.BufferedIOBase", file).readinto(memoryview(memory)[num_held:])
            # At the end of the file the rest is a last line without a newline.
            num_held += num_new
            # Only the new bytes, since a long line would be searched again with every read.
            end = memory.rfind(b"\n", num_held - num_new, num_held) + 1 if num_new else num_held
            # Only the first line can be too long: the buffer exceeds the limit by one byte at most.
            if max(end, num_held) > MAX_LINE_BYTES:
                newline = memory.find(b"\n", 0, end)
                if not 0 <= newline < MAX_LINE_BYTES:
                    raise UsageError(f"{path}:{number}: {TOO_LONG}")
            if end:
                data = memoryview(memory)[:end]
                is_blank = memory[:1].isspace() and data.tobytes().isspace()
                num_blank = num_blank + end if is_blank else 0
                if num_blank > _MAX_BLANK_BYTES:
                    raise _too_blank(path, number)
                num_newlines = memory.count(b"\n", 0, end)
                yield Block(number, num_newlines, data)
                number += num_newlines
                num_held -= end
                memory[:num_held] = memory[end : end + num_held]
            elif num_held == len(memory):
                memory = memory.ljust(min(2 * num_held, MAX_LINE_BYTES + 1), b"\0")
            if not num_new:
                return


def decode_block(block: Block, decoder: msgspec.json.Decoder[T]) -> list[T] | None:
    """Decode all lines of a block in one call; None if they must be decoded one by one.

    That is the case if a line cannot be decoded, is blank or unfinished, or holds several values.
    """
    try:
        structs = decoder.decode_lines(block.data)
    except JSON_ERRORS:
        return None
    is_finished = block.data[-1] == ord("\n")
    return structs if is_finished and len(structs) == block.num_newlines else None
