"""What the page says of one run, the tasks that it holds, and what it leaves out."""

import pytest

from gymcli.metrics.results import Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.html_charts import AttemptColumns, effort_charts
from gymcli.reporting.html_run import MAX_ATTEMPTS, MAX_TASKS, ReportedRun, run_section, task_data
from gymcli.store.manifest import Manifest


def run_of(*tasks, attempts=None, **fields):
    given = {"manifest": None, "models": ["m"], "warnings": (), "best_rewards": {}, **fields}
    metrics = RunMetrics(environments={"quiz": Metrics()})
    return ReportedRun(name="run", metrics=metrics, tasks=tasks, attempts=attempts or {}, **given)


def numbered_task(number):
    mean = number / (2 * MAX_TASKS)
    return TaskMetrics(
        env="quiz", task_id=str(number), num_scored=1, num_unscored=0, mean_reward=mean
    )


def test_what_a_page_does_not_hold_is_said():
    section = run_section(run_of(*map(numbered_task, range(MAX_TASKS + 5))), "run-1")
    assert "holds the 20,000 tasks with the lowest mean rewards of 20,005" in section.tasks.note
    assert section.tasks.note in section.tasks.attempts_note
    assert run_section(run_of(numbered_task(0)), "run-1").tasks.note == ""


def test_attempts_that_are_not_shown_are_counted():
    attempts = AttemptColumns()
    for number in range(MAX_ATTEMPTS + 6):
        attempts.add("0", number, 1.0)
    section = run_section(run_of(numbered_task(0), attempts={"quiz": attempts}), "run-1")
    assert "Shown: the first 64 of up to 70 attempts." in section.tasks.attempts_note


def test_facts_are_those_of_the_manifest():
    manifest = Manifest(
        model="m",
        identity={"params": {"temperature": 0.5}},
        shard="1/4",
        started_at=0.5,
        seconds=1234.5,
        git_commit="0123456789abcdef",
    )
    assert run_section(run_of(manifest=manifest), "run-1").facts == [
        ("Model", "m"),
        ("Environments", "quiz"),
        ("Sampling", "temperature 0.5"),
        ("Started", "1970-01-01 00:00 UTC"),
        ("Took", "1,234 s"),
        ("Shard", "1/4"),
        ("Commit", "0123456789ab"),
    ]
    assert run_section(run_of(manifest=Manifest(started_at=1e30)), "run-1").facts == [
        ("Model", "m"),
        ("Environments", "quiz"),
    ]


def test_warnings_are_doubts():
    doubts = run_section(run_of(warnings=["its metrics failed"]), "run-1").doubts
    assert doubts[0] == "its metrics failed."


def test_many_environments_share_a_line():
    def effort(seconds):
        attempts = AttemptColumns()
        attempts.seconds.append(seconds)
        attempts.completion_tokens.append(5.0)
        return attempts

    efforts = {f"e{number}": effort(number + 1.0) for number in range(6)}
    (tokens,) = effort_charts("run-1", Metrics(), efforts)
    assert tokens.name == "run-1-tokens"
    assert [line["name"] for line in tokens.figure["data"]] == ["all environments"]
    (tokens,) = effort_charts("run-1", Metrics(), {"e0": effort(0.0), "e1": effort(0.0)})
    assert [line["name"] for line in tokens.figure["data"]] == ["e0", "e1"]
    assert effort_charts("run-1", Metrics(), {}) == []


def task(task_id, mean, **fields):
    given = {"num_scored": 0 if mean is None else 1, "num_unscored": 0, **fields}
    ends = {"min_reward": mean, "max_reward": mean}
    return TaskMetrics(env="quiz", task_id=task_id, mean_reward=mean, **ends, **given)


def test_the_worst_tasks_come_first():
    held = task_data([task("b", 1.0), task("c", 0.0), task("a", 1.0), task("d", None)], {}, {})
    assert held.data["id"] == ["d", "c", "a", "b"]


def test_of_many_tasks_the_worst_are_held():
    tasks = [task(f"t{number}", number / MAX_TASKS) for number in range(MAX_TASKS + 5)]
    held = task_data(tasks, {}, {})
    assert (held.num_tasks, held.num_held) == (MAX_TASKS + 5, MAX_TASKS)
    assert len(held.data["mean"]) == MAX_TASKS
    assert max(held.data["mean"]) < 1.0


def test_attempts_stand_in_order_with_gaps():
    attempts = AttemptColumns()
    attempts.add("a", 3, 0.5)
    attempts.add("a", 0, None)
    for number in range(99):
        attempts.add("b", number, 1.0)
    held = task_data([task("a", 0.5), task("b", 1.0)], {"quiz": attempts}, {})
    assert held.data["attempts"][0] == ["x", None, None, 0.5]
    assert len(held.data["attempts"][1]) == MAX_ATTEMPTS
    assert held.num_attempts == 99


def test_long_texts_are_cut():
    held = task_data([task("t" * 500, 0.0, majority_answer="two\nlines " + "x" * 500)], {}, {})
    assert len(held.data["id"][0]) == 200
    assert held.data["answer"][0].startswith("two lines x")
    assert held.data["answer"][0].endswith("…")


@pytest.mark.parametrize(
    ("means", "best", "ends"),
    [
        ([0.0, 0.0], 1.0, [0.0, 1.0]),
        ([0.0, 0.5], 1.0, [0.0, 1.0]),
        ([0.5, 1.0], None, [0.0, 1.0]),
        ([0.0, 0.0], None, [0.0, 0.0]),
        ([-2.0, 3.0], None, [-2.0, 3.0]),
        ([None], 1.0, [0.0, 1.0]),
    ],
)
def test_colours_reach_from_nothing_to_the_best(means, best, ends):
    """So that a run which failed everything does not look like one that did its best."""
    held = task_data([task(str(mean), mean) for mean in means], {}, {"quiz": best})
    assert held.data["ranges"] == [ends]


def test_environments_have_colours_of_their_own():
    other = TaskMetrics(
        env="sums", task_id="a", num_scored=1, num_unscored=0, min_reward=5.0, max_reward=5.0
    )
    held = task_data([task("a", 0.5), other], {}, {"quiz": 1.0, "sums": None})
    assert held.data["environments"] == ["quiz", "sums"]
    assert held.data["ranges"] == [[0.0, 1.0], [0.0, 5.0]]
