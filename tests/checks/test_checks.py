"""All checks of one environment, and the tasks that they use."""

import msgspec
import pytest

import gymcli
from gymcli.checks.checks import CHECKS
from gymcli.errors import TasksError, UnknownNameError
from tests.builders import write_rows


def checked(environment, **options):
    return gymcli.check(environment, **options)


def found_by(name, **options):
    report = gymcli.check(f"tests.checks.broken:{name}", **options)
    return report, {finding.check: finding for finding in report.findings}


@pytest.mark.slow
def test_check_holds():
    report, found = found_by("Good")
    assert report.failures == []
    assert list(found) == list(CHECKS)
    assert (report.env, report.version, report.num_tasks) == ("broken", "1", 60)
    assert report.tasks == "60 generated with Random(0)"
    assert found["leaks"].status == "skipped"
    assert found["leaks"].text == "the answer is part of the question"


def test_check_is_public_and_is_json():
    report = gymcli.check("arithmetic", limit=3)
    assert report.num_tasks == 3
    assert report.tasks.endswith("datasets/arithmetic/tasks.jsonl")
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("Unknown", ['there is no check "speling" (checks: tasks, oracle,']),
        ("Forbidden", ['"repeatable" applies to every', '"tasks" applies to every']),
        ("Reasonless", ['"empty" is skipped without a reason']),
    ],
)
def test_check_refuses_to_skip(name, reasons):
    report, found = found_by(name, limit=4)
    texts = [finding.text for finding in report.failures]
    assert [finding.check for finding in report.failures] == ["skipped_checks"] * len(reasons)
    assert all(map(str.startswith, texts, reasons))
    if name == "Forbidden":
        assert found["repeatable"].status == found["tasks"].status == "ok"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "Roleless",
            'Roleless needs the role "judge", and its stand_ins returns no scripted model',
        ),
        ("Unready", "KeyError: 'gold'"),
    ],
)
def test_check_without_the_models_that_are_needed(name, reason):
    _, found = found_by(name, limit=4)
    assert found["oracle"].status == "failed"
    assert reason in found["oracle"].text
    assert found["duplicates"].status == "ok"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Barren", "Barren generates no tasks and ships none; pass --tasks FILE"),
        ("Empty", "generated.jsonl: no tasks; expected one JSON object a line"),
        ("Exploding", "ZeroDivisionError: no luck"),
    ],
)
def test_check_without_tasks(name, reason):
    report, found = found_by(name)
    assert [finding.text for finding in report.failures] == [reason]
    assert list(found) == ["tasks"]


def test_check_goes_on_with_the_rows_that_are_valid():
    report, found = found_by("Untidy")
    assert found["tasks"].text == (
        'generated.jsonl:2: "answer" is missing (environment broken needs it) (and 1 more)'
    )
    assert report.num_tasks == 1
    assert found["oracle"].status == "ok"


def test_check_of_copies():
    report, found = found_by("Copying")
    assert (found["tasks"].text, found["tasks"].task_ids) == ("1 rows are copies of others", ["a"])
    assert report.num_tasks == 2


def test_check_says_which_check_an_environment_breaks():
    report, found = found_by("Undecided", limit=3)
    assert [(f.check, f.text) for f in report.failures] == [("guessing", "LookupError: which?")]
    assert found["leaks"].text == "not checked, because of the error in guessing"


def test_check_with_tasks_of_a_file(tmp_path):
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"id": "a", "prompt": "A?", "answer": "gold-a"},
        {"id": "b", "prompt": "B?", "answer": "gold-b", "env": "broken"},
        {"id": "c", "prompt": "What is 1 + 1?", "answer": 2, "env": "arithmetic"},
    ]
    write_rows(path, rows)
    report, found = found_by("Good", tasks=path)
    assert (report.num_tasks, report.tasks) == (2, str(path))
    assert found["tasks"].text == "2 valid, each with a unique id"


def test_check_with_tasks_of_others(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "c", "prompt": "1 + 1?", "answer": 2, "env": "arithmetic"}\n')
    report, _ = found_by("Good", tasks=path)
    assert [f.text for f in report.failures] == [f"{path}: its rows belong to arithmetic"]


