"""Tests of merging runs that change after they were compared."""

from pathlib import Path

import msgspec
import pytest

from gymcli.errors import RunDirectoryError
from gymcli.runner.merging import Merging
from gymcli.store.manifest import MANIFEST, Manifest

LINE = b'{"schema_version":1,"env":"e","task_id":"%s","attempt":0,"reward":1.0}\n'


def write_run(path: Path, task_id: bytes, manifest: Manifest) -> Path:
    path.mkdir(exist_ok=True)
    (path / "rollouts.jsonl").write_bytes(LINE % task_id)
    (path / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return path


def test_a_run_that_was_gone_on_with_after_it_was_compared_is_refused(tmp_path):
    """The number of attempts that it expects has changed since it was added up."""
    first = write_run(tmp_path / "a", b"1", Manifest(num_expected=1))
    second = write_run(tmp_path / "b", b"2", Manifest(num_expected=1))
    warnings: list[str] = []
    merging = Merging([first, second], warn=warnings.append)
    write_run(second, b"2", Manifest(num_expected=2))
    with pytest.raises(RunDirectoryError, match="b: was changed during the merge; merge again"):
        merging.write_run(tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    metrics = Merging([first, second], warn=warnings.append).write_run(tmp_path / "merged")
    assert metrics.num_scored == 2
    assert warnings == []
