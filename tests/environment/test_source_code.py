"""What code an environment consists of: the hash, and what a file imports from its folder."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gymcli.environment.registry import Registry
from gymcli.environment.source_code import source_hash
from gymcli.errors import EnvironmentImportError
from tests.environment.test_registry import SOURCE, write


def in_fresh_process(tmp_path, code):
    """Run code in a new process with `tmp_path` on its import path; return its output."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"]
    ran = subprocess.run(command, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode().strip()


def test_source_hash_covers_every_file_of_a_package(tmp_path):
    """Renaming a file changes the hash, as does editing it."""
    code = """
import importlib
from gymcli.environment.registry import Registry
from gymcli.environment.source_code import source_hash
from gymcli.errors import EnvironmentImportError
print(source_hash(importlib.import_module("pack")))
"""
    write(tmp_path / "pack" / "__init__.py", SOURCE)
    write(tmp_path / "pack" / "inner" / "rules.py", "")
    hashes = [in_fresh_process(tmp_path, code)]
    write(tmp_path / "pack" / "inner" / "rules.py", "A = 1")
    hashes.append(in_fresh_process(tmp_path, code))
    (tmp_path / "pack" / "inner" / "rules.py").rename(tmp_path / "pack" / "rules.py")
    hashes.append(in_fresh_process(tmp_path, code))
    assert len(set(hashes)) == 3


CODE = '''"""What it is."""
from gymcli import Environment, tool

class Quiz(Environment):
    """Ask."""

    limit: int = 3
    """How often."""

    @tool
    def look(self, *, place: str) -> str:
        """Look around."""
        return f"{place}: {1.50:.2f}"

    @classmethod
    async def verify(cls, rollout, context):
        """Score it."""
        return generate(rollout)

    @classmethod
    def generate(cls, rng, num):
        yield from range(num)

def generate(rollout):
    return len(rollout.messages)
'''


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ('"""What it is."""', "# Nothing said.", True),
        ('"""Ask."""', '"""Ask, and ask again."""', True),
        ('"""How often."""', '"""How many times."""', True),
        ('        """Score it."""\n', "", True),
        ("return generate(rollout)", "return (generate( rollout ))  # so", True),
        ("yield from range(num)", "yield from range(num + 1)", True),
        ('"""Look around."""', '"""Look about."""', False),
        ("place: str", "place: int", False),
        ("1.50", "1.25", False),
        ("limit: int = 3", "limit: int = 4", False),
        ("len(rollout.messages)", "len(rollout.tools)", False),
        ("def look", "async def look", False),
    ],
)
def test_source_hash_is_of_what_scores(tmp_path, before, after, is_same):
    """It ignores comments, layout, docstrings that no model reads, and `generate`."""
    assert before in CODE
    hashes = set()
    for number, text in enumerate((CODE, CODE.replace(before, after))):
        module = ModuleType("quiz")
        module.__file__ = str(tmp_path / str(number) / "quiz.py")
        write(Path(module.__file__), text)
        hashes.add(source_hash(module))
    assert len(hashes) == (1 if is_same else 2)


def test_source_hash_of_what_has_no_file_is_empty():
    assert source_hash(sys) == ""
    assert source_hash(ModuleType("made")) == ""


QUIZ = """from gymcli import Environment, Message, Score, Task
from counted_words import count
import random

class Quiz(Environment[Task]):
    waits_to_verify = True

    async def oracle(self, rollout):
        return Message(role="assistant", content="one two")

    @classmethod
    async def verify(cls, rollout, context):
        from counting.rules import right
        num = await context.isolated(count, rollout.last_text)
        return Score(float(num == right() and random.random() < 1))
"""


@pytest.fixture
def quizzes(tmp_path, working_folder):
    folder = tmp_path / "quizzes"
    write(folder / "quiz.py", QUIZ)
    write(folder / "counted_words.py", "def count(text):\n    return len(text.split())")
    write(folder / "random.py", "raise RuntimeError('this is not Python's')")
    write(folder / "counting" / "__init__.py", "")
    write(
        folder / "counting" / "rules.py", "from limits_of_words import TWO\ndef right(): return TWO"
    )
    write(folder / "limits_of_words.py", "TWO = 2")
    write(folder / "others.py", "")
    write(tmp_path / "t.jsonl", '{"id": "a", "prompt": "Count."}')
    return folder


def gym(*arguments):
    # Without the working directory in `sys.path`, as for the installed command.
    command = [sys.executable, "-P", "-c", "from gymcli.supervisor import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_a_file_imports_modules_of_its_folder_in_every_process(quizzes):
    """In a verifier worker and for `isolated` too; Python's own modules come first."""
    options = ("--model", "oracle", "--out", "run", "--quiet")
    done = gym("collect", "t.jsonl", "--env", "quizzes/quiz.py", *options)
    assert done.returncode == 0, done.stderr
    assert '"reward":1.0' in Path("run/rollouts.jsonl").read_text()


@pytest.mark.slow
def test_a_module_is_found_in_the_working_directory(quizzes, monkeypatch):
    monkeypatch.chdir(quizzes)
    done = gym("envs", "quiz:Quiz")
    assert done.returncode == 0, done.stderr
    done = gym("envs", "nosuch:Quiz")
    assert done.returncode == 2
    assert "No module named 'nosuch'" in done.stderr


def hash_of_file(path):
    module = ModuleType("gymcli_file_quiz")
    module.__file__ = str(path)
    return source_hash(module)


def test_what_a_file_imports_from_its_folder_is_part_of_its_source_hash(quizzes, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(quizzes)])
    first = hash_of_file(quizzes / "quiz.py")
    for name in ("others.py", "random.py"):
        write(quizzes / name, "A = 2")
        assert hash_of_file(quizzes / "quiz.py") == first
    hashes = {first}
    for name in ("counted_words.py", "limits_of_words.py", "counting/__init__.py"):
        write(quizzes / name, "A = 2")
        hashes.add(hash_of_file(quizzes / "quiz.py"))
    assert len(hashes) == 4


def test_the_source_hash_of_a_file_that_imports_nothing_of_its_folder_is_as_before(quizzes):
    write(quizzes / "quiz.py", SOURCE)
    assert hash_of_file(quizzes / "quiz.py") == "code-3b71d757d52bc7d0"


def test_two_files_cannot_import_different_modules_of_one_name(quizzes):
    write(quizzes.parent / "more" / "quiz.py", QUIZ)
    write(quizzes.parent / "more" / "counted_words.py", "def count(text):\n    return 0")
    code = """
from gymcli import GymError
from gymcli.environment.registry import Registry
try:
    Registry(("quizzes/quiz.py", "more/quiz.py"))
except GymError as error:
    print(error)
"""
    error = in_fresh_process(quizzes.parent, code)
    assert f"`import counted_words` would find {quizzes}{os.sep}counted_words.py, not " in error
    assert error.endswith("rename one of them")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("raise BaseException('over')", "cannot be imported: BaseException: over (quiz.py:1"),
        (
            "import asyncio; raise asyncio.CancelledError",
            "cannot be imported: CancelledError (quiz",
        ),
        ("import os; os.chdir('/')", "changes the working directory when it is imported"),
    ],
)
def test_a_file_that_does_more_than_define_is_refused(tmp_path, working_folder, statement, words):
    write(tmp_path / "quiz.py", f"{statement}\n{SOURCE}")
    with pytest.raises(EnvironmentImportError) as caught:
        Registry(("quiz.py:Quiz",))
    assert words in str(caught.value)
    assert Path.cwd() == tmp_path
