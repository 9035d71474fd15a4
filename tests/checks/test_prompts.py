"""Prompts that give answers away, and prompts that stand twice."""

import pytest

from gymcli import Message, Score
from tests.checks.subjects import Sound, finding, rows_of, says


class Choosing(Sound):
    @classmethod
    def choices(cls, task):
        return ["Paris", "Lima"]


def test_leaks_holds():
    found = finding("leaks", Sound)
    assert (found.status, found.text) == ("ok", "12 gold answers, none in its prompt")


@pytest.mark.parametrize(
    ("prompt", "answer", "status"),
    [
        ("{} Which town? (Paris)", "Paris", "failed"),
        ("{} Parisian life", "Paris", "ok"),
        ("{} 12345 + 1", "2345", "ok"),
        ("{} The sum is 2345.", "2345", "failed"),
        ("{} 12?", "12", "n/a"),
    ],
)
def test_leaks_looks_for_whole_answers(prompt, answer, status):
    assert finding("leaks", Sound, rows_of([answer, answer], prompt=prompt)).status == status


def test_leaks_names_answer_and_tasks():
    found = finding("leaks", Sound, rows_of(["Paris", "Lima"], prompt="{} Say Lima."))
    assert found.text == "the prompt has the gold answer in it: 'Lima'"
    assert found.task_ids == ["t1"]


def test_leaks_takes_the_answer_that_the_verifier_found():
    class Explaining(Sound):
        async def oracle(self, rollout):
            return says(f"It must be {self.task.answer}.")

        @classmethod
        async def verify(cls, rollout, context):
            return Score(1.0, answer=cls.parse_task(rollout.task).answer)

    assert finding("leaks", Explaining, rows_of(["Paris"], prompt="{} Paris")).status == "failed"


def test_leaks_lets_choices_stand():
    rows = rows_of(["Paris", "Lima"], prompt="{} Paris or Lima?")
    assert finding("leaks", Choosing, rows).status == "n/a"


def test_leaks_sees_what_setup_adds():
    class Telling(Sound):
        async def setup(self):
            return [Message(role="user", content=f"The answer is {self.task.answer}!")]

    assert finding("leaks", Telling).status == "failed"


def test_duplicates():
    found = finding("duplicates", Sound)
    assert (found.status, found.text) == ("ok", "12 different prompts")
    same = finding("duplicates", Sound, rows_of(["a", "b", "c"], prompt="The same."))
    assert same.status == "failed"
    assert same.task_ids == ["t0", "t1", "t2"]
    assert same.text == "3 tasks share 1 prompts: t0 = t1 = t2"


def test_duplicates_differ_by_what_setup_adds_and_by_tools():
    class Dealing(Sound):
        async def setup(self):
            return [Message(role="user", content=f"You have {self.rng.random()}.")]

    rows = rows_of(["a", "b"], prompt="The same.")
    assert finding("duplicates", Dealing, rows).status == "ok"
    shown = {"type": "function", "function": {"name": "f"}}
    rows[1].tools = [shown]
    assert finding("duplicates", Sound, rows).status == "ok"
