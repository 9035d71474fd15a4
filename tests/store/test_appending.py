"""Files that grow by whole lines: on a disk that is full, that fails, and that loses the file."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.errors import RunDirectoryError
from gymcli.store.durability import LineAppender


@pytest.fixture
def appender(tmp_path):
    (tmp_path / "run").mkdir()
    appender = LineAppender(tmp_path / "run" / "out.jsonl")
    yield appender
    appender.is_told = True
    appender.close()


def test_append_adds_whole_lines(appender):
    assert not appender.path.exists()
    appender.append(b"one")
    appender.close()
    appender.append(b"two")
    appender.close()
    appender.close()
    assert appender.path.read_bytes() == b"one\ntwo\n"


def test_append_leaves_files_alone_when_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    appender = LineAppender(Path("out.jsonl"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    appender.append(b"one")
    appender.close()
    assert (tmp_path / "out.jsonl").read_bytes() == b"one\n"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no folder/out.jsonl", "No such file or directory; .*run the same command to go on"),
        ("file/out.jsonl", "Not a directory; .*run the same command to go on"),
        ("", "Is a directory; .*run the same command to go on"),
        ("n" * 300, "File name too long; .*give a shorter --out"),
    ],
)
def test_append_says_that_a_file_cannot_be_opened(tmp_path, path, reason):
    (tmp_path / "file").write_bytes(b"")
    appender = LineAppender(tmp_path / path)
    with pytest.raises(RunDirectoryError, match=f": cannot be written: {reason}"):
        appender.append(b"one")


def fail(code):
    """Give what a disk that is full or broken answers; the system makes neither at will."""

    def failing(*_):
        raise OSError(code, os.strerror(code))

    return failing


def test_append_says_that_the_disk_is_full(appender, monkeypatch):
    monkeypatch.setattr(os, "write", fail(errno.ENOSPC))
    with pytest.raises(RunDirectoryError, match=r"No space left.*run the same command to go on"):
        appender.append(b"one")


OUT_OF_FILES = """
import os, resource, sys
from pathlib import Path
from gymcli.errors import RunDirectoryError
from gymcli.store.durability import LineAppender
appender = LineAppender(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
try:
    appender.append(b"one")
except RunDirectoryError as error:
    print(error)
os.close(taken.pop())
try:
    appender.append(b"two")
except RunDirectoryError:
    os.close(taken.pop())
appender.append(b"three")
appender.close()
"""


def test_append_says_that_there_are_too_many_open_files(tmp_path):
    path = tmp_path / "out.jsonl"
    told = subprocess.run(
        [sys.executable, "-c", OUT_OF_FILES, path], capture_output=True, check=True
    ).stdout
    assert b"Too many open files" in told
    assert b"lower --concurrency" in told
    assert path.read_bytes() == b"three\n"


LIMITED = """
import resource, signal, sys
from pathlib import Path
from gymcli.errors import RunDirectoryError
from gymcli.store.durability import LineAppender
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
path = Path(sys.argv[1])
appender = LineAppender(path)
appender.append(b"x" * 59)
for _ in range(2):
    try:
        appender.append(b"y" * 59)
    except RunDirectoryError as error:
        print(error, path.stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, before)
appender.append(b"z" * 59)
appender.close()
"""


def test_append_cuts_off_what_could_be_written_of_a_line(tmp_path):
    """A limit lets the system write the beginning of a line only; with room again all goes on."""
    path = tmp_path / "out.jsonl"
    told = subprocess.run(
        [sys.executable, "-c", LIMITED, path], capture_output=True, check=True, text=True
    ).stdout.splitlines()
    assert len(told) == 2
    for line in told:
        assert "out.jsonl: cannot be written: File too large; what was written before" in line
        assert line.endswith("run the same command to go on 60")
    assert path.read_bytes() == b"x" * 59 + b"\n" + b"z" * 59 + b"\n"


def test_append_writes_the_rest_of_a_line_that_was_written_in_part(appender, monkeypatch):
    """A signal may stop a write half way; that is played, as no system does it at will."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: (len(data) + 1) // 2]))
    appender.append(b"a line of some length")
    appender.append(b"another")
    assert appender.path.read_bytes() == b"a line of some length\nanother\n"


def test_append_adds_nothing_to_a_part_of_a_line_that_stays(appender, monkeypatch):
    write = os.write

    def write_in_part(file, data):
        monkeypatch.setattr(os, "write", fail(errno.EIO))
        return write(file, data[:3])

    monkeypatch.setattr(os, "write", write_in_part)
    monkeypatch.setattr(os, "ftruncate", fail(errno.EIO))
    with pytest.raises(RunDirectoryError, match="Input/output error"):
        appender.append(b"one two")
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(RunDirectoryError, match="ends in a line that could not be written whole"):
        appender.append(b"three")
    assert appender.path.read_bytes() == b"one"


@pytest.fixture
def unsyncable(tmp_path, monkeypatch):
    """Give an appender to a disk that takes every line and cannot be synced."""
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    monkeypatch.setattr(os, "fdatasync", fail(errno.EIO), raising=False)
    return LineAppender(tmp_path / "out.jsonl")


NO_FILES = {
    "link": lambda path: path.symlink_to(path.with_name("victim")),
    "link to nothing": lambda path: path.symlink_to(path.with_name("gone")),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to(os.devnull),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_append_writes_into_a_file_alone(tmp_path, kind):
    """What a run's names lead to belongs to somebody else, and a pipe would never let go."""
    (tmp_path / "victim").write_bytes(b"precious")
    NO_FILES[kind](tmp_path / "out.jsonl")
    told = r"out\.jsonl is no file \(a link, a pipe or a device\); .*, put a file in its place"
    with pytest.raises(RunDirectoryError, match=told):
        LineAppender(tmp_path / "out.jsonl").append(b"one")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "gone").exists()


FAILED_SYNC = r"out\.jsonl: cannot be written: .*run the same command to go on"


def test_append_says_that_earlier_lines_did_not_reach_the_disk(unsyncable):
    unsyncable.append(b"one")
    unsyncable.sync()
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match=FAILED_SYNC):
            unsyncable.append(b"two")
    unsyncable.close()


