"""Tests of a Ray worker, run in this process without a cluster, and of what is pickled for it."""

import pickle
from collections.abc import Iterator

import aiohttp
import msgspec
import pytest

from gymcli.environment.registry import Registry
from gymcli.errors import (
    AttemptError,
    AuthenticationError,
    BudgetReachedError,
    EndpointConnectionError,
    EndpointGoneError,
    RoleError,
    RunError,
    VerifierTimeoutError,
)
from gymcli.models.api_errors import is_unreachable
from gymcli.models.endpoint import Endpoint
from gymcli.ray.actor import (
    Job,
    Orders,
    RayActor,
    Report,
    SentAttempt,
    SentCode,
    causes_of,
    restore_causes,
)
from gymcli.rollout.episode import EpisodePlan
from gymcli.runner.attempts import Attempt, Outcome
from gymcli.runner.judges import Judges
from gymcli.types import ErrorRecord, Failure, Message, Rollout, TaskRow, Timing, Verifier

SOURCE = '''"""Report the process of the verifier, and how often it was called."""

import itertools
import os

from gymcli import Context, Environment, Message, Rollout, Score, Task

CALLS = itertools.count(1)


class Processes(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(float(os.getpid()), metrics={"calls": float(next(CALLS))})


class Asking(Environment[Task]):
    """Say anything; a judge says how long it is."""

    required_roles = ("judge",)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        question = Message(role="user", content="How long is it?")
        answer = await context.roles["judge"].complete([question], cache="1")
        return Score(float(len(answer.text)))

    async def oracle(self, rollout: Rollout) -> Message:
        return Message(role="assistant", content="gold")
'''


class Worker:
    """A worker that has received what all attempts have in common."""

    def __init__(self, spec: str, *, verdicts=(), **job) -> None:
        self.found = Registry((spec,)).find(spec.rpartition("/")[2].partition(".")[0])
        self.actor = RayActor()
        common = {"judges": Judges(), "policy": None, "concurrency": 2, "blocking_timeout": 60.0}
        common |= {"counts_spending": False, "calls_before": 0, **job}
        self.actor.open(pickle.loads(pickle.dumps(Job(SentCode.of(spec), **common))), verdicts)

    def sent(self, task_id: str, number: int = 0, **more) -> SentAttempt:
        """Return an attempt with a recorded conversation, as it is sent."""
        environment = self.found.environment
        rollout = Rollout(schema_version=1, env=self.found.name, task_id=task_id, attempt=number)
        verifier = Verifier(environment.version, self.found.source_hash)
        options = environment.Options()
        attempt = Attempt(environment, options, verifier, None, rollout, **more)
        return pickle.loads(pickle.dumps(SentAttempt.of(attempt)))

    def played(self, task_id: str) -> SentAttempt:
        """Return an attempt that is still to be played, as it is sent."""
        said = Message(role="user", content="Say anything.")
        row = TaskRow(id=task_id, env=self.found.name, hash="", messages=[said])
        plan = EpisodePlan(
            row=row,
            attempt=0,
            environment=self.found.environment,
            options=self.found.environment.Options(),
            model="oracle",
            params={},
            run_seed=0,
            sends_seed=False,
            max_turns=None,
        )
        sent = self.sent(task_id)
        return sent._replace(attempt=SentAttempt.of(sent.attempt._replace(plan=plan)).attempt)

    def steps(self, orders: Orders) -> Iterator[Report]:
        """Yield reports until the worker is done."""
        report = pickle.loads(pickle.dumps(self.actor.step(orders)))
        yield report
        while not report.is_over:
            report = pickle.loads(pickle.dumps(self.actor.step(Orders())))
            yield report

    def records(self, orders: Orders) -> list[Rollout | Failure]:
        """Return the records of all attempts."""
        reports = self.steps(orders)
        return [outcome.record for report in reports for outcome, _ in report.outcomes]


@pytest.fixture
def start(tmp_path):
    """Start workers, and close them at the end."""
    workers = []
    (tmp_path / "worker_env.py").write_text(SOURCE)

    def begin(name: str, **job) -> Worker:
        workers.append(Worker(f"{tmp_path / 'worker_env.py'}:{name}", **job))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.actor.close()


def test_worker_is_over_after_the_last_attempts(start):
    worker = start("Processes")
    assert not worker.actor.step(Orders([worker.sent("a")])).is_over
    records = worker.records(Orders([worker.sent(name) for name in "bcd"], is_last=True))
    assert {record.task_id for record in records} >= {"b", "c", "d"}


def test_each_worker_has_verifier_processes_of_its_own(start):
    """In a repeat they have called the verifier a different number of times before."""
    first, second = start("Processes", concurrency=1), start("Processes", calls_before=1)
    [one, other] = first.records(Orders([first.sent("a"), first.sent("b")], is_last=True))
    [later] = second.records(Orders([second.sent("a")], is_last=True))
    assert (one.metrics["calls"], other.metrics["calls"]) == (1, 2)
    assert later.metrics["calls"] == 2
    assert one.reward == other.reward != later.reward


def test_worker_that_is_stopped_leaves_what_it_did_not_begin(start):
    worker = start("Processes")
    stop = (BudgetReachedError("spent"), 0.0)
    attempts = [worker.sent(f"t{n}") for n in range(9)]
    assert worker.records(Orders(attempts, stop=stop)) == []


