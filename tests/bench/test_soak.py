"""The soak test: it runs and reports; whether memory stays flat depends on the machine."""

import os

import msgspec
import pytest

from bench.soak import Sample, Soak, problems_of, resident_megabytes, slope
from tests.bench.scripts import run_script

START, END = Sample(10, 100.0), Sample(100, 116.0)


def soaked(**fields) -> Soak:
    values = {
        "num_tasks": 1,
        "num_rollouts": 100,
        "num_scored": 100,
        "seconds": 1.0,
        "exit_code": 0,
        "start": START,
        "middle": START,
        "end": START,
        "bytes_per_rollout": 0.0,
        "samples": [],
    }
    return Soak(**{**values, **fields})


def test_problems_of_memory_that_grows():
    assert problems_of(soaked()) == []
    [problem] = problems_of(soaked(end=END))
    assert "grew by 16%" in problem
    assert problems_of(soaked(end=END), any_growth=True) == []


def test_problems_of_rollouts_that_are_missing():
    assert problems_of(soaked(num_scored=99)) == ["99 scored, exit code 0"]


def test_slope_is_that_of_the_line():
    assert slope([Sample(n, 50.0 + n / 4) for n in range(10)]) == pytest.approx(0.25)
    assert slope([Sample(7, 1.0), Sample(7, 2.0)]) == 0.0


def test_resident_megabytes_of_this_process():
    found = resident_megabytes(os.getpid())
    assert found is not None
    assert found > 1.0


@pytest.mark.slow
def test_soak_reports_both_shapes(tmp_path):
    file = tmp_path / "report.json"
    ended = run_script("soak", "--rollouts", "1000", "--any-growth", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = msgspec.json.decode(file.read_bytes())
    assert {name: found["num_tasks"] for name, found in report.items()} == {
        "repeats": 10,
        "tasks": 1000,
    }
    for name, found in report.items():
        assert name in ended.stdout
        assert found["num_scored"] == found["num_rollouts"] == 1000
        assert all(found[figure][1] > 1.0 for figure in ("start", "middle", "end"))
