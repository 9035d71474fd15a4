"""Tables have a row for every attempt and a column for everything that is flat."""

import csv
import io
import json
import sys

import pytest

from gymcli.data.exporters import COLUMNS, JSON_COLUMNS
from gymcli.errors import MissingPackageError
from gymcli.types import Message
from tests.data.exporting import export
from tests.store.indexed_runs import failed, scored, waiting, with_tools, write_run


def read_csv(exported):
    return list(csv.DictReader(io.StringIO(exported.data.decode(), newline="")))


@pytest.fixture
def run(tmp_path):
    return write_run(
        tmp_path / "run",
        rollouts=[
            with_tools("a", reward=0.5, components={"form": 1.0}, answer="x" * 999, cost=0.25),
            scored("b", 0, 1.0, metrics={"length": 3.0}, said='two\nlines, "quoted"'),
        ],
        generations=[waiting("c")],
        failures=[failed("d")],
    )


def test_csv_has_every_attempt(run):
    exported = export("csv", run)
    rows = read_csv(exported)
    assert list(rows[0]) == [*COLUMNS, "components.form", "metrics.length"]
    assert [row["status"] for row in rows] == ["scored", "scored", "waiting", "failed"]
    first, second, _, last = rows
    assert first["run"] == str(run)
    assert (first["reward"], first["passed"], first["avg"]) == ("0.5", "False", "0.5")
    assert (first["answer"], first["num_tool_calls"]) == ("x" * 999, "2")
    assert (first["components.form"], first["metrics.length"]) == ("1.0", "")
    assert second["last_text"] == 'two\nlines, "quoted"'
    assert (last["error"], last["reward"], last["last_text"]) == ("ServerError", "", "")
    assert exported.num_rows == 4
    assert exported.left_out == {}


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("  =1+1", "'  =1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("\t=1", "'\t=1"),
        ("\x00\ufeff=1", "'\x00\ufeff=1"),
        ("one\rtwo,3", "one\rtwo,3"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("-5", "-5"),
        ("+1.5e3", "+1.5e3"),
        ("B = 3", "B = 3"),
        ("", ""),
    ],
)
def test_csv_holds_no_formula_of_a_model(tmp_path, text, cell):
    rollout = scored(answer=text, said=text, components={text or "x": 1.0})
    exported = export("csv", write_run(tmp_path / "run", rollouts=[rollout]))
    [row] = read_csv(exported)
    assert (row["answer"], row["last_text"]) == (cell, cell)
    assert not any(name.startswith(("=", "+", "-", "@", "\t")) for name in row)


def test_tables_of_several_runs_have_the_columns_of_all(tmp_path):
    runs = [
        write_run(tmp_path / "one", rollouts=[scored(components={"b": 1.0})]),
        write_run(tmp_path / "two", rollouts=[scored(components={"a": 2.0})]),
    ]
    first, second = read_csv(export("csv", *runs))
    assert (first["components.a"], first["components.b"]) == ("", "1.0")
    assert (second["components.a"], second["run"]) == ("2.0", str(runs[1]))


def test_tables_say_when_there_are_too_many_names(tmp_path):
    names = {f"n{number}": 1.0 for number in range(70)}
    exported = export("csv", write_run(tmp_path / "run", rollouts=[scored(metrics=names)]))
    assert len(read_csv(exported)[0]) == len(COLUMNS) + 64
    assert "only the first 64 names are in it" in exported.warnings[0]


def test_parquet_has_every_attempt(run):
    parquet = pytest.importorskip("pyarrow.parquet", reason="writing Parquet is an extra")
    exported = export("parquet", run)
    table = parquet.read_table(io.BytesIO(exported.data))
    assert table.column_names == [*COLUMNS, "components.form", "metrics.length", *JSON_COLUMNS]
    rows = table.to_pylist()
    assert exported.num_rows == len(rows) == 4
    assert rows[0]["reward"] == 0.5
    assert rows[0]["passed"] is False
    assert rows[0]["cost"] == 0.25
    assert rows[1]["cost"] is None
    assert json.loads(rows[0]["messages"])[-1] == {"role": "assistant", "content": "In Rom."}
    assert json.loads(rows[0]["task"]) == {"category": "letters"}
    assert rows[0]["details"] is None
    assert rows[3]["messages"] is None
    assert {str(field.type) for field in table.schema} == {"string", "int64", "double", "bool"}


def test_parquet_is_written_in_groups_of_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="writing Parquet is an extra")
    long = [Message(role="user", content="x" * (5 << 20)), Message(role="assistant", content="y")]
    rollouts = [scored(str(number), messages=long) for number in range(3)]
    exported = export("parquet", write_run(tmp_path / "run", rollouts=rollouts))
    groups = parquet.ParquetFile(io.BytesIO(exported.data)).metadata
    assert (groups.num_row_groups, groups.num_rows) == (2, 3)


def test_parquet_names_the_package_that_it_needs(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'gymcli\[parquet\]'"):
        export("parquet", run)
