"""The tasks of a benchmark are fetched once, whole and as pinned, or not at all."""

import hashlib
import io
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from gymcli.benchmarks.benchmark import benchmark_names, find_benchmark, shadowed_names
from gymcli.benchmarks.benchmark_files import pulled_tasks, source_hashes, tasks_path
from gymcli.environment.registry import Registry, generated_lines
from gymcli.errors import RunError, UsageError
from gymcli.tasks.pulling import HUB, hub_address
from tests.builders import lines_of
from tests.tasks.hub import running_hub

SUMS = b"1 + 1?\t2\n2 + 2?\t4\n"
MORE = b'{"question": "3 + 3?", "answer": 6}\n'
MAP = "fields: {question: question, answer: answer, file: _file}\n"
CODE = """
def tasks(rows):
    for number, row in enumerate(rows):
        yield {"question": row["question"], "answer": [6, 2, 4][number]}

def wrong(rows):
    yield from ({"answer": 1 / (int(row["answer"]) - 4)} for row in rows)

def first(rows):
    yield 1 / 0
"""

BENCHMARK = """
name = "{name}"
version = "1"
title = "Add numbers"
domain = "mathematics"
env = "arithmetic"
margin = 0.01
citations = {{ revision = "the test", margin = "the test" }}
source = {{ licence = "MIT", {source} }}
"""


@pytest.fixture(scope="module")
def hub():
    with running_hub() as hub:
        hub.files |= {"/a/sums.tsv": SUMS, "/b/more.json": MORE, "/half.tsv": SUMS}
        hub.stopping.add("/half.tsv")
        yield hub


@pytest.fixture
def made(tmp_path):
    """Return a function that writes a benchmark and finds it."""

    def benchmark(name="sums", **source):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "map.yaml").write_text(MAP)
        (folder / "map.py").write_text(CODE)
        pairs = ", ".join(f"{key} = {msgspec.json.encode(v).decode()}" for key, v in source.items())
        text = BENCHMARK.format(name=name, source=pairs)
        (folder / "benchmark.toml").write_text(text)
        return find_benchmark(str(folder))

    return benchmark


@pytest.fixture
def files(hub):
    """Return the source of a benchmark of two files."""
    addresses = {f"{hub.address}/a/sums.tsv": SUMS, f"{hub.address}/b/more.json": MORE}
    return {
        "url": list(addresses),
        "sha256": [hashlib.sha256(content).hexdigest() for content in addresses.values()],
        "columns": ["question", "answer"],
        "rows": 3,
    }


