"""A sound environment, from which each test of a check derives one with a single defect."""

from gymcli import Environment, Message, Score, Task
from gymcli.checks.checks import run_check
from gymcli.checks.subject import Subject, TaskSet, passed
from gymcli.environment.registry import Registration
from gymcli.types import TaskRow
from tests.pooled import pooled_workers, run_pooled


class Answered(Task):
    answer: str


class Sound(Environment[Answered]):
    """Say the answer."""

    @classmethod
    async def verify(cls, rollout, context):
        text = rollout.last_text
        return Score(float(text == cls.parse_task(rollout.task).answer), answer=text or None)

    async def oracle(self, rollout):
        return says(self.task.answer)

    @classmethod
    def generate(cls, rng, num):
        for number in range(num):
            yield {"id": f"t{number}", "prompt": f"Task {number}?", "answer": f"gold-{number}"}


def says(text):
    return Message(role="assistant", content=text)


def rows_of(answers, *, prompt="Task {}?", tools=None, **fields):
    """Return a task for each answer."""
    return [
        TaskRow(
            id=f"t{number}",
            env="sound",
            hash=str(number),
            messages=[Message(role="user", content=prompt.format(number))],
            tools=tools,
            fields={"answer": answer, **fields},
        )
        for number, answer in enumerate(answers)
    ]


def subject_of(environment, rows=None, *, watch=len, workers=None):
    rows = rows_of([f"gold-{number}" for number in range(12)]) if rows is None else rows
    task_set = TaskSet(rows, "a test", passed("read"))
    found = Registration("sound", environment, "")
    return Subject(
        found, task_set, environment.Options(), workers=workers or pooled_workers(), watch=watch
    )


def finding(check, environment, rows=None):
    """Return the finding of one check."""
    return run_pooled(run_check(subject_of(environment, rows), check))
