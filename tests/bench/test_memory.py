"""The bench of memory: that it measures what it says; how much anything takes, is not asked."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the bench reads /proc")
def test_memory_reports_a_new_run_and_one_that_is_done(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.memory", "--scale", "0.005", "--json", str(file)]
    table = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    collecting, resuming = msgspec.json.decode(file.read_bytes())
    assert collecting["what"] == "peak memory of gym collect, 1,000 tasks against 10"
    assert collecting["limit"] == 1.5
    assert "limit" not in resuming or resuming["limit"] is None
    for figure in (collecting, resuming):
        assert figure["what"] in table
        assert len(figure["details"]["few MB"]) == 3
        assert 0 < figure["lowest"] <= figure["value"] <= figure["highest"]
        assert min(*figure["details"]["few MB"], figure["details"]["many MB"]) > 10
