"""The first pass over the tasks: what it counts, and what it finds wrong."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.registry import Registry
from gymcli.errors import TasksError
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.task_source import Survey, TaskSource, survey
from tests.commands.running import FLAKY, write_sums


def looked_at(paths, **options) -> tuple[TaskSource, Survey]:
    registry = Registry()
    source = TaskSource(paths, CollectOptions(model="oracle", **options), registry)
    return source, survey(source, registry)


@given(
    limit=st.none() | st.integers(1, 12),
    shuffle=st.booleans(),
    task_ids=st.lists(st.sampled_from(["sum-1", "sum-3", "sum-7"]), unique=True),
    seed=st.none() | st.integers(0, 3),
)
def test_survey_counts_what_is_selected(tmp_path_factory, limit, shuffle, task_ids, seed):
    """Whatever is asked for, the first pass knows how many rows the second will give."""
    tasks = tmp_path_factory.mktemp("tasks") / "t.jsonl"
    write_sums(tasks, 9).write_text(tasks.read_text() + tasks.read_text()[:200].split("\n")[0])
    more = write_sums(tasks.with_name("more.jsonl"), 4)
    more.write_text(more.read_text().replace("sum-", "more-"))
    options = {"limit": limit, "shuffle": shuffle, "task_ids": tuple(task_ids), "seed": seed}
    source, found = looked_at([tasks, more], **options)
    rows = list(source.selected())
    assert found.num_selected == len(rows)
    if shuffle and limit:
        assert found.num_tasks == len({row.id for row in rows})


def test_survey_names_a_file_as_it_is_called(tmp_path):
    """In one line all the same."""
    path = tmp_path / "two  spaces\nand a line.jsonl"
    path.write_text('{"env": "arithmetic", "prompt": "x"}\n')
    with pytest.raises(TasksError, match="two  spaces and a line"):
        looked_at([path])


def test_survey_describes_files(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    _, found = looked_at([tasks])
    (file,) = found.files
    assert (file["path"], file["num_rows"]) == (str(tasks), 3)
    assert len(str(file["sha256"])) == 64


def test_survey_takes_shipped_tasks_each_for_its_environment():
    _, found = looked_at(["mcqa", "arithmetic"])
    assert found.num_rows == {"mcqa": 60, "arithmetic": 60}


def test_survey_gives_shipped_tasks_to_the_environment_that_is_asked_for(tmp_path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    spec = f"{tmp_path / 'flaky.py'}:Flaky"
    options = CollectOptions(model="oracle", env=spec, limit=1)
    registry = Registry((spec,))
    found = survey(TaskSource(["arithmetic"], options, registry), registry)
    assert found.num_rows == {"flaky": 1}


def test_survey_collects_parameters_of_rows(tmp_path):
    row = {"env": "arithmetic", "prompt": "x", "answer": 1, "params": {"top_k": 5, "model": "n"}}
    (tmp_path / "t.jsonl").write_bytes(msgspec.json.encode(row))
    _, found = looked_at([tmp_path / "t.jsonl"])
    assert found.param_names == {"top_k"}
    assert found.ignored == {"model"}


def test_survey_tells_rows_of_nemo_gym_apart(tmp_path):
    """Also where the rows are read again from their file, and in both environments they have."""
    rows = [
        {"id": 7, "answer": number, "responses_create_params": {"input": f"{number} + 0?"}}
        for number in (1, 2, 2)
    ]
    tasks = tmp_path / "t.jsonl"
    tasks.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    source, found = looked_at([tasks], env="arithmetic")
    assert found.num_selected == 3
    assert found.num_tasks == 2
    (warning,) = source.id_warnings
    assert warning.startswith('different rows of NeMo Gym share 1 ids, such as "7": ')
    names = [row.id for row in source.selected()]
    assert names[0] != names[1] == names[2]
    tasks.touch()
    assert [row.id for row in source.rows()] == names
