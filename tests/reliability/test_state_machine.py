"""Tests that a disturbed run ends like an undisturbed one, whatever happens between its commands.

The law: after a last undisturbed `gym collect` the rollouts equal those of an undisturbed run
(keys, tasks, seeds, conversations, scores), every attempt has one line, every line is whole JSON,
and the exit code is 0. Before that, no line on disk is lost or altered, and no conversation on disk
is paid for again.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gymcli.mock import MockServer
from gymcli.mock.process import serving
from tests.builders import gym
from tests.reliability.commands import (
    Selection,
    collect_arguments,
    collect_until,
    undisturbed,
    write_settings,
)
from tests.reliability.law import APPENDED, Kept, check_whole, final_set, finished, is_json
from tests.reliability.processes import run_stopped
from tests.reliability.worlds import FAILURES, NUM_TASKS, WORLDS, Model, write_tasks

TASK_IDS = [f"task-{n}" for n in range(NUM_TASKS)]
MAX_FAILING = 2
"""Few enough that the endpoint is not given up, as it is after eight failures in a row."""

selections = st.tuples(
    st.integers(1, 8),
    st.one_of(
        st.just((None, None)),
        st.integers(1, NUM_TASKS).map(lambda limit: (limit, None)),
        st.sampled_from(TASK_IDS).map(lambda task_id: (None, task_id)),
    ),
).map(lambda drawn: Selection(drawn[0], *drawn[1]))
moments = st.integers(1, 40)
"""The number of a command's last request; many commands end earlier."""
garbage = st.one_of(
    st.integers(1, 5000).map(lambda num: b"\0" * num),
    st.integers(1, 200).map(lambda num: (b'{"schema_version":1,"task_id":"task-0"' * 6)[:num]),
    st.binary(min_size=1, max_size=60).map(lambda data: b"{" + data.replace(b"\n", b"")),
).filter(lambda data: not is_json(data))


