"""A small run of the benchmark of runaway code."""

import msgspec
import pytest

from tests.bench.scripts import run_script


@pytest.mark.slow
def test_bench_shows_what_runs_away(tmp_path):
    file = tmp_path / "rows.json"
    ways = (argument for way in ("loop", "leave", "stdout") for argument in ("--way", way))
    ended = run_script("runaways", *ways, "--num-tasks", "40", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = msgspec.json.decode(file.read_bytes())
    found = {(place, way): (scored, failed) for place, way, scored, failed, *_ in rows}
    assert found == {
        ("tool", "loop"): (39, "CrashedAttemptError"),
        ("tool", "leave"): (39, "CrashedAttemptError"),
        ("tool", "stdout"): (40, ""),
        ("verifier", "loop"): (39, "VerifierTimeoutError"),
        ("verifier", "leave"): (39, "VerifierCrashedError"),
        ("verifier", "stdout"): (40, ""),
    }
