"""Tests of `gym data`: its output, its files and its exit codes."""

import subprocess
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.environment.registry import shipped_tasks
from tests.builders import (
    HOSTILE,
    UNSAFE,
    clean_environment,
    gym,
    gym_process,
    lines_of,
    write_rows,
    write_sums,
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, *rows):
    path = Path(name)
    write_rows(path, rows)
    return path


def test_data_lists_its_commands():
    done = gym("data", "--help", exit_code=0)
    for name in ("validate", "select", "render", "generate", "stats", "pull"):
        assert f"\n  {name} " in done.stdout


def test_validate_prints_problems_and_ends_with_2():
    path = write("t.jsonl", {"id": "a", "prompt": "?"}, {"prompt": 3}, {"id": "a", "prompt": "!"})
    done = gym("data", "validate", path, exit_code=2)

    lines = done.stdout.splitlines()
    assert lines[0] == 't.jsonl:2: "prompt" must be text, or a list of chat messages'
    assert lines[1].startswith('t.jsonl:3: another row, t.jsonl:1, has the same id "a"')
    assert lines[2:] == ["3 rows, 1 task, 2 wrong (shape only; --env checks fields)"]
    assert done.stderr == ""


def test_validate_names_a_file_as_it_is_called():
    done = gym("data", "validate", write("two  spaces.jsonl", {"id": "a"}))

    assert done.stdout.startswith("two  spaces.jsonl:1: no prompt: ")


def test_validate_reports_json():
    row = {"id": "a", "prompt": "?"}
    done = gym(
        "data", "validate", write("t.jsonl", row, row), "--env", "arithmetic", "--json", exit_code=2
    )

    report = msgspec.json.decode(done.stdout)
    assert report["problems"][0] == {
        "place": "t.jsonl:1",
        "file": "t.jsonl",
        "line": 1,
        "reason": '"answer" is missing (environment arithmetic needs it)',
    }
    assert (report["num_rows"], report["num_wrong"], report["is_checked"]) == (2, 2, True)

    done = gym("data", "validate", write("t.jsonl"), "--json")
    [problem] = msgspec.json.decode(done.stdout)["problems"]
    assert (problem["file"], problem["line"]) == ("t.jsonl", None)


def test_validate_of_good_rows_ends_well():
    path = write_sums(Path("t.jsonl"), 3)
    path.write_bytes(path.read_bytes() * 2)
    done = gym("data", "validate", path, "--env", "arithmetic", exit_code=0)

    assert done.stdout == "6 rows, 3 tasks, 0 wrong (fields and tools checked)\n"
    assert done.stderr == "warning: 3 rows are copies of others: each adds an attempt to its task\n"


def test_commands_name_a_field_in_one_line():
    Path("p.yaml").write_text('user: "{word}"')
    path = write("t.jsonl", {"a\n b": 1})
    lines = [
        gym("data", "validate", path, "--prompt", "p.yaml").stdout.splitlines()[0],
        gym("data", "render", path, "--prompt", "p.yaml").stderr.strip(),
    ]

    reason = 't.jsonl:1: "word" is missing (the prompt needs it; the row has: a b)'
    assert lines == [reason, f"error: {reason}"]


def test_validate_escapes_what_rows_say():
    done = gym(
        "data",
        "validate",
        write("t.jsonl", *({"id": HOSTILE, "n": n} for n in range(2))),
        exit_code=2,
    )

    assert not set(UNSAFE) & set(done.output)


def test_render_prints_or_writes_the_same_rows():
    Path("p.yaml").write_text('user: "Say {word}."')
    words = ["yes", HOSTILE, "no"]
    path = write("raw.jsonl", *({"id": word, "word": word} for word in words))
    printed = gym("data", "render", path, "--prompt", "p.yaml")
    wrote = gym("data", "render", path, "--prompt", "p.yaml", "-o", "plain.jsonl")

    assert (wrote.exit_code, wrote.stdout) == (0, "")
    assert wrote.stderr == "wrote plain.jsonl: 3 rows\n"
    rows = lines_of(Path("plain.jsonl"))
    assert [row["messages"][0]["content"] for row in rows] == [f"Say {word}." for word in words]
    assert [msgspec.json.decode(line) for line in printed.stdout.split("\n")[:-1]] == rows
    assert not set(UNSAFE) & set(printed.output)


