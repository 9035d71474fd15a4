"""Tests of `gym export`."""

import csv
import gzip
import io
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from gymcli.commands.export import export
from gymcli.data.exporters import EXPORTERS
from gymcli.data.training_formats import ADVANTAGES, LOSSES
from gymcli.mock.behaviours import last_user_text
from tests.builders import (
    add_up,
    failed,
    gym,
    lines,
    lines_of,
    scored,
    with_tools,
    write_run,
    write_sums,
)
from tests.data.token_runs import ONE, TWO, write_token_run


@pytest.fixture
def run(working_folder):
    """Return a run of two tasks, and change to its folder."""
    return write_run(
        Path("run"),
        rollouts=[
            scored("a", 0, 1.0, said="yes"),
            scored("a", 1, 0.0, said="no"),
            scored("b", 0, 1.0),
        ],
        failures=[failed("c")],
    )


@pytest.mark.parametrize(
    ("to", "name", "num_rows"),
    [
        ("sft", "x.jsonl", 3),
        ("dpo", "x.jsonl.gz", 1),
        ("kto", "x.jsonl", 3),
        ("jsonl", "x.jsonl", 3),
        ("csv", "x.csv.gz", 4),
        ("parquet", "x.parquet", 4),
        ("nemo-gym", "x.jsonl.gz", 3),
    ],
)
def test_export_writes_each_format(run, to, name, num_rows):
    if to == "parquet":
        pytest.importorskip("pyarrow", reason="writing Parquet is an extra")
    done = gym("export", run, "--to", to, "-o", name, exit_code=0)
    assert done.stdout.splitlines()[0] == f"rows          {num_rows}"
    data = Path(name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    if "jsonl" in name:
        assert len([msgspec.json.decode(line) for line in data.splitlines()]) == num_rows
    assert sorted(path.name for path in Path().iterdir()) == sorted(
        ["run", name, *(["x_aggregate_metrics.json"] if to == "nemo-gym" else [])]
    )


def test_export_offers_every_format():
    hints = get_type_hints(export)
    assert get_args(hints["to"]) == tuple(EXPORTERS)
    for option, values in (("loss", LOSSES), ("advantage", ADVANTAGES)):
        assert get_args(get_args(hints[option])[0]) == tuple(values)


def test_export_says_what_it_wrote_and_left_out(run):
    done = gym("export", run, "--to", "dpo", "-o", "pairs.jsonl")
    assert done.stdout.splitlines() == [
        "rows          1",
        "left out      not scored: 1, tasks with one attempt: 1",
        "files         pairs.jsonl",
    ]
    done = gym("export", run, "--to", "nemo-gym", "-o", "ng.jsonl", "--json")
    assert msgspec.json.decode(done.stdout) == {
        "format": "nemo-gym",
        "num_rows": 3,
        "left_out": {"not scored": 1},
        "files": ["ng.jsonl", "ng_aggregate_metrics.json"],
    }


def test_export_takes_what_an_expression_selects(run):
    gym("export", run, "--to", "jsonl", "-o", "x.jsonl", "--where", "0 < avg < 1", exit_code=0)
    assert [row["attempt"] for row in lines_of(Path("x.jsonl"))] == [0, 1]
    whole = gym("export", "x.jsonl", "--to", "sft", "-o", "y.jsonl", "--where", "best == 1")
    assert whole.stdout.startswith("rows          2")


@pytest.mark.parametrize("form", [["--completion"], ["--loss", "completion"]])
def test_export_gives_completions(run, form):
    done = gym("export", run, "--to", "sft", *form, "-o", "x.jsonl", exit_code=0)
    assert lines_of(Path("x.jsonl"))[0]["completion"] == [{"role": "assistant", "content": "yes"}]
    assert done.stderr.startswith("warning: 1 of 3 rollouts have a reward of 0 or less")
    assert "--where passed" in done.stderr


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("x.jsonl", "x.tokens.jsonl"), ("y/rollouts.jsonl", "y/tokens.jsonl")],
)
def test_export_takes_token_ids_along(working_folder, name, tokens):
    Path("y").mkdir()
    run = write_token_run(Path("run"), [(with_tools("a"), TWO), (scored("b", reward=0.0), ONE)])
    done = gym("export", run, "--to", "jsonl", "-o", name, "--where", "task_id == 'a'")
    assert done.stdout.splitlines()[-1] == f"files         {name}, {tokens}"
    assert len(lines_of(Path(tokens))) == 2
    options = ["--to", "tokens", "--advantage", "mean"]
    for source, advantages in ((name, [0.0]), (run, [0.0, 0.0])):
        gym("export", source, *options, "-o", "rows.jsonl", exit_code=0)
        assert [row["advantage"] for row in lines_of(Path("rows.jsonl"))] == advantages
    # No file is written for lines without ids, and the ids of the input stay.
    plain = write_run(Path("plain"), rollouts=[scored()])
    assert gym("export", plain, "--to", "jsonl", "-o", "z.jsonl").stdout.endswith(" z.jsonl\n")
    done = gym("export", name, "--to", "sft", "-o", tokens)
    assert (done.exit_code, "is an input and would be overwritten" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "dpo", "--completion"], "--completion goes with --to sft"),
        (["--to", "dpo", "--loss", "assistant"], "--loss goes with --to sft, not with --to dpo"),
        (["--to", "sft", "--advantage", "loo"], "--advantage goes with --to tokens"),
        (["--to", "sft", "--completion", "--loss", "assistant"], "exclude each other"),
        (["--to", "tokens"], "run: has no token ids; collect a run with --record-tokens"),
        (["--to", "csv"], "-o x.jsonl: --to csv writes .csv, .csv.gz, .csv.zst"),
        (["--to", "sft", "--where", "reward <"], "character 9: a value is missing here"),
        (["--to", "sft", "--where", "rewrd < 1"], "error: run: filter 'rewrd < 1', character 1: "),
        (
            ["--to", "sft", "--where", "reward > 5"],
            "run: no attempt is selected; nothing was written",
        ),
        (["--to", "sft", "--where", "status == 'failed'"], "left out: not scored: 1"),
        (["--to", "tfrecord"], "tfrecord"),
    ],
)
def test_export_refuses_what_makes_no_file(run, arguments, words):
    Path("x.jsonl").write_text("before")
    assert words in gym("export", run, "-o", "x.jsonl", *arguments, exit_code=2).stderr
    assert Path("x.jsonl").read_text() == "before"
    assert len(list(Path().iterdir())) == 2


