"""The new line of a record: only its end is written anew, and only where the score is another."""

import msgspec
import pytest

from gymcli.environment import Environment, Task
from gymcli.scoring.rescored import RescoredLines, rescored
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


@pytest.mark.parametrize("num_added", range(5))
def test_columns_leave_out_what_was_added_in_part(num_added):
    lines = RescoredLines(env="talk")
    lines.add(record(details={"reason": "old"}), Score(0.0))
    columns = (lines.reasons.setdefault, lines.task_ids.append, lines.attempts.append)
    values = ((1, ("x", "y")), ("u",), (0,), (1.0,))
    for add, value in list(zip((*columns, lines.old_rewards.append), values, strict=True))[
        :num_added
    ]:
        add(*value)

    lines.drop_partial()

    [only] = lines
    assert (only.key.task_id, only.old_reason, len(lines), len(lines.reasons)) == ("t", "old", 1, 1)


def test_columns_give_the_results_of_their_lines():
    lines = RescoredLines(env="talk")
    lines.add(record(), Score(0.0))
    lines.add(record(task_id="u", details={"reason": "old"}), Score(1.0))

    same, other = lines
    assert (same.key.task_id, same.is_changed, same.old_reason) == ("t", False, "")
    assert (other.key.task_id, other.old_reward, other.new_reward) == ("u", 0.0, 1.0)
    assert (other.old_reason, other.new_reason) == ("old", "")