def test_render_writes_over_nothing_that_it_reads():
    rows, prompt = write_sums(Path("sums.jsonl"), 3), Path("p.yaml")
    prompt.write_text("user: What?\n")
    for out in (rows, prompt):
        before = out.read_bytes()
        done = gym(
            "data", "render", rows, "--prompt", prompt, "--limit", "1", "-o", out, exit_code=2
        )
        assert f"{out}: is an input and would be overwritten" in done.stderr
        assert out.read_bytes() == before


def test_render_takes_the_first_rows():
    path = write("t.jsonl", {"name": "a", "prompt": "?"}, {"name": "b", "prompt": "!"}, {})
    done = gym("data", "render", path, "--limit", "2", "--id-field", "name", exit_code=0)

    assert [msgspec.json.decode(line)["name"] for line in done.stdout.splitlines()] == ["a", "b"]


def test_render_of_a_wrong_row_leaves_no_file():
    path = write("t.jsonl", {"prompt": "?"}, {"answer": 1})
    done = gym("data", "render", path, "-o", "out.jsonl", exit_code=2)

    assert done.stderr.startswith("error: t.jsonl:2: no prompt")
    assert [path.name for path in Path().iterdir()] == ["t.jsonl"]


def test_rendered_rows_are_collected_without_a_template():
    Path("p.yaml").write_text('user: "What is {a} + {b}?"')
    path = write("raw.jsonl", {"a": 1, "b": 2, "answer": 3}, {"a": 2, "b": 2, "answer": 4})
    gym("data", "render", path, "--prompt", "p.yaml", "-o", "plain.jsonl", exit_code=0)
    options = ("--env", "arithmetic", "--model", "oracle", "--quiet")
    gym("collect", "raw.jsonl", "--prompt", "p.yaml", *options, "--out", "raw", exit_code=0)
    gym("collect", "plain.jsonl", *options, "--out", "plain", exit_code=0)

    raw, plain = (
        {
            line["task_id"]: (line["messages"], line["reward"])
            for line in lines_of(Path(run, "rollouts.jsonl"))
        }
        for run in ("raw", "plain")
    )
    assert len(raw) == 2
    assert raw == plain


def test_generate_prints_or_writes_what_ships():
    shipped = shipped_tasks("mcqa").read_bytes()
    wrote = gym("data", "generate", "mcqa", "-o", "tasks.jsonl")
    printed = gym("data", "generate", "mcqa")

    assert (wrote.exit_code, wrote.stderr) == (
        0,
        "wrote tasks.jsonl: 60 rows\ncollect it with --env mcqa\n",
    )
    assert Path("tasks.jsonl").read_bytes() == shipped
    assert printed.stdout == shipped.decode()


def test_generate_takes_number_and_seed():
    first, same, other = (
        gym("data", "generate", "mcqa", "-n", "3", "--seed", seed).stdout for seed in "110"
    )
    assert first == same != other
    assert first.count("\n") == 3


def test_generate_leaves_no_part_of_a_file():
    done = gym("data", "generate", "arithmetic", "-n", "362", "-o", "tasks.jsonl", exit_code=2)

    assert done.stderr.startswith(
        "error: environment arithmetic cannot generate 362 rows: ValueError"
    )
    assert not list(Path().iterdir())


def test_generate_compares_with_what_ships():
    done = gym("data", "generate", "--check", "mcqa", "arithmetic")
    assert (done.exit_code, done.stdout) == (0, "mcqa: 60 rows: ok\narithmetic: 60 rows: ok\n")

    done = gym("data", "generate", "--check", "mcqa", "--json")
    assert msgspec.json.decode(done.stdout) == [{"env": "mcqa", "num_rows": 60, "difference": None}]


