"""The script about storms of 429: it compares what it reports."""

import msgspec
import pytest

from bench.storms import storm_in_flight, storm_per_minute
from tests.bench.scripts import run_script


def test_storms_try_numbers_around_the_limit():
    storm = storm_in_flight(16)
    assert storm.fixed == (12, 16, 20, 24)
    assert storm.capacity == pytest.approx(16 / 0.075)
    storm = storm_per_minute(6000)
    assert storm.capacity == 100.0
    assert min(storm.fixed) < 100 * 0.075 < max(storm.fixed)


@pytest.mark.slow
def test_storms_reports_every_try(tmp_path):
    file = tmp_path / "report.json"
    ended = run_script("storms", "--in-flight", "8", "--seconds", "1", "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "8 in flight" in ended.stdout
    [result] = msgspec.json.decode(file.read_bytes())
    assert [one["concurrency"] for one in result["fixed"]] == [6, 8, 10, 12]
    for one in (result["unknown"], *result["fixed"]):
        assert one["num_scored"] == one["num_tasks"] == 107
        assert one["num_requests"] >= one["num_tasks"]
        assert one["throughput"] > 0
