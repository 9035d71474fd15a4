"""Small runs of the benchmarks: each reports its figures; their speed is not tested."""

import sys

import msgspec
import pytest

from bench.conversations import NUM_AT_ONCE, by_turn
from bench.viewing import write_long_run
from gymcli.store.run_index import RunIndex
from tests.bench.scripts import ROOT, run_script


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks read /proc")
@pytest.mark.parametrize(
    ("name", "scale", "num_figures", "limits"),
    [
        ("conversations", "0.1", 2, [1.5]),
        ("index", "0.001", 5, []),
        ("memory", "0.005", 2, [1.5]),
        ("overhead", "0.015", 4, [2.5, 3.5, 2.5, 3.5]),
        ("tokens", "0.02", 4, [2.0, 2.0]),
        ("startup", "0.01", 14, [1.3, 150.0, 800.0, 40.0]),
        ("viewing", "0.001", 10, [300.0]),
    ],
)
def test_bench_reports_its_figures(tmp_path, name, scale, num_figures, limits):
    file = tmp_path / "report.json"
    few = ("--runs", "1") if name == "overhead" else ()
    ended = run_script(name, "--scale", scale, *few, "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = msgspec.json.decode(file.read_bytes())
    assert len(figures) == num_figures
    assert [figure["limit"] for figure in figures if figure.get("limit")] == limits
    for figure in figures:
        value, lowest, highest = (figure.get(key) for key in ("value", "lowest", "highest"))
        assert figure["what"] in ended.stdout
        assert value >= 0
        assert lowest is None or lowest <= value <= highest


@pytest.mark.slow
def test_bench_reports_requests_in_flight(tmp_path):
    file = tmp_path / "report.json"
    ended = run_script("__main__", "--only", "in_flight", "--scale", "0.005", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "80 in flight at once: errors" in ended.stdout
    seconds, errors, memory = msgspec.json.decode(file.read_bytes())["in_flight"]["figures"]
    assert (errors["limit"], errors["value"]) == (0, 0)
    assert errors["details"]["most in flight"] == [80.0, 80.0, 80.0]
    assert min(seconds["value"], memory["value"]) > 0
    assert str(ROOT) not in file.read_text()


def test_bench_knows_its_measurements():
    ended = run_script("__main__", "--only", "nothing")
    assert ended.returncode == 2
    for name in ("overhead", "scheduling", "in_flight", "memory", "startup"):
        assert name in ended.stderr


def test_by_turn_leaves_out_the_first_wave_and_the_time_between_waves():
    warm_up, first, second = [0.0, 9.0, 18.0], [20.0, 21.0, 23.0], [50.0, 51.0, 53.0]
    calls = [seconds * NUM_AT_ONCE / 1e6 for seconds in (*warm_up, *first, *second)]
    assert by_turn(calls, 2) == pytest.approx([1.0, 2.0])


def test_the_long_run_has_what_is_looked_for(tmp_path):
    file = write_long_run(tmp_path / "run", 12)
    assert file.read_bytes() == write_long_run(tmp_path / "again", 12).read_bytes()
    assert 20_000 < file.stat().st_size / 12 < 26_000
    with RunIndex(file.parent) as index:
        assert len(index.rows) == 12
        assert {row.attempt for row in index.rows} == {0, 1, 2, 3}