def test_check_of_what_is_not_there(tmp_path):
    with pytest.raises(TasksError, match="no such file"):
        found_by("Good", tasks=tmp_path / "nothing.jsonl")
    with pytest.raises(UnknownNameError, match='no environment "arithmetik"; did you mean'):
        gymcli.check("arithmetik")


def test_check_tells_how_far_it_is():
    told = []
    found_by("Good", limit=2, watch=told.append)
    assert told[0] == "broken: 1 records scored"
    assert len(told) > 10


def write_environment(tmp_path, body, num_tasks=20):
    path, tasks = tmp_path / "made.py", tmp_path / "tasks.jsonl"
    path.write_text(
        "import asyncio\n"
        "from gymcli import Environment, FunctionCall, Message, Score, Task, ToolCall, tool\n"
        "class Made(Environment[Task]):\n"
        "    step_timeout = setup_timeout = verify_timeout = 0.05\n"
        "    async def oracle(self, rollout):\n"
        "        return Message(role='assistant', content='Done.')\n"
        "    @classmethod\n"
        "    async def verify(cls, rollout, context):\n"
        f"        return Score(1.0)\n{body}"
    )
    tasks.write_text("".join(f'{{"id": "t{n}", "prompt": "Go {n}."}}\n' for n in range(num_tasks)))
    return {"environment": f"{path}:Made", "tasks": tasks}


WAIT = "        await asyncio.get_running_loop().create_future()\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "    @classmethod\n"
            "    async def verify(cls, rollout, context):\n"
            "        while True: pass\n",
            "took longer than 0.05 seconds (verify_timeout)",
        ),
        (
            "    @classmethod\n"
            "    async def verify(cls, rollout, context):\n"
            "        return Score(1.0)\n"
            "    @classmethod\n"
            "    async def verify_group(cls, rollouts, context):\n"
            "        while True: pass\n",
            "took longer than 0.05 seconds (verify_timeout)",
        ),
        (
            f"    async def oracle(self, rollout):\n{WAIT}",
            "longer than 0.05 seconds (step_timeout)",
        ),
        (f"    async def setup(self):\n{WAIT}", "took longer than 0.05 seconds (setup_timeout)"),
    ],
)
def test_check_ends_where_the_environment_does_not(tmp_path, body, words):
    """After two episodes; a hundred would take an hour with the default limit."""
    report = checked(**write_environment(tmp_path, body))
    [finding] = report.failures
    assert words in finding.text
    assert finding.text.endswith(": no more are tried")
    assert report.findings[-1] is finding


def test_an_error_is_reported_once(tmp_path):
    """Where nothing can be scored, there is no row for each check that could not be made."""
    body = (
        "    @classmethod\n"
        "    async def verify(cls, rollout, context):\n"
        "        return {}['gold']\n"
    )
    report = checked(**write_environment(tmp_path, body, num_tasks=3))
    statuses = {finding.check: finding.status for finding in report.findings}
    assert statuses == {"tasks": "ok", "oracle": "failed", "duplicates": "ok"}
    assert report.failures[0].text == "3 of 3 tasks cannot be played or scored: KeyError: 'gold'"


TOOL = """
    @tool
    def note(self, text: str) -> int:
        "Note it."
        self.notes.append(text)
        return RESULT
    async def oracle(self, rollout):
        if rollout.tool_calls:
            return Message(role="assistant", content="Done.")
        calls = [ToolCall("1", FunctionCall("note", '{"text": "x"}'))]
        return Message(role="assistant", tool_calls=calls)
    @classmethod
    async def verify(cls, rollout, context):
        world = await context.replay(rollout)
        return Score(float(len(world.notes) == 1))
"""


@pytest.mark.parametrize(
    ("result", "notes", "words"),
    [
        ("1", "    notes = []\n", "episodes share and change Made.notes: unless it is only a"),
        ("__import__('random').random()", "", "the same calls get other results from note: a tool"),
        ("self.rng.random()", "", ""),
    ],
)
def test_the_cause_of_scores_that_differ_is_named(tmp_path, result, notes, words):
    own = (
        "" if notes else "    async def setup(self):\n        self.notes = []\n        return []\n"
    )
    body = f"{notes}{own}{TOOL.replace('RESULT', result)}"
    report = checked(**write_environment(tmp_path, body, num_tasks=4))
    causes = [finding.text for finding in report.failures if finding.check == "cause"]
    assert len(causes) == bool(words)
    assert all(words in text for text in causes)
