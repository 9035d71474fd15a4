"""All measurements as one command, by the one of requests in flight, at a small size."""

import msgspec
import pytest

from tests.bench.scripts import ROOT, run_script


@pytest.mark.slow
def test_bench_reports_requests_in_flight(tmp_path):
    file = tmp_path / "report.json"
    ended = run_script("__main__", "--only", "in_flight", "--scale", "0.005", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "80 in flight at once: errors" in ended.stdout
    report = msgspec.json.decode(file.read_bytes())
    seconds, errors, memory = report["in_flight"]["figures"]
    assert (seconds["limit"], errors["limit"]) == (2.0, 0)
    assert seconds["value"] > 0
    assert errors["value"] == 0
    assert errors["details"]["most in flight"] == [80.0, 80.0, 80.0]
    assert memory["value"] > 20
    assert str(ROOT) not in file.read_text()


def test_bench_knows_its_measurements():
    ended = run_script("__main__", "--only", "nothing")
    assert ended.returncode == 2
    for name in ("overhead", "scheduling", "in_flight", "memory", "startup"):
        assert name in ended.stderr
