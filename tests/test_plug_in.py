"""Tests of a third-party environment: built as a wheel, installed, and found by its entry point."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import gymcli
from tests.builders import clean_environment, gym_process

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "gym-echoes"
version = "1.0"
requires-python = ">=3.11"

[project.entry-points."gymcli.envs"]
echoes = "gym_echoes:Echoes"

[tool.hatch.build.targets.wheel]
packages = ["gym_echoes"]
"""

MODULE = '''"""Asks for a word."""

from collections.abc import Iterator
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task


class Word(Task):
    """A word."""

    word: str


class Echoes(Environment[Word]):
    """Say the word that has the given number."""

    properties = Properties("single-step", "recall", "words", "one word", "exact match")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward exactly the word."""
        return Score(float(rollout.last_text == cls.parse_task(rollout.task).word))

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the word."""
        return Message(role="assistant", content=self.task.word)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write numbered words."""
        for number in range(num):
            word = "".join(rng.choices("abcdefgh", k=6))
            yield {"id": str(number), "prompt": f"Which word has number {number}?", "word": word}
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Build a wheel of the plug-in and install it into a folder of its own."""
    source = tmp_path_factory.mktemp("source")
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "gym_echoes").mkdir()
    (source / "gym_echoes" / "__init__.py").write_text(MODULE)
    # An isolated build and an index would need the network.
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source, source]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = source.glob("*.whl")
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", target, wheel], check=True, capture_output=True)
    return target


def gym(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with the plug-in installed."""
    checkout = Path(gymcli.__file__).parents[1]
    path = os.pathsep.join((str(installed), str(checkout)))
    return subprocess.run(
        gym_process(*arguments),
        cwd=folder,
        env={**clean_environment(), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_plug_in_is_listed_checked_and_played(installed, tmp_path):
    assert "echoes " in gym(installed, tmp_path, "envs").stdout
    described = gym(installed, tmp_path, "envs", "echoes")
    assert "Say the word that has the given number." in described.stdout

    checked = gym(installed, tmp_path, "check", "echoes")
    assert checked.returncode == 0, checked.stdout + checked.stderr

    row = {"id": "a", "env": "echoes", "prompt": "Which word?", "word": "abc"}
    (tmp_path / "t.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    played = gym(installed, tmp_path, "collect", "t.jsonl", "--model", "oracle", "--out", "run")
    assert played.returncode == 0, played.stderr
    assert "echoes" in played.stdout
    assert "1 rescored, 0 changed rewards" in gym(installed, tmp_path, "verify", "run").stdout

    generated = gym(installed, tmp_path, "collect", "echoes", "--model", "oracle", "--out", "all")
    assert generated.returncode == 0, generated.stderr
    assert "echoes: 60 tasks that it generates from seed 0" in generated.stderr
