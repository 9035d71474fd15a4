"""Tests of resuming a run after its environment's code changed: a warning, and both hashes."""

from pathlib import Path

import msgspec
import pytest

from tests.builders import gym, lines_of

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
def collect(working_folder):
    """Return a function that collects with a given source; the environment is named `quiz`."""
    rows = (msgspec.json.encode({"id": name, "prompt": "Go."}) for name in "abc")
    Path("tasks.jsonl").write_bytes(b"\n".join(rows))

    def call(folder, code, *options):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "quiz.py").write_text(code)
        env = f"{folder}/quiz.py:Quiz"
        command = ("collect", "tasks.jsonl", "--env", env, "--model", "oracle", "--out", "run")
        return gym(*command, *options, exit_code=0)

    return call


def environment():
    return msgspec.json.decode(Path("run/run.json").read_bytes())["environments"]["quiz"]


def test_a_resumed_run_warns_of_changed_code(collect):
    assert WARNING not in collect("first", CODE, "--limit", "1").stderr
    first = environment()["source_hash"]
    changed = CODE.replace("Score(1.0)", "Score(0.0)")
    resumed = collect("second", changed, "--limit", "2")
    assert (
        f"{WARNING}, but its version is still 7: other code scored 1 of the 1 rollouts on record. "
        "gym verify run --env second/quiz.py:Quiz --out DIR scores all by the present code; "
        "--fresh starts a new run"
    ) in resumed.stderr
    assert environment()["source_hash"] != first
    assert environment()["earlier_source_hashes"] == [first]
    hashes = [line["verifier"]["source_hash"] for line in lines_of(Path("run/rollouts.jsonl"))]
    assert hashes == [first, environment()["source_hash"]]

    again = collect("second", changed, "--limit", "2")
    assert "other code scored 1 of the 2 rollouts on record" in again.stderr

    measured = gym("metrics", "run")
    assert WARNING in measured.stderr
    assert f"1 scored by {hashes[0]}, 1 scored by {hashes[1]}" in measured.stderr
    gym("verify", "run", "--env", "second/quiz.py:Quiz", "--out", "rescored", exit_code=0)
    assert WARNING not in gym("metrics", "rescored").stderr
    assert "earlier_source_hashes" not in Path("rescored/run.json").read_text()


def test_a_complete_run_keeps_its_source_hash(collect):
    collect("first", CODE)
    first = environment()
    again = collect("second", CODE.replace("Score(1.0)", "Score(0.0)"))
    assert "other code scored 3 of the 3 rollouts on record" in again.stderr
    assert environment() == first
    assert WARNING not in collect("third", CODE).stderr


def test_a_run_of_another_version_is_continued_after_it_is_rescored(collect):
    collect("first", CODE, "--limit", "1")
    Path("second").mkdir()
    Path("second/quiz.py").write_text(CODE.replace('"7"', '"8"').replace("(1.0)", "(0.5)"))
    command = ("collect", "tasks.jsonl", "--env", "second/quiz.py:Quiz", "--model", "oracle")
    refused = gym(*command, "--out", "run", exit_code=2)
    assert (
        'environments.quiz.version "7" there, "8" here. Use another --out, or --fresh for a new '
        "run; or score this one by the present code with gym verify run --env first/quiz.py:Quiz "
        "--out DIR, and continue it with --out DIR"
    ) in refused.stderr
    gym("verify", "run", "--env", "second/quiz.py:Quiz", "--out", "rescored")
    assert "2 attempts to go (1 already scored)" in gym(*command, "--out", "rescored").stderr
    rewards = [line["reward"] for line in lines_of(Path("rescored/rollouts.jsonl"))]
    assert rewards == [0.5, 0.5, 0.5]


def test_docstrings_and_comments_are_no_changed_code(collect):
    collect("first", CODE, "--limit", "1")
    prose = CODE.replace("Say anything.", "Say what you want.  # and more")
    assert WARNING not in collect("second", prose, "--limit", "2").stderr
    assert "earlier_source_hashes" not in environment()
