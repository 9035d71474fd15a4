"""Lines of JSONL files: plain and compressed, whole and damaged, read and appended."""

import gzip
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunDirectoryError, UsageError
from gymcli.store.lines import Line, LineAppender, iterate_lines

FULL = Path("/dev/full")

TEXT = b'{"a": 1}\n\n  \r\n{"b": 2}\r\n{"c": 3}'
LINES = [Line(1, b'{"a": 1}', True), Line(4, b'{"b": 2}', True), Line(5, b'{"c": 3}', False)]


def compressed(suffix, data):
    if suffix == ".gz":
        return gzip.compress(data)
    if suffix == ".zst":
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return data


def write(tmp_path, suffix, data):
    path = tmp_path / f"file.jsonl{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_numbers_the_lines_that_are_not_blank(tmp_path, suffix):
    path = write(tmp_path, suffix, compressed(suffix, TEXT))
    assert list(iterate_lines(path)) == LINES


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_of_an_empty_file_gives_none(tmp_path, suffix):
    assert list(iterate_lines(write(tmp_path, suffix, compressed(suffix, b"")))) == []
    assert list(iterate_lines(write(tmp_path, suffix, b""))) == []


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_iterate_lines_reads_archives_of_several_parts(tmp_path, suffix):
    parts = b"".join(compressed(suffix, b"%d\n" % number) for number in range(20))
    lines = [line.data for line in iterate_lines(write(tmp_path, suffix, parts))]
    assert lines == [b"%d" % number for number in range(20)]


def test_iterate_lines_skips_a_byte_order_mark(tmp_path):
    path = write(tmp_path, "", b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n")
    assert [line.data for line in iterate_lines(path)] == [b"{}", b"\xef\xbb\xbf{}"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-9], id="cut off"),
        pytest.param(lambda data: data[:3], id="cut off in its head"),
        pytest.param(lambda data: data[: len(data) // 2], id="half of it"),
        pytest.param(lambda data: b"no archive", id="no archive"),
        pytest.param(lambda data: data[:40] + b"\xff" * 40 + data[80:], id="overwritten"),
        pytest.param(lambda data: data + b"more after it", id="more after it"),
    ],
)
def test_iterate_lines_names_a_damaged_archive(tmp_path, suffix, damage):
    """An archive that was cut off is never taken for one that ends there."""
    data = compressed(suffix, b"".join(b"%d\n" % (n * n) for n in range(50_000)))
    path = write(tmp_path, suffix, damage(data))
    with pytest.raises(UsageError, match=f"file.jsonl{suffix}: cannot be read: "):
        list(iterate_lines(path))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_names_a_missing_file_and_a_folder(tmp_path, suffix):
    missing = tmp_path / f"missing{suffix}"
    with pytest.raises(UsageError, match=r"missing.*: cannot be read: No such file"):
        list(iterate_lines(missing))
    missing.mkdir()
    with pytest.raises(UsageError, match=r"missing.*: cannot be read: Is a directory"):
        list(iterate_lines(missing))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_iterate_lines_holds_no_more_than_a_part_of_the_file(tmp_path, suffix):
    rng = random.Random(0)
    lines = b"".join(b'{"text": "%s"}\n' % rng.randbytes(500).hex().encode() for _ in range(8_000))
    path = write(tmp_path, suffix, compressed(suffix, lines))
    for _ in iterate_lines(path):
        break
    tracemalloc.start()
    try:
        assert sum(1 for _ in iterate_lines(path)) == 8_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(lines) / 8


@given(st.binary(max_size=200), st.sampled_from(["", ".gz", ".zst"]))
def test_iterate_lines_of_any_bytes_raises_nothing_but_ours(tmp_path_factory, data, suffix):
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(data)
    try:
        lines = list(iterate_lines(path))
    except UsageError:
        assert suffix
        return
    if not suffix:
        parts = [part.strip() for part in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
        assert [line.data for line in lines] == [part for part in parts if part]


def test_iterate_lines_loads_no_decompressor_for_a_plain_file(tmp_path):
    path = write(tmp_path, "", TEXT)
    command = (
        "import sys; from pathlib import Path; from gymcli.store.lines import iterate_lines; "
        f"list(iterate_lines(Path({str(path)!r}))); print('zstandard' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert found.stdout == b"False\n"


def test_append_adds_whole_lines(tmp_path):
    appender = LineAppender(tmp_path / "out.jsonl")
    assert not appender.path.exists()
    appender.append(b"one")
    appender.close()
    appender.append(b"two")
    appender.close()
    appender.close()
    assert appender.path.read_bytes() == b"one\ntwo\n"


def test_append_says_that_a_file_cannot_be_opened(tmp_path):
    appender = LineAppender(tmp_path / "no folder" / "out.jsonl")
    with pytest.raises(RunDirectoryError, match=r"out\.jsonl: cannot be written: No such file"):
        appender.append(b"one")


@pytest.mark.skipif(not FULL.exists(), reason="no device here that is always full")
def test_append_says_that_the_disk_is_full():
    appender = LineAppender(FULL)
    with pytest.raises(RunDirectoryError, match=r"No space left.*run the same command to go on"):
        appender.append(b"one")
    appender.close()


def test_append_says_that_a_line_was_written_in_part(tmp_path):
    """A file-size limit lets the system write the beginning of a line only; then none follows."""
    path = tmp_path / "out.jsonl"
    command = f"""
import resource, signal
from pathlib import Path
from gymcli.errors import RunDirectoryError
from gymcli.store.lines import LineAppender
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
appender = LineAppender(Path({str(path)!r}))
appender.append(b"x" * 59)
for _ in range(2):
    try:
        appender.append(b"y" * 59)
    except RunDirectoryError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
"""
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert b"only 40 of 60 bytes could be written (disk full?)" in found.stdout
    assert b"ends in a line that could not be written whole" in found.stdout
    assert path.stat().st_size == 100
