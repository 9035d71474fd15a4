"""Tables are read row by row, whatever their format, and refused with the place of the fault."""

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.errors import UsageError
from gymcli.store.tables import is_table, local_rows, table_columns


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def table_rows(name, data):
    Path(name).write_bytes(data)
    return [tuple(row) for row in local_rows(Path(name))]


@pytest.mark.usefixtures("folder")
def test_local_rows_of_json_lines():
    rows = table_rows("a.jsonl", b'{"x": 1}\n\n[1]\n{"x": NaN}\n')

    assert rows[:2] == [(1, {"x": 1}), (3, "must be a JSON object")]
    assert rows[2][0] == 4
    assert rows[2][1].startswith("is not JSON")
    assert table_rows("a.JSONL", b'\xef\xbb\xbf{"x": 1}') == [(1, {"x": 1})]
    assert table_rows("a.jsonl.gz", gzip.compress(b'{"x": 1}')) == [(1, {"x": 1})]


@pytest.mark.usefixtures("folder")
def test_local_rows_of_a_json_array():
    assert table_rows("a.json", b'[{"x": 1}, 2]') == [(1, {"x": 1}), (2, "must be a JSON object")]
    assert table_rows("a.json", b'\xef\xbb\xbf[{"x": 1}]') == [(1, {"x": 1})]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_local_rows_refuse_utf_16(name):
    with pytest.raises(UsageError, match=r"is UTF-16 text, .* save the file as UTF-8"):
        table_rows(name, '[{"x": 1}]\n'.encode("utf-16"))


@pytest.mark.usefixtures("folder")
def test_local_rows_of_csv_with_long_cells():
    limit = csv.field_size_limit()
    long = "x" * (limit + 1)

    assert table_rows("a.csv", f"x\n{long}\n".encode()) == [(2, {"x": long})]
    assert csv.field_size_limit() == limit


@pytest.mark.usefixtures("folder")
def test_local_rows_of_csv():
    data = '\ufeffname,text\n1,"two\nlines"\n2\n3,a,b\n4,é\n'.encode()

    assert table_rows("a.csv", data) == [
        (2, {"name": "1", "text": "two\nlines"}),
        (4, "has 1 cells, but the header has 2"),
        (5, "has 3 cells, but the header has 2"),
        (6, {"name": "4", "text": "é"}),
    ]


@pytest.mark.usefixtures("folder")
def test_local_rows_of_csv_skip_blank_records():
    data = b"\nx,y\n\n1,2\n , \n,\n3,4\n"

    assert table_rows("a.csv", data) == [(4, {"x": "1", "y": "2"}), (7, {"x": "3", "y": "4"})]


@pytest.mark.usefixtures("folder")
def test_two_csv_files_with_long_cells_are_read_at_a_time():
    limit = csv.field_size_limit()
    Path("a.csv").write_text(f"x\n1\n{'x' * (limit + 1)}\n")
    first, second = local_rows(Path("a.csv")), local_rows(Path("a.csv"))
    next(first)
    assert len(list(second)) == 2
    assert len(list(first)) == 1
    assert csv.field_size_limit() == limit


@pytest.mark.usefixtures("folder")
def test_local_rows_of_parquet():
    """There are more rows than a batch holds, in several row groups."""
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    table = pa.table({"n": list(range(2500)), "nested": [{"a": [1]}] * 2500})
    parquet.write_table(table, "a.parquet", row_group_size=800)
    rows = list(local_rows(Path("a.parquet")))

    assert [row.number for row in rows] == list(range(1, 2501))
    assert rows[-1].row == {"n": 2499, "nested": {"a": [1]}}


@pytest.mark.usefixtures("folder")
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
        ("a.csv", b"x,y,x\n1,2,3\n", 'a.csv:1: has the column "x" 2 times; rename'),
        ("a.parquet.gz", b"", "a.parquet.gz: Parquet files are compressed internally; unpack it"),
        ("a.csv", b'x\n"1\n2\n', "a.csv:2: is not CSV: a quotation mark is not closed"),
        ("a.csv", b"\nx;y\n1;2\n", "a.csv:2: has one column, 'x;y': separate the cells by commas"),
        ("a.tsv", b"x,y\n1,2\n", "a.tsv:1: has one column, 'x,y': separate the cells by tabs"),
        ("a.csv", b"x\n\xff\n", "a.csv:2: is not UTF-8 text: save the file as UTF-8"),
        ("a.csv", b"\n\n,x\n1,2\n", "a.csv:3: column 1 has no name; name it, or remove it"),
        ("a.csv", b"\n", "a.csv: is empty; the first line of a table names its columns"),
        ("a.csv.zst", b"no archive", "a.csv.zst: cannot be read: "),
        ("a.json.gz", b"no archive", "a.json.gz: cannot be read: Not a gzipped file"),
        ("a.jsonl.gz", b"no archive", "a.jsonl.gz: cannot be read: Not a gzipped file"),
        ("a.parquet", b"PAR1", "a.parquet: cannot be read after row 0: "),
    ],
)
def test_local_rows_refuse_what_they_cannot_read(name, data, reason):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    with pytest.raises(UsageError, match=reason):
        table_rows(name, data)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("names", "kind", "value", "reason"),
    [
        (["x"], ("timestamp", "s"), 10**12, "cannot be read after row 0: "),
        (["x"], ("timestamp", "s", "Mars/Phobos"), 1, "cannot be read after row 0: .*Mars/Phobos"),
        (["x", "x"], ("int64",), 1, 'has the column "x" 2 times; rename'),
    ],
)
def test_local_rows_refuse_parquet_that_has_no_rows_of_ours(names, kind, value, reason):
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    column = pa.array([value], getattr(pa, kind[0])(*kind[1:]))
    parquet.write_table(pa.table([column] * len(names), names), "a.parquet")
    with pytest.raises(UsageError, match=f"a.parquet: {reason}"):
        list(local_rows(Path("a.parquet")))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["no.jsonl", "no.json", "no.csv", "no.parquet"])
def test_local_rows_refuse_a_file_that_is_not_there(name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    with pytest.raises(UsageError, match=rf"{name}: cannot be read"):
        list(local_rows(Path(name)))


READ = """
import resource, sys
from pathlib import Path
from gymcli.store.tables import local_rows
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


@pytest.mark.usefixtures("folder")
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


@pytest.mark.usefixtures("folder")
def test_local_rows_of_csv_may_be_many(tmp_path):
    """The limit holds for a row, not for the file."""
    data = b"a\n" + b"x" * 1_000_000 + b"\n"
    assert len(table_rows("a.csv.gz", gzip.compress(data) + gzip.compress(data[2:]) * 140)) == 141


@pytest.mark.usefixtures("folder")
def test_columns_of_a_table():
    Path("a.csv.gz").write_bytes(gzip.compress(b"x,two words\n1,2\n"))
    assert is_table(Path("a.csv.gz"))
    assert not is_table(Path("a.jsonl"))
    assert table_columns(Path("a.csv.gz")) == ["x", "two words"]
