"""Tables are read row by row, whatever their format, and refused with the place of the fault."""

import csv
import datetime as dt
import gzip
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import MissingPackageError, UsageError
from gymcli.tasks.table_files import is_table, local_rows, table_columns, table_notes
from tests.tasks.workbooks import write_workbook


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
    assert table_rows("a.jsonl", b'\xef\xbb\xbf[\n  {\n"x": 1}, {"x": 2}]') == [
        (1, {"x": 1}),
        (2, {"x": 2}),
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
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
@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("x;y\n1;2,5\n3;4,5\n", ["x", "y"]),
        ("\nx\ty\n1\t2\n", ["x", "y"]),
        ("x|y|z\n1|2|3\n", ["x", "y", "z"]),
        ("x,y\n1,a;b;c\n2,d\n", ["x", "y"]),
        ("x,y;z\n1,a;b\n", ["x", "y;z"]),
        ("x,y\n1,2\n3,4,5\n", ["x", "y"]),
        ('"x;y",z\n"a;b",2\n', ["x;y", "z"]),
        ('"x;y"\n"a;b"\n', ["x;y"]),
        ("x\na;b, c\n", ["x"]),
        ("id;name, first;y\n1;a;2\n2;b;3,5\n", ["id", "name, first", "y"]),
        ('x; y\n1; "a; b"\n2;c\n', ["x", "y"]),
        ("sep=;\nx;y\n1;2\n", ["x", "y"]),
        ('"sep=|"\r\nx|y\r\n', ["x", "y"]),
        ("sep=;\nx\n1,2\n", ["x"]),
        ("x|y\n1\n2|3\n4\n", ["x|y"]),
        ("x;y\n1;2;3\n4;5;6\n", ["x", "y"]),
    ],
)
def test_the_delimiter_of_csv_splits_the_header_and_most_records(text, columns):
    Path("a.csv").write_text(text)
    assert table_columns(Path("a.csv")) == columns


@pytest.mark.usefixtures("folder")
def test_of_delimiters_that_fit_equally_well_the_name_of_the_file_decides():
    for name, columns in {"a.csv": ["x", "y\tz"], "a.tsv": ["x,y", "z"]}.items():
        Path(name).write_text("x,y\tz\n1,2\t3\n")
        assert table_columns(Path(name)) == columns


@pytest.mark.usefixtures("folder")
def test_csv_of_excel_is_read_with_its_own_line_numbers():
    text = 'sep=;\r\nx;y\r\n"a\r\nb";1,5\r\nc;2\r\n'
    assert table_rows("a.csv", text.encode()) == [
        (3, {"x": "a\r\nb", "y": "1,5"}),
        (5, {"x": "c", "y": "2"}),
    ]


@pytest.mark.usefixtures("folder")
def test_csv_may_have_blanks_before_quotation_marks():
    assert table_rows("a.csv", b'x, y\n"What, now?", "Paris, or Rome"\n p, q\n') == [
        (2, {"x": "What, now?", "y": "Paris, or Rome"}),
        (3, {"x": "p", "y": "q"}),
    ]
    assert table_rows("a.csv", b'x,y\n"What", "Paris"\n') == [(2, {"x": "What", "y": "Paris"})]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (" p, q", (" p", " q")),
        ('" ""p"" r", q', (' "p" r', " q")),
        ('"r, ""p"""," q"', ('r, "p"', " q")),
        ('"r, ", q', ("r, ", " q")),
        ('p, "q" r', ("p", ' "q" r')),
    ],
)
def test_csv_keeps_blanks_where_no_cell_needs_them_left_out(line, cells):
    [row] = table_rows("a.csv", f"x,y\n{line}\n".encode())
    assert row == (2, dict(zip("xy", cells, strict=True)))


@pytest.mark.usefixtures("folder")
def test_columns_without_a_name_must_be_empty():
    assert table_rows("a.csv", b"\nx; ;y;\n1;;2; \n3;4;5;\n") == [
        (3, {"x": "1", "y": "2"}),
        (4, "column 2 has cells, but no name; name it, or remove it"),
    ]
    assert table_columns(Path("a.csv")) == ["x", "y"]