@pytest.fixture
def zipped(hub):
    """Return a function that returns the source of a file in an archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("d/sums.tsv", SUMS)
    hub.files["/sums.zip"] = archive.getvalue()
    sha256 = hashlib.sha256(archive.getvalue()).hexdigest()
    return lambda name: {"url": f"{hub.address}/sums.zip#{name}", "sha256": sha256}


def test_tasks_are_fetched_once_and_again_if_the_cache_was_changed(tmp_path, hub, made, files):
    benchmark = made(**files, map="map.yaml")
    cache, told = tmp_path / "cache", []
    path = pulled_tasks(benchmark, cache=cache, notify=told.append)

    assert lines_of(path) == [
        {"question": "1 + 1?", "answer": "2", "file": "sums.tsv"},
        {"question": "2 + 2?", "answer": "4", "file": "sums.tsv"},
        {"question": "3 + 3?", "answer": 6, "file": "more.json"},
    ]
    record = msgspec.json.decode(Path(f"{path}.source.json").read_bytes())
    assert record["benchmark"] == "sums 1"
    assert record["source_sha256"] == ", ".join(files["sha256"])
    hub.asked.clear()
    assert pulled_tasks(benchmark, cache=cache, notify=told.append) == path
    assert hub.asked == []
    assert len(told) == 1

    before = path.read_bytes()
    path.write_bytes(before[:-1])
    assert pulled_tasks(benchmark, cache=cache, notify=told.append).read_bytes() == before
    assert told[1:] == [
        f"warning: {path}: has changed since it was pulled; pulling sums again",
        f"pulling sums: 3 tasks from {files['url'][0]} and 1 more",
    ]


def test_tasks_of_another_source_or_map_are_another_file(tmp_path, made, files):
    paths = {tasks_path(made(**{**files, "rows": rows}), tmp_path) for rows in (3, 4)}
    benchmark = made(**files, map="map.yaml")
    for text in (MAP, f"{MAP}# changed"):
        (benchmark.path.parent / "map.yaml").write_text(text)
        paths.add(tasks_path(benchmark, tmp_path))
    assert len(paths) == 4


def test_a_file_that_was_changed_is_refused_even_if_its_tasks_are_cached(tmp_path, made):
    (tmp_path / "sums.csv").write_text("question,answer\n1 + 1?,2\n")
    sha256 = hashlib.sha256((tmp_path / "sums.csv").read_bytes()).hexdigest()
    benchmark = made(file="../sums.csv", sha256=sha256, rows=1)
    assert lines_of(pulled_tasks(benchmark, cache=tmp_path / "cache"))[0]["answer"] == "2"
    (tmp_path / "sums.csv").write_text("question,answer\n1 + 1?,3\n")
    with pytest.raises(UsageError, match=rf"sums\.csv: its SHA-256 is .*, not {sha256}"):
        pulled_tasks(benchmark, cache=tmp_path / "cache")


def test_tasks_may_be_pulled_by_several_at_the_same_time(tmp_path, made, files):
    benchmark = made(**files)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(pulled_tasks, benchmark, cache=tmp_path / "cache") for _ in range(4)]
        [path] = {call.result() for call in calls}
    assert len(lines_of(path)) == 3
    assert {one.name for one in path.parent.iterdir()} == {"sums.jsonl", "sums.jsonl.source.json"}


def test_a_source_may_be_a_file_in_an_archive(tmp_path, made, files, zipped):
    benchmark = made(**{**files, **zipped("d/sums.tsv"), "rows": 2})

    path = pulled_tasks(benchmark, cache=tmp_path / "cache")
    assert [row["answer"] for row in lines_of(path)] == ["2", "4"]
    record = msgspec.json.decode(Path(f"{path}.source.json").read_bytes())
    assert record["source_sha256"] == benchmark.source.sha256[0]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_refused_however_it_is_packed(tmp_path, hub, made, method):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as files:
        files.writestr("sums.csv", bytes(range(256)) * 400)
    content = bytearray(archive.getvalue())
    content[60:90] = bytes(30)
    hub.files["/damaged.zip"] = bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    benchmark = made(url=f"{hub.address}/damaged.zip#sums.csv", sha256=sha256, rows=1)
    with pytest.raises(UsageError, match=r"damaged\.zip#sums\.csv: cannot be unpacked: "):
        pulled_tasks(benchmark, cache=tmp_path / "cache")


def test_what_is_not_as_pinned_is_refused_and_leaves_no_file(tmp_path, hub, made, files, zipped):
    one_file = {"url": f"{hub.address}/half.tsv", "sha256": "0" * 64, "rows": 2}
    refused = [
        ({**files, "rows": 4}, "expected 4 tasks, found 3"),
        ({**files, "sha256": files["sha256"][::-1]}, f"is {files['sha256'][0]}, not {'.*'} as "),
        ({**one_file, "url": f"{hub.address}/none.csv"}, "none.csv: the server answered 404"),
        ({**files, "columns": ["question"]}, "a/sums.tsv:1: has 2 cells, but the columns name 1"),
        ({"env": "arithmetic", "rows": 3, "sha256": "0" * 64}, "generates is .*, not 0000"),
        ({"env": "qa_of_nobody", "rows": 3}, 'no environment "qa_of_nobody"'),
        ({"env": "map.py:Made", "rows": 3}, "source.env: expected the name of an environment"),
        ({**one_file, "url": "http://[::1/a.csv"}, "'http://.*' is not the address of a file"),
        ({**one_file, "url": "file:///a.csv"}, "'file:///a.csv' is not the address of a file"),
        ({**one_file, "url": "http://u:p@host/a.csv"}, "must not contain a user or a password"),
        ({**one_file, "url": "http://host/a.zip"}, r"as in http://host/a\.zip#FILE\.csv"),
        ({"hf": "", "revision": "0" * 40, "rows": 2}, "source.hf: must be ORG/NAME"),
        ({**files, "map": "none.yaml"}, "source.map: there is no file "),
        ({**one_file, **zipped("d/none.tsv")}, "cannot be unpacked: .*no item named 'd/none.tsv'"),
        ({**files, "url": [f"{one}#a.tsv" for one in files["url"]]}, "unpacked: .*not be opened"),
        ({**one_file, "url": "http://host/a.tar.gz"}, r"as in http://host/a\.tar\.gz#FILE\.csv"),
        ({"pypi": "sums", "rows": 2}, "'sums' is not a file of a package: PACKAGE==VERSION#FOLD"),
        ({"pypi": "sums>=1#a.csv", "rows": 2}, "'sums>=1#a.csv' is not a file of a package"),
        ({"pypi": "sums==1#a.csv", "rows": 2}, "sha256: is missing; gym bench pin .*sums prints"),
        ({"file": "a.csv", "rows": 2}, "sha256: is missing; gym bench pin .*sums prints it"),
        ({"url": files["url"], "rows": 3}, "sha256: is missing; gym bench pin .*sums prints it"),
        ({**files, "sha256": ["0" * 64]}, "sha256: has 1 hashes, not 2; gym bench pin .*sums"),
        ({**files, "pypi": "sums==1#a.csv"}, "name exactly one of hf, url, pypi, file and env"),
    ]
    for source, reason in refused:
        with pytest.raises(UsageError, match=reason):
            pulled_tasks(made(**source), cache=tmp_path / "cache")
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("*"))


def test_what_cannot_be_fetched_is_a_matter_of_the_network(tmp_path, hub, made):
    for address, reason in [
        (f"{hub.address}/half.tsv", "half.tsv: cannot be fetched: .*enough data"),
        ("http://127.0.0.1:9/a.csv", "a.csv: cannot be fetched: "),
    ]:
        benchmark = made(url=address, sha256="0" * 64, rows=2)
        with pytest.raises(RunError, match=rf"{reason}.*gym bench pull .*sums --cache DIR fetches"):
            pulled_tasks(benchmark, cache=tmp_path / "cache")


def test_a_server_that_is_overloaded_is_a_matter_of_the_network(tmp_path, made):
    with running_hub() as overloaded:
        for status, kind in [(503, RunError), (429, RunError), (403, UsageError)]:
            overloaded.status = status
            benchmark = made(url=f"{overloaded.address}/a.csv", sha256="0" * 64, rows=2)
            with pytest.raises(kind, match=f"the server answered {status} "):
                pulled_tasks(benchmark, cache=tmp_path / "cache")


def test_a_file_at_a_commit_that_changes_between_pulls_is_refused(tmp_path, hub, made):
    """No hash is named, so that of the first pull counts, also for another map."""
    commit = "0123456789" * 4
    hub.files[f"/{commit}.csv"] = b"question,answer\n1 + 1?,2\n"
    source = {"url": f"{hub.address}/{commit}.csv", "revision": commit, "rows": 1}
    path = pulled_tasks(made(**source), cache=tmp_path / "cache")
    hub.files[f"/{commit}.csv"] = b"question,answer\n1 + 1?,3\n"
    path.write_bytes(b"damaged")
    for more in ({}, {"columns": ["question", "answer"], "rows": 2}):
        with pytest.raises(
            UsageError, match=rf"one of the two was changed; .* remove {path.parent}"
        ):
            pulled_tasks(made(**source | more), cache=tmp_path / "cache")


def test_the_hashes_that_pin_a_source_are_computed(made, files, tmp_path):
    """A wrong one may be there, or none, or too few of them."""

    def hashes(**source):
        path = made(**source).path
        for sha256 in source["sha256"]:
            path.write_text(path.read_text().replace(sha256, "later"))
        return source_hashes(find_benchmark(str(path), is_pinning=True)).source

    assert hashes(**files) == files["sha256"]
    (tmp_path / "sums" / "own.csv").write_bytes(SUMS)
    assert hashes(file="own.csv", rows=2, sha256=["0" * 64]) == [hashlib.sha256(SUMS).hexdigest()]
    [generated] = hashes(env="arithmetic", rows=3, sha256=["0" * 64])
    tasks = pulled_tasks(made(env="arithmetic", rows=3, sha256=generated), cache=tmp_path / "cache")
    assert hashlib.sha256(tasks.read_bytes()).hexdigest() == generated


def test_generated_tasks_are_those_of_the_seed_and_the_map(tmp_path, made):
    lines = generated_lines(Registry().find("arithmetic"), 9, seed=1)
    rows = [{"answer": row["answer"]} for row in map(msgspec.json.decode, lines)]
    benchmark = made(env="arithmetic", seed=1, map="map.yaml", rows=9)
    (benchmark.path.parent / "map.yaml").write_text("fields: {answer: answer}")

    assert lines_of(pulled_tasks(benchmark, cache=tmp_path / "cache")) == rows
    other = benchmark.source.model_copy(update={"seed": 2})
    other = benchmark.model_copy(update={"source": other})
    assert tasks_path(other, tmp_path) != tasks_path(benchmark, tmp_path)


def test_generated_tasks_follow_the_arguments_of_the_source(tmp_path, made):
    plain = made(env="reasoning_gym", rows=4)

    def pulled(**args):
        source = plain.source.model_copy(update={"args": args})
        benchmark = plain.model_copy(update={"source": source})
        return lines_of(pulled_tasks(benchmark, cache=tmp_path / "cache"))

    suite = {"logic": {"knights_knaves": {"n_people": 2}}, "games": {"countdown": {}}}
    rows = pulled(suite=suite, seed=45)
    ids = ["knights_knaves-0", "countdown-0", "knights_knaves-1", "countdown-1"]
    assert [row["id"] for row in rows] == ids
    assert {(row["category"], row["seed"]) for row in rows} == {("logic", 45), ("games", 45)}
    assert rows[2]["config"] == {"n_people": 2}
    with pytest.raises(UsageError, match=r"cannot generate 4 rows: TypeError.* 'suits'"):
        pulled(suits=suite)


def test_code_maps_rows_only_for_benchmarks_of_packages(tmp_path, made, files, monkeypatch):
    with pytest.raises(UsageError, match="code is run only for benchmarks of installed packages"):
        made(**files, map="map.py:tasks")
    metadata = tmp_path / "sums-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sums\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gymcli.benchmarks]\nsums = sums\n")
    monkeypatch.syspath_prepend(tmp_path)
    # Its code is not needed to find it.
    (tmp_path / "sums" / "__init__.py").write_text("raise RuntimeError")
    path = tmp_path / "sums" / "benchmark.toml"
    text = path.read_text()

    assert "sums" in benchmark_names()
    tasks = lines_of(pulled_tasks(find_benchmark("Sums"), cache=tmp_path / "cache"))
    assert [row["answer"] for row in tasks] == [6, 2, 4]
    for name, reason in [
        ("wrong", r"map\.py:wrong fails at .*a/sums\.tsv:2: ZeroDivisionError.*genexpr"),
        ("first", r"map\.py:first fails at the first row: ZeroDivisionError"),
        ("none", "has no attribute 'none'"),
        ("", r"benchmark\.toml: source\.map: name the function, map\.py:FUNCTION"),
    ]:
        path.write_text(text.replace("map.py:tasks", f"map.py:{name}"))
        with pytest.raises(UsageError, match=reason):
            pulled_tasks(find_benchmark("sums"), cache=tmp_path / "cache")


def test_no_package_replaces_a_benchmark_that_ships(tmp_path, monkeypatch):
    metadata = tmp_path / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    points = "[gymcli.benchmarks]\nGSM8K = other\ncommonsense-qa = other\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("gsm8k", "GSM8K", "commonsense-qa"):
        assert find_benchmark(name).name in ("gsm8k", "commonsense_qa")
    assert shadowed_names() == ["GSM8K", "commonsense-qa"]


def test_a_benchmark_has_no_name_of_an_environment(made, files):
    with pytest.raises(UsageError, match="name: string_match is an environment; choose another"):
        made("string-match", **files)


def test_a_folder_does_not_replace_an_installed_benchmark(working_folder, made, files):
    made("gsm8k", **files)
    found = [find_benchmark(spec).is_installed for spec in ("gsm8k", "GSM8K", "./gsm8k", "gsm8k/")]
    assert found == [True, True, False, False]


def test_a_benchmark_file_names_no_code_and_no_address(made, files):
    path = made(**files).path
    text = path.read_text()
    for env in ("map.py:Made", "map.py", "os:path", "own=map.py", "http://127.0.0.1:9", "../map"):
        path.write_text(text.replace('"arithmetic"', f'"{env}"'))
        with pytest.raises(UsageError, match=r"toml: env: .* given on the command line only"):
            find_benchmark(str(path))
    for env, option in (("aviary", "env_class"), ("workplace_assistant", "data_dir")):
        args = f"env = \"{env}\"\nenv_args = {{ {option} = 'subprocess:getoutput' }}\n"
        path.write_text(text.replace('env = "arithmetic"\n', args, 1))
        with pytest.raises(UsageError, match=rf"toml: env_args\.{option}: .* command line only"):
            find_benchmark(str(path))
    path.write_text(f"a = {'[' * 5000}")
    with pytest.raises(UsageError, match="not TOML"):
        find_benchmark(str(path))
    path.write_text(text, encoding="utf-8-sig")
    find_benchmark(str(path))


def test_a_mistake_in_a_benchmark_file_is_named_with_its_place(made, files):
    path = made(**files).path
    text = path.read_text()
    for old, new, reason in [
        ("env =", "enw =", "toml: enw: is unknown"),
        ("licence =", "license =", 'toml: source.license: is unknown; did you mean "licence"'),
        ('"arithmetic"', '"Aritmetic"', 'toml: env: .* "Aritmetic"; did you mean "arithmetic"'),
        ('"sums"', '"My sums"', "toml: name: must be lower-case letters, digits"),
        (files["sha256"][1], "abc", r"toml: source\.sha256\.1: must be 64 hexadecimal digits"),
        ('"MIT"', '""', r"toml: source\.licence: must not be empty"),
        ('"MIT"', '"MIT", revision = "main"', r"source\.revision: must be a commit of 40 hex"),
        ("{ revision", "{ revison", r"toml: citations\.revison: must be 'revision', 'rows'"),
        ('"MIT"', '"MIT", map = "map.py"', r"toml: source\.map: code is run only for"),
    ]:
        path.write_text(text.replace(old, new))
        with pytest.raises(UsageError, match=reason):
            find_benchmark(str(path))


@pytest.mark.parametrize(
    "address",
    ["https://h/%2f", "https://h/%2e%2e", "https://h/a.zip#..", "https://h/a.zip#d/", "https://h/"],
)
def test_an_address_needs_the_name_of_a_file(made, address):
    with pytest.raises(UsageError, match=r"source\.url\.0: .* is not the address of a file"):
        made(url=address, rows=1)


def test_a_long_name_of_a_file_and_a_hash_in_capitals_are_taken(tmp_path, made, hub, files):
    name = f"/{'y' * 300}.tsv"
    hub.files[name] = SUMS
    source = {"sha256": files["sha256"][0].upper(), "columns": files["columns"], "rows": 2}
    source["rows"] = SUMS.count(b"\n")
    path = pulled_tasks(made(url=f"{hub.address}{name}", **source), cache=tmp_path / "cache")
    assert len(path.read_bytes().splitlines()) == source["rows"]


def test_only_files_are_opened(tmp_path, made):
    os.mkfifo(tmp_path / "pipe")
    for name in ("../pipe", "/dev/zero", "a\0b", "missing.csv", "."):
        benchmark = made(file=name, sha256="0" * 64, rows=1)
        with pytest.raises(UsageError, match=r"benchmark\.toml: source\.file: there is no file"):
            pulled_tasks(benchmark, cache=tmp_path / "cache")
        text = benchmark.path.read_text()
        for setting in ("prompt = {}", "prompt = 'map.yaml'\nexamples = {{ file = {} }}"):
            line = setting.format(msgspec.json.encode(name).decode())
            benchmark.path.write_text(f"{line}\n{text}")
            with pytest.raises(UsageError, match=r"(prompt|examples\.file): there is no file"):
                find_benchmark(str(benchmark.path))


def test_the_address_of_the_hub_is_compared_and_shown_without_a_password(monkeypatch):
    for address in ("https://HuggingFace.co/", "https://me:SECRET@huggingface.co"):
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert hub_address() == HUB
    for address in (
        "me:SECRET@host",
        "http://",
        "http://[me:SECRET@h",
        "http://h:SECRET",
        "ftp://h",
    ):
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(UsageError, match=r"HF_ENDPOINT is not an address: https://HOST$"):
            hub_address()