def test_close_says_what_nobody_was_told(unsyncable):
    unsyncable.append(b"one")
    with pytest.raises(RunDirectoryError, match=FAILED_SYNC):
        unsyncable.close()


def test_sync_of_nothing_does_nothing(appender):
    appender.sync()
    appender.append(b"one")
    appender.sync()
    appender.sync()
    appender.check()


DELETED = r"out\.jsonl: was deleted while it was written; what it held is lost, run the same"
REPLACED = r"out\.jsonl: was replaced by another while it was written; what the other does not hold"
CUT_OFF = r"out\.jsonl: was cut off by another program while it was written; what it held is lost"
MOVED = r"out\.jsonl: was moved away or replaced while it was written; move it back and run"

LOSSES = {
    "deleted": (lambda path: path.unlink(), DELETED),
    "deleted and made anew": (lambda path: (path.unlink(), path.write_bytes(b"")), REPLACED),
    "replaced by an edited copy": (
        lambda path: (path.with_name("new").write_bytes(b""), path.with_name("new").rename(path)),
        REPLACED,
    ),
    "emptied": (lambda path: os.truncate(path, 0), CUT_OFF),
    "shortened": (lambda path: os.truncate(path, 3), CUT_OFF),
    "renamed": (lambda path: path.rename(path.with_name("other")), MOVED),
    "replaced": (
        lambda path: (path.rename(path.with_name("other")), path.write_bytes(b"")),
        MOVED,
    ),
    "folder deleted": (lambda path: shutil.rmtree(path.parent), DELETED),
    "folder renamed": (lambda path: path.parent.rename(f"{path.parent}-old"), MOVED),
    "folder replaced by a file": (
        lambda path: (path.parent.rename(f"{path.parent}-old"), path.parent.write_bytes(b"")),
        MOVED,
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_append_says_that_the_file_is_gone(appender, loss):
    lose, told = LOSSES[loss]
    appender.append(b"one")
    lose(appender.path)
    appender.sync()
    with pytest.raises(RunDirectoryError, match=told):
        appender.append(b"two")


@pytest.mark.parametrize("loss", LOSSES)
def test_close_says_that_the_file_is_gone(appender, loss):
    lose, told = LOSSES[loss]
    appender.append(b"one")
    lose(appender.path)
    with pytest.raises(RunDirectoryError, match=told):
        appender.close()
