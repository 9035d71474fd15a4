"""The script about outages: it observes the death, the return and the end."""

import msgspec
import pytest

from bench.outages import phase_of
from bench.runs import Ended
from tests.bench.scripts import run_script


def test_phase_of_a_command_that_ended_otherwise(tmp_path):
    phase = phase_of("it", tmp_path, Ended(4, 1.0, "gone"), num_tasks=3, exit_code=0)
    assert phase.problems == ["exit code 4, not 0: gone", "3 attempts are not scored"]
    assert phase.pause == 0.0


@pytest.mark.slow
def test_outages_reports_every_command(tmp_path):
    file = tmp_path / "report.json"
    size = ("--tasks", "300", "--down-for", "2", "--outage-deadline", "1")
    ended = run_script("outages", *size, "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    returned, given_up, later = msgspec.json.decode(file.read_bytes())
    assert [phase["exit_code"] for phase in (returned, given_up, later)] == [0, 4, 0]
    assert returned["tally"]["num_scored"] == later["tally"]["num_scored"] == 300
    assert 0 < given_up["tally"]["num_scored"] < 300
    assert returned["pause"] >= 2.0
    assert given_up["pause"] >= 1.0