@pytest.mark.usefixtures("folder")
def test_a_csv_file_without_a_header_has_the_delimiter_that_makes_its_columns():
    Path("a.csv").write_text("1;2;3,5\n")
    [row] = local_rows(Path("a.csv"), ["x", "y", "z"])
    assert row.row == {"x": "1", "y": "2", "z": "3,5"}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("before", ["", "plain\n" * 20_000])
@pytest.mark.parametrize("end", ["", "\n"])
def test_csv_may_be_in_the_encodings_of_excel(encoding, before, end):
    Path("a.csv").write_bytes(f"x\n{before}“Größe” 5 € naïve é{end}".encode(encoding))
    *_, last = local_rows(Path("a.csv"))

    assert last.row == {"x": "“Größe” 5 € naïve é"}
    notes = table_notes(Path("a.csv"))
    if encoding == "cp1252":
        assert notes == [
            "a.csv: is not UTF-8 and is read as Windows-1252; if letters are wrong, save it as "
            '"CSV UTF-8"'
        ]
    else:
        assert not notes


@pytest.mark.usefixtures("folder")
def test_the_encoding_of_csv_is_what_most_of_its_letters_fit():
    """The bytes of ß“ in Windows-1252 are also a letter of UTF-8."""
    assert table_rows("a.csv", "x\n„Spaß“, „Öl“\n".replace(",", " ").encode("cp1252")) == [
        (2, {"x": "„Spaß“  „Öl“"})
    ]
    with pytest.raises(UsageError, match=r"a.csv:2: is not UTF-8 text"):
        table_rows("a.csv", b"x\nit\x92s\n" + "é é\n".encode())


@pytest.mark.usefixtures("folder")
def test_rows_of_a_workbook_are_the_texts_of_its_csv_file():
    pytest.importorskip("python_calamine", reason="needs the package python-calamine")
    noon = dt.datetime(2024, 3, 1, 12, 0)
    rows = [
        [None, None],
        [None, "id", "answer", None, "when"],
        [None, " a", 18, None, noon],
        [None, "007", 18.5],
        [],
        [None, "c", True, None, None, " "],
        [None, 10**15, 0.1, "lost"],
        [None, " "],
    ]
    write_workbook("a.xlsx", {"Quiz": rows})

    assert is_table(Path("a.xlsx"))
    assert table_columns(Path("a.xlsx")) == ["id", "answer", "when"]
    assert [tuple(row) for row in local_rows(Path("a.xlsx"))] == [
        (3, {"id": " a", "answer": "18", "when": "2024-03-01T12:00:00"}),
        (4, {"id": "007", "answer": "18.5", "when": ""}),
        (6, {"id": "c", "answer": "TRUE", "when": ""}),
        (7, "column 4 has cells, but no name; name it, or remove it"),
    ]
    assert not table_notes(Path("a.xlsx"))


@pytest.mark.usefixtures("folder")
def test_the_first_sheet_with_cells_is_read_and_others_are_named():
    pytest.importorskip("python_calamine", reason="needs the package python-calamine")
    sheets = {"Empty": [], "Quiz": [["x"], ["1"]], "Notes": [["y"], ["2"]], "Old": [["z"]]}
    write_workbook("a.xlsx", sheets, hidden=["Old"])

    assert [row.row for row in local_rows(Path("a.xlsx"))] == [{"x": "1"}]
    assert table_notes(Path("a.xlsx")) == ['a.xlsx: only the sheet "Quiz" is read, not "Notes"']


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "a.xlsx: is empty; the first line of a table names its columns"),
        ([[" "]], "a.xlsx: is empty; the first line of a table names its columns"),
        ([[], ["x", "x"]], 'a.xlsx:2: has the column "x" 2 times; rename them'),
        (None, r"a.xlsx: cannot be read: .*; save the table as \"CSV UTF-8"),
        ("hidden", "a.xlsx: has no visible sheet"),
    ],
)
def test_local_rows_refuse_a_workbook_without_a_table(rows, reason):
    pytest.importorskip("python_calamine", reason="needs the package python-calamine")
    Path("a.xlsx").write_bytes(b"PK")
    if rows == "hidden":
        write_workbook("a.xlsx", {"Quiz": [["x"]]}, hidden=["Quiz"])
    elif rows is not None:
        write_workbook("a.xlsx", {"Quiz": rows})
    with pytest.raises(UsageError, match=reason):
        list(local_rows(Path("a.xlsx")))