class DisturbedRun(RuleBasedStateMachine):
    """A run directory, and everything that may be done to it between two commands."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.stack.enter_context(contextlib.chdir(folder))
        self.run = Path("run")
        self.tasks = write_tasks(Path("tasks.jsonl"))
        self.model = Model()
        self.server = self.stack.enter_context(serving(MockServer(self.model)))
        write_settings(folder, self.server.base_url)

    @initialize(name=st.sampled_from(sorted(WORLDS)))
    def choose_world(self, name: str) -> None:
        self.name, self.world = name, WORLDS[name]

    @contextlib.contextmanager
    def nothing_lost_or_paid_twice(self):
        """Check what every command must preserve."""
        kept, before = Kept(self.run), finished(self.run)
        self.model.begin()
        yield
        kept.check()
        again = {asked.attempt for asked in self.model.asked if asked.role == "policy"} & before
        assert not again, f"asked for again: {again}"

    @rule(selection=selections)
    def collect(self, selection: Selection) -> None:
        with self.nothing_lost_or_paid_twice():
            done = gym(*collect_arguments(self.world, selection))
        assert done.exit_code in ((0, 4) if self.model.failing else (0,)), done.stderr

    @rule(selection=selections, num=moments)
    def kill(self, selection: Selection, num: int) -> None:
        with self.nothing_lost_or_paid_twice():
            self.stop(selection, num, is_killed=True)

    @rule(selection=selections, num=moments)
    def cancel(self, selection: Selection, num: int) -> None:
        with self.nothing_lost_or_paid_twice():
            self.stop(selection, num, is_killed=False)

    def stop(self, selection: Selection, num: int, *, is_killed: bool) -> None:
        collect_until(
            num, self.world, self.tasks, self.run, self.model, selection, is_killed=is_killed
        )

    @rule(name=st.sampled_from(APPENDED), num=st.integers(1, 3000))
    def tear(self, name: str, num: int) -> None:
        """Cut off bytes, as a crash of the machine may."""
        path = self.run / name
        if path.is_file():
            os.truncate(path, max(0, path.stat().st_size - num))

    @rule(name=st.sampled_from(APPENDED), data=garbage)
    def litter(self, name: str, data: bytes) -> None:
        """Append bytes that are no line, as a crash of the machine may."""
        path = self.run / name
        if path.is_file() and path.read_bytes()[-1:] in (b"\n", b""):
            with path.open("ab") as file:
                file.write(data)

    @precondition(lambda self: len(self.model.failing) < MAX_FAILING)
    @rule(
        role=st.sampled_from(["policy", "judge"]),
        task_id=st.sampled_from(TASK_IDS),
        kind=st.sampled_from(sorted(FAILURES)),
    )
    def fail(self, role: str, task_id: str, kind: str) -> None:
        self.model.failing[role, task_id] = kind

    @precondition(lambda self: self.model.failing)
    @rule()
    def recover(self) -> None:
        self.model.recover()

    def can_be_read(self) -> bool:
        """Return whether there are scores, and a judge for verdicts that were lost."""
        if any(role == "judge" for role, _ in self.model.failing):
            return False
        return (self.run / "run.json").is_file() and bool(final_set(self.run))

    @precondition(can_be_read)
    @rule()
    def verify(self) -> None:
        """Score what waits and rescore the rest: no reward changes."""
        with self.nothing_lost_or_paid_twice():
            done = gym("verify", self.run, "--env", self.world.spec, "--json", *self.roles)
        assert done.exit_code == 0, done.stderr
        report = msgspec.json.decode(done.stdout)
        assert (report["num_changed"], report["num_failed"]) == (0, 0)
        self.no_policy_was_asked()

    @precondition(can_be_read)
    @rule()
    def verify_pending(self) -> None:
        with self.nothing_lost_or_paid_twice():
            done = gym("verify", self.run, "--env", self.world.spec, "--pending", *self.roles)
        assert done.exit_code == 0, done.stderr
        self.no_policy_was_asked()

    @precondition(can_be_read)
    @rule()
    def verify_out(self) -> None:
        """Write the rescored run: it equals the first one."""
        out = Path("rescored")
        with self.nothing_lost_or_paid_twice():
            done = gym("verify", self.run, "--env", self.world.spec, "--out", out, *self.roles)
        assert done.exit_code == 0, done.stderr
        assert final_set(out) == final_set(self.run)
        shutil.rmtree(out)
        self.no_policy_was_asked()

    @precondition(can_be_read)
    @rule()
    def metrics(self) -> None:
        """Read the numbers, whatever state the run is in."""
        done = gym("metrics", self.run, "--json", exit_code=0)
        assert msgspec.json.decode(done.stdout)["num_scored"] == len(final_set(self.run))

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(f"--role={role}={role}" for role in self.world.roles)

    def no_policy_was_asked(self) -> None:
        assert {asked.role for asked in self.model.asked} <= {"judge"}

    def teardown(self) -> None:
        """Let one command run undisturbed, and check the law."""
        try:
            if hasattr(self, "world"):
                self.model.recover()
                with self.nothing_lost_or_paid_twice():
                    done = gym(*collect_arguments(self.world, Selection()))
                assert done.exit_code == 0, done.stderr
                check_whole(self.run, undisturbed(self.name))
        finally:
            self.stack.close()


class KilledProcess(DisturbedRun):
    """The same with separate processes that get real signals."""

    def stop(self, selection: Selection, num: int, *, is_killed: bool) -> None:
        number = signal.SIGKILL if is_killed else signal.SIGINT
        arguments = collect_arguments(self.world, selection)
        ended = run_stopped(arguments, self.model, num=num, number=number)
        assert ended.exit_code in {0, 4, -signal.SIGKILL if is_killed else 130}, ended.stderr


# Each step runs a whole command, so that examples are slow.
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

TestDisturbedRun = pytest.mark.slow(DisturbedRun.TestCase)
TestDisturbedRun.settings = settings(
    max_examples=10,
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=QUIET,
)


class ManyDisturbedRuns(DisturbedRun):
    """More and longer examples."""


TestManyDisturbedRuns = pytest.mark.slow(ManyDisturbedRuns.TestCase)
TestManyDisturbedRuns.settings = settings(
    max_examples=20,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=QUIET,
)

TestKilledProcess = pytest.mark.slow(KilledProcess.TestCase)
TestKilledProcess.settings = settings(
    max_examples=8, stateful_step_count=6, deadline=None, suppress_health_check=QUIET
)
