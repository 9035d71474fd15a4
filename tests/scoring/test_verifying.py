"""Where a verifier is called: here, here under a short limit, or in a worker."""

import asyncio
import os
import time

import pytest

from gymcli.deadlines import Alarm
from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.errors import RoleError, VerifierError, VerifierTimeoutError
from gymcli.registry import Registry
from gymcli.roles import StandIn
from gymcli.scoring import Workers, score, score_group
from gymcli.scoring.verifying import HERE_SECONDS
from gymcli.types import Message, Rollout, Score, Verifier

VERIFIER = Verifier("1", "abc")


def told(details=None, reward=1.0):
    return Score(reward, details={"process": os.getpid(), **(details or {})})


def compute(seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


class Quick(Environment[Task]):
    """Is scored at once."""

    class Options(EnvironmentOptions):
        bonus: float = 0.0

    @classmethod
    async def verify(cls, rollout, context):
        if rollout.task.get("fails"):
            raise RoleError("gone")
        return told(reward=1.0 + context.options.bonus)


class Declared(Quick):
    """Is scored in a worker."""

    verifies_in_worker = True


class Slow(Quick):
    """Takes a while."""

    @classmethod
    async def verify(cls, rollout, context):
        compute(2 * HERE_SECONDS)
        return told()


class HeldUp(Quick):
    """Takes a while in the process of the run only."""

    @classmethod
    async def verify(cls, rollout, context):
        if rollout.task["process"] == os.getpid():
            compute(2 * HERE_SECONDS)
        return told()


class Endless(Quick):
    """Never ends."""

    verify_timeout = 0.2

    @classmethod
    async def verify(cls, rollout, context):
        compute(1e9)


class Asking(Quick):
    """Asks a role, and computes."""

    required_roles = ("judge",)
    blocking_timeout = 0.1

    @classmethod
    async def verify(cls, rollout, context):
        await context.roles["judge"].complete([Message(role="user", content="Well?")])
        if rollout.task.get("waits"):
            await asyncio.get_running_loop().create_future()
        compute(rollout.task.get("seconds", 0.0))
        return told()


class Impatient(Asking):
    """Asks a role, and has little time for that."""

    scoring_timeout = 0.1


class Ranked(Quick):
    """Takes a while over a group."""

    @classmethod
    async def verify_group(cls, rollouts, context):
        compute(2 * HERE_SECONDS)
        return [told({"before": rollout.reward}) for rollout in rollouts]


class Replayed(Quick):
    """Plays the record once more, which takes a while."""

    async def setup(self):
        compute(2 * HERE_SECONDS)
        return []

    @classmethod
    async def verify(cls, rollout, context):
        await context.replay(rollout)
        return told()


def scored(environment, *, roles=None, workers=None, options=None, save=None, **task):
    async def run():
        with Alarm() as alarm:
            return await score(
                environment,
                Rollout(task=task, env_version="1"),
                verifier=VERIFIER,
                options=options or environment.Options(),
                roles=roles,
                workers=workers,
                alarm=alarm,
                save=save,
            )

    return asyncio.run(run())


@pytest.fixture(scope="module")
def pool():
    with Workers(1) as workers:
        yield workers


def test_score_calls_a_quick_verifier_here(pool):
    assert scored(Quick, workers=pool).details["process"] == os.getpid()
    assert Quick not in pool.slow


def test_score_calls_a_declared_verifier_in_a_worker(pool):
    after = scored(Declared, workers=pool, options=Declared.Options(bonus=2.0))
    assert after.details["process"] != os.getpid()
    assert after.reward == 3.0
    assert after.verifier == VERIFIER


def test_score_starts_a_worker_where_none_is_given():
    assert scored(Declared).details["process"] != os.getpid()


@pytest.mark.parametrize("environment", [Slow, Replayed])
def test_score_calls_a_slow_verifier_anew_in_a_worker(environment):
    saved = []
    with Workers(1) as workers:
        first = scored(environment, workers=workers, save=lambda: saved.append("first"))
        assert environment in workers.slow
        second = scored(environment, workers=workers, save=lambda: saved.append("second"))
    processes = {first.details["process"], second.details["process"]}
    assert len(processes) == 1
    assert os.getpid() not in processes
    assert saved == ["first"]  # the second was expected to be slow


def test_score_takes_no_class_for_slow_that_was_only_held_up(pool):
    assert scored(HeldUp, workers=pool, process=os.getpid()).details["process"] != os.getpid()
    assert HeldUp not in pool.slow


def test_score_remembers_a_verifier_that_never_ends(pool):
    for _ in range(2):
        with pytest.raises(VerifierTimeoutError, match=r"computed for longer than 0\.2 seconds"):
            scored(Endless, workers=pool)
    assert Endless in pool.slow


def test_score_gives_what_a_verifier_raises_in_a_worker(pool):
    with pytest.raises(RoleError, match="gone"):
        scored(Declared, workers=pool, fails=True)


def test_score_keeps_a_class_here_that_no_worker_finds():
    class Hidden(Slow):
        """Stands in no module."""

        verifies_in_worker = True

    class Lost(Endless):
        """Stands in no module, and never ends."""

    assert scored(Hidden).details["process"] == os.getpid()
    with pytest.raises(VerifierTimeoutError, match=r"computed for longer than 0\.2 seconds"):
        scored(Lost)


def test_score_finds_a_class_of_a_file_in_a_worker(tmp_path, pool):
    path = tmp_path / "filed.py"
    path.write_text(
        "import os\n"
        "from gymcli import Environment, Score, Task\n"
        "class Filed(Environment[Task]):\n"
        '    """Stands in a file."""\n'
        "    verifies_in_worker = True\n"
        "    @classmethod\n"
        "    async def verify(cls, rollout, context):\n"
        "        return Score(1.0, details={'process': os.getpid()})\n"
    )
    spec = f"{path}:Filed"
    environment = Registry((spec,)).find(spec).environment
    assert scored(environment, workers=pool).details["process"] != os.getpid()


def test_score_keeps_a_verifier_here_that_waits(pool):
    judge = {"judge": StandIn(lambda messages: "Well.")}
    assert scored(Asking, roles=judge, workers=pool).details["process"] == os.getpid()
    with pytest.raises(VerifierTimeoutError, match=r"verify computed .* \(blocking_timeout\)"):
        scored(Asking, roles=judge, workers=pool, seconds=1e9)
    with pytest.raises(VerifierTimeoutError, match=r"verify took longer .* \(scoring_timeout\)"):
        scored(Impatient, roles=judge, workers=pool, waits=True)


def test_score_group_calls_a_slow_verifier_anew_in_a_worker(pool):
    async def run():
        with Alarm() as alarm:
            return await score_group(
                Ranked,
                [Rollout(attempt=0), Rollout(attempt=1)],
                verifier=VERIFIER,
                options=Ranked.Options(bonus=1.0),
                roles=[{}, {}],
                workers=pool,
                alarm=alarm,
            )

    scores = asyncio.run(run())
    assert [one.attempt for one in scores] == [0, 1]
    assert all(one.details["process"] != os.getpid() for one in scores)
    assert [one.details["before"] for one in scores] == [2.0, 2.0]


def test_score_does_not_try_again_where_the_workers_were_closed():
    workers = Workers(1)
    workers.close()
    with pytest.raises(VerifierError, match="verify of Declared was not called to its end"):
        scored(Declared, workers=workers)
