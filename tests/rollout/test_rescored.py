"""The new line of a record: only its end is written anew, and only where the score is another."""

import msgspec
import pytest

from gymcli.environment.contract import Environment
from gymcli.environment.tool import Task
from gymcli.rollout.rescored import Numbers, Rescored, compared
from gymcli.rollout.rescored import new_line as line_of
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
    return line_of(line, before, scored, Talk, Talk.Options())


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


def test_numbers_are_there_where_they_changed():
    """Most are the same, and cost nothing."""
    both = [
        (record(components={"x": 1.0}), Score(0.0, {"x": 1.0})),
        (record(components={"x": 1.0}), Score(0.0, {"x": 0.5}, {"m": 2.0})),
        (record(), Score(0.0, {}, {"m": 1.0})),
    ]
    assert [compared(before, score).numbers for before, score in both] == [
        None,
        (Numbers({"x": 1.0}, {}), Numbers({"x": 0.5}, {"m": 2.0})),
        (Numbers({}, {}), Numbers({}, {"m": 1.0})),
    ]


def test_what_changed_comes_back_from_a_line():
    found = compared(record(details={"reason": "old"}), Score(1.0, {"x": 1.0}))
    found.line = b"with bytes"
    assert msgspec.json.decode(msgspec.json.encode(found), type=Rescored) == found
    assert (found.is_changed, found.old_reason, found.new_reason) == (True, "old", "")
