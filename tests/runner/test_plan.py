"""Tests of the plan of a run, which opens nothing."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from gymcli.errors import RunMismatchError
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.plan import plan_run
from gymcli.runner.resume_state import existing_state, new_state
from gymcli.tasks.task_source import TaskFile
from gymcli.types import AttemptKey
from tests.builders import collect_all, write_sums


def test_a_plan_writes_nothing_and_cannot_be_changed(tmp_path, working_folder):
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    plan = plan_run([TaskFile(tasks)], CollectOptions(model="oracle", repeats=2))
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]
    assert (plan.num_expected, plan.num_planned, plan.most_attempts) == (6, {"arithmetic": 6}, 2)
    assert [row.id for row in plan.rows()] == ["sum-0", "sum-1", "sum-2"]
    assert existing_state(plan) == new_state(plan)
    assert new_state(plan).left == {"arithmetic": 6}
    with pytest.raises(FrozenInstanceError):
        plan.path = Path("elsewhere")


def test_a_plan_has_the_settings_of_each_attempt(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    options = CollectOptions(model="oracle", repeats=3, max_turns=4, seed=7, limit=1)
    plan = plan_run([TaskFile(tasks)], options, has_directory=False)
    episode = plan.find(AttemptKey("arithmetic", "sum-0", 2))
    assert episode is not None
    assert (episode.attempt, episode.max_turns, episode.run_seed) == (2, 4, 7)
    assert plan.first().attempt == 0
    assert plan.find(AttemptKey("arithmetic", "sum-0", 3)) is None
    assert plan.find(AttemptKey("arithmetic", "sum-1", 0)) is None, "the limit leaves it out"


def test_a_plan_tells_what_its_run_still_has_to_do(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    collect_all(tasks, out=out, task_ids=("sum-1",))
    files = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    plan = plan_run(
        [TaskFile(tasks)], CollectOptions(model="m", out=out, repeats=2, task_ids=("sum-1",))
    )
    state = existing_state(plan)
    assert (state.num_scored, state.num_left, state.most_attempts) == (1, 1, 1)
    assert state.left == {"arithmetic": 1}
    assert files == {path: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_plans_of_one_command_record_the_same_versions(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    first = plan_run([TaskFile(tasks)], CollectOptions(model="oracle", out=tmp_path / "a"))
    second = plan_run(
        [TaskFile(tasks)], CollectOptions(model="oracle", out=tmp_path / "b"), earlier=first
    )
    assert second.manifest.libraries is first.manifest.libraries
    assert second.manifest.git_commit == first.manifest.git_commit


def test_a_limit_leaves_the_identity_and_the_tasks_on_record(tmp_path):
    """Rows after the limit name another environment, are wrong, or are on record."""
    tasks = write_sums(tmp_path / "t.jsonl", 4)
    choice = '{"env": "mcqa", "prompt": "?", "options": [{"A": "x"}], "expected_answer": "A"}\n'
    tasks.write_text(tasks.read_text() + choice)
    out = tmp_path / "run"

    def plan_of(**options):
        options = CollectOptions(model="m", out=out, **options)
        return plan_run([TaskFile(tasks)], options)

    assert plan_of(limit=1).manifest.identity == plan_of().manifest.identity
    collect_all(tasks, out=out, limit=3)
    state = existing_state(plan_of(limit=1))
    assert (state.num_done, state.removed_ids) == ({"arithmetic": 1}, ())
    tasks.write_text(tasks.read_text() + "{\n")
    assert existing_state(plan_of(limit=2)).removed_ids == ()
    lines = tasks.read_text().splitlines()
    tasks.write_text("\n".join([lines[0], *lines[2:]]))
    assert existing_state(plan_of(limit=1)).removed_ids == ("sum-1",)
    tasks.write_text("\n".join([lines[0], lines[1], lines[2].replace("+", "-")]))
    with pytest.raises(RunMismatchError, match='the content of task "sum-2" has changed'):
        existing_state(plan_of(limit=1))
