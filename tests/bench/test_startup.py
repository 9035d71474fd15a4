"""The bench of the start-up: that it measures what it says; how fast anything is, is not asked."""

import msgspec
import pytest

from bench.startup import COMMANDS
from tests.bench.scripts import run_script


@pytest.mark.slow
def test_startup_reports_every_command(tmp_path):
    file = tmp_path / "report.json"
    ended = run_script("startup", "--scale", "0.01", "--json", str(file))
    assert ended.returncode == 0, ended.stderr
    figures = msgspec.json.decode(file.read_bytes())
    assert len(figures) == len(COMMANDS) + 3
    for what, figure in zip(COMMANDS, figures, strict=False):
        assert what in figure["what"]
        assert 0 < figure["lowest"] <= figure["value"] <= figure["highest"]
        assert figure["details"]["CPU ms"] > 0
        assert figure["details"]["peak MB"] > 1
    assert [figure["limit"] for figure in figures if figure["limit"]] == [1.3, 150.0, 800.0, 40.0]