def test_generate_ends_with_3_where_a_file_differs():
    """The checkout has the same code and a different task file."""
    checkout = Path(gymcli.__file__).parents[1]
    for name in ("gymcli", "envs"):
        Path(name).symlink_to(checkout / name)
    Path("datasets/arithmetic").mkdir(parents=True)
    Path("datasets/arithmetic/tasks.jsonl").write_text("{}\n")
    done = subprocess.run(
        gym_process("data", "generate", "--check", "arithmetic"),
        env={**clean_environment(), "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 3, done.stderr
    assert done.stdout == "arithmetic: 1 row: FAILED line 1 differs\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "name one environment"),
        (["mcqa", "arithmetic"], "name one environment"),
        (["mcqa", "--check", "-n", "3"], "--check compares the shipped rows and takes no -n"),
        (["mcqa", "--json"], "--json goes with --check"),
        (["mcqa", "--seed", "-1"], "--seed -1: must be 0 or more"),
        (["mqca"], 'no environment "mqca"; did you mean "mcqa"?'),
    ],
)
def test_generate_refuses_what_it_cannot_mean(arguments, reason):
    done = gym("data", "generate", *arguments)

    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr


ENDING = """
import os, signal
from pathlib import Path
from gymcli import Environment, Task


class Ending(Environment[Task]):
    \"\"\"Gets a signal in the middle of generating its tasks.\"\"\"

    @classmethod
    def generate(cls, rng, num):
        yield {"prompt": "x" * 100_000}
        assert list(Path().glob(".out.jsonl.*.tmp"))
        os.kill(os.getpid(), signal.SIGTERM)
        yield {"prompt": "y"}
"""


def test_generate_that_is_terminated_leaves_no_part_of_a_file():
    Path("ending.py").write_text(ENDING)
    Path("out.jsonl").write_text("before")
    done = subprocess.run(
        gym_process("data", "generate", "ending.py:Ending", "-n", "2", "-o", "out.jsonl"),
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (143, "terminated\n")
    assert Path("out.jsonl").read_text() == "before"
    assert not list(Path().glob(".out.jsonl*"))


def test_stats_prints_numbers():
    row = {
        "id": "a",
        "prompt": "What is 1 + 1?",
        "level": HOSTILE[-8:],
        "params": {"temperature": 1},
    }
    path = write("t.jsonl", row, {**row, "id": "b"}, {"prompt": 3})
    done = gym("data", "stats", path, exit_code=0)

    assert done.stderr == ("warning: 1 rows are wrong and not counted; run gym data validate\n")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:3] == [
        "rows 2, of 2 tasks",
        "prompts 1 different, 1 different texts of users",
        "environments none 2",
    ]
    assert "prompt characters 2 14.00 0.00 14 14 14 14 14" in lines
    assert "params.temperature 2 1.00 0.00 1 1 1 1 1" in lines
    assert not set(UNSAFE) & set(done.output)


def test_stats_prints_tools_images_and_missing_ids():
    tools = [{"type": "function", "function": {"name": f"tool_{n}"}} for n in range(12)]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    path = write("t.jsonl", {"messages": [{"role": "user", "content": [image]}], "tools": tools})
    done = gym("data", "stats", path)

    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert {"without id 1", "images 1"} <= set(lines)
    [listed] = [line for line in lines if line.startswith("tools 12 different: ")]
    assert listed.endswith(" 1, ...")
    assert listed.count("tool_") == 10


def test_stats_reports_json():
    done = gym("data", "stats", "mcqa", "--json")
    report = msgspec.json.decode(done.stdout)

    assert report["num_rows"] == 60
    assert report["environments"] == {"mcqa": 60}
    assert sum(report["fields"]["difficulty"].values()) == 60


def test_stats_of_nothing_is_a_mistake():
    done = gym("data", "stats", write("t.jsonl", {"answer": 1}), exit_code=2)

    assert done.stderr == "error: t.jsonl: no row is a task; run gym data validate\n"


def test_pull_writes_and_says_what_it_left_out():
    path = write("t.jsonl", {"prompt": "?"}, {"prompt": 3})
    done = gym("data", "pull", path, "-o", "out.jsonl", exit_code=2)
    assert done.stderr.startswith('error: t.jsonl:2: "prompt" must be text')
    assert not Path("out.jsonl").exists()

    done = gym("data", "pull", path, "-o", "out.jsonl.gz", "--skip-bad")
    assert (done.exit_code, done.stdout) == (0, "")
    warned, wrote = done.stderr.splitlines()
    assert warned.startswith('warning: t.jsonl:2: "prompt" must be text')
    assert wrote == "wrote out.jsonl.gz: 1 row, 1 left out"
    gym("data", "validate", "out.jsonl.gz", exit_code=0)


