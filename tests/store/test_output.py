"""A file is written as a whole or not at all."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.errors import UsageError
from gymcli.store.lines import iterate_lines
from gymcli.store.output import whole_file


def write(path, data=b"one\ntwo\n"):
    with whole_file(path) as file:
        file.write(data)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_whole_file_is_compressed_by_its_suffix(tmp_path, name):
    """The same content compresses to the same bytes, whatever the file held before."""
    path = tmp_path / name
    write(path)
    assert [line.data for line in iterate_lines(path)] == [b"one", b"two"]
    before = path.read_bytes()
    assert (before == b"one\ntwo\n") == (name == "a.jsonl")

    write(path, b"other")
    write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whole_file_leaves_what_was_there_when_the_block_fails(tmp_path, error):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"before")

    def write_half():
        with whole_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_whole_file_removes_what_a_killed_process_left(tmp_path):
    """Only files for the same output, of processes that have ended, that nobody holds open."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        gone = process.pid
    left = tmp_path / f".a.jsonl.{gone}-0123abcd.tmp"
    kept = [
        f".a.jsonl.{os.getpid()}-0123abcd.tmp",
        f".b.jsonl.{gone}-0123abcd.tmp",
        f".a.jsonl.{gone}.tmp",
        f"a.jsonl.{gone}-0123abcd.tmp",
        f".a.jsonl.{gone}-00000000.tmp",
    ]
    for path in (left, *(tmp_path / name for name in kept)):
        path.write_bytes(b"half")
    with (tmp_path / kept[-1]).open() as elsewhere:  # as a writer on another machine would
        fcntl.flock(elsewhere, fcntl.LOCK_EX)
        write(tmp_path / "a.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.jsonl", *kept])


def test_a_killed_process_leaves_nothing_beyond_the_next_command(tmp_path):
    path = tmp_path / "a.jsonl"
    code = "import os, sys; from pathlib import Path; from gymcli.store.output import whole_file\n"
    code += "with whole_file(Path(sys.argv[1])) as file: os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    write(path)
    assert list(tmp_path.iterdir()) == [path]


def test_whole_file_is_written_where_a_link_leads(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a.jsonl")
    write(tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.jsonl").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    "name",
    [
        "no/a.jsonl",
        "/dev/null",
        ".",
        pytest.param("x" * 250, id="long with a draft"),
        pytest.param("x" * 300, id="long"),
    ],
)
def test_whole_file_refuses_what_it_cannot_replace(working_folder, name):
    reason = "is not a regular file" if name in ("/dev/null", ".") else "cannot be written"
    with pytest.raises(UsageError, match=f"{name}: {reason}"):
        write(Path(name))


def test_whole_file_refuses_what_is_read(tmp_path):
    """By its own name, through a symbolic link, and through a hard link."""
    source, link, other = (tmp_path / name for name in ("a.jsonl", "link", "other"))
    source.write_text("kept")
    link.symlink_to(source)
    other.hardlink_to(source)

    for path in (source, link, other):
        with (
            pytest.raises(UsageError, match="is an input and would be overwritten"),
            whole_file(path, inputs=[tmp_path / "missing", source]),
        ):
            pytest.fail("the file was opened for writing")
    assert source.read_text() == "kept"


def test_whole_file_refuses_links_in_a_circle(tmp_path):
    path = tmp_path / "a"
    path.symlink_to(path)

    with pytest.raises(UsageError, match="links form a loop"), whole_file(path):
        pytest.fail("the file was opened for writing")


def test_whole_file_is_not_disturbed_by_what_a_dead_process_left(tmp_path):
    """Nor by a file of a process with the same id on another machine."""
    path = tmp_path / "a.jsonl"
    left = [tmp_path / f".a.jsonl.{os.getpid()}{mark}.tmp" for mark in ("", "-00000000")]
    for unfinished in left:
        unfinished.write_bytes(b"half")
    with whole_file(path) as first:
        first.write(b"first")
        with whole_file(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert [unfinished.read_bytes() for unfinished in left] == [b"half", b"half"]
    assert sorted(tmp_path.iterdir()) == sorted([path, *left])
