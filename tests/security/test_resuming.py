"""A secret in what is recorded changes neither what is sent nor what is done already."""

import msgspec

from tests.commands.running import gym, lines_of

SECRET = "hf_in-a-row-1234"


def test_a_run_whose_rows_hold_a_secret_is_resumed(tmp_path, monkeypatch, mock_server):
    """The request has it, the record does not, and the same command finds the record again."""
    monkeypatch.setenv("A_TOKEN", SECRET)
    tasks = tmp_path / "tasks.jsonl"
    row = {"id": "a", "env": "arithmetic", "prompt": f"{SECRET} + 1?", "answer": 2}
    tasks.write_bytes(msgspec.json.encode(row) + b"\n")
    out = tmp_path / "run"
    endpoint = ("--base-url", mock_server.base_url, "--model", "m", "--param", f"user={SECRET}")
    for _ in range(2):
        ended = gym("collect", tasks, *endpoint, "--out", out, "--quiet")
        assert ended.exit_code == 0, ended.stderr
    [request] = mock_server.requests
    assert SECRET in request.body["messages"][0]["content"]
    [rollout] = lines_of(out / "rollouts.jsonl")
    assert rollout["messages"][0]["content"] == "[redacted] + 1?"
    assert not any(SECRET in file.read_text() for file in out.iterdir() if file.is_file())


def test_a_task_whose_id_holds_a_secret_is_refused(tmp_path, monkeypatch, mock_server):
    monkeypatch.setenv("A_TOKEN", SECRET)
    tasks = tmp_path / "tasks.jsonl"
    row = {"id": f"a-{SECRET}", "name": "b", "env": "arithmetic", "prompt": "1 + 1?", "answer": 2}
    tasks.write_bytes(msgspec.json.encode(row) + b"\n")
    arguments = ("--base-url", mock_server.base_url, "--model", "m", "--out", tmp_path / "run")
    ended = gym("collect", tasks, *arguments)
    assert ended.exit_code == 2
    assert "tasks.jsonl:1: the task's id holds a secret" in ended.stderr
    assert SECRET not in ended.stderr
    assert mock_server.requests == []
    assert gym("collect", tasks, *arguments, "--id-field", "name", "--quiet").exit_code == 0


def test_data_files_hold_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("A_TOKEN", SECRET)
    source, out, pulled = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    source.write_bytes(msgspec.json.encode({"id": "a", "prompt": f"Say {SECRET}"}) + b"\n")
    rendered = gym("data", "render", source, "-o", out)
    assert rendered.exit_code == 0, rendered.stderr
    assert "1 rows held a secret" in rendered.stderr
    assert gym("data", "pull", source, "-o", pulled).exit_code == 0
    for path in (out, pulled):
        [row] = lines_of(path)
        assert SECRET not in path.read_text()
        assert "[redacted]" in path.read_text()
        assert row["id"] == "a"