@pytest.mark.usefixtures("folder")
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is limited on Linux")
def test_local_rows_refuse_a_workbook_of_billions_of_cells():
    """The package then ends its process."""
    pytest.importorskip("python_calamine", reason="needs the package python-calamine")
    write_workbook("small.xlsx", {"Quiz": [["x"], [None, "y"]]})
    with zipfile.ZipFile("small.xlsx") as small, zipfile.ZipFile("a.xlsx", "w") as far:
        for name in small.namelist():
            data = small.read(name).replace(b'<row r="2">', b'<row r="1048576">')
            far.writestr(name, data.replace(b'"B2"', b'"XFD1048576"'))
    with pytest.raises(UsageError, match=r"a.xlsx: cannot be read: .* takes more than 2 GB of"):
        list(local_rows(Path("a.xlsx")))
    with pytest.raises(UsageError, match=r"a.xlsx: cannot be read: .* takes more than 2 GB of"):
        table_notes(Path("a.xlsx"))


@pytest.mark.usefixtures("folder")
def test_a_workbook_names_the_package_that_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    Path("a.xlsx").touch()
    with pytest.raises(
        MissingPackageError,
        match=r"pip install 'gymcli\[tables\]'; or save the table as \"CSV UTF-8",
    ):
        list(local_rows(Path("a.xlsx")))


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
        ("a.parquet.gz", b"", "a.parquet.gz: .parquet files are compressed internally; unpack it"),
        ("a.xlsx.gz", b"", "a.xlsx.gz: .xlsx files are compressed internally; unpack it"),
        ("a.csv.bz2", b"", "a.csv.bz2: .bz2 is not read; unpack it, or pack it as .gz or .zst"),
        ("a.zip", b"", "a.zip: .zip is not read; unpack it"),
        ("a.csv", b'x\n"1\n2\n', "a.csv:2: is not CSV: a quotation mark is not closed"),
        (
            "a.csv",
            b"x\n\x81\n",
            'a.csv:2: is neither UTF-8 nor Windows-1252 text: save the file as "C',
        ),
        ("a.csv", b"x\n\xc3\xa9\n\xe9\n", "a.csv:3: is not UTF-8 text: save the file as "),
        ("a.csv", b"\xef\xbb\xbfx\n\xe9\n", "a.csv:2: is not UTF-8-SIG text: save the file as "),
        ("a.csv", b"\xff\xfex\0\n\0y", "a.csv:2: is not UTF-16 text: save the file as "),
        ("a.csv", b"PK\3\4\0\0", "a.csv: holds binary data, not text; name a workbook .xlsx"),
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
from gymcli.tasks.table_files import local_rows
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


PARTS = [
    *b',;\t|"\n\r x\xe9\x81\0[{',
    b"\xc3\xa9",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"sep=;",
    b'{"a":1}',
]


@given(st.lists(st.sampled_from([p if isinstance(p, bytes) else bytes([p]) for p in PARTS])))
def test_local_rows_of_any_bytes_raise_nothing_but_ours(tmp_path_factory, parts):
    folder = tmp_path_factory.getbasetemp()
    for name in ("any.csv", "any.tsv", "any.jsonl"):
        (folder / name).write_bytes(b"".join(parts))
        for read in (table_notes, table_columns, lambda path: list(local_rows(path))):
            message = ""
            try:
                read(folder / name)
            except UsageError as error:
                message = str(error)
            assert "\n" not in message
