"""The bench of the index: that it measures what it says; how fast anything is, is not asked."""

import msgspec

from tests.bench.scripts import run_script


def test_index_reports_every_figure(tmp_path):
    file = tmp_path / "report.json"
    ended = run_script("index", "--scale", "0.001", "--json", str(file))
    assert ended.returncode == 0, ended.stderr
    figures = msgspec.json.decode(file.read_bytes())
    assert [figure["unit"] for figure in figures] == ["\N{MULTIPLICATION SIGN}"] * 4 + ["bytes"]
    for figure in figures:
        assert figure["lowest"] <= figure["value"] <= figure["highest"]
    assert figures[0]["value"] > 0
    assert figures[0]["details"]["MB"] > 1