def test_worker_asks_no_judge_before_the_conversation_is_on_disk(start, mock_server):
    endpoint = Endpoint(base_url=mock_server.base_url, model="j")
    worker = start("Asking", judges=Judges({"judge": endpoint}), counts_spending=True)
    reports = worker.steps(Orders([worker.played("a")], is_last=True))
    assert msgspec.json.decode(next(reports).saved[0], type=Rollout).last_text == "gold"
    report = next(reports)
    assert (report.saved, report.verdicts, report.outcomes) == ([], [], [])
    assert mock_server.num_requests == 0
    [told] = [report for report in worker.steps(Orders(num_written=1)) if report.outcomes]
    [(key, message, role, model)] = told.verdicts
    assert (role, model) == ("judge", "j")
    [(usage, _)] = told.spent
    assert usage.prompt_tokens
    [(outcome, _)] = told.outcomes
    assert outcome.record.reward == len(message.text)
    assert mock_server.num_requests == 1
    # Another worker knows the answer from the start.
    other = start("Asking", judges=Judges({"judge": endpoint}), verdicts=[(key, message)])
    [record] = other.records(Orders([other.sent("b")], is_last=True))
    assert record.reward == outcome.record.reward
    assert mock_server.num_requests == 1


def test_worker_refuses_other_code_of_an_environment(start):
    worker = start("Processes")
    sent = worker.sent("a")
    other = sent.attempt._replace(verifier=Verifier("1", "0" * 16))
    with pytest.raises(RunError, match='"worker_env" has different code on the Ray worker'):
        worker.actor.step(Orders([sent._replace(attempt=other)]))


def test_score_that_is_kept_needs_no_environment(start):
    worker = start("Processes")
    sent = worker.sent("a", keeps_score=True)._replace(env="gone")
    [record] = worker.records(Orders([sent], is_last=True))
    assert record.task_id == "a"


def crossed(error: AttemptError) -> AttemptError:
    """Return an error as the driver receives it."""
    again, causes = pickle.loads(pickle.dumps((error, causes_of(error))))
    restore_causes(again, causes)
    return again


@pytest.mark.parametrize(
    "error", [AuthenticationError("no key", status=401), VerifierTimeoutError("late")]
)
def test_error_keeps_class_text_and_status(error):
    again = crossed(error)
    assert (type(again), str(again)) == (type(error), str(error))
    assert vars(again) == vars(error)


def test_error_keeps_the_clients_error_behind_that_of_a_role():
    error = RoleError("judge: gone")
    error.__cause__ = EndpointGoneError("gone")
    error.__cause__.__cause__ = OSError("any")
    assert isinstance(crossed(error).__cause__, EndpointGoneError)


def test_error_keeps_that_no_connection_was_made():
    error = EndpointConnectionError("refused")
    assert not is_unreachable(crossed(error))
    error.__cause__ = aiohttp.ConnectionTimeoutError()
    assert is_unreachable(crossed(error))
    role = RoleError("judge: refused")
    role.__cause__ = error
    assert is_unreachable(crossed(role).__cause__)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(
            Rollout(
                task_id="1",
                attempt=0,
                messages=[Message(role="user", content="é\u2028")],
                timing=Timing(started_at=1.5),
                final_state={"big": 2**63, "small": 1e-9},
                reward=0.1,
            ),
            was_answered=True,
        ),
        Outcome(
            Failure(task_id="1", attempt=0, error=ErrorRecord(error_class="X", phase="verify")),
            generation=Rollout(task_id="1", attempt=0),
            is_own=False,
        ),
    ],
)
def test_outcome_stays_as_it_is(outcome):
    assert pickle.loads(pickle.dumps(outcome)) == outcome


@pytest.mark.parametrize("class_name", [":Quiz", ""])
def test_code_of_a_file_keeps_the_name_that_it_was_given(tmp_path, working_folder, class_name):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = tmp_path / "quiz.py"
    path.write_text("A = 1")
    code = SentCode.of(f"an_agent=quiz.py{class_name}")
    assert code.unpack(folder) == (f"an_agent={path}{class_name}",)
    path.unlink()
    assert code.unpack(folder) == (f"an_agent={folder / 'quiz.py'}{class_name}",)
    assert (folder / "quiz.py").read_text() == "A = 1"


def test_code_of_a_file_brings_what_it_imports_from_its_folder(tmp_path, monkeypatch):
    home, folder = tmp_path / "home", tmp_path / "worker"
    (home / "parts_sent").mkdir(parents=True)
    folder.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(home))
    sources = {
        "quiz.py": "import parts_sent",
        "parts_sent/__init__.py": "",
        "parts_sent/a.py": "A = 1",
    }
    for name, source in sources.items():
        (home / name).write_text(source)
    (home / "other.py").write_text("B = 2")
    code = SentCode.of("quiz.py:Quiz")
    assert code.unpack(folder) == (f"{home / 'quiz.py'}:Quiz",)
    (home / "parts_sent" / "a.py").write_text("A = 2")
    assert code.unpack(folder) == (f"{folder / 'quiz.py'}:Quiz",)
    assert {name: (folder / name).read_text() for name in sources} == sources
    assert not (folder / "other.py").exists()
