"""Rows selected from runs and files remain the same tasks, and are drawn by weight."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gymcli.benchmarks.resolution import task_inputs
from gymcli.data.selection import select_rows
from gymcli.environment.registry import Registry
from gymcli.errors import UsageError
from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import last_user_text
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_source import TaskSource
from tests.builders import gym, lines_of, write_rows, write_sums

ASK = 'user: "What is {a} + {b}?"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def collect(*arguments, out):
    """Collect with the oracle and return the ids and hashes on the lines."""
    gym("collect", *arguments, "--model", "oracle", "--out", out, exit_code=0)
    lines = lines_of(Path(out, "rollouts.jsonl"))
    return sorted({(line["task_id"], line["task_hash"]) for line in lines})


def keys_of(path, **options):
    """Return ids and hashes of the tasks in a file, as a collection with these options reads it."""
    source = TaskSource(task_inputs([path]), TaskOptions(**options), Registry())
    return sorted((row.id, row.hash) for row in source.read())


@pytest.fixture
def mixed_run(mock_server):
    """Return a run of four sums of which 0, 1, 2 and 3 attempts of three are right."""
    asked = Counter()

    def answer(request):
        number = int(last_user_text(request).split()[2])
        asked[number] += 1
        return MockAnswer(text=str(number + 1 if asked[number] <= number else 99))

    mock_server.behaviour = answer
    write_sums(Path("sums.jsonl"), 4)
    endpoint = ("--base-url", mock_server.base_url, "--model", "m", "--repeats", "3")
    gym("collect", "sums.jsonl", *endpoint, "--out", "run", exit_code=0)
    return Path("run")


def test_a_task_is_selected_by_its_attempts_and_its_row_is_left_as_it_is(mixed_run):
    rows = Path("sums.jsonl").read_bytes().splitlines()
    selected = {
        "0.1 < avg < 0.9": rows[1:3],
        "best == 1 and num_passed < 3": rows[1:3],
        "attempt == 0": rows,
        "not passed": rows[:3],  # any attempt
    }
    for where, lines in selected.items():
        assert select_rows([mixed_run], where=where).lines == lines
    done = gym("data", "select", mixed_run, "--where", "avg > 0.9", "-o", "best.jsonl")
    assert done.stdout.splitlines()[1].split() == ["arithmetic", "4", "1", "1"]
    assert Path("best.jsonl").read_bytes() == rows[3] + b"\n"
    done = gym("data", "select", mixed_run, "--where", "avg > 1", "-o", "none.jsonl")
    assert (done.exit_code, Path("none.jsonl").exists()) == (2, False)
    assert "no task matches --where avg > 1" in done.stderr

    # A file that was changed is named, unless the change is in another task.
    Path("sums.jsonl").write_bytes(b"\n".join(rows[1:]))
    assert select_rows([mixed_run], where="avg > 0.9").lines == [rows[3]]
    with pytest.raises(UsageError, match=r"^sums\.jsonl: lacks 1 of the selected .* \"sum-0\""):
        select_rows([mixed_run])
    Path("sums.jsonl").unlink()
    write_sums(Path("moved.jsonl"), 5)
    with pytest.raises(
        UsageError, match=r"sums\.jsonl, which is not there; name them with --tasks"
    ):
        select_rows([mixed_run])
    assert select_rows([mixed_run], tasks=["moved.jsonl"]).lines == rows


def test_raw_rows_and_tables_keep_ids_and_hashes():
    raw = [{"a": 1, "b": n, "answer": n + 1} for n in (1, 2, 2)]
    write_rows("raw.jsonl", raw)
    Path("ask.yaml").write_text(ASK)
    keys = collect("raw.jsonl", "--env", "arithmetic", "--prompt", "ask.yaml", out="raws")
    found = select_rows(["raws"])
    assert found.options == ["--env arithmetic", "--prompt ask.yaml"]
    write_rows("out.jsonl", map(msgspec.json.decode, found.lines))
    assert keys_of("out.jsonl", env="arithmetic", prompt=Path("ask.yaml")) == keys
    with pytest.raises(UsageError, match=r"needs different options: --prompt ask\.yaml, none"):
        select_rows(["raws", "mcqa"])

    Path("t.csv").write_text("nr,question,A,B,answer\nq1,Which?,this,that,B\nq2,Who?,he,she,A\n")
    keys = collect("t.csv", "--id-field", "nr", out="rows")
    found = select_rows(["rows"], where='task_id == "q2"')
    assert (found.options, found.num_tasks) == (["--env mcqa", "--id-field nr"], {"mcqa": 2})
    write_rows("out.jsonl", map(msgspec.json.decode, found.lines))
    assert keys_of("out.jsonl", env="mcqa", id_field="nr") == keys[1:]


def test_rows_of_several_environments_are_drawn_by_weight_and_name_theirs():
    sums = [{"prompt": f"What is {n} + 1?", "answer": n + 1} for n in range(40)]
    write_rows("sums.jsonl", sums)

    def drawn(**options):
        return select_rows(["mcqa", "sums.jsonl"], env="arithmetic", **options)

    found = drawn(weights={"mcqa": 3})
    assert (found.num_rows, found.options) == ({"arithmetic": 20, "mcqa": 60}, [])
    assert drawn(weights={"mcqa": 3}).lines == found.lines
    assert drawn(weights={"mcqa": 3}, seed=1).lines != found.lines
    assert drawn(weights={"mcqa": 0.5}, num=10).num_rows == {"arithmetic": 7, "mcqa": 3}
    assert drawn(weights={"mcqa": 0}).num_rows == {"arithmetic": 40}
    # A tenth, though no float is one.
    assert drawn(weights={"arithmetic": 0.1, "mcqa": 0.3}).num_rows == {
        "arithmetic": 20,
        "mcqa": 60,
    }
    with pytest.raises(UsageError, match="--num 0: must be 1 or more"):
        drawn(num=0)
    assert sum(drawn(num=30).num_rows.values()) == 30
    write_rows("mix.jsonl", map(msgspec.json.decode, found.lines))
    read = list(TaskSource(task_inputs(["mix.jsonl"]), TaskOptions(), Registry()).read())
    ids = {key for key, _ in keys_of("sums.jsonl", env="arithmetic")}
    assert {row.id for row in read if row.env == "arithmetic"} < ids

    refused = {
        "--num 100": "there are only 60 tasks of mcqa, so that at most 80 rows",
        "--weight mcq=1": 'no selected task is of this environment; did you mean "mcqa"?',
        "--weight mcqa=x": "--weight mcqa=x: is not a number",
        "--weight mcqa=-1": "--weight mcqa=-1: must be 0 or more",
        "--weight mcqa=1e99999999": "--weight mcqa=inf: must be 0 or more, and finite",
        "--where avg<1": "mcqa: is not a run directory, and --where needs runs",
    }
    for option, reason in refused.items():
        sources = ("mcqa", "sums.jsonl", "--env", "arithmetic", "--weight", "mcqa=3")
        done = gym("data", "select", *sources, *option.split(" ", 1), "-o", "x.jsonl", exit_code=2)
        assert reason in done.stderr


def test_a_map_function_of_a_run_is_not_run_but_its_tasks_are_selected_from_a_file():
    Path("sums.csv").write_text("a,b\n1,2\n")
    code = "def task(row):\n    a, b = int(row['a']), int(row['b'])\n"
    row = "{'id': 's', 'prompt': f'{a} + {b}', 'answer': a + b}"
    Path("map.py").write_text(f"{code}    return {row}\n")
    args = ("--map", "map.py:task")
    collect("sums.csv", *args, "--env", "arithmetic", out="run")
    gym("data", "pull", "sums.csv", *args, "-o", "sums.jsonl", exit_code=0)
    Path("map.py").write_text("raise SystemExit('code of a record')")

    done = gym("data", "select", "run", "-o", "out.jsonl")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: run: its tasks were made by map.py:task; name them with --tasks\n",
    )
    done = gym("data", "select", "run", "--tasks", "sums.jsonl", "-o", "out.jsonl", exit_code=0)
    assert Path("out.jsonl").read_bytes() == Path("sums.jsonl").read_bytes()
