"""The first pass over the tasks, and which of them are selected."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import TasksError
from gymcli.registry import Registry
from gymcli.runner import CollectOptions
from gymcli.runner.survey import Survey, TaskSource, survey
from tests.commands.running import FLAKY, write_sums


def looked_at(paths, **options) -> tuple[TaskSource, Survey]:
    registry = Registry()
    source = TaskSource(paths, CollectOptions(model="oracle", **options), registry)
    return source, survey(source, registry)


def selected(paths, **options) -> list[str]:
    return [row.id for row in looked_at(paths, **options)[0].selected()]


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


def test_selected_shuffles_the_same_for_one_seed(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 20)
    in_order = selected([tasks])
    first = selected([tasks], shuffle=True, seed=1)
    assert first == selected([tasks], shuffle=True, seed=1)
    assert first != in_order
    assert sorted(first) == sorted(in_order)
    assert selected([tasks], shuffle=True, seed=2) != first


def test_selected_takes_the_first_rows_of_each_file(tmp_path):
    first = write_sums(tmp_path / "a.jsonl", 2)
    second = tmp_path / "b.jsonl"
    second.write_text(write_sums(second, 3).read_text().replace("sum", "more"))
    assert selected([first, second], limit=2) == ["sum-0", "sum-1", "more-0", "more-1"]
    assert selected([first, second], limit=3)[2:] == ["more-0", "more-1", "more-2"]
    assert len(selected([first, second], limit=1, shuffle=True)) == 2


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


def test_survey_lets_rows_bring_tools_that_are_never_run(tmp_path):
    """Only tools that the environment is to run have to be its own; others are passed through."""
    tool = {"type": "web_search"}
    row = {"env": "example_multi_step", "prompt": "x", "tools": [tool]}
    needed = {
        "expected_synonyms": [],
        "expected_synonym_values": [],
        "minefield_label": "x",
        "minefield_label_value": 1,
    }
    (tmp_path / "t.jsonl").write_bytes(msgspec.json.encode({**row, **needed}))
    _, found = looked_at([tmp_path / "t.jsonl"])
    assert found.num_selected == 1


def test_survey_names_the_tools_that_there_are(tmp_path):
    row = {"env": "example_session_state_mgmt", "prompt": "x", "expected_count": 1}
    tools = [{"type": "function", "function": {"name": "verify"}}]
    (tmp_path / "t.jsonl").write_bytes(msgspec.json.encode({**row, "tools": tools}))
    with pytest.raises(TasksError, match="it has: increment_counter, get_counter_value"):
        looked_at([tmp_path / "t.jsonl"])
