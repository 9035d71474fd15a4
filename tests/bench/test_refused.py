"""The table of refusals: it is complete, and a violated rule is detected."""

import pytest

from bench.refused import Row, check
from bench.runs import Ended, Tally
from tests.bench.scripts import run_script

EXPECTED = {"num_scored": range(9, 10), "exit_code": 0, "max_requests": 10}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (Row("r", Tally(num_scored=9, num_right=9), 10, Ended(0, 1.0, ""), []), []),
        (Row("r", Tally(num_scored=8, num_right=8), 10, Ended(0, 1.0, ""), []), ["8 scored, not"]),
        (Row("r", Tally(num_scored=9, num_right=8), 10, Ended(0, 1.0, ""), []), ["1 zeros"]),
        (Row("r", Tally(num_scored=9, num_right=9), 10, Ended(4, 1.0, "no"), []), ["exit code 4"]),
        (Row("r", Tally(num_scored=9, num_right=9), 11, Ended(0, 1.0, ""), []), ["11 requests"]),
    ],
)
def test_check(row, words):
    check(row, **EXPECTED)
    assert len(row.problems) == len(words)
    assert all(word in problem for word, problem in zip(words, row.problems, strict=True))


@pytest.mark.slow
def test_refused_makes_its_table():
    ended = run_script("refused", "--tasks", "40", "--many", "200", "--kind", "401")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "401 for the first task, concurrency 64, run 2" in ended.stdout
    assert "401 from request 101 of 200 on, concurrency 1" in ended.stdout