@pytest.mark.parametrize(
    ("package", "module", "source", "extra"),
    [
        ("pyarrow", "None", "t.parquet", "parquet"),
        ("datasets", "None", "hf:org/name", "hf"),
        pytest.param(
            "datasets",
            "type('Folder', (type(sys),), {'__path__': []})('datasets')",
            "hf:org/name",
            "hf",
            id="a folder of its name",
        ),
    ],
)
def test_pull_names_the_extra_that_is_missing(package, module, source, extra):
    """In a process in which the package cannot be imported, or is a folder without its modules."""
    Path("t.parquet").touch()
    command = gym_process("data", "pull", source, "-o", "out.jsonl")
    command[2] = f"import sys; sys.modules['{package}'] = {module}; {command[2]}"
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    needed = f"error: {source} needs the package {package}: pip install 'gymcli[{extra}]'\n"
    assert done.stderr == needed


def test_render_writes_prompts_for_verl():
    path = write_sums(Path("sums.jsonl"), 2)
    printed = gym("data", "render", path, "--to", "verl")

    row = msgspec.json.decode(printed.stdout.splitlines()[1])
    assert row == {
        "data_source": "arithmetic",
        "prompt": [{"role": "user", "content": "What is 1 + 1?"}],
        "ability": "mathematics",
        "reward_model": {"style": "rule", "ground_truth": '{"id":"sum-1","answer":2}'},
        "extra_info": {"index": 1, "task_id": "sum-1"},
    }
    write("bare.jsonl", {"prompt": "?", "answer": 1})
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    write("images.jsonl", {"env": "arithmetic", "messages": [image], "answer": 1})
    write("open.jsonl", {"env": "arithmetic", "messages": [], "answer": 1})
    refused = {
        "bare": "no environment, which is verl's data_source; use --env NAME",
        "images": "its prompt holds more than text, which has no place in verl's rows",
        "open": "no prompt: its environment opens the conversation",
    }
    for name, reason in refused.items():
        done = gym("data", "render", f"{name}.jsonl", "--to", "verl", "-o", "x.jsonl", exit_code=2)
        assert done.stderr.startswith(f"error: {name}.jsonl:1: {reason}")
    done = gym("data", "render", path, "-o", "x.parquet")
    assert "only render --to verl writes Parquet" in done.stderr
    parquet = pytest.importorskip("pyarrow.parquet", reason="writing Parquet is an extra")
    gym("data", "render", "bare.jsonl", "--env", "arithmetic", "--to", "verl", "-o", "b.parquet")
    gym("data", "render", path, "--to", "verl", "-o", "x.parquet")
    assert parquet.read_table("x.parquet").to_pylist()[1] == row
    assert parquet.read_table("b.parquet").num_rows == 1


def test_render_names_the_environment_of_rows_that_name_none():
    path = write("t.jsonl", {"id": "a", "prompt": "?"}, {"id": "b", "env": "mcqa", "prompt": "?"})
    done = gym("data", "render", path, "--env", "arithmetic")
    assert [msgspec.json.decode(row)["env"] for row in done.stdout.splitlines()] == [
        "arithmetic",
        "mcqa",
    ]
    assert 'did you mean "mcqa"?' in gym("data", "render", path, "--env", "mcq").stderr


@pytest.mark.parametrize("command", ["render", "pull"])
def test_that_a_table_is_read_as_windows_1252_is_said_once(command):
    Path("t.csv").write_bytes("prompt;answer\nGröße?;ä\n".encode("cp1252"))
    done = gym("data", command, "t.csv", "-o", "t.jsonl", exit_code=0)

    assert done.stderr.count("t.csv: is not UTF-8 and is read as Windows-1252") == 1
    assert lines_of(Path("t.jsonl"))[0]["answer"] == "ä"
