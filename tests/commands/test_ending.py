"""How `gym collect` ends: with what its files hold, not with what it remembers."""

import asyncio

from gymcli.commands.collect_output import missing_coverage
from gymcli.errors import RunError
from gymcli.runner.collection import Collection
from gymcli.runner.measure import measure
from gymcli.runner.options import CollectOptions
from tests.commands.running import write_sums


def test_missing_coverage_counts_no_score_that_the_files_lack(tmp_path):
    collection = Collection(
        [write_sums(tmp_path / "t.jsonl", 4)],
        CollectOptions(model="oracle", out=tmp_path / "run"),
    )

    async def run():
        async with collection:
            return [record async for record in collection.run()]

    assert len(asyncio.run(run())) == 4
    path = tmp_path / "run" / "rollouts.jsonl"
    assert missing_coverage(collection, measure(path.parent).metrics(), 1.0, "gym") is None
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    error = missing_coverage(collection, measure(path.parent).metrics(), 0.95, "gym collect")
    assert isinstance(error, RunError)
    assert "2 of 4 attempts are scored, less than --min-cov" in str(error)
