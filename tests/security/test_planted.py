"""Tests that secrets planted in a run, and repeated wherever possible, are found nowhere."""

import pytest

from bench.planted import SECRETS, findings, planted_run


def test_findings_see_a_secret_in_every_encoding():
    """A search that finds nothing must be able to find something."""
    variable = SECRETS["environment variable"]
    key = SECRETS["key that gym.toml names"]
    told = {
        "rollouts.jsonl": key + variable,
        "a: stderr": repr(variable),
        "run.log": variable,
        "b: stderr": "[redacted]",
    }
    found = {finding.place: finding.found_in for finding in findings(told) if finding.found_in}
    assert found == {
        "environment variable": ("a: stderr", "run.log"),
        "key that gym.toml names": ("rollouts.jsonl",),
    }


@pytest.mark.slow
def test_planted_secrets_are_found_nowhere(tmp_path):
    searched = planted_run(tmp_path)
    assert [finding for finding in findings(searched.texts) if finding.found_in] == []
    assert searched.num_redacted > len(SECRETS)
    codes = searched.codes
    assert {codes.pop(name) for name in ("bad-import", "bad-id", "bad-option", "show-nothing")} == {
        2
    }
    assert codes.pop("traceback") == 1
    assert set(codes.values()) == {0}, searched.codes
    assert "Traceback" in searched.texts["traceback: stderr"]
    assert "in a worker: [redacted]" in searched.texts["collect: stderr"]
    # No variable with a secret reached a worker.
    assert '"found":[]' in searched.texts["written/run/rollouts.jsonl"]
