"""What names a run, and what its manifest says."""

import asyncio
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.models.endpoint import Endpoint
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import Collection
from tests.commands.running import write_sums
from tests.models.test_local import PLAIN, WITH_TOOLS, write_gguf
from tests.runner.test_roles import JUDGED, write_rows

SECRET = "sk-never-to-be-seen"


def collection(tasks: Path, **options) -> Collection:
    return Collection([tasks], CollectOptions(**{"model": "oracle", **options}))


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"params": {"temperature": 0.5}},
        {"max_turns": 3},
        {"model": "local", "endpoint": None},
        {"model": "m", "endpoint": Endpoint(base_url="http://h", model="m", dialect="responses")},
    ],
)
def test_identity_is_what_changes_answers(tmp_path, options):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    if options.get("model") == "local":
        pytest.importorskip("xllamacpp")
    assert collection(tasks).manifest.identity != collection(tasks, **options).manifest.identity


@pytest.mark.parametrize(("template", "expected"), [(PLAIN, True), (WITH_TOOLS, None)])
def test_identity_says_whether_the_embedded_model_has_no_tools(tmp_path, template, expected):
    pytest.importorskip("xllamacpp")
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    weights = write_gguf(tmp_path / "a.gguf", chat_template=template)
    identity = collection(tasks, model=f"local:{weights}").manifest.identity
    assert identity.get("emulate_tools") is expected


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 2}, {"limit": 1}, {"repeats": 3}, {"shuffle": True}, {"out": Path("x")}],
)
def test_identity_is_not_speed_nor_selection(tmp_path, options):
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    assert collection(tasks).manifest.identity == collection(tasks, **options).manifest.identity


def test_identity_is_not_the_address(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    found = [
        collection(tasks, model="m", endpoint=Endpoint(base_url=url, model="m", api_key=key))
        for url, key in (("http://one", SECRET), ("http://two", None))
    ]
    assert found[0].manifest.identity == found[1].manifest.identity
    assert found[0].path == found[1].path


def test_identity_is_one_whatever_spelling_a_number_has(tmp_path):
    """So the default directory is one, and the run goes on."""
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    spellings = (
        {"temperature": 1, "logit_bias": {"7": -100}, "stops": [2]},
        {"temperature": 1.0, "logit_bias": {"7": -100.0}, "stops": [2.0]},
    )
    found = [collection(tasks, params=params) for params in spellings]
    assert found[0].manifest.identity == found[1].manifest.identity
    assert found[0].path == found[1].path
    judged = write_rows(tmp_path / "judged.jsonl", 1)
    judges = [
        collection(judged, env=JUDGED, roles={"judge": "oracle"}, role_params={"judge": params})
        for params in spellings
    ]
    assert "role" in str(judges[0].manifest.identity)
    assert judges[0].path == judges[1].path


@pytest.mark.parametrize(
    ("tasks", "model", "start"),
    [
        ("sums.jsonl", "org/model-7B", "runs/sums-model-7B-"),
        ("deep/tasks.jsonl", "m", "runs/deep-m-"),
        ("tasks.jsonl", "m", "runs/tasks-m-"),
        ("a b;c.v2.jsonl", "../../x y", "runs/a-b-c-x-y-"),
    ],
)
def test_default_out(tmp_path, monkeypatch, tasks, model, start):
    monkeypatch.chdir(tmp_path)
    Path(tasks).parent.mkdir(exist_ok=True)
    write_sums(Path(tasks), 1)
    endpoint = Endpoint(base_url="http://h", model=model)
    path = collection(Path(tasks), model=model, endpoint=endpoint).path
    assert str(path).startswith(start)
    assert len(str(path)) == len(start) + 8


def test_fresh_takes_a_folder_that_is_not_there(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"
    assert collection(tasks, out=out, fresh=True).path == out
    out.mkdir()
    (tmp_path / "run-2").mkdir()
    assert collection(tasks, out=out, fresh=True).path == tmp_path / "run-3"


def test_manifest_says_no_secret(tmp_path, mock_server):
    """Neither a key, nor a header, nor a query, nor a proxy's password."""
    endpoint = Endpoint(
        base_url=mock_server.base_url,
        model="m",
        api_key=SECRET,
        headers={"X-Key": SECRET},
        query={"key": SECRET},
        idle_timeout=99,
    )
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"

    async def run():
        return [
            r async for r in gymcli.collect(tasks, endpoint=endpoint, out=out, env="arithmetic")
        ]

    assert len(asyncio.run(run())) == 1
    for path in out.iterdir():
        assert SECRET not in path.read_text()
    manifest = msgspec.json.decode((out / "run.json").read_bytes())
    shown = manifest["options"]["endpoint"]
    assert shown == {"base_url": mock_server.base_url, "model": "m", "idle_timeout": 99.0}
    assert manifest["options"]["env"] == "arithmetic"


def test_manifest_describes_what_the_run_is_made_with(tmp_path, monkeypatch):
    """Outside of a repository and without git, there is no commit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    manifest = collection(write_sums(tmp_path / "t.jsonl", 3), repeats=2).manifest
    assert manifest.git_commit is None
    assert manifest.libraries.keys() >= {"python", "msgspec"}
    assert (manifest.num_expected, manifest.num_tasks) == (6, 3)
    record = manifest.environments["arithmetic"]
    assert (record.version, record.max_reward, record.num_expected) == ("1", 1.0, 6)


def test_manifest_names_the_commit(tmp_path, monkeypatch):
    import subprocess

    monkeypatch.chdir(tmp_path)
    who = ["-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    commit = collection(write_sums(tmp_path / "t.jsonl", 1)).manifest.git_commit
    assert commit is not None
    assert len(commit) == 40


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({}, {}),
        ({"emulate_tools": True}, {"emulate_tools": True}),
        ({"send_reasoning": "reasoning"}, {"send_reasoning": "reasoning"}),
        ({"send_fields": ["b", "a"]}, {"send_fields": ["a", "b"]}),
    ],
)
def test_identity_has_what_changes_the_prompt_only_where_it_does(tmp_path, options, added):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    endpoints = [Endpoint(base_url="http://h", model="m", **more) for more in ({}, options)]
    plain, other = (collection(tasks, model="m", endpoint=e).manifest.identity for e in endpoints)
    assert other == {**plain, **added}
