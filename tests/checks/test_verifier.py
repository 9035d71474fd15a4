"""Verifiers that are repeatable, and those that are not."""

import itertools

import pytest

from gymcli import Score, VerifierError
from gymcli.checks.score_checks import speed
from tests.checks.subjects import Sound, finding, subject_of
from tests.pooled import run_pooled


class Group(Sound):
    """Rewards relative to the mean of the group."""

    max_reward = None

    @classmethod
    async def verify_group(cls, rollouts, context):
        mean = sum(rollout.reward for rollout in rollouts) / len(rollouts)
        return [Score(rollout.reward - mean) for rollout in rollouts]


class FirstWins(Group):
    @classmethod
    async def verify_group(cls, rollouts, context):
        return [Score(float(place == 0)) for place, _ in enumerate(rollouts)]


class BrokenGroup(Group):
    @classmethod
    async def verify_group(cls, rollouts, context):
        raise RuntimeError("no agreement")


@pytest.mark.parametrize("environment", [Sound, Group])
def test_repeatable_holds(environment):
    found = finding("repeatable", environment)
    assert (found.status, found.text) == ("ok", "36 records, 5 times each")


def test_repeatable_of_a_verifier_that_counts():
    class Counting(Sound):
        count = itertools.count()

        @classmethod
        async def verify(cls, rollout, context):
            return Score(1.0, details={"call": next(cls.count)})

    found = finding("repeatable", Counting)
    assert (found.status, found.text) == ("failed", "the same record is scored differently")
    assert len(found.task_ids) == 12


def test_repeatable_of_a_verifier_that_fails_later():
    class Tired(Sound):
        count = itertools.count()

        @classmethod
        async def verify(cls, rollout, context):
            if next(cls.count) > 50:
                raise RuntimeError("enough")
            return Score(1.0)

    assert finding("repeatable", Tired).status == "failed"


def test_repeatable_of_a_verifier_that_writes_into_the_record():
    class Growing(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            rollout.task["seen"] = rollout.task.get("seen", 0) + 1
            return Score(1.0)

    found = finding("repeatable", Growing)
    assert (found.status, found.text) == ("failed", "verify changes the record that it scores")


def test_repeatable_of_a_verifier_that_compares_identities():
    """A record that comes from JSON is equal and not the same."""

    class Remembering(Sound):
        seen = {}

        @classmethod
        async def verify(cls, rollout, context):
            first = cls.seen.setdefault(rollout.task_id, rollout.task)
            return Score(float(first is rollout.task))

    assert finding("repeatable", Remembering).status == "failed"


def test_repeatable_of_a_group_that_depends_on_its_order():
    found = finding("repeatable", FirstWins)
    assert found.status == "failed"
    assert found.text == "the same group is scored differently, or by the order of it"


def test_repeatable_of_a_group_that_cannot_be_scored():
    with pytest.raises(VerifierError, match="no agreement"):
        finding("repeatable", BrokenGroup)


def test_nothing_to_repeat_and_nothing_to_time():
    class Crashing(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            raise RuntimeError("no verdict")

    assert "no verdict" in finding("repeatable", Crashing).text
    assert finding("repeatable", Sound, []).status == "n/a"
    assert finding("speed", Crashing).status == "n/a"


def test_speed_is_measured():
    found = finding("speed", Sound)
    assert found.status == "ok"
    assert 0 < found.numbers["p50_milliseconds"] <= found.numbers["p99_milliseconds"]
    assert "slow" not in found.text


def test_speed_of_a_slow_verifier_is_a_note():
    subject = subject_of(Sound)
    subject.verify_seconds += [1.5] * 100
    found = run_pooled(speed(subject))
    assert found.status == "ok"
    assert found.text.endswith(" calls, slow")
