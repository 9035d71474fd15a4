"""Rows of local tables, each with its number and what is wrong with it."""

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.data.pulling import local_rows
from gymcli.errors import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows_of(name, data):
    Path(name).write_bytes(data)
    return [tuple(row) for row in local_rows(Path(name))]


def test_local_rows_of_json_lines():
    rows = rows_of("a.jsonl", b'{"x": 1}\n\n[1]\n{"x": NaN}\n')

    assert rows[:2] == [(1, {"x": 1}), (3, "must be a JSON object")]
    assert rows[2][0] == 4
    assert rows[2][1].startswith("is not JSON")
    assert rows_of("a.JSONL", b'\xef\xbb\xbf{"x": 1}') == [(1, {"x": 1})]
    assert rows_of("a.jsonl.gz", gzip.compress(b'{"x": 1}')) == [(1, {"x": 1})]


def test_local_rows_of_a_json_array():
    assert rows_of("a.json", b'[{"x": 1}, 2]') == [(1, {"x": 1}), (2, "must be a JSON object")]
    assert rows_of("a.json", b'\xef\xbb\xbf[{"x": 1}]') == [(1, {"x": 1})]


def test_local_rows_of_csv_with_long_cells():
    limit = csv.field_size_limit()
    long = "x" * (limit + 1)

    assert rows_of("a.csv", f"x\n{long}\n".encode()) == [(2, {"x": long})]
    assert csv.field_size_limit() == limit


def test_local_rows_of_csv():
    data = '\ufeffname,text\n1,"two\nlines"\n2\n3,a,b\n4,é\n'.encode()

    assert rows_of("a.csv", data) == [
        (3, {"name": "1", "text": "two\nlines"}),
        (4, "does not have as many cells as the header"),
        (5, "does not have as many cells as the header"),
        (6, {"name": "4", "text": "é"}),
    ]


def test_local_rows_of_parquet():
    """More rows than one batch holds, in several row groups."""
    pa = pytest.importorskip("pyarrow", reason="reading Parquet is an extra")
    parquet = pytest.importorskip("pyarrow.parquet", reason="reading Parquet is an extra")
    table = pa.table({"n": list(range(2500)), "nested": [{"a": [1]}] * 2500})
    parquet.write_table(table, "a.parquet", row_group_size=800)
    rows = list(local_rows(Path("a.parquet")))

    assert [row.number for row in rows] == list(range(1, 2501))
    assert rows[-1].row == {"n": 2499, "nested": {"a": [1]}}


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt", b"", r"a.txt: unknown format; expected hf:ORG/NAME or a file \(.jsonl,"),
        ("a", b"", "unknown format"),
        ("a.json", b"3", "a.json: is not a JSON array of objects: .* got `int`$"),
        (
            "a.json",
            b'{"x": 1}\n{}',
            "a.json: is not a JSON array of .*; name it .jsonl if each line",
        ),
        ("a.csv", b"x,y,x\n1,2,3\n", 'a.csv: has the column "x" 2 times; rename'),
        ("a.parquet.gz", b"", "a.parquet.gz: Parquet files are compressed internally; unpack it"),
        ("a.csv", b'x\n"1', "a.csv: cannot be read after line 1: unexpected end of data"),
        ("a.csv", b"x\n\xff\n", "a.csv: cannot be read after line 0: 'utf-8' codec"),
        ("a.csv.zst", b"no archive", "a.csv.zst: cannot be read: "),
        ("a.json.gz", b"no archive", "a.json.gz: cannot be read: Not a gzipped file"),
        ("a.jsonl.gz", b"no archive", "a.jsonl.gz: cannot be read: Not a gzipped file"),
        ("a.parquet", b"PAR1", "a.parquet: cannot be read after row 0: "),
    ],
)
def test_local_rows_refuse_what_they_cannot_read(name, data, reason):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="reading Parquet is an extra")
    with pytest.raises(UsageError, match=reason):
        rows_of(name, data)


@pytest.mark.parametrize(
    ("names", "kind", "value", "reason"),
    [
        (["x"], ("timestamp", "s"), 10**12, "cannot be read after row 0: "),
        (["x"], ("timestamp", "s", "Mars/Phobos"), 1, "cannot be read after row 0: .*Mars/Phobos"),
        (["x", "x"], ("int64",), 1, 'has the column "x" 2 times; rename'),
    ],
)
def test_local_rows_refuse_parquet_that_has_no_rows_of_ours(names, kind, value, reason):
    pa = pytest.importorskip("pyarrow", reason="reading Parquet is an extra")
    parquet = pytest.importorskip("pyarrow.parquet", reason="reading Parquet is an extra")
    column = pa.array([value], getattr(pa, kind[0])(*kind[1:]))
    parquet.write_table(pa.table([column] * len(names), names), "a.parquet")
    with pytest.raises(UsageError, match=f"a.parquet: {reason}"):
        list(local_rows(Path("a.parquet")))


@pytest.mark.parametrize("name", ["no.jsonl", "no.json", "no.csv", "no.parquet"])
def test_local_rows_refuse_a_file_that_is_not_there(name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="reading Parquet is an extra")
    with pytest.raises(UsageError, match=rf"{name}: cannot be read"):
        list(local_rows(Path(name)))


READ = """
import resource, sys
from pathlib import Path
from gymcli.data.pulling import local_rows
from gymcli.errors import UsageError
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
try:
    print(len(list(local_rows(Path(sys.argv[1])))))
except UsageError as error:
    print(error)
"""

BOMBS = {
    "bomb.csv.gz": (
        b"a,b\n",
        b"x" * (1 << 24),
        "bomb.csv.gz:2: the row is longer than the limit",
    ),
    "quote.csv.gz": (
        b'a,b\n"',
        (b"x" * 999 + b"\n") * (1 << 14),
        ": the row is longer than the limit of 128 MB",
    ),
    "bomb.json.gz": (b"[", b"1" * (1 << 24), "bomb.json.gz: is longer than the limit of 256 MB"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_local_rows_end_where_a_small_file_unpacks_to_far_too_much(name):
    first, part, message = BOMBS[name]
    Path(name).write_bytes(gzip.compress(first) + gzip.compress(part) * 256)
    done = subprocess.run(
        [sys.executable, "-c", READ, name], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert message in done.stdout


def test_local_rows_of_csv_may_be_many(tmp_path):
    """The limit is that of a row, not of the file."""
    data = b"a\n" + b"x" * 1_000_000 + b"\n"
    assert len(rows_of("a.csv.gz", gzip.compress(data) + gzip.compress(data[2:]) * 140)) == 141
