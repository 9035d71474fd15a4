"""Files that grow by whole lines: full and failing disks, deleted files, and torn ends."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import EpisodeError, RunDirectoryError
from gymcli.store.durability import (
    LineAppender,
    Syncer,
    mend_file,
    replace_file,
    sync_folder,
    unfinished_end,
    write_error,
)
from gymcli.store.lines import MAX_LINE_BYTES, iterate_lines


def test_syncer_calls_until_it_is_closed():
    calls = threading.Semaphore(0)
    syncer = Syncer(calls.release, seconds=0.001)
    syncer.start()
    syncer.start()
    for _ in range(3):
        assert calls.acquire(timeout=30)
    assert [thread.name for thread in threading.enumerate()].count("gymcli sync") == 1
    syncer.close()
    syncer.close()
    while calls.acquire(blocking=False):
        pass
    assert "gymcli sync" not in [thread.name for thread in threading.enumerate()]
    syncer.start()
    assert calls.acquire(timeout=30)
    syncer.close()


def test_replace_file_writes_anew_and_leaves_nothing_else(tmp_path):
    for data in (b"one", b"two"):
        replace_file(tmp_path / "run.json", data)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
            ("run.json", data)
        ]


def test_replace_file_writes_through_no_link(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    for name in ("run.json", f".run.json.{os.getpid()}.tmp"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    replace_file(tmp_path / "run.json", b"one")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert (tmp_path / "run.json").read_bytes() == b"one"


def test_replace_file_that_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RunDirectoryError, match=r"run\.json: cannot be written: Is a directory"):
        replace_file(tmp_path / "run.json", b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_replace_file_keeps_the_old_one_where_the_new_one_does_not_reach_the_disk(
    tmp_path, monkeypatch
):
    replace_file(tmp_path / "run.json", b"one")

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunDirectoryError, match=r"No space left on device; .*make room and run"):
        replace_file(tmp_path / "run.json", b"two")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.json", b"one")]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_sync_folder_raises_only_io_errors(tmp_path, monkeypatch, code):
    """Some file systems cannot sync folders, which is ignored; an I/O error is raised."""

    def refuse(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    if code == errno.EINVAL:
        assert sync_folder(tmp_path) is None
    else:
        with pytest.raises(OSError, match="Input/output error"):
            sync_folder(tmp_path)


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (errno.ENOSPC, "make room and run the same command again to resume"),
        (errno.EDQUOT, "make room and run the same command again to resume"),
        (
            errno.EROFS,
            "make it writable and run the same command again to resume, or use another --out",
        ),
        (errno.EIO, "run the same command again to resume"),
    ],
)
def test_unwritable_names_the_way_out(tmp_path, code, way_out):
    error = write_error(tmp_path, OSError(code, "because"))
    assert str(error) == (
        f"{tmp_path}: cannot be written: because; earlier data is intact, {way_out}"
    )


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


def test_append_writes_the_longest_line_that_is_read_and_no_longer_one(appender):
    longest = b'"' + b"x" * (MAX_LINE_BYTES - 3) + b'"'
    appender.append(longest)
    with pytest.raises(EpisodeError, match="the record is longer than the limit of 128 MB"):
        appender.append(longest + b" ")
    appender.append(b"{}")
    appender.close()
    assert [len(line.data) for line in iterate_lines(appender.path)] == [MAX_LINE_BYTES - 1, 2]


def test_append_leaves_files_alone_when_the_working_directory_changes(
    tmp_path, working_folder, monkeypatch
):
    appender = LineAppender(Path("out.jsonl"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    appender.append(b"one")
    appender.close()
    assert (tmp_path / "out.jsonl").read_bytes() == b"one\n"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (
            "no folder/out.jsonl",
            "No such file or directory; .*run the same command again to resume",
        ),
        ("file/out.jsonl", "Not a directory; .*run the same command again to resume"),
        ("", "Is a directory; .*run the same command again to resume"),
        ("n" * 300, "File name too long; .*use a shorter --out"),
    ],
)
def test_append_says_that_a_file_cannot_be_opened(tmp_path, path, reason):
    (tmp_path / "file").write_bytes(b"")
    appender = LineAppender(tmp_path / path)
    with pytest.raises(RunDirectoryError, match=f": cannot be written: {reason}"):
        appender.append(b"one")


def fail(code):
    """Return a function that raises the OSError of a full or broken disk."""

    def failing(*_):
        raise OSError(code, os.strerror(code))

    return failing


def test_append_says_that_the_disk_is_full(appender, monkeypatch):
    monkeypatch.setattr(os, "write", fail(errno.ENOSPC))
    with pytest.raises(
        RunDirectoryError, match=r"No space left.*run the same command again to resume"
    ):
        appender.append(b"one")


OUT_OF_FILES = """
import os, resource, sys
from pathlib import Path
from gymcli.errors import (EpisodeError, RunDirectoryError)
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
from gymcli.errors import (EpisodeError, RunDirectoryError)
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
    """A size limit lets the system write only part of a line; without it, appending works again."""
    path = tmp_path / "out.jsonl"
    told = subprocess.run(
        [sys.executable, "-c", LIMITED, path], capture_output=True, check=True, text=True
    ).stdout.splitlines()
    assert len(told) == 2
    for line in told:
        assert "out.jsonl: cannot be written: File too large; earlier data" in line
        assert line.endswith("run the same command again to resume 60")
    assert path.read_bytes() == b"x" * 59 + b"\n" + b"z" * 59 + b"\n"


