"""The bench of long conversations: that it measures what it says, and nothing about speed."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.conversations import NUM_AT_ONCE, by_turn

ROOT = Path(__file__).parents[2]


def test_by_turn_leaves_out_the_first_wave_and_the_time_between_waves():
    warm_up, first, second = [0.0, 9.0, 18.0], [20.0, 21.0, 23.0], [50.0, 51.0, 53.0]
    calls = [seconds * NUM_AT_ONCE / 1e6 for seconds in (*warm_up, *first, *second)]
    assert by_turn(calls, 2) == pytest.approx([1.0, 2.0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the bench reads /proc")
def test_conversations_reports_both_contestants(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.conversations", "--scale", "0.1", "--json", str(file)]
    table = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    ours, bare = msgspec.json.decode(file.read_bytes())
    assert ours["what"] == "CPU of a call at turn 10 against turn 1"
    assert ours["limit"] == 1.5
    assert bare["limit"] is None
    for figure in (ours, bare):
        assert figure["what"] in table
        assert 0 < figure["lowest"] <= figure["value"] <= figure["highest"]
        assert len(figure["details"]["µs, turns 1 to 5"]) == 3
