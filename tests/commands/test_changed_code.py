"""Tests of resuming a run after its environment's code changed: a warning, and both hashes."""

from pathlib import Path

import msgspec
import pytest

from tests.commands.running import gym, lines_of

CODE = '''"""A quiz."""

from gymcli import Context, Environment, Message, Rollout, Score, Task


class Quiz(Environment[Task]):
    """Say anything."""

    version = "7"

    async def oracle(self, rollout: Rollout) -> Message:
        return Message(role="assistant", content="anything")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)
'''
WARNING = "environment quiz: its code changed"


@pytest.fixture
def collect(tmp_path, monkeypatch):
    """Return a function that collects with a given source; the environment is named `quiz`."""
    monkeypatch.chdir(tmp_path)
    rows = (msgspec.json.encode({"id": name, "prompt": "Go."}) for name in "abc")
    Path("tasks.jsonl").write_bytes(b"\n".join(rows))

    def call(folder, code, *options):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "quiz.py").write_text(code)
        env = f"{folder}/quiz.py:Quiz"
        command = ("collect", "tasks.jsonl", "--env", env, "--model", "oracle", "--out", "run")
        done = gym(*command, *options)
        assert done.exit_code == 0, done.stderr
        return done

    return call


def environment():
    return msgspec.json.decode(Path("run/run.json").read_bytes())["environments"]["quiz"]


def test_a_resumed_run_warns_of_changed_code(collect):
    assert WARNING not in collect("first", CODE, "--limit", "1").stderr
    first = environment()["source_hash"]
    changed = CODE.replace("Score(1.0)", "Score(0.0)")
    assert WARNING in collect("second", changed, "--limit", "2").stderr
    assert environment()["source_hash"] != first
    assert environment()["earlier_source_hashes"] == [first]
    hashes = [line["verifier"]["source_hash"] for line in lines_of(Path("run/rollouts.jsonl"))]
    assert hashes == [first, environment()["source_hash"]]

    measured = gym("metrics", "run")
    assert WARNING in measured.stderr
    assert f"1 scored by {hashes[0]}, 1 scored by {hashes[1]}" in measured.stderr
    verified = gym("verify", "run", "--env", "second/quiz.py:Quiz", "--out", "rescored")
    assert verified.exit_code == 0, verified.stderr
    assert WARNING not in gym("metrics", "rescored").stderr
    assert "earlier_source_hashes" not in Path("rescored/run.json").read_text()


def test_a_complete_run_keeps_its_source_hash(collect):
    collect("first", CODE)
    first = environment()
    again = collect("second", CODE.replace("Score(1.0)", "Score(0.0)"))
    assert WARNING not in again.stderr
    assert environment() == first


def test_docstrings_and_hashes_of_another_kind_are_no_changed_code(collect):
    collect("first", CODE, "--limit", "1")
    prose = CODE.replace("Say anything.", "Say what you want.  # and more")
    assert WARNING not in collect("second", prose, "--limit", "2").stderr
    assert "earlier_source_hashes" not in environment()

    now = environment()["source_hash"]
    for name in ("run.json", "rollouts.jsonl"):
        file = Path("run", name)
        file.write_text(file.read_text().replace(now, "0123456789abcdef"))
    assert WARNING not in collect("third", CODE).stderr
    assert environment()["earlier_source_hashes"] == ["0123456789abcdef"]
    assert WARNING not in gym("metrics", "run").stderr
