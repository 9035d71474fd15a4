"""Tests of redaction: records hold no key in use, and values that only look secret stay."""

from pathlib import Path

import msgspec
import pytest

from gymcli.mock import MockAnswer
from gymcli.secrets import environment_secrets
from tests.builders import gym, lines_of

KEY = "sk-in-use-4f1e0c77aa"
VARIABLES = {
    "EOS_TOKEN": "<|im_end|>",
    "DATABASE_URL": "postgresql://postgres:postgres@localhost:5432/app",
    "CACHE_KEY": "python-3.12",
    "APP_SECRET": "hello world",
    "POSTGRES_PASSWORD": "postgres123",
}

ENVIRONMENTS = '''
import os

from gymcli import Context, Environment, Rollout, Score, Task, tool


class ExpectingTask(Task):
    expected: str


class Expecting(Environment[ExpectingTask]):
    """Expect a text, and quote it."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        expected = cls.parse_task(rollout.task).expected
        return Score(float(rollout.last_text == expected), answer=rollout.last_text)


class Telling(Environment[Task]):
    """Return the key from a tool, and replay that."""

    @tool
    def look_up(self) -> str:
        """Look it up."""
        return os.environ["MY_KEY"]

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        await context.replay(rollout)
        return Score(1.0)


class Failing(Environment[Task]):
    """Quote a variable in an error."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        raise ValueError("no service with " + os.environ["APP_SECRET"])
'''


@pytest.fixture
def collect(tmp_path, working_folder, monkeypatch, mock_server):
    """Return a function that collects texts into a directory, with or without a key."""
    (tmp_path / "quoting.py").write_text(ENVIRONMENTS)

    def call(out, *texts, env="Expecting", key=False, exit_code=0):
        rows = [{"id": str(n), "prompt": text, "expected": text} for n, text in enumerate(texts)]
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        (tmp_path / "tasks.jsonl").write_bytes(lines)
        endpoint = ["--base-url", mock_server.base_url, "--model", "m"]
        if key:
            monkeypatch.setenv("MY_KEY", KEY)
            endpoint += ["--api-key-env", "MY_KEY"]
        command = ("collect", "tasks.jsonl", "--env", f"quoting.py:{env}", *endpoint)
        done = gym(*command, "--out", out, "--concurrency", "1")
        assert done.exit_code == exit_code, done.stderr
        return done

    return call


def verified(out, env="Expecting"):
    done = gym("verify", out, "--env", f"quoting.py:{env}", "--json", exit_code=0)
    return msgspec.json.decode(done.stdout)


def test_variables_that_look_like_secrets_change_no_conversation(collect, monkeypatch):
    """Tasks, scores, and what is shown and written of them do not change either."""
    assert all(environment_secrets({name: value}) for name, value in VARIABLES.items())
    texts = [f"Say {value} twice: {value}." for value in VARIABLES.values()]

    def told(out):
        collect(out, *texts)
        lines = lines_of(Path(out, "rollouts.jsonl"))
        for line in lines:
            del line["timing"], line["calls"]
        gym("export", out, "--to", "sft", "-o", f"{out}.jsonl", exit_code=0)
        shown = [gym("show", out, line["task_id"]).stdout.split("── score")[0] for line in lines]
        rendered = gym("data", "render", "tasks.jsonl", exit_code=0)
        return lines, lines_of(Path(f"{out}.jsonl")), shown, rendered.stdout

    without = told("without")
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert told("with") == without
    assert [line["reward"] for line in without[0]] == [1.0] * len(texts)
    assert verified("with")["num_changed"] == 0


def test_what_is_scored_is_what_is_written(collect, mock_server):
    """The verifier sees the redacted record, so that rescoring yields the same."""
    mock_server.behaviour = lambda request: MockAnswer(text=f"It is {KEY}.")
    collect("run", f"It is {KEY}.", "It is [redacted].", key=True)
    held, other = lines_of(Path("run/rollouts.jsonl"))
    assert [held["reward"], other["reward"]] == [1.0, 1.0]
    assert held["answer"] == "It is [redacted]."
    assert held["redacted"] is other["redacted"] is True
    assert verified("run")["num_changed"] == 0
    assert KEY in mock_server.requests[0].body["messages"][0]["content"]
    assert not any(KEY in file.read_text() for file in Path("run").iterdir() if file.is_file())

    mock_server.behaviour = lambda request: MockAnswer(text="nothing")
    collect("clean", "nothing", key=True)
    assert "redacted" not in lines_of(Path("clean/rollouts.jsonl"))[0]


def test_a_replay_in_which_a_key_matters_is_unscored(collect, mock_server):
    call = MockAnswer(tool_calls=[("look_up", {})])
    mock_server.behaviour = lambda request: (
        MockAnswer(text="done") if request.messages[-1].role == "tool" else call
    )
    collect("run", "Look it up.", env="Telling", key=True, exit_code=4)
    [failure] = lines_of(Path("run/failures.jsonl"))
    assert failure["error"]["class"] == "ReplayDivergedError"
    assert failure["redacted"] is True
    assert KEY not in Path("run/failures.jsonl").read_text()


def test_errors_hold_no_value_of_a_variable_and_conversations_do(collect, monkeypatch):
    monkeypatch.setenv("APP_SECRET", VARIABLES["APP_SECRET"])
    done = collect("run", "Say hello world.", env="Failing", exit_code=4)
    [failure] = lines_of(Path("run/failures.jsonl"))
    assert failure["error"]["message"] == "ValueError: no service with [redacted]"
    assert failure["messages"][0]["content"] == "Say hello world."
    assert "redacted" not in failure
    assert "hello world" not in done.stderr