def test_append_writes_the_rest_of_a_line_that_was_written_in_part(appender, monkeypatch):
    """A signal may interrupt a write; a patched `os.write` stands in for that."""
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
    with pytest.raises(RunDirectoryError, match="ends in an incomplete line"):
        appender.append(b"three")
    assert appender.path.read_bytes() == b"one"


@pytest.fixture
def unsyncable(tmp_path, monkeypatch):
    """Return an appender on a disk that accepts every line and cannot be synced."""
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
def test_append_writes_only_into_regular_files(tmp_path, kind):
    """A link may lead to somebody else's file, and a pipe would block."""
    (tmp_path / "victim").write_bytes(b"precious")
    NO_FILES[kind](tmp_path / "out.jsonl")
    told = r"out\.jsonl is not a regular file \(a link, a pipe or a device\); .*, replace it with"
    with pytest.raises(RunDirectoryError, match=told):
        LineAppender(tmp_path / "out.jsonl").append(b"one")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "gone").exists()


FAILED_SYNC = r"out\.jsonl: cannot be written: .*run the same command again to resume"


def test_append_says_that_earlier_lines_did_not_reach_the_disk(unsyncable):
    unsyncable.append(b"one")
    unsyncable.sync()
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match=FAILED_SYNC):
            unsyncable.append(b"two")
    unsyncable.close()


def test_close_reports_errors_that_no_append_reported(unsyncable):
    unsyncable.append(b"one")
    with pytest.raises(RunDirectoryError, match=FAILED_SYNC):
        unsyncable.close()


def test_sync_of_nothing_does_nothing(appender):
    appender.sync()
    appender.append(b"one")
    appender.sync()
    appender.sync()
    appender.check()


DELETED = r"out\.jsonl: was deleted while it was being written; its content is lost, run the same"
REPLACED = r"out\.jsonl: was replaced while it was being written"
CUT_OFF = (
    r"out\.jsonl: was truncated by another program while it was being written; its content is lost"
)
MOVED = r"out\.jsonl: was moved or replaced while it was being written; move it back and run"

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


WHOLE = b'{"a":1}\n{"b":2}\n'


def mended(path, data):
    """Return whether something was cut off, and what remains; a second pass changes nothing."""
    path.write_bytes(data)
    is_cut = mend_file(path)
    left = path.read_bytes()
    assert mend_file(path) is False
    assert path.read_bytes() == left
    return is_cut, left


@pytest.mark.parametrize(
    "tail",
    [
        b"{",
        b'{"a',
        b"1",
        b'"text"',
        b"null",
        b"\xff",
        b"\0",
        b"\0" * 70_000,
        b'{"c":\0\0',
        b"\0\0\n",
        b'{"c":\0\0}\n',
        b'\0\0\0"c":3}\n{"d":\0\0\0\n{"e"',
        b"   ",
    ],
)
def test_mend_file_cuts_off_what_is_not_whole(tmp_path, tail):
    assert mended(tmp_path / "f", WHOLE + tail) == (True, WHOLE)
    assert mended(tmp_path / "f", tail) == (True, b"")


@pytest.mark.parametrize("data", [b"", WHOLE, b"\n", b"{\n", b'{\n{"a":1}\n'])
def test_mend_file_leaves_what_ends_in_a_newline(tmp_path, data):
    """A damaged line is not an unfinished one; readers report where it is."""
    assert mended(tmp_path / "f", data) == (False, data)


def test_mend_file_adds_the_newline_that_a_whole_line_lacks(tmp_path):
    assert mended(tmp_path / "f", WHOLE + b'{"c":3}') == (False, WHOLE + b'{"c":3}\n')


def test_mend_file_leaves_bytes_that_follow_damage(tmp_path):
    """Only an unfinished end is cut off: whole lines after NUL bytes are results."""
    data = b"\0\0\n" + WHOLE
    assert mended(tmp_path / "f", data) == (False, data)


def test_mend_file_cuts_off_an_end_that_is_longer_than_any_line(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(WHOLE)
    with path.open("r+b") as file:
        file.truncate(150 << 20)
    assert unfinished_end(path)
    assert mend_file(path)
    assert path.read_bytes() == WHOLE


@given(st.binary(max_size=60), st.integers(0, 3))
def test_mend_file_keeps_every_whole_line(tmp_path_factory, tail, num_lines):
    path = tmp_path_factory.getbasetemp() / "any"
    before = b"".join(b'{"n":%d}\n' % n for n in range(num_lines))
    _, left = mended(path, before + tail)
    assert left.startswith(before)
    assert left == b"" or left.endswith(b"\n")


@given(st.integers(0, len(WHOLE)))
def test_mend_file_of_any_part_leaves_the_lines_that_are_whole_in_it(tmp_path_factory, size):
    path = tmp_path_factory.getbasetemp() / "part"
    _, left = mended(path, WHOLE[:size])
    lines = [line for line in WHOLE.splitlines() if WHOLE.index(line) + len(line) <= size]
    assert left == b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize(
    ("data", "is_unfinished"),
    [(b"", False), (WHOLE, False), (WHOLE + b"  ", False), (WHOLE[:-1], False), (b"{", True)],
)
def test_unfinished_end_sees_a_last_line_that_is_not_whole(tmp_path, data, is_unfinished):
    (tmp_path / "f").write_bytes(data)
    assert unfinished_end(tmp_path / "f") is is_unfinished


def test_mend_file_cuts_nothing_that_a_link_leads_to(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "f").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="f is not a regular file"):
        mend_file(tmp_path / "f")
    assert (tmp_path / "victim").read_bytes() == b"precious"
