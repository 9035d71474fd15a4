"""Tests of scoring in worker processes: a verifier harms no record but its own."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gymcli.environment.contract import Environment
from gymcli.environment.judge import StandIn
from gymcli.environment.registry import Registry
from gymcli.environment.tool import Task
from gymcli.errors import RoleError, VerifierCrashedError, VerifierError, VerifierTimeoutError
from gymcli.rollout.scoring import Workers, score, score_group
from gymcli.rollout.worker_pool import WorkerProcess
from gymcli.types import Rollout, Score, Verifier
from tests.rollout.isolated import is_running, wait_for
from tests.rollout.misbehaving import (
    Asking,
    Grouped,
    Growing,
    Impatient,
    Lazy,
    Misbehaving,
    Optioned,
    Patient,
    Waiting,
)

VERIFIER = Verifier("1", "abc")
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc")
JUDGE = {"judge": StandIn(lambda messages: "Well.")}


async def one(environment, workers, *, options=None, **fields):
    """Score a record; return the error if it fails."""
    given = {name: fields.pop(name) for name in ("roles", "save") if name in fields}
    rollout = Rollout(task=fields, env_version="1")
    options = options or environment.Options()
    try:
        return await score(
            environment, rollout, verifier=VERIFIER, options=options, workers=workers, **given
        )
    except VerifierError as error:
        return error


def scored(environment, *records, num_workers=1, options=None):
    """Score records concurrently in their own workers."""

    async def run():
        async with Workers(num_workers) as workers:
            found = [one(environment, workers, options=options, **fields) for fields in records]
            return await asyncio.gather(*found)

    return asyncio.run(run())


def does(*names):
    return [{"does": name} for name in names]


def test_a_verifier_runs_in_a_worker_from_its_first_record_on():
    first, second = scored(Optioned, {}, {}, options=Optioned.Options(bonus=2.0))
    assert first.reward == 3.0
    assert first.verifier == VERIFIER
    assert first.details["process"] == second.details["process"] != os.getpid()
    assert first.details["was_prepared"], "a worker calls `prepare`"


def test_score_starts_a_worker_where_none_is_given():
    rollout = asyncio.run(one(Optioned, None))
    assert rollout.details["process"] != os.getpid()
    assert not is_running(rollout.details["process"])


def test_a_module_that_builds_a_table_lazily_builds_it_once_and_whole():
    """Building it takes a while; an interrupted verifier would leave a part of the table."""
    found = scored(Lazy, *({"word": word} for word in ("alpha", "beta", "gamma", "none")))
    assert [one.reward for one in found] == [1.0, 2.0, 3.0, 0.0]
    assert {one.details["num_built"] for one in found} == {1}


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("exit", VerifierError, "SystemExit: 0"),
        ("fail", VerifierError, "Failed: told to"),
        ("base", VerifierError, "BaseException: told to"),
        ("unreadable", VerifierError, "its text cannot be read"),
        ("surrogate", VerifierError, "ValueError"),
        ("cancel", VerifierError, "CancelledError"),
        ("nothing", VerifierError, r"verify returned None \(NoneType\), not a Score"),
        ("leave", VerifierCrashedError, r"verify of Misbehaving: its process died \(exit code 0\)"),
        ("crash", VerifierCrashedError, r"verify of Misbehaving: its process died \(SIGSEGV\)"),
        ("kill", VerifierCrashedError, r"verify of Misbehaving: its process died \(SIGKILL\)"),
        ("pattern", VerifierTimeoutError, r"took longer than 0\.5 seconds \(verify_timeout\)"),
        ("number", VerifierTimeoutError, r"took longer than 0\.5 seconds \(verify_timeout\)"),
        ("sleep", VerifierTimeoutError, r"took longer than 0\.5 seconds \(verify_timeout\)"),
        ("wait", VerifierTimeoutError, r"took longer than 0\.5 seconds \(verify_timeout\)"),
    ],
)
def test_a_record_costs_only_itself(name, error, words):
    found = scored(Misbehaving, *does("", "", name, "", ""))
    bad = found.pop(2)
    assert type(bad) is error
    with pytest.raises(error, match=words):
        raise bad
    assert [one.reward for one in found] == [1.0] * 4


@pytest.mark.parametrize("name", ["fork", "print", "task", "task_exit", "asked_to_cancel"])
def test_a_verifier_may_do_to_its_process_what_it_likes(name, capfd):
    assert [one.reward for one in scored(Misbehaving, *does("", name, ""))] == [1.0] * 3
    printed = capfd.readouterr()
    assert printed.out == ""
    assert ("told to print" in printed.err) is (name == "print")


@ON_LINUX
def test_a_verifier_that_takes_memory_without_end_is_stopped():
    first, grown, last = scored(Growing, *does("", "grow", ""))
    assert type(grown) is VerifierCrashedError
    assert str(grown).endswith("needed more than 150 MB of memory (verify_memory_mb)")
    assert first.reward == last.reward == 1.0


def test_a_verifier_is_called_once_for_a_record(tmp_path):
    told = tmp_path / "told"
    records = [{"does": "tell", "file": str(told), "number": n} for n in range(40)]
    records.insert(20, {"does": "leave"})
    found = scored(Misbehaving, *records, num_workers=2)
    assert sum(isinstance(one, Rollout) for one in found) == 40
    assert sorted(map(int, told.read_text().split())) == list(range(40))


async def test_quick_records_are_sent_together_and_end_one_by_one(tmp_path):
    """Records sent together with one that ends the process are scored by the next, once."""
    told = tmp_path / "told"
    records = [{"does": "tell", "file": str(told), "number": n} for n in range(100)]
    for place, deed in ((60, "sleep"), (40, "cancel"), (20, "leave")):
        records.insert(place, {"does": deed})
    async with Workers(1) as workers:
        assert (await one(Misbehaving, workers)).reward == 1.0
        assert (await one(Misbehaving, workers)).reward == 1.0
        sent = []
        write = WorkerProcess.write
        with pytest.MonkeyPatch.context() as patching:
            # A record is one line: a write with several shows records sent together.
            patching.setattr(
                WorkerProcess,
                "write",
                lambda self, data: (sent.append(data), write(self, data)),
            )
            found = await asyncio.gather(*(one(Misbehaving, workers, **row) for row in records))
        num_together = max(data.count(b"\n") for data in sent)
    failed = [type(one) for one in found if not isinstance(one, Rollout)]
    assert failed == [VerifierCrashedError, VerifierError, VerifierTimeoutError]
    assert sorted(map(int, told.read_text().split())) == list(range(100))
    assert num_together > 1


def test_clean_up_in_finally_is_not_interrupted(tmp_path):
    told = tmp_path / "told"
    [found] = scored(Misbehaving, {"does": "clean_up", "file": str(told)})
    assert found.reward == 1.0
    assert told.read_text() == "begun ended"


def test_verify_has_all_variables_and_no_limits_that_children_inherit(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-secret-12345678")
    [found] = scored(Patient, {"does": "look"})
    assert found.details["variable"] == "sk-secret-12345678"
    assert found.details["isolated_variable"] is None
    assert found.details["folder"] == str(Path.cwd())
    assert found.details["limits_of_child"] == "unlimited unlimited"


async def test_an_error_of_ours_keeps_its_class():
    async with Workers(1) as workers:
        with pytest.raises(RoleError, match="gone"):
            await score(
                Misbehaving,
                Rollout(task={"does": "role_error"}),
                verifier=VERIFIER,
                options=Misbehaving.Options(),
                workers=workers,
            )


async def test_what_saving_raises_ends_the_record_and_its_process():
    def save():
        raise OSError("the disk is full")

    async with Workers(1) as workers:
        with pytest.raises(OSError, match="the disk is full"):
            await one(Waiting, workers, file="", save=save)
        assert (await one(Misbehaving, workers)).reward == 1.0


async def test_a_conversation_is_saved_once_where_its_score_takes_long():
    saved = []
    async with Workers(1) as workers:
        quick = await one(Misbehaving, workers, save=lambda: saved.append("quick"))
        slow = asyncio.create_task(
            one(Waiting, workers, file="", save=lambda: saved.append("slow"))
        )
        await wait_for(lambda: saved)
        slow.cancel()
    assert (quick.reward, saved) == (1.0, ["slow"])


async def test_a_caller_that_leaves_drops_its_record(tmp_path):
    """A record that is being scored is finished; one that waits is never scored."""
    told = tmp_path / "told"
    async with Workers(1) as workers:
        await one(Misbehaving, workers)
        busy = asyncio.create_task(one(Waiting, workers, file=str(tmp_path / "busy")))
        await wait_for((tmp_path / "busy").exists)
        record = {"does": "tell", "file": str(told), "number": 1}
        dropped = asyncio.create_task(one(Misbehaving, workers, **record))
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.wait([dropped])
        Path(tmp_path / "busy").unlink()
        assert (await busy).reward == 1.0
        assert (await one(Misbehaving, workers)).reward == 1.0
    assert not told.exists()


async def test_verifiers_that_wait_run_in_this_loop():
    async with Workers(1) as workers:
        found = await one(Asking, workers, roles=JUDGE)
        assert found.details["process"] == os.getpid()
        late = await one(Impatient, workers, roles=JUDGE)
        assert type(late) is VerifierTimeoutError
        assert str(late) == "verify took longer than 0.1 seconds (scoring_timeout)"


def test_a_class_that_no_other_process_finds_is_scored_here_and_said_once(caplog):
    class Hidden(Environment[Task]):
        """Is not at the top level of a module."""

        @classmethod
        async def verify(cls, rollout, context):
            return Score(1.0, details={"process": os.getpid()})

    first, second = scored(Hidden, {}, {})
    assert first.details["process"] == second.details["process"] == os.getpid()
    assert sum("no other process can import" in text for text in caplog.messages) == 1


def test_a_class_of_a_file_is_found_in_a_worker(tmp_path):
    path = tmp_path / "filed.py"
    path.write_text(
        "import os\n"
        "from gymcli import Environment, Score, Task\n"
        "class Filed(Environment[Task]):\n"
        '    """Stands in a file."""\n'
        "    @classmethod\n"
        "    async def verify(cls, rollout, context):\n"
        "        return Score(1.0, details={'process': os.getpid()})\n"
    )
    spec = f"{path}:Filed"
    [found] = scored(Registry((spec,)).find(spec).environment, {})
    assert found.details["process"] != os.getpid()


async def test_a_group_is_scored_in_a_worker():
    async with Workers(1) as workers:
        found = await score_group(
            Grouped,
            [Rollout(attempt=0), Rollout(attempt=1)],
            verifier=VERIFIER,
            options=Grouped.Options(),
            roles=[{}, {}],
            workers=workers,
        )
    assert [one.attempt for one in found] == [0, 1]
    assert all(one.details["process"] != os.getpid() for one in found)
    assert [one.details["before"] for one in found] == [1.0, 1.0]


async def test_close_ends_workers_in_the_middle_of_a_record(tmp_path):
    workers = Workers(1)
    busy = asyncio.create_task(one(Waiting, workers, file=str(tmp_path / "pid")))
    await wait_for((tmp_path / "pid").exists)
    process = int((tmp_path / "pid").read_text())
    await workers.close()
    assert not is_running(process)
    assert "the workers were closed" in str(await busy)
    assert "the workers were closed" in str(await one(Optioned, workers))


async def test_workers_warm_before_the_first_record():
    async with Workers(2) as workers:
        workers.warm(Optioned, Optioned.Options())
        found = await one(Optioned, workers)
        assert found.details["num_prepared"] == 1


async def test_a_worker_that_still_loads_one_environment_scores_records_of_another():
    async with Workers(1) as workers:
        workers.warm(Patient, Patient.Options())
        rollout = await one(Optioned, workers)
        assert rollout.reward == 1.0


def test_nothing_outlives_a_parent_that_is_killed(tmp_path):
    code = f"""
    import asyncio
    from gymcli.rollout.scoring import score
    from gymcli.types import Rollout, Verifier
    from tests.rollout.misbehaving import Waiting

    rollout = Rollout(task={{"file": {str(tmp_path / "pid")!r}}})
    asyncio.run(score(Waiting, rollout, verifier=Verifier(), options=Waiting.Options()))
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as parent:
        asyncio.run(wait_for((tmp_path / "pid").exists))
        worker = int((tmp_path / "pid").read_text())
        assert is_running(worker)
        parent.send_signal(signal.SIGKILL)
        parent.wait(20)
    asyncio.run(wait_for(lambda: not is_running(worker)))


@pytest.mark.parametrize("name", ["write_line", "write_bytes", "write_empty_lines", "write_json"])
def test_a_verifier_that_writes_to_every_descriptor_costs_its_own_record(name):
    """The reply of its process cannot be read, and the next records have another process."""
    first, failed, *others = scored(Patient, *does("", name, "", "", ""))
    assert isinstance(failed, VerifierCrashedError)
    assert str(failed).startswith("verify of Patient: its process sent ")
    assert [record.reward for record in (first, *others)] == [1.0] * 4


def test_a_verifier_that_writes_to_low_descriptors_costs_nothing():
    assert [record.reward for record in scored(Patient, *does("", "write_low", ""))] == [1.0] * 3
