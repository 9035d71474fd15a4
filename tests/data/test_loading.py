"""Exported files load in the library that the users of each format load them with."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution

import pytest

from gymcli.data.training_formats import LOSSES
from tests.builders import failed, scored, with_tools
from tests.data.exporting import export
from tests.data.token_runs import ONE, write_token_run
from tests.docs.pages import blocks, page

pytestmark = pytest.mark.slow

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": {name: {}}}}}
    for name in ("weather", "add")
]

LOAD = """
import json, sys

import datasets

datasets.disable_progress_bars()
found = {}
for name in sys.argv[3:]:
    kind = {"jsonl": "json"}.get(name.rpartition(".")[2], name.rpartition(".")[2])
    found[name] = list(
        datasets.load_dataset(kind, data_files=name, split="train", cache_dir=sys.argv[2])
    )
exec(sys.argv[1].replace("features=features", "features=features, chunksize=1"))
found["features"] = list(dataset)
found["trained"] = list(rows)
print(json.dumps(found))
"""
"""Prints the rows of files; runs in a new process, as HF variables are read at import."""

FILES = {
    "sft": "sft.jsonl",
    "completion": "completion.jsonl",
    "assistant": "assistant.jsonl",
    "dpo": "dpo.jsonl",
    "kto": "kto.jsonl",
    "tokens": "sequences.jsonl",
    "parquet": "all.parquet",
    "csv": "all.csv",
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return what was exported of one run, and what `datasets` loads from each file."""
    for package in ("datasets", "pyarrow"):
        try:
            distribution(package)
        except PackageNotFoundError:
            pytest.skip("needs the packages datasets and pyarrow")
    folder = tmp_path_factory.mktemp("files")
    best, worst = (with_tools("t", attempt=n, tools=TOOLS[:1]) for n in range(2))
    best.components, best.answer = {"form": 0.5}, "Rom"
    worst.messages, worst.reward = [*worst.messages[:3], worst.messages[-1]], 0.25
    rollouts = [
        best,
        worst,
        scored("b", 0, 1.0, answer="-5"),
        scored("b", 1, 0.0, said="=1+1, A", answer="007", tools=TOOLS),
        scored("c", 0, 1.0, said="right"),
        scored("c", 1, 0.5, said="half"),
        scored("c", 2, 0.0, said="wrong"),
    ]
    plays = [(rollout, ONE) for rollout in rollouts]
    run = write_token_run(folder / "run", plays, failures=[failed("d")])
    written = {to: export("sft", run, form=to) if to in LOSSES else export(to, run) for to in FILES}
    for to, name in FILES.items():
        (folder / name).write_bytes(written[to].data)
    shown = "\n".join(block[1] for block in blocks("python", page("export.md")))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD, shown, folder / "cache", *FILES.values()],
        cwd=folder,
        env={**os.environ, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return written, json.loads(done.stdout)


NUM_ROWS = {"sft": 7, "completion": 7, "assistant": 8, "dpo": 2, "kto": 7, "tokens": 7}


@pytest.mark.parametrize("to", NUM_ROWS)
def test_datasets_load_conversations_as_they_were_written(exported, to):
    """Tools and arguments may have different keys in each row."""
    written, loaded = exported
    rows = [{k: v for k, v in row.items() if v is not None} for row in loaded[FILES[to]]]
    assert rows == written[to].rows
    assert len(rows) == NUM_ROWS[to]


def test_datasets_load_conversations_of_any_shape_as_the_docs_say(exported):
    """Reading row by row stands in for keys that first occur after the first 10 MB."""
    written, loaded = exported
    rows = [{k: v for k, v in row.items() if v is not None} for row in loaded["features"]]
    assert rows == written["sft"].rows
    assert loaded["trained"] == [
        {"input_ids": row["input_ids"], "assistant_masks": row["loss_mask"]}
        for row in written["tokens"].rows
        if row["reward"] > 0
    ]


@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_datasets_load_tables_with_their_rewards(exported, to):
    _, loaded = exported
    rows = loaded[FILES[to]]
    assert [row["reward"] for row in rows] == [1.0, 0.25, 1.0, 0.0, 1.0, 0.5, 0.0, None]
    assert [row["passed"] for row in rows][:2] == [True, False]
    assert [row["status"] for row in rows] == ["scored"] * 7 + ["failed"]
    assert rows[0]["components.form"] == 0.5
    assert rows[3]["last_text"] == ("'=1+1, A" if to == "csv" else "=1+1, A")


def test_datasets_load_the_conversations_of_a_table(exported):
    _, loaded = exported
    messages = json.loads(loaded["all.parquet"][0]["messages"])
    assert [message["role"] for message in messages][-2:] == ["tool", "assistant"]
    assert json.loads(loaded["all.parquet"][3]["tools"]) == TOOLS
