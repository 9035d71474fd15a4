"""What the page says of one run, and of what it leaves out."""

from gymcli.metrics import Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.html_parts import Attempts, RunReading
from gymcli.reporting.html_sections import MAX_ATTEMPTS, MAX_TASKS, effort_charts, run_section
from gymcli.store.manifest import Manifest


def reading(*tasks, attempts=None, **fields):
    given = {"manifest": None, "models": ["m"], "warnings": (), "best_rewards": {}, **fields}
    metrics = RunMetrics(environments={"quiz": Metrics()})
    return RunReading(name="run", metrics=metrics, tasks=tasks, attempts=attempts or {}, **given)


def task(number):
    mean = number / (2 * MAX_TASKS)
    return TaskMetrics(
        env="quiz", task_id=str(number), num_scored=1, num_unscored=0, mean_reward=mean
    )


def test_what_a_page_does_not_hold_is_said():
    section = run_section(reading(*map(task, range(MAX_TASKS + 5))), "run-1")
    assert "holds the 20,000 tasks with the lowest mean rewards of 20,005" in section.tasks.note
    assert section.tasks.note in section.tasks.attempts_note
    assert run_section(reading(task(0)), "run-1").tasks.note == ""


def test_attempts_that_are_not_shown_are_counted():
    attempts = Attempts()
    for number in range(MAX_ATTEMPTS + 6):
        attempts.add("0", number, 1.0)
    section = run_section(reading(task(0), attempts={"quiz": attempts}), "run-1")
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
    assert run_section(reading(manifest=manifest), "run-1").facts == [
        ("Model", "m"),
        ("Environments", "quiz"),
        ("Sampling", "temperature 0.5"),
        ("Started", "1970-01-01 00:00 UTC"),
        ("Took", "1,234 s"),
        ("Shard", "1/4"),
        ("Commit", "0123456789ab"),
    ]
    assert run_section(reading(manifest=Manifest(started_at=1e30)), "run-1").facts == [
        ("Model", "m"),
        ("Environments", "quiz"),
    ]


def test_warnings_are_doubts():
    doubts = run_section(reading(warnings=["its metrics failed"]), "run-1").doubts
    assert doubts[0] == "its metrics failed."


def test_many_environments_share_a_line():
    def effort(seconds):
        attempts = Attempts()
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
