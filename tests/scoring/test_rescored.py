"""The new line of a record: only its end is written anew, and only where the score is another."""

import msgspec
import pytest

from gymcli.environment import Environment, Task
from gymcli.scoring.rescored import LineScores, Numbers, rescored
from gymcli.types import Message, Rollout, Score, Timing, Verifier

NEW = Verifier("2", "new")


class Talk(Environment[Task]):
    """Say anything."""

    version = "2"


def record(**fields):
    return Rollout(
        **{
            "schema_version": 1,
            "task_id": "t",
            "attempt": 0,
            "env": "talk",
            "env_version": "2",
            "messages": [Message(role="assistant", content='","timing":{},"reward":1}')],
            "timing": Timing(started_at=1.0, verify_seconds=0.5),
            "retries": {"E": 1},
            "reward": 0.0,
            "verifier": NEW,
            **fields,
        }
    )


def new_line(before, score, line):
    scored = before.scored(score, NEW, 0.25)
    options = Talk.Options()
    return rescored(before, scored, environment=Talk, options=options, line=line).line


@pytest.mark.parametrize(
    "before",
    [
        record(),
        record(verifier=Verifier()),
        record(timing=Timing()),
        record(env_version="1"),
        record(env_options={"colour": "red"}),
        record(components={"a": 1.0}, metrics={"b": 2.0}, answer="x", details={"reason": "y"}),
    ],
    ids=["same", "no verifier", "no timing", "older version", "other options", "all fields"],
)
def test_a_new_line_is_the_record_with_its_new_score(before):
    line = msgspec.json.encode(before)

    for score in (Score(1.0), Score(0.5, {"c": 1.0}, {"d": 2.0}, "z", {"reason": "w"})):
        expected = before.scored(score, NEW, 0.25)
        expected.env_options, expected.env_version = {}, "2"
        assert msgspec.json.decode(new_line(before, score, line), type=Rollout) == expected


def test_a_line_stays_as_it_is_where_the_score_is_the_same():
    line = msgspec.json.encode(record())

    assert new_line(record(), Score(0.0), line) == line


def test_what_a_newer_version_put_before_the_score_stays():
    line = msgspec.json.encode(record()).replace(b'"task_id"', b'"colour":"red","task_id"')

    assert b'"colour":"red"' in new_line(record(), Score(1.0), line)


@pytest.mark.parametrize("line", [b"", b'{"reward": 0.0, "task_id": "t"}'])
def test_a_line_that_ends_otherwise_is_written_anew(line):
    expected = record().scored(Score(1.0), NEW, 0.25)

    assert new_line(record(), Score(1.0), line) == msgspec.json.encode(expected)


def taken(*records_and_rewards):
    scores = LineScores("talk")
    for before, reward in records_and_rewards:
        scores.take(b"", before, Score(reward), 0.0)
    return scores


class Ring(BaseException):
    """What an alarm may raise between any two steps."""


def torn(number):
    """A record, or a score, of which so many fields can be read until an alarm rings."""
    record_ = record(task_id="u", details={"reason": "x"})

    class Torn:
        reads = 0

        def __getattr__(self, name):
            self.reads += 1
            if self.reads > number:
                raise Ring
            return getattr(record_, name)

    return Torn()


@pytest.mark.parametrize("num_read", range(1, 8))
def test_scores_leave_out_a_record_that_was_taken_in_part(num_read):
    scores = taken((record(details={"reason": "old"}), 0.0))
    both = torn(num_read)
    with pytest.raises(Ring):
        scores.take(b"", both, both, 0.0)

    lines = scores.batch()

    [only] = lines
    assert (only.key.task_id, only.old_reason, len(lines), len(lines.reasons)) == ("t", "old", 1, 1)
    assert (lines.task_ids, lines.num_attempts) == (["t"], [1])


def test_scores_give_the_results_of_their_lines():
    lines = taken((record(), 0.0), (record(task_id="u", details={"reason": "old"}), 1.0)).batch()

    same, other = lines
    assert (same.key.task_id, same.is_changed, same.old_reason) == ("t", False, "")
    assert (other.key.task_id, other.old_reward, other.new_reward) == ("u", 0.0, 1.0)
    assert (other.old_reason, other.new_reason) == ("old", "")


def test_scores_of_a_task_stand_together_and_are_given_as_they_came():
    came = [("b", 3, 0.5), ("a", 1, 1.0), ("b", 0, 0.25), ("c", 0, 0.0), ("a", 0, 2.0)]
    details = [{"reason": task_id} if task_id != "c" else {} for task_id, *_ in came]
    records = [
        record(task_id=task_id, attempt=attempt, reward=reward, details=own)
        for (task_id, attempt, reward), own in zip(came, details, strict=True)
    ]
    lines = taken(*((one, one.reward + 1.0) for one in records)).batch()

    assert (lines.task_ids, lines.num_attempts) == (["b", "a", "c"], [2, 2, 1])
    assert (lines.attempts, list(lines.old_rewards)) == (
        [3, 0, 1, 0, 0],
        [0.5, 0.25, 1.0, 2.0, 0.0],
    )
    assert list(lines.new_rewards) == [1.5, 1.25, 2.0, 3.0, 1.0]
    assert [
        (item.key.task_id, item.key.attempt, item.old_reward, item.new_reward - 1.0)
        for item in lines
    ] == [(*one, one[2]) for one in came]
    assert [item.old_reason for item in lines] == ["b", "a", "b", "", "a"]


@pytest.mark.parametrize("new_reward", [0.0, 1.0])
def test_scores_say_whether_one_is_another_now(new_reward):
    lines = taken((record(reward=0.0), 0.0), (record(reward=0.0), new_reward)).batch()

    assert lines.has_changes == (new_reward == 1.0)


def test_numbers_are_given_where_they_are_others():
    """One by one as in columns; most are the same, and cost nothing."""
    scores = LineScores("talk")
    both = [
        (record(task_id="a", components={"x": 1.0}), Score(0.0, {"x": 1.0})),
        (record(task_id="b", components={"x": 1.0}), Score(0.0, {"x": 0.5}, {"m": 2.0})),
        (record(task_id="a", attempt=1), Score(0.0, {}, {"m": 1.0})),
    ]
    for before, score in both:
        scores.take(b"", before, score, 0.0)
    batch = scores.batch()
    assert batch.has_changes
    expected = [
        None,
        (Numbers({"x": 1.0}, {}), Numbers({"x": 0.5}, {"m": 2.0})),
        (Numbers({}, {}), Numbers({}, {"m": 1.0})),
    ]
    assert [item.numbers for item in batch] == expected
    options = Talk.Options()
    alone = [
        rescored(old, old.scored(score, NEW, 0.0), environment=Talk, options=options, line=None)
        for old, score in both
    ]
    assert [item.numbers for item in alone] == expected
    assert not LineScores("talk").batch().has_changes
