"""Data sets are written again from their seeds."""

import itertools
from pathlib import Path

import pytest

from gymcli.data.generation import compare_generated, generated_rows
from gymcli.environment.registry import shipped_tasks
from gymcli.errors import UsageError

OWN = '''"""Environments of somebody else's."""

from gymcli import Environment, Task


class Few(Environment[Task]):
    """Generates less than it is asked for."""

    @classmethod
    def generate(cls, rng, num):
        yield {"prompt": str(rng.random())}
        if num > 5:
            raise RuntimeError("no more than\\nfive")


class Barren(Environment[Task]):
    """Generates nothing."""
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Give code that has the name of an environment of ours."""
    monkeypatch.chdir(tmp_path)
    Path("mcqa.py").write_text(OWN)
    return "mcqa.py"


def test_generated_rows_are_those_that_ship():
    assert b"".join(generated_rows("mcqa")) == shipped_tasks("mcqa").read_bytes()


def test_generated_rows_follow_number_and_seed(module):
    rows = list(generated_rows("mcqa", 3, seed=1))

    assert rows == list(generated_rows("mcqa", 3, seed=1))
    assert len(rows) == 3
    assert rows != list(generated_rows("mcqa", 3))
    assert len(list(generated_rows("mcqa.py:Few", 1))) == 1


@pytest.mark.parametrize(
    ("spec", "num", "expected"),
    [
        ("mcqa.py:Few", 2, "environment mcqa gave 1 rows, not 2"),
        (
            "mcqa.py:Few",
            None,
            "environment mcqa cannot give 60 rows: RuntimeError: no more than five",
        ),
        ("mcqa.py:Barren", 1, "environment mcqa generates no tasks"),
        (
            "arithmetic",
            362,
            "environment arithmetic cannot give 362 rows: ValueError: Sample larger",
        ),
        ("mqca", 1, 'no environment "mqca"; did you mean "mcqa"'),
    ],
)
def test_generated_rows_refuse_what_cannot_be_had(module, spec, num, expected):
    with pytest.raises(UsageError) as raised:
        list(generated_rows(spec, num))
    assert str(raised.value).startswith(expected)


def test_generated_rows_are_given_as_they_come(module):
    assert len(list(itertools.islice(generated_rows("mcqa.py:Few", 9), 1))) == 1


def test_compare_generated_finds_the_same():
    compared = compare_generated("arithmetic")

    assert (compared.env, compared.num_rows, compared.difference) == ("arithmetic", 60, None)


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (lambda lines: [*lines[:2], b"{}\n", *lines[3:]], "line 3 differs"),
        (lambda lines: [*lines[:-1], lines[-1].strip()], "line 60 differs"),
        (lambda lines: lines * 7, "ValueError: Sample larger than population or is negative"),
    ],
)
def test_compare_generated_finds_the_first_difference(tmp_path, changed, difference):
    lines = list(generated_rows("arithmetic"))
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(changed(lines)))

    assert compare_generated("arithmetic", tmp_path / "tasks.jsonl").difference == difference


def test_compare_generated_needs_a_file(module):
    with pytest.raises(UsageError, match="environment mcqa ships no tasks to compare with"):
        compare_generated("mcqa.py:Few")
