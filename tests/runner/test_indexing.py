"""The index of a bare file knows the environments that are here."""

import pytest

from gymcli.errors import UnknownNameError
from gymcli.runner.indexing import index_run
from tests.store.indexed_runs import lines, scored, write_run


def test_index_run_asks_the_environment_from_which_reward_it_passes(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    records = [scored("a", env="mcqa"), scored("b", 0, 0.0, env="mcqa"), scored("c", env="nobody")]
    path.write_bytes(lines(*records))
    with index_run(path) as index:
        assert [row.passed for row in index.rows] == [True, False, None]


def test_index_run_believes_the_manifest_first(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0, 0.5)], threshold=0.5)
    with index_run(run, env="arithmetic") as index:
        assert index.rows[0].passed


def test_index_run_names_environments_as_they_are_called_here(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(lines(scored("a", env="mcqa_simple_agent")))
    with index_run(path) as index:
        assert index.rows[0].env == "mcqa"


def test_index_run_refuses_a_name_that_was_given_and_is_not_there(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(
        b'{"responses_create_params": {}, "response": {"output": []}, "reward": 1.0}\n'
    )
    with pytest.raises(UnknownNameError, match="nobody"):
        index_run(path, env="nobody")
