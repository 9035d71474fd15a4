"""The code of an environment stands for the tasks that it generates."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from gymcli.data.validation import validate
from tests.builders import FLAKY, gym, lines_of, write_rows

QUEST = '''from gymcli import Environment, Message, Score, Task


class Sum(Task):
    answer: int


class Quest(Environment[Sum]):
    """Add."""

    async def oracle(self, rollout):
        return Message(role="assistant", content=str(self.task.answer))

    @classmethod
    async def verify(cls, rollout, context):
        return Score(float(rollout.output_text == str(cls.parse_task(rollout.task).answer)))

    @classmethod
    def generate(cls, rng, num):
        for number in range(num):
            first = rng.randint(1, 9)
            yield {"id": f"t{number}", "prompt": f"{first}+{number}?", "answer": first + number}
'''


@pytest.fixture(autouse=True)
def folder(working_folder):
    Path("quest.py").write_text(QUEST)


def test_collect_takes_what_code_generates_and_resumes():
    done = gym(
        "collect",
        "quest.py:Quest",
        "--model",
        "oracle",
        "--limit",
        "3",
        "--out",
        "run",
        exit_code=0,
    )
    assert done.stderr.startswith("quest.py:Quest: 60 tasks that it generates from seed 0\n")
    done = gym("collect", "quest.py", "--model", "oracle", "--limit", "5", "--out", "run")
    assert "2 attempts to go (3 already scored)" in done.stderr
    rows = lines_of(Path("run/rollouts.jsonl"))
    assert {(row["env"], row["reward"]) for row in rows} == {("quest", 1.0)}
    assert sorted(row["task_id"] for row in rows) == ["t0", "t1", "t2", "t3", "t4"]

    gym("data", "generate", "quest.py", "-o", "quest.jsonl")
    [tasks] = msgspec.json.decode(Path("run/run.json").read_bytes())["tasks"]
    sha256 = hashlib.sha256(Path("quest.jsonl").read_bytes()).hexdigest()
    assert tasks == {"path": "quest.py", "sha256": sha256, "num_rows": 60}
    gym("collect", "quest.py", "--model", "oracle", "--limit", "1", exit_code=0)
    assert next(Path("runs").iterdir()).name.startswith("quest-oracle-")


def install(monkeypatch, name, code):
    """Put an environment into a package that an entry point names, as pip does."""
    site = Path("site").resolve()
    package = site / f"{name}-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[gymcli.envs]\n{name} = {name}_code\n")
    (site / f"{name}_code.py").write_text(code)
    monkeypatch.syspath_prepend(str(site))


def test_an_environment_of_a_package_stands_for_what_it_generates(monkeypatch):
    install(monkeypatch, "frozen", QUEST)
    done = gym(
        "collect", "frozen", "--model", "oracle", "--limit", "3", "--out", "run", exit_code=0
    )
    assert done.stderr.startswith("frozen: 60 tasks that it generates from seed 0\n")
    rows = lines_of(Path("run/rollouts.jsonl"))
    assert {(row["env"], row["reward"]) for row in rows} == {("frozen", 1.0)}
    done = gym("collect", "frozen", "arithmetic", "--model", "oracle", "--limit", "2", exit_code=0)
    assert "4 attempts to go" in done.stderr

    assert gym("data", "validate", "frozen").stdout.startswith("60 rows, 60 tasks, 0 wrong")
    rendered = gym("data", "render", "frozen", "--limit", "1")
    assert msgspec.json.decode(rendered.stdout)["env"] == "frozen"
    gym("data", "select", "run", "-o", "run.jsonl", exit_code=0)
    assert [row["id"] for row in lines_of(Path("run.jsonl"))] == ["t0", "t1", "t2"]
    gym("data", "select", "frozen", "mcqa", "-o", "mixed.jsonl", exit_code=0)

    assert 'did you mean "frozen"' in gym("collect", "frozn", "--model", "oracle").stderr
    install(monkeypatch, "barren", FLAKY)
    done = gym("collect", "barren", "--model", "oracle", exit_code=2)
    assert "barren: generates no tasks: give a tasks file with --env barren" in done.stderr


def test_an_endless_generator_ends():
    Path("quest.py").write_text(
        QUEST.replace("in range(num)", "in __import__('itertools').count()")
    )
    done = gym("collect", "quest.py", "--model", "oracle", "--out", "run")
    assert (done.exit_code, len(lines_of(Path("run/rollouts.jsonl")))) == (0, 60)
    gym("check", "quest.py", exit_code=0)
    done = gym("data", "generate", "quest.py", "-n", "2", "-o", "quest.jsonl", exit_code=2)
    assert done.stderr == "error: environment quest generated 3 rows, not 2\n"


def test_data_commands_take_what_code_generates():
    assert gym("data", "validate", "quest.py").stdout.startswith("60 rows, 60 tasks, 0 wrong (f")
    assert gym("data", "stats", "quest.py:Quest").stdout.startswith("rows          60, of 60 tasks")
    rendered = gym("data", "render", "quest.py", "--limit", "1")
    assert msgspec.json.decode(rendered.stdout)["messages"][0]["content"].endswith("+0?")
    assert "env" not in msgspec.json.decode(rendered.stdout)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["flaky.py"], "flaky.py: generates no tasks: give a tasks file with --env flaky.py"),
        (["broken.py"], "broken.py: its tasks cannot be generated: "),
        (["none.py"], "none.py: its `generate` yields no rows"),
        (["no.py"], "no.py: no such file"),
        (["quest.py", "mcqa"], "quest.py: its tasks are collected alone; write them to a file"),
        (["hf:org/name"], "hf:org/name: fetch it first: gym data pull hf:org/name -o FILE"),
    ],
)
def test_code_without_tasks_is_refused(arguments, reason):
    Path("flaky.py").write_text(FLAKY)
    Path("broken.py").write_text(QUEST.replace("rng.randint(1, 9)", "rng.choice([])"))
    Path("none.py").write_text(QUEST.replace("range(num)", "range(0)"))
    done = gym("collect", *arguments, "--model", "oracle", exit_code=2)

    assert reason in done.stderr


def test_rows_are_checked_by_the_environment_that_they_name():
    rows = [
        {"id": "a", "prompt": "?", "env": "arithmetic", "answer": 1},
        {"id": "b", "prompt": "?", "env": "mcqa"},
        {"id": "c", "prompt": "?", "env": "no_such"},
        {"id": "d", "prompt": "?"},
        {"id": "e", "prompt": "?", "agent_ref": {"name": "nobody_simple_agent"}},
    ]
    path = Path("rows.jsonl")
    write_rows(path, rows)
    found = validate([path])

    assert [(one.place, one.reason.partition(" (")[0]) for one in found.problems] == [
        ("rows.jsonl:2", '"options" is missing'),
        ("rows.jsonl:2", '"expected_answer" is missing'),
        ("rows.jsonl:3", 'no environment "no_such"'),
    ]
    assert (found.num_wrong, found.num_unchecked, found.is_checked) == (2, 2, False)
    assert found.warnings == [
        'no environment is known for the agent "nobody_simple_agent": --env ENV or '
        "--env nobody_simple_agent=ENV names the environment of its rows"
    ]
    last = gym("data", "validate", path).stdout.splitlines()[-1]
    only = "fields and tools checked, except in 2 rows without an environment; --env checks them"
    assert last == f"5 rows, 3 tasks, 2 wrong ({only})"