def test_export_refuses_runs_that_are_not_there_or_twice(run):
    assert "no such run" in gym("export", "no", "--to", "sft", "-o", "x.jsonl").stderr
    for again in ("./run", "run/rollouts.jsonl"):
        done = gym("export", run, again, "--to", "sft", "-o", "x.jsonl")
        assert (done.exit_code, f"{Path(again)}: is named twice" in done.stderr) == (2, True)


def test_export_writes_over_none_of_its_runs(run):
    before = Path("run/rollouts.jsonl").read_bytes()
    gym("export", run, "--to", "jsonl", "-o", ".jsonl", exit_code=0)
    done = gym("export", run, "--to", "jsonl", "-o", "run/rollouts.jsonl", "--where", "passed")
    assert (done.exit_code, "is an input and would be overwritten" in done.stderr) == (2, True)
    assert Path("run/rollouts.jsonl").read_bytes() == before
    Path("ng_aggregate_metrics.json").write_bytes(lines(scored()))
    done = gym("export", "ng_aggregate_metrics.json", "--to", "nemo-gym", "-o", "ng.jsonl")
    assert (done.exit_code, "is an input and would be overwritten" in done.stderr) == (2, True)
    assert not Path("ng.jsonl").exists()


def test_export_says_that_a_line_is_unfinished(run):
    with Path("run/rollouts.jsonl").open("ab") as file:
        file.write(b'{"schema_version":1,"env":"qu')
    done = gym("export", run, "--to", "sft", "-o", "x.jsonl", exit_code=0)
    assert "not finished when its writer stopped" in done.stderr


def test_export_takes_secrets_out(run, monkeypatch):
    secret = "sk-12345678901234567890"
    Path("run/rollouts.jsonl").write_bytes(lines(scored("a", said=f"It is {secret}")))
    monkeypatch.setenv("HF_TOKEN", secret)
    done = gym("export", run, "--to", "sft", "-o", "x.jsonl")
    assert "x.jsonl: 1 row held a key in use" in done.stderr
    assert secret not in Path("x.jsonl").read_text()


def test_export_names_more_numbers_than_there_are_columns(run):
    many = {f"n{number}": 1.0 for number in range(70)}
    Path("run/rollouts.jsonl").write_bytes(lines(scored("a", metrics=many)))
    done = gym("export", run, "--to", "csv", "-o", "x.csv")
    assert "warning: run: has more components and metrics" in done.stderr


def add_up_or_not(request):
    return add_up(request) if int(last_user_text(request).split()[2]) % 2 else "It is -1."


def test_export_for_nemo_gym_is_read_and_scored_again_with_the_same_rewards(
    working_folder, mock_server
):
    """The export of a run is verified and measured as a file of NeMo Gym."""
    mock_server.behaviour = add_up_or_not
    tasks = write_sums(Path("sums.jsonl"), 6)
    endpoint = ("--model", "m", "--base-url", mock_server.base_url)
    gym("collect", tasks, *endpoint, "--repeats", "2", "--out", "run", exit_code=0)
    gym("export", "run", "--to", "nemo-gym", "-o", "ng.jsonl", exit_code=0)
    ours, theirs = (
        msgspec.json.decode(gym("metrics", path, "--json").stdout) for path in ("run", "ng.jsonl")
    )
    for name in ("num_scored", "num_tasks", "mean_reward", "pass_at_k", "interval", "usage"):
        assert ours[name] == theirs[name]
    verified = msgspec.json.decode(gym("verify", "ng.jsonl", "--json").stdout)
    assert 0.0 < ours["mean_reward"] < 1.0
    assert (verified["num_rescored"], verified["num_changed"]) == (12, 0)
    gym("export", "run", "--to", "csv", "-o", "run.csv")
    rows = list(csv.DictReader(io.StringIO(Path("run.csv").read_text())))
    assert sum(float(row["reward"]) for row in rows) / 12 == pytest.approx(ours["mean_reward"])
