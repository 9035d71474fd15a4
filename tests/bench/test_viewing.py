"""The bench of the viewer: that it measures what it says; how much anything takes, is not asked."""

import sys

import msgspec
import pytest

from bench.viewing import write_long_run
from gymcli.store.run_index import RunIndex
from tests.bench.scripts import run_script


def test_the_run_has_what_is_looked_for(tmp_path):
    file = write_long_run(tmp_path / "run", 12)
    assert file.read_bytes() == write_long_run(tmp_path / "again", 12).read_bytes()
    assert 20_000 < file.stat().st_size / 12 < 26_000
    with RunIndex(file.parent) as index:
        assert len(index.rows) == 12
        assert {row.attempt for row in index.rows} == {0, 1, 2, 3}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the bench reads /proc")
def test_viewing_reports_every_answer_and_the_memory(tmp_path):
    file = tmp_path / "figures.json"
    done = run_script("viewing", "--scale", "0.001", "--json", str(file))
    assert done.returncode == 0, done.stderr
    *answers, memory = msgspec.json.decode(file.read_bytes())
    assert [figure["what"] for figure in answers][1:3] == [
        *("gym view, the first page, against reading the file",),
        *("gym view, another page, against reading the file",),
    ]
    assert all(figure["details"]["bytes"] > 100 for figure in answers[1:])
    assert memory["what"] == "gym view, peak memory over 100 rollouts of 2 MB"
    assert memory["value"] > 10
