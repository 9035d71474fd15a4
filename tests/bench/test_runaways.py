"""What code that runs away costs a run, at a small size."""

import msgspec
import pytest

from tests.bench.scripts import run_script


@pytest.mark.slow
def test_bench_shows_what_runs_away(tmp_path):
    file = tmp_path / "rows.json"
    ways = (argument for way in ("loop", "leave", "stdout") for argument in ("--way", way))
    ended = run_script("runaways", *ways, "--num-tasks", "6", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = msgspec.json.decode(file.read_bytes())
    found = {(place, way): (scored, failed) for place, way, scored, failed, *_ in rows}
    assert found == {
        ("tool", "loop"): (5, "CrashedAttemptError"),
        ("tool", "leave"): (5, "CrashedAttemptError"),
        ("tool", "stdout"): (6, ""),
        ("verifier", "loop"): (5, "VerifierTimeoutError"),
        ("verifier", "leave"): (5, "VerifierCrashedError"),
        ("verifier", "stdout"): (6, ""),
    }
