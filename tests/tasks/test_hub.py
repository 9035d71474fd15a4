"""Pulling from a fake Hub: what is requested, written, and refused."""

import hashlib
import json
import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import msgspec
import pytest

from tests.builders import lines_of
from tests.tasks.hub import NO_CARD, SHA, certified_environment, lines, running_hub

TOKEN = "hf_" + "s3cret" * 5

MAP = """
def task(row):
    question, answer = row["question"], int(row["answer"].rpartition("####")[2])
    messages = [{"role": "user", "content": f"What is {question}"}]
    return {"question": question, "answer": answer, "messages": messages}
"""
YAML_MAP = """
fields: {question: question, expected_answer: answer}
user: "What is {question}"
"""

PROGRAM = """
import contextlib, io, json, sys
from gymcli.cli import main

for command in json.loads(sys.argv[1]):
    sys.argv[1:] = command
    with contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main()
        except SystemExit as end:
            print(json.dumps([end.code, told.getvalue()]))
"""
"""Pulls several times in one process."""


@pytest.fixture
def hub():
    try:
        distribution("datasets")  # an import takes long
    except PackageNotFoundError:
        pytest.skip("needs the package datasets")
    with running_hub() as hub:
        yield hub


@pytest.fixture
def pull(tmp_path, hub):
    """Return a function that pulls in a new process, as HF variables are read at import."""
    (tmp_path / "map.py").write_text(MAP)
    hub.asked.clear()

    def pulled(*commands, address=hub.address, command=("data", "pull"), prints="", **variables):
        commands = [[*command, *one] for one in commands]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(commands)],
            cwd=tmp_path,
            env={
                **certified_environment(),
                **variables,
                "HF_ENDPOINT": address,
                "HF_HOME": str(tmp_path / "home"),
                "HF_TOKEN": TOKEN,
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert prints in done.stdout
        # A command may print results of its own.
        lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
        return [tuple(json.loads(line)) for line in lines]

    return pulled


def record_of(path):
    return msgspec.json.decode(Path(f"{path}.source.json").read_bytes())


@pytest.mark.slow
def test_pull_of_the_hub_streams_what_is_asked_for(tmp_path, pull, hub):
    """With a limit, neither the second file of the split nor another split is opened.

    The other data set has only one split and is read whole.
    """
    options = ["--config", "main", "--split", "train", "--map", "map.py:task", "--limit", "2"]

    assert pull(
        ["hf:org/sums", *options, "-o", "out.jsonl"],
        ["hf:org/single", "--revision", SHA, "-o", "single.jsonl"],
    ) == [(0, "wrote out.jsonl: 2 rows\n"), (0, "wrote single.jsonl: 1 row\n")]
    rows = lines_of(tmp_path / "out.jsonl")
    assert [(row["answer"], row["messages"][0]["content"]) for row in rows] == [
        (4, "What is 3 + 1?"),
        (5, "What is 4 + 1?"),
    ]
    record = record_of(tmp_path / "out.jsonl")
    del record["sha256"], record["map_sha256"]
    assert record == {
        "source": "hf:org/sums",
        "config": "main",
        "split": "train",
        "revision": SHA,
        "hub": hub.address,
        "license": "mit",
        "limit": 2,
        "num_rows": 2,
    }
    opened = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert "train-0.jsonl" in opened
    assert not {"train-1.jsonl", "other.jsonl"} & opened

    assert lines_of(tmp_path / "single.jsonl") == [{"question": "1 + 1?", "answer": "So: #### 2"}]
    record = record_of(tmp_path / "single.jsonl")
    assert (record["split"], record["revision"]) == ("train", SHA)
    assert record["license"] == "mit, gpl"
    line = b'{"answer":"So: #### 2","question":"1 + 1?"}\n'
    assert record["source_sha256"] == hashlib.sha256(line).hexdigest()


@pytest.mark.slow
def test_pull_of_the_hub_ends_where_a_body_always_stops_half_way(tmp_path, pull, hub):
    """The Hub's library resumes the download a few times, with pauses, and then gives up."""
    ((code, told),) = pull(["hf:org/cut", "-o", "out.jsonl"])
    assert code == 4
    assert told.endswith("\nerror: hf:org/cut: the Hub cannot be reached: Server Disconnected\n")
    assert "Traceback" not in told
    asked = [path for path in hub.asked if path.endswith("/data.jsonl")]
    assert 2 <= len(asked) <= 12
    assert not list(tmp_path.glob("*out.jsonl*"))
    assert not list(tmp_path.glob(".out.jsonl*"))


REFUSED = [
    (["hf:org/none"], 2, "does not exist on the Hub or is private: check the name or set HF_"),
    (["hf:org/gated"], 2, "is gated; accept its terms on its page and set HF_TOKEN"),
    (["hf:org/broken"], 4, "the Hub refused: "),
    (["hf:org/sums", "--revision", "no"], 2, "has no such revision"),
    (["hf:org/sums", "--config", "no"], 2, "BuilderConfig 'no' not found. Available: ['main'"),
    (["hf:org/sums"], 2, "Config name is missing"),
    (["hf:org/sums", "--config", "main"], 2, "has the splits test, train; choose one as the split"),
    (["hf:org/sums", "--config", "main", "--split", "no"], 2, "Bad split: no. Available splits"),
    (["hf:home"], 2, "a local file or folder home exists and would be read instead"),
    (["hf:"], 2, "expected hf:ORG/NAME"),
    (["hf:org/ragged"], 2, "Expected 2 fields in line 3, saw 3"),
    (["hf:org/damaged"], 2, "JSON parse error: Missing a name for object member"),
    (["hf:org/nothing"], 2, "doesn't contain any data files"),
    (["hf:org/no_rows"], 2, "has no rows"),
]


@pytest.mark.slow
def test_pull_of_the_hub_ends_in_one_line(tmp_path, pull):
    (tmp_path / "home").mkdir()
    ends = pull(*([*command, "-o", "out.jsonl"] for command, _, _ in REFUSED))

    for (code, told), (command, expected, reason) in zip(ends, REFUSED, strict=True):
        assert code == expected, told
        assert told.startswith(f"error: {command[0]}: ")
        assert reason in told
        assert told.count("\n") == 1
        assert TOKEN not in told
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.slow
def test_pull_of_the_hub_says_that_nobody_answers(pull):
    [(code, told)] = pull(["hf:org/sums", "-o", "out.jsonl"], address="http://127.0.0.1:9")

    assert code == 4
    assert told.startswith("error: hf:org/sums: the Hub cannot be reached: ")
    assert told.count("\n") == 1


BENCHMARK = """
name = "{name}"
version = "1"
title = "Add numbers"
domain = "mathematics"
env = "arithmetic"
margin = 0.01
citations = {{ revision = "the test", margin = "the test" }}
[source]
hf = "{hf}"
revision = "{sha}"
licence = "MIT"
rows = {rows}
{more}
"""


@pytest.mark.slow
def test_benchmarks_are_pulled_from_the_hub_as_pinned_and_only_once(tmp_path, pull, hub):
    hub.repositories["org/asked"] = hub.repositories["org/single"]
    hub.gated.add("org/asked")
    several = 'config = ["main", "other"]\nsplit = "train"'
    for name, hf, rows, more in [
        ("several", "org/sums", 5, several),
        ("fewer", "org/sums", 6, several),
        ("gated", "org/asked", 1, "gated = true"),
        ("moved", "org/single", 1, ""),
        ("lost", "org/lost", 1, ""),
    ]:
        sha = "0" * 40 if name == "moved" else SHA
        text = BENCHMARK.format(name=name, hf=hf, sha=sha, rows=rows, more=more)
        (tmp_path / f"{name}.toml").write_text(text)
    names = ("several", "several", "fewer", "gated", "moved", "lost")
    commands = [[f"{name}.toml", "--cache", "cache"] for name in names]
    first, second, *others = pull(*commands, command=("bench", "pull"))

    assert first == (0, "pulling several: 5 tasks from hf:org/sums\n")
    assert second == (0, "")
    [path] = tmp_path.glob("cache/several/*/several.jsonl")
    questions = [(row["question"], row["_config"]) for row in lines_of(path)]
    assert questions[0] == ("3 + 1?", "main")
    assert questions[-1] == ("7 + 1?", "other")
    assert record_of(path)["config"] == "main, other"
    for (code, told), reason in zip(
        others,
        [
            "fewer.toml: source.rows: expected 6 tasks, found 5",
            "hf:org/asked: is gated; accept its terms on its page and set HF_TOKEN",
            "hf:org/single: has no such revision",
            "hf:org/lost: does not exist on the Hub or is private: check the name or set HF_TOKEN",
        ],
        strict=True,
    ):
        assert code == 2
        assert told.splitlines()[1:] == [f"error: {reason}"]
    assert len(list((tmp_path / "cache").rglob("*.json*"))) == 2


@pytest.mark.slow
def test_a_command_without_a_network_ends_in_one_sentence_and_with_4(tmp_path, pull):
    """The same of nobody who answers, a refused connection, and a Hub that is overloaded."""
    text = BENCHMARK.format(name="sums", hf="org/single", sha=SHA, rows=1, more="")
    (tmp_path / "sums.toml").write_text(text)
    with socket.socket() as silent, running_hub() as overloaded:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        overloaded.status = 503
        for address, reason in [
            ("http://127.0.0.1:9", "cannot be reached: [Errno"),
            (f"http://127.0.0.1:{silent.getsockname()[1]}", "no answer within 1 seconds"),
            (overloaded.address, "the Hub refused: Server error '503 Service Unavailable'"),
        ]:
            ends = pull(
                ["data", "pull", "hf:org/single", "-o", "out.jsonl"],
                ["bench", "pull", "sums.toml", "--cache", "cache"],
                ["collect", "sums.toml", "--model", "oracle", "--cache", "cache"],
                address=address,
                command=(),
                HF_HUB_ETAG_TIMEOUT="1",
            )
            for code, told in ends:
                assert code == 4
                *before, error = told.splitlines()
                assert before in ([], ["pulling sums: 1 task from hf:org/single"])
                assert error.startswith("error: hf:org/single: ")
                assert reason in error
            assert error.endswith("--cache DIR fetches it: copy the folders in DIR to cache")
    assert not list((tmp_path / "cache").rglob("*.json*"))


@pytest.mark.slow
def test_a_mirror_with_other_rows_under_the_same_commit_is_refused(tmp_path, pull, hub):
    """Without a hash it is named as long as nothing can be compared with it."""
    for name, hf, rows in [("sums", "org/single", 1), ("gated", "org/asked", 1)]:
        text = BENCHMARK.format(name=name, hf=hf, sha=SHA, rows=rows, more="")
        (tmp_path / f"{name}.toml").write_text(text)
    hub.repositories["org/asked"] = hub.repositories["org/single"]
    sums = ["sums.toml", "--cache", "cache"]
    with running_hub() as mirror:
        mirror.repositories["org/single"] = {"README.md": NO_CARD, "data.jsonl": lines(9)}
        named = f"(rows of {mirror.address}, which no hash pins)"
        [pulled] = pull(sums, address=mirror.address, command=("bench", "pull"), prints=named)
        assert pulled == (0, "pulling sums: 1 task from hf:org/single\n")
        [mirrored] = tmp_path.glob("cache/sums/*/sums.jsonl")
        assert record_of(mirrored)["hub"] == mirror.address
        # The rows of the mirror are not taken for those of another hub.
        [(code, told)] = pull(sums, command=("bench", "pull"))
        assert code == 2
        assert f"from {hub.address} is " in told
        assert f"of the same revision from {mirror.address} was " in told
        assert told.endswith(
            f"if you trust the new one, remove {mirrored.parent}\n".replace(f"{tmp_path}/", "")
        )
        shutil.rmtree(mirrored.parent)
        assert pull(sums, command=("bench", "pull")) == [pulled]
        assert pull(sums, address=mirror.address, command=("bench", "pull"))[0][0] == 2

        # A hash is compared whoever serves the rows, and then its place does not matter.
        [path] = tmp_path.glob("cache/sums/*/sums.jsonl")
        sha256 = record_of(path)["source_sha256"]
        [(code, told)] = pull(
            ["sums.toml"], command=("bench", "pin"), prints=f'sha256 = "{sha256}"'
        )
        assert (code, told) == (0, f"reading hf:org/single at {hub.address}\n")
        for name in ("sums", "gated"):
            file = tmp_path / f"{name}.toml"
            file.write_text(f'{file.read_text()}sha256 = "{sha256}"\n')
        (refused,) = pull(sums, address=mirror.address, command=("bench", "pull"))
        assert refused[0] == 2
        assert f"the SHA-256 of the rows that {mirror.address} serves is " in refused[1]
        assert "by that of gym bench pin sums.toml\n" in refused[1]
        gated = ["gated.toml", "--cache", "cache"]
        results = pull(sums, gated, command=("bench", "pull"))
        assert [code for code, _ in results] == [0, 0], results
        assert pull(sums, address=mirror.address, command=("bench", "pull")) == [(0, "")]


@pytest.mark.slow
def test_a_run_names_the_hub_of_rows_that_no_hash_pins(tmp_path, pull, hub):
    text = BENCHMARK.format(name="sums", hf="org/single", sha=SHA, rows=1, more='map = "sums.yaml"')
    text = text.replace('env = "arithmetic"', 'env = "string_match"')
    (tmp_path / "sums.toml").write_text(text)
    (tmp_path / "sums.yaml").write_text(YAML_MAP)
    collect = ["collect", "sums.toml", "--model", "oracle", "--cache", "cache", "--out"]
    named = f"settings differ from sums: rows of {hub.address}, which no hash pins"
    (code, told), _ = pull(
        [*collect, "run"], ["metrics", "run"], command=(), prints=f"benchmark     {named}"
    )
    assert code == 0
    assert f"run: {named}" in told.splitlines()
    record = msgspec.json.decode((tmp_path / "run" / "run.json").read_bytes())["benchmark"]
    assert record["hub"] == hub.address
    assert record["deviations"] == [f"rows of {hub.address}, which no hash pins"]
    pull(
        ["bench", "sums.toml", "--cache", "cache"],
        command=(),
        prints=f"hub           {hub.address}, whose rows no hash pins",
    )

    pull(["bench", "pin", "sums.toml"], command=(), prints="sha256 = ")
    sha256 = record_of(next(tmp_path.glob("cache/sums/*/sums.jsonl")))["source_sha256"]
    (tmp_path / "sums.toml").write_text(f'{text}sha256 = "{sha256}"\n')
    [(code, told)] = pull([*collect, "pinned"], command=())
    assert code == 0
    assert "settings differ" not in told
    record = msgspec.json.decode((tmp_path / "pinned" / "run.json").read_bytes())["benchmark"]
    assert record["hub"] == hub.address
    assert "deviations" not in record


@pytest.mark.slow
def test_examples_of_another_split_have_a_hash_of_their_own(tmp_path, pull, hub):
    def write(source="", examples=""):
        more = f'config = "main"\nsplit = "test"\n{source}\n[examples]\nsplit = "train"\n{examples}'
        text = BENCHMARK.format(name="sums", hf="org/sums", sha=SHA, rows=2, more=more)
        (tmp_path / "sums.toml").write_text(f'prompt = "prompt.yaml"\n{text}')

    (tmp_path / "prompt.yaml").write_text('user: "What is {question}"')
    write()
    command = ["bench", "pull", "sums.toml", "--cache", "cache"]
    assert pull(command, command=())[0][0] == 0
    [path] = tmp_path.glob("cache/sums/*/sums.jsonl")
    record = record_of(path)
    assert record["examples_split"] == "train"
    expected = f'sha256 = "{record["source_sha256"]}"\nexamples.sha256 = '
    pull(["bench", "pin", "sums.toml"], command=(), prints=expected)

    pinned = f'sha256 = "{record["source_sha256"]}"'
    for sha256, code in [(record["examples_sha256"], 0), ("0" * 64, 2)]:
        write(pinned, f'sha256 = "{sha256}"')
        assert pull(command, command=())[0][0] == code
    # A hash of the tasks alone does not pin the examples.
    write(pinned)
    with running_hub() as mirror:
        mirror.repositories["org/sums"] = {
            **hub.repositories["org/sums"],
            "train-0.jsonl": lines(8),
        }
        [(code, told)] = pull(command, command=(), address=mirror.address)
    assert code == 2
    assert "of an earlier pull of the same revision" in told
