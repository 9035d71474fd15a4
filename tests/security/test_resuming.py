"""Tests that a secret in a record changes neither later requests nor what counts as done."""

import msgspec
import pytest

from tests.builders import FLAKY, gym, lines_of, write_sums

SECRET = "hf_in-a-row-1234"


def test_a_run_whose_rows_hold_a_secret_is_resumed(tmp_path, monkeypatch, mock_server):
    """The request has it, the record does not, and the same command still matches the record."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    tasks = tmp_path / "tasks.jsonl"
    row = {"id": "a", "env": "arithmetic", "prompt": f"{SECRET} + 1?", "answer": 2}
    tasks.write_bytes(msgspec.json.encode(row) + b"\n")
    out = tmp_path / "run"
    endpoint = ("--base-url", mock_server.base_url, "--model", "m", "--param", f"user={SECRET}")
    for _ in range(2):
        gym("collect", tasks, *endpoint, "--out", out, "--quiet", exit_code=0)
    [request] = mock_server.requests
    assert SECRET in request.body["messages"][0]["content"]
    [rollout] = lines_of(out / "rollouts.jsonl")
    assert rollout["messages"][0]["content"] == "[redacted] + 1?"
    assert not any(SECRET in file.read_text() for file in out.iterdir() if file.is_file())


def test_a_task_whose_id_holds_a_secret_is_refused(tmp_path, monkeypatch, mock_server):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    tasks = tmp_path / "tasks.jsonl"
    row = {"id": f"a-{SECRET}", "name": "b", "env": "arithmetic", "prompt": "1 + 1?", "answer": 2}
    tasks.write_bytes(msgspec.json.encode(row) + b"\n")
    arguments = ("--base-url", mock_server.base_url, "--model", "m", "--out", tmp_path / "run")
    ended = gym("collect", tasks, *arguments, exit_code=2)
    assert "tasks.jsonl:1: the task's id contains a key in use" in ended.stderr
    assert SECRET not in ended.stderr
    assert mock_server.requests == []
    gym("collect", tasks, *arguments, "--id-field", "name", "--quiet", exit_code=0)


@pytest.mark.parametrize("word", ["assistant", "arithmetic", "schema_version", "password"])
def test_a_run_whose_secrets_are_words_is_resumed_and_rescored(
    tmp_path, working_folder, monkeypatch, mock_server, word
):
    """A secret may be a key, the password of an address, or in a header."""
    monkeypatch.setenv("MY_KEY", word)
    monkeypatch.setenv("DATABASE_URL", f"postgres://{word}:{word}@localhost/app")
    (tmp_path / "gym.toml").write_text(
        f'[models.m]\nbase_url = "{mock_server.base_url}"\napi_key_env = "MY_KEY"\n'
        f'headers = {{ "X-Title" = "Research {word}", "X-Token" = "Bearer {word}" }}\n'
    )
    row = {"id": word, "env": "string_match", "prompt": f"Say {word}.", "expected_answer": word}
    (tmp_path / "tasks.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    for _ in range(2):
        gym("collect", "tasks.jsonl", "--model", "m", "--out", "run", "--quiet", exit_code=0)
    assert len(mock_server.requests) == 1
    [rollout] = lines_of(tmp_path / "run" / "rollouts.jsonl")
    assert rollout["messages"][0] == {"role": "user", "content": f"Say {word}."}
    verified = gym("verify", "run", "--json", exit_code=0)
    assert msgspec.json.decode(verified.stdout)["num_changed"] == 0


def test_a_run_is_resumed_where_a_variable_makes_its_model_a_secret(
    tmp_path, monkeypatch, mock_server
):
    """If the variable is gone later, the error explains the `[redacted]` in the record."""
    tasks = write_sums(tmp_path / "tasks.jsonl", 1)
    out = tmp_path / "run"
    command = ("collect", tasks, "--base-url", mock_server.base_url, "--model", "qwen-2.5-7b")
    gym(*command, "--out", out, "--quiet", exit_code=0)
    monkeypatch.setenv("HF_TOKEN", "qwen-2.5-7b")
    gym(*command, "--out", out, "--quiet", exit_code=0)
    assert len(mock_server.requests) == 1

    begun_with = tmp_path / "other"
    gym(*command, "--out", begun_with, "--quiet", exit_code=0)
    monkeypatch.delenv("HF_TOKEN")
    refused = gym(*command, "--out", begun_with, exit_code=2)
    assert "[redacted] stands for a key in use when the run began" in refused.stderr


def test_an_environment_whose_name_holds_a_secret_is_refused(
    tmp_path, working_folder, monkeypatch, mock_server
):
    (tmp_path / "agents_4711.py").write_text(FLAKY)
    monkeypatch.setenv("HF_TOKEN", "agents_4711")
    row = {"id": "a", "prompt": "Go."}
    (tmp_path / "tasks.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    arguments = ("--base-url", mock_server.base_url, "--model", "m", "--out", "run")
    ended = gym("collect", "tasks.jsonl", "--env", "agents_4711.py:Flaky", *arguments, exit_code=2)
    assert "tasks.jsonl:1: the name of the environment contains a key in use" in ended.stderr
    assert mock_server.requests == []


def test_data_files_hold_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    source, out, pulled = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    source.write_bytes(msgspec.json.encode({"id": "a", "prompt": f"Say {SECRET}"}) + b"\n")
    assert "1 row held a key in use" in gym("data", "render", source, "-o", out, exit_code=0).stderr
    pulling = gym("data", "pull", source, "-o", pulled, exit_code=0)
    assert "1 row held a key in use" in pulling.stderr
    for path in (out, pulled):
        [row] = lines_of(path)
        assert SECRET not in path.read_text()
        assert "[redacted]" in path.read_text()
        assert row["id"] == "a"
